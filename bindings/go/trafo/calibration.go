package trafo

// #include "trafo.h"
import "C"

// lentCalibration is what calibration options lend to a call of C, until release.
type lentCalibration struct {
	corpus    *C.trafo_corpus
	tokenizer *C.trafo_tokenizer
	sources   []*pairBody
	held      []func()
}

func (l *lentCalibration) release() {
	for _, release := range l.held {
		release()
	}
}

// lendCalibration holds a corpus and a tokenizer, either of which may be nil.
func lendCalibration(origin string, calibration *Corpus, tokenizer *Tokenizer) (*lentCalibration, error) {
	lent := new(lentCalibration)
	if calibration != nil {
		corpus, err := calibration.hold(origin)
		if err != nil {
			return nil, err
		}
		lent.held = append(lent.held, calibration.shared.release)
		lent.corpus, lent.sources = corpus, calibration.sources
	}
	if tokenizer != nil {
		subwords, err := tokenizer.hold(origin)
		if err != nil {
			lent.release()
			return nil, err
		}
		lent.held = append(lent.held, tokenizer.shared.release)
		lent.tokenizer = subwords
	}
	return lent, nil
}
