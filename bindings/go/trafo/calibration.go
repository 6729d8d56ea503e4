package trafo

// #include "trafo.h"
import "C"

import "context"

// calibrated calls f, which makes a model of m, with a corpus and a tokenizer, either of which may be nil. When ctx
// ends the error is ErrCancelled and the error of ctx.
func (m *Model) calibrated(ctx context.Context, origin string, calibration *Corpus, tokenizer *Tokenizer,
	f func(corpus *C.trafo_corpus, subwords *C.trafo_tokenizer, cancel *C.trafo_cancel, out **C.trafo_model) *C.trafo_error,
) (made *Model, err error) {
	err = m.within(ctx, origin, func() error {
		var corpus *C.trafo_corpus
		var subwords *C.trafo_tokenizer
		var sources []*pairBody
		var err error
		if calibration != nil {
			if corpus, err = calibration.hold(origin); err != nil {
				return err
			}
			defer calibration.shared.release()
			sources = calibration.sources
		}
		if tokenizer != nil {
			if subwords, err = tokenizer.hold(origin); err != nil {
				return err
			}
			defer tokenizer.shared.release()
		}
		var out *C.trafo_model
		if err := m.c.core.cancellable(ctx, func(cancel *C.trafo_cancel) *C.trafo_error {
			return f(corpus, subwords, cancel, &out)
		}); err != nil {
			return told(sources, err)
		}
		made = m.c.adoptModel(out)
		return nil
	})
	return made, err
}
