package trafo

// #include "trafo.h"
import "C"

import (
	"context"
	"unsafe"
)

// DefaultSampling gives the defaults.
func DefaultSampling() Sampling {
	var s Sampling
	s.fromC(translateDefaults())
	return s
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
	Text   string       `json:"text"`
	Score  float64      `json:"score"`
	Finish FinishReason `json:"finish"`
	Tokens []int32      `json:"tokens"` // ids of the vocabulary, without the end
	// WordScores: with the option WordScores, the natural log-probability of each token, then of the end.
	// They sum to the log-probability. A hypothesis that was cut off at its longest length has none of an
	// end.
	WordScores []float64 `json:"word_scores,omitempty"`
	// Alignment: with the option Alignment, a row for each token that has a word score: its weights over the
	// source tokens that were translated, the end included. A row sums to 1. An empty line has no rows.
	Alignment [][]float32 `json:"alignment,omitempty"`
}

// HardAlignment gives the source token of the largest weight, for each row of the alignment.
func (h *Hypothesis) HardAlignment() []int {
	hard := make([]int, len(h.Alignment))
	for t, row := range h.Alignment {
		for s, weight := range row {
			if weight > row[hard[t]] {
				hard[t] = s
			}
		}
	}
	return hard
}

// Source is a line as the model read it, in tokens, its end included.
type Source struct {
	Tokens int64 `json:"tokens"` // of the line; of a pair of ForceDecode, of both sides
	Used   int64 `json:"used"`   // of them, those that were used: fewer where it was cut
}

// Translations are the hypotheses of every line, in the order of the lines.
type Translations struct {
	Lines     [][]Hypothesis `json:"lines"` // best first
	Sources   []Source       `json:"sources"`
	Truncated int            `json:"truncated"` // sources that were cut
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
	array, free := views(lines)
	defer free()
	return m.decode(ctx, "Model.Translate", tokenizer, len(lines), options, func(handle *C.trafo_tokenizer, settings *C.trafo_translate_options, cancel *C.trafo_cancel, out **C.trafo_translations) *C.trafo_error {
		return C.trafo_translate(m.ptr, handle, array, C.size_t(len(lines)), settings, cancel, out)
	})
}

// TranslateWithPrefixes translates lines whose translations begin as given: prefixes[i], which may be
// empty, belongs to lines[i]. A hypothesis contains its prefix, in text, tokens and scores. An empty line
// with a prefix, and a prefix that leaves no position of the model for another token, are
// ErrInvalidArgument. Otherwise as Translate.
func (m *Model) TranslateWithPrefixes(ctx context.Context, tokenizer *Tokenizer, lines, prefixes []string, options *TranslateOptions) (*Translations, error) {
	const origin = "Model.TranslateWithPrefixes"
	if len(lines) != len(prefixes) {
		return nil, refuse(origin, "%d lines, %d prefixes: each line has one, which may be empty", len(lines), len(prefixes))
	}
	array, free := views(lines)
	defer free()
	begins, freeBegins := views(prefixes)
	defer freeBegins()
	return m.decode(ctx, origin, tokenizer, len(lines), options, func(handle *C.trafo_tokenizer, settings *C.trafo_translate_options, cancel *C.trafo_cancel, out **C.trafo_translations) *C.trafo_error {
		return C.trafo_translate_with_prefixes(m.ptr, handle, array, begins, C.size_t(len(lines)), settings, cancel, out)
	})
}

// decode reads what call makes of so many lines.
func (m *Model) decode(ctx context.Context, origin string, tokenizer *Tokenizer, lines int, options *TranslateOptions, call func(*C.trafo_tokenizer, *C.trafo_translate_options, *C.trafo_cancel, **C.trafo_translations) *C.trafo_error) (*Translations, error) {
	var result *Translations
	err := m.within(ctx, origin, func() error {
		handle, release, err := tokenizer.holdOptional(origin)
		if err != nil {
			return err
		}
		defer release()
		settings := options.c()
		if options != nil && options.Shortlist != nil {
			if settings.shortlist, err = options.Shortlist.hold(origin); err != nil {
				return err
			}
			defer options.Shortlist.shared.release()
		}
		var out *C.trafo_translations
		if err := m.c.core.cancellable(ctx, func(cancel *C.trafo_cancel) *C.trafo_error {
			return call(handle, settings, cancel, &out)
		}); err != nil {
			return err
		}
		defer C.trafo_translations_free(out)
		result, err = newTranslations(out, lines)
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
			hypothesis, err := newHypothesis(out, C.size_t(i), rank)
			if err != nil {
				return nil, err
			}
			result.Lines[i] = append(result.Lines[i], hypothesis)
		}
	}
	return result, nil
}

