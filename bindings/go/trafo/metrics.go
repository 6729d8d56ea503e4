package trafo

// #include "trafo.h"
import "C"

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

// Version gives the engine's version, as "0.1.0".
func Version() string { return C.GoString(C.trafo_version()) }
