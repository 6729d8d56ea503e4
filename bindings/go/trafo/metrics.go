package trafo

// #include "trafo.h"
import "C"

import "context"

// BLEU is the corpus BLEU that sacreBLEU computes by default, and its signature.
func BLEU(hypotheses, references []string, lowercase bool) (score float64, signature string, err error) {
	return metric("BLEU", hypotheses, references, func(h, r *C.trafo_string_view, count C.size_t, score *C.double, signature **C.char) *C.trafo_error {
		return C.trafo_bleu(h, r, count, cBool(lowercase), score, signature)
	})
}

// ChrF is the corpus chrF2 that sacreBLEU computes by default, and its signature.
func ChrF(hypotheses, references []string) (score float64, signature string, err error) {
	return metric("ChrF", hypotheses, references, func(h, r *C.trafo_string_view, count C.size_t, score *C.double, signature **C.char) *C.trafo_error {
		return C.trafo_chrf(h, r, count, score, signature)
	})
}

func evaluationDefaults() *C.trafo_evaluation_options {
	c := new(C.trafo_evaluation_options)
	mustInit(C.trafo_evaluation_options_init(c, C.sizeof_trafo_evaluation_options))
	return c
}

// DefaultEvaluationOptions gives sacreBLEU's defaults: Tokenize13a, with case, no baseline.
func DefaultEvaluationOptions() EvaluationOptions {
	var o EvaluationOptions
	o.fromC(evaluationDefaults())
	return o
}

// hold makes the C struct; release after the call. o may be nil.
func (o *EvaluationOptions) hold(origin string) (c *C.trafo_evaluation_options, release func(), err error) {
	c, release = evaluationDefaults(), func() {}
	if o == nil {
		return c, release, nil
	}
	o.toC(c)
	if o.Tokenizer != nil {
		if c.tokenizer, err = o.Tokenizer.hold(origin); err != nil {
			return nil, nil, err
		}
		release = o.Tokenizer.shared.release
	}
	return c, release, nil
}

// Evaluate computes corpus BLEU and chrF2 as sacreBLEU does, with their parts. references are one or
// more sets with a reference of every line. options may be nil. ErrCancelled: ctx has ended.
func Evaluate(ctx context.Context, hypotheses []string, references [][]string, options *EvaluationOptions) (*Evaluation, error) {
	const origin = "Evaluate"
	settings, release, err := options.hold(origin)
	if err != nil {
		return nil, err
	}
	defer release()
	var baseline *C.trafo_string_view
	if options != nil && options.Baseline != nil {
		if len(options.Baseline) != len(hypotheses) {
			return nil, refuse(origin, "%d hypotheses, %d lines of the baseline: there must be one for each", len(hypotheses), len(options.Baseline))
		}
		array, free := views(options.Baseline)
		defer free()
		baseline = array
	}
	var all []string
	for _, set := range references {
		if len(set) != len(hypotheses) {
			return nil, refuse(origin, "%d hypotheses, %d references: there must be one for each", len(hypotheses), len(set))
		}
		all = append(all, set...)
	}
	h, freeHypotheses := views(hypotheses)
	defer freeHypotheses()
	r, freeReferences := views(all)
	defer freeReferences()
	var e C.trafo_evaluation
	if err := cancellableCall(ctx, origin, func(cancel *C.trafo_cancel) *C.trafo_error {
		return C.trafo_evaluate(h, r, C.size_t(len(hypotheses)), C.size_t(len(references)), baseline, settings, cancel, &e, C.sizeof_trafo_evaluation)
	}); err != nil {
		return nil, err
	}
	result := newEvaluation(&e)
	return &result, nil
}

// MetricScore is the corpus score by a metric that needs translations, as MetricTER. references are one or more
// sets with a reference of every line.
func MetricScore(m Metric, hypotheses []string, references [][]string) (float64, error) {
	var all []string
	for _, set := range references {
		if len(set) != len(hypotheses) {
			return 0, refuse("MetricScore", "%d hypotheses, %d references: there must be one for each", len(hypotheses), len(set))
		}
		all = append(all, set...)
	}
	h, freeHypotheses := views(hypotheses)
	defer freeHypotheses()
	r, freeReferences := views(all)
	defer freeReferences()
	var score C.double
	err := check(C.trafo_metric_score(C.int32_t(m), h, r, C.size_t(len(hypotheses)), C.size_t(len(references)), &score))
	return float64(score), err
}

func metric(origin string, hypotheses, references []string, f func(h, r *C.trafo_string_view, count C.size_t, score *C.double, signature **C.char) *C.trafo_error) (float64, string, error) {
	if len(hypotheses) != len(references) {
		return 0, "", refuse(origin, "%d hypotheses, %d references: there must be one for each", len(hypotheses), len(references))
	}
	h, freeHypotheses := views(hypotheses)
	defer freeHypotheses()
	r, freeReferences := views(references)
	defer freeReferences()
	var score C.double
	var signature *C.char
	if err := check(f(h, r, C.size_t(len(hypotheses)), &score, &signature)); err != nil {
		return 0, "", err
	}
	return float64(score), takeCString(signature), nil
}

// Version gives the engine's version, as "0.1.0". It is empty if the tag trafo_dlopen found no library.
func Version() string { return C.GoString(C.trafo_version()) }

// SentenceScore is what one translation scores by itself, 0 to 100.
type SentenceScore struct {
	BLEU float64 `json:"bleu"` // orders longer than the translation are left out
	ChrF float64 `json:"chrf"`
}

// SentenceScores computes BLEU and chrF2 of every translation by itself against its one reference, as sacreBLEU's sentence scores.
// They choose among translations of a line; their mean is no corpus score. Of the options, which may be nil, Tokenize, Tokenizer and
// Lowercase are used.
func SentenceScores(hypotheses, references []string, options *EvaluationOptions) ([]SentenceScore, error) {
	const origin = "SentenceScores"
	if len(hypotheses) != len(references) {
		return nil, refuse(origin, "%d hypotheses, %d references: there must be one for each", len(hypotheses), len(references))
	}
	settings, release, err := options.hold(origin)
	if err != nil {
		return nil, err
	}
	defer release()
	h, freeHypotheses := views(hypotheses)
	defer freeHypotheses()
	r, freeReferences := views(references)
	defer freeReferences()
	count := len(hypotheses)
	bleu, chrf := make([]C.double, max(count, 1)), make([]C.double, max(count, 1))
	if err := check(C.trafo_sentence_scores(h, r, C.size_t(count), settings, &bleu[0], &chrf[0])); err != nil {
		return nil, err
	}
	scores := make([]SentenceScore, count)
	for i := range scores {
		scores[i] = SentenceScore{BLEU: float64(bleu[i]), ChrF: float64(chrf[i])}
	}
	return scores, nil
}
