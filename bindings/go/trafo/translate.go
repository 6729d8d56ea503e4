package trafo

// #include "trafo.h"
import "C"

import "context"

// Sampling draws every token instead of searching; begin with DefaultSampling. What is drawn follows
// from the seed, the number of the line and the place in it alone.
type Sampling struct {
	Temperature float64 // logits are divided by it; default 1
	TopK        int64   // only so many of the most probable tokens; default 0: all
	TopP        float64 // only the fewest tokens with this share of the probability; default 1
	Seed        uint64  // default 1
	FirstLine   int64   // number of the first line: a text in several calls is drawn as in one; default 0
}

// DefaultSampling gives the defaults.
func DefaultSampling() Sampling {
	return Sampling{Temperature: 1, TopP: 1, Seed: 1}
}

// TranslateOptions say how to search; begin with DefaultTranslateOptions.
type TranslateOptions struct {
	Beam          int       // default 5; 1: greedy
	NBest         int       // translations of each line, at most Beam unless they are drawn; default 1
	LengthPenalty float64   // score = log-probability / length^LengthPenalty; default 1
	MaxLength     int64     // tokens; default 0: twice the source plus 10
	BatchTokens   int64     // source tokens times Beam decoded together; default 4096
	Truncate      bool      // a source over the model's limit is cut (default) or an error
	MinLength     int64     // tokens before a translation may end; default 0
	Sampling      *Sampling // nil, the default: beam search
	// Only pieces of the list are chosen among, and of the vocabulary the first so many (100) and of
	// every source piece the best so many (100); nil, the default: all.
	Shortlist                     *Shortlist
	ShortlistFirst, ShortlistBest int64
}

// DefaultTranslateOptions gives the defaults.
func DefaultTranslateOptions() TranslateOptions {
	var o C.trafo_translate_options
	mustInit(C.trafo_translate_options_init(&o, C.sizeof_trafo_translate_options))
	return TranslateOptions{int(o.beam), int(o.n_best), float64(o.length_penalty), int64(o.max_length),
		int64(o.batch_tokens), o.truncate != 0, int64(o.min_length), nil, nil,
		int64(o.shortlist_first), int64(o.shortlist_best)}
}

func (o *TranslateOptions) c() *C.trafo_translate_options {
	if o == nil {
		return nil
	}
	c := new(C.trafo_translate_options)
	mustInit(C.trafo_translate_options_init(c, C.sizeof_trafo_translate_options))
	c.beam = cInt(o.Beam)
	c.n_best = cInt(o.NBest)
	c.length_penalty = C.double(o.LengthPenalty)
	c.max_length = C.int64_t(o.MaxLength)
	c.batch_tokens = C.int64_t(o.BatchTokens)
	c.truncate = cBool(o.Truncate)
	c.min_length = C.int64_t(o.MinLength)
	c.shortlist_first, c.shortlist_best = C.int64_t(o.ShortlistFirst), C.int64_t(o.ShortlistBest)
	if s := o.Sampling; s != nil {
		c.sampling = 1
		c.temperature = C.double(s.Temperature)
		c.top_k = C.int64_t(s.TopK)
		c.top_p = C.double(s.TopP)
		c.seed = C.uint64_t(s.Seed)
		c.first_line = C.int64_t(s.FirstLine)
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
		pieces, err := tokenizer.hold(origin)
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
			return C.trafo_translate(m.ptr, pieces, array, C.size_t(len(lines)), settings, cancel, &out)
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
		pieces, err := tokenizer.hold(origin)
		if err != nil {
			return err
		}
		defer tokenizer.shared.release()
		return m.c.core.finish(C.trafo_score(m.ptr, pieces, sources, targets, C.size_t(len(source)), first(logs), first(tokens)))
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