func newHypothesis(out *C.trafo_translations, index, rank C.size_t) (Hypothesis, error) {
	var text C.trafo_string_view
	var score C.double
	if err := check(C.trafo_translations_get(out, index, rank, &text, &score)); err != nil {
		return Hypothesis{}, err
	}
	var finish C.int32_t
	if err := check(C.trafo_translations_get_finish(out, index, rank, &finish)); err != nil {
		return Hypothesis{}, err
	}
	h := Hypothesis{Text: viewed(text), Score: float64(score), Finish: FinishReason(finish)}
	var count, targets, sources C.size_t
	var tokens *C.int32_t
	if err := check(C.trafo_translations_get_tokens(out, index, rank, &tokens, &count)); err != nil {
		return Hypothesis{}, err
	}
	for _, id := range unsafe.Slice(tokens, count) {
		h.Tokens = append(h.Tokens, int32(id))
	}
	var scores *C.double
	if err := check(C.trafo_translations_get_word_scores(out, index, rank, &scores, &count)); err != nil {
		return Hypothesis{}, err
	}
	for _, s := range unsafe.Slice(scores, count) {
		h.WordScores = append(h.WordScores, float64(s))
	}
	var weights *C.float
	if err := check(C.trafo_translations_get_alignment(out, index, rank, &weights, &targets, &sources)); err != nil {
		return Hypothesis{}, err
	}
	all := unsafe.Slice(weights, targets*sources)
	for t := range targets {
		row := make([]float32, sources)
		for s := range row {
			row[s] = float32(all[int(t)*len(row)+s])
		}
		h.Alignment = append(h.Alignment, row)
	}
	return h, nil
}

// Score is how probable a target is, given its source.
type Score struct {
	LogProbability float64 `json:"log_probability"` // natural
	Tokens         int64   `json:"tokens"`          // of the target, its end included
}

// Score rates given translations; a pair that is too long is ErrInvalidArgument. When ctx ends the error is
// ErrCancelled and the error of ctx.
func (m *Model) Score(ctx context.Context, tokenizer *Tokenizer, source, target []string) ([]Score, error) {
	options := TranslateOptions{LengthPenalty: Some(0.0), Truncate: Some(false)} // scores are log-probabilities then
	given, err := m.forceDecode(ctx, "Model.Score", tokenizer, source, target, &options)
	if err != nil {
		return nil, err
	}
	scores := make([]Score, len(source))
	for i, line := range given.Lines {
		scores[i] = Score{line[0].Score, int64(len(line[0].Tokens)) + 1}
	}
	return scores, nil
}

// ForceDecode gives each target as the one hypothesis of the source beside it, with its score, and with
// word scores and an alignment if the options ask for them. LengthPenalty, BatchTokens and Truncate are
// used as well: with Truncate, a pair that is too long is cut, and Sources, which counts both sides here,
// tells it. options may be nil. When ctx ends the error is ErrCancelled and the error of ctx.
func (m *Model) ForceDecode(ctx context.Context, tokenizer *Tokenizer, source, target []string, options *TranslateOptions) (*Translations, error) {
	return m.forceDecode(ctx, "Model.ForceDecode", tokenizer, source, target, options)
}

func (m *Model) forceDecode(ctx context.Context, origin string, tokenizer *Tokenizer, source, target []string, options *TranslateOptions) (*Translations, error) {
	if len(source) != len(target) {
		return nil, refuse(origin, "%d source lines, %d target lines: pairs are scored", len(source), len(target))
	}
	sources, freeSources := views(source)
	defer freeSources()
	targets, freeTargets := views(target)
	defer freeTargets()
	return m.decode(ctx, origin, tokenizer, len(source), options, func(handle *C.trafo_tokenizer, settings *C.trafo_translate_options, cancel *C.trafo_cancel, out **C.trafo_translations) *C.trafo_error {
		return C.trafo_force_decode(m.ptr, handle, sources, targets, C.size_t(len(source)), settings, cancel, out)
	})
}

// ScoreText gives each line of plain text as the one hypothesis of itself, with the log-probability that a
// decoder-only model gives to each of its tokens and to its end, given </s> and the tokens before it.
// Tokens has the end, too. BeginSource (<s> in place of the first </s>), EndSource (FrameOff: the end is not
// scored), LengthPenalty, WordScores, BatchTokens, Truncate and WindowStride are used; options may be nil. When ctx ends
// the error is ErrCancelled and the error of ctx.
func (m *Model) ScoreText(ctx context.Context, tokenizer *Tokenizer, lines []string, options *TranslateOptions) (*Translations, error) {
	array, free := views(lines)
	defer free()
	return m.decode(ctx, "Model.ScoreText", tokenizer, len(lines), options, func(handle *C.trafo_tokenizer, settings *C.trafo_translate_options, cancel *C.trafo_cancel, out **C.trafo_translations) *C.trafo_error {
		return C.trafo_score_text(m.ptr, handle, array, C.size_t(len(lines)), settings, cancel, out)
	})
}
