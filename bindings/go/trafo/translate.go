package trafo

// #include "trafo.h"
import "C"

import "context"

// Sampling draws every token instead of searching; begin with DefaultSampling. What is drawn follows
// from the seed, the number of the line and the place in it alone.
type Sampling struct {
	// options: begin Sampling (scripts/generate_options.py)
	// Logits are divided by it. Default 1.
	Temperature float64
	// Only so many of the most probable tokens. Default 0: all.
	TopK int64
	// Only the fewest tokens that have this share of the probability together (Holtzman et al., arXiv
	// 1904.09751). Default 1.
	TopP float64
	// Seed of the draws. Default 1.
	Seed uint64
	// Number of the first line, so that a text in several calls is drawn as in one. Default 0.
	FirstLine int64
	// options: end
}

// DefaultSampling gives the defaults.
func DefaultSampling() Sampling {
	var s Sampling
	s.fromC(translateDefaults())
	return s
}

// TranslateOptions say how to search; begin with DefaultTranslateOptions.
type TranslateOptions struct {
	// options: begin TranslateOptions (scripts/generate_options.py)
	// Hypotheses kept of each sentence. 1 is greedy search. Default 5.
	Beam int64
	// Hypotheses returned of each sentence, at most Beam. With Sampling: translations drawn of each sentence.
	// Default 1.
	NBest int64
	// The score of a hypothesis is log-probability / tokens^length_penalty, its end counted (Marian's
	// --normalize). 0: no normalisation. Default 1.
	LengthPenalty float64
	// Longest translation in tokens. Default 0: twice the source plus 10, at most 200.
	MaxLength int64
	// Tokens before a translation may end. Default 0.
	MinLength int64
	// Source tokens times Beam of the sentences that are decoded together. Default 4096.
	BatchTokens int64
	// Whether a source over the model's limit is cut. Otherwise it is INVALID_ARGUMENT. Default true.
	Truncate bool
	// With a shortlist: the first so many tokens of the vocabulary are chosen among as well. Default 100.
	ShortlistFirst int64
	// With a shortlist: the best so many translations of each source token are chosen among. Default 100.
	ShortlistBest int64
	// options: end

	// Sampling draws every token instead of searching. Default nil: beam search.
	Sampling *Sampling
	// Shortlist: only tokens of the list are chosen among. Default nil: the whole vocabulary.
	Shortlist *Shortlist
}

func translateDefaults() *C.trafo_translate_options {
	c := new(C.trafo_translate_options)
	mustInit(C.trafo_translate_options_init(c, C.sizeof_trafo_translate_options))
	return c
}

// DefaultTranslateOptions gives the defaults.
func DefaultTranslateOptions() TranslateOptions {
	var o TranslateOptions
	o.fromC(translateDefaults())
	return o
}

func (o *TranslateOptions) c() *C.trafo_translate_options {
	if o == nil {
		return nil
	}
	c := translateDefaults()
	o.toC(c)
	if o.Sampling != nil {
		c.sampling = 1
		o.Sampling.toC(c)
	}
	return c
}

// Hypothesis is a translation and its score.
type Hypothesis struct {
	Text  string
	Score float64
}

// Source is a line as the model read it, in tokens, its end included.
type Source struct {
	Tokens int64 // of the line
	Used   int64 // of them, those that were translated: fewer where it was cut
}

// Translations are the hypotheses of every line, in the order of the lines.
type Translations struct {
	Lines     [][]Hypothesis // best first
	Sources   []Source
	Truncated int // sources that were cut
}

// Best gives the best translation of every line.
func (t *Translations) Best() []string {
	best := make([]string, len(t.Lines))
	for i, line := range t.Lines {
		if len(line) > 0 {
			best[i] = line[0].Text
		}
	}
	return best
}

// Translate translates lines, batched by length. An empty line gives an empty translation. options
// may be nil. When ctx ends the error is ErrCancelled and the error of ctx.
func (m *Model) Translate(ctx context.Context, tokenizer *Tokenizer, lines []string, options *TranslateOptions) (*Translations, error) {
	const origin = "Model.Translate"
	var result *Translations
	err := m.within(ctx, origin, func() error {
		handle, err := tokenizer.hold(origin)
		if err != nil {
			return err
		}
		defer tokenizer.shared.release()
		settings := options.c()
		if options != nil && options.Shortlist != nil {
			if settings.shortlist, err = options.Shortlist.hold(origin); err != nil {
				return err
			}
			defer options.Shortlist.shared.release()
		}
		array, free := views(lines)
		defer free()
		var out *C.trafo_translations
		failure, err := cancellable(ctx, func(cancel *C.trafo_cancel) *C.trafo_error {
			return C.trafo_translate(m.ptr, handle, array, C.size_t(len(lines)), settings, cancel, &out)
		})
		if err != nil {
			return err
		}
		if err := m.c.core.finish(failure); err != nil {
			return withContext(ctx, err, false)
		}
		defer C.trafo_translations_free(out)
		result, err = newTranslations(out, len(lines))
		return err
	})
	return result, err
}

func newTranslations(out *C.trafo_translations, lines int) (*Translations, error) {
	result := &Translations{Lines: make([][]Hypothesis, lines), Sources: make([]Source, lines)}
	var truncated C.size_t
	if err := check(C.trafo_translations_get_truncated(out, &truncated)); err != nil {
		return nil, err
	}
	result.Truncated = int(truncated)
	for i := range result.Lines {
		var tokens, used C.int64_t
		if err := check(C.trafo_translations_get_source(out, C.size_t(i), &tokens, &used)); err != nil {
			return nil, err
		}
		result.Sources[i] = Source{int64(tokens), int64(used)}
		var count C.size_t
		if err := check(C.trafo_translations_get_count(out, C.size_t(i), &count)); err != nil {
			return nil, err
		}
		for rank := range count {
			var text C.trafo_string_view
			var score C.double
			if err := check(C.trafo_translations_get(out, C.size_t(i), rank, &text, &score)); err != nil {
				return nil, err
			}
			result.Lines[i] = append(result.Lines[i], Hypothesis{viewed(text), float64(score)})
		}
	}
	return result, nil
}

// Score is how probable a target is, given its source.
type Score struct {
	LogProbability float64 // natural
	Tokens         int64   // of the target, its end included
}

// Score rates given translations.
func (m *Model) Score(tokenizer *Tokenizer, source, target []string) ([]Score, error) {
	const origin = "Model.Score"
	if len(source) != len(target) {
		return nil, refuse(origin, "%d source lines, %d target lines: pairs are scored", len(source), len(target))
	}
	sources, freeSources := views(source)
	defer freeSources()
	targets, freeTargets := views(target)
	defer freeTargets()
	logs, tokens := make([]C.double, len(source)), make([]C.int64_t, len(source))
	err := m.within(context.Background(), origin, func() error {
		handle, err := tokenizer.hold(origin)
		if err != nil {
			return err
		}
		defer tokenizer.shared.release()
		return m.c.core.finish(C.trafo_score(m.ptr, handle, sources, targets, C.size_t(len(source)), first(logs), first(tokens)))
	})
	if err != nil {
		return nil, err
	}
	scores := make([]Score, len(source))
	for i := range scores {
		scores[i] = Score{float64(logs[i]), int64(tokens[i])}
	}
	return scores, nil
}
