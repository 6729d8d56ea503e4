package trafo

// #include "trafo.h"
import "C"

import "context"

// FactorizeOptions say how small Model.Factorize makes matrices: by Rank or by Ratio.
type FactorizeOptions struct {
	Rank   int      // of all factors; 0: Ratio chooses the ranks
	Ratio  float64  // share of the weights of the matrices that stays, above 0 and below 1; 0: Rank says
	Layers []string // patterns of names as of Model.Freeze: the matrices; none: all linear layers
	// Pairs that show what the layers multiply, and the model's Tokenizer. Both are needed.
	Calibration *Corpus
	Tokenizer   *Tokenizer
}

// Factorize makes a float32 model in which matrices NAME [rows, columns] of linear layers are the product of two
// factors, NAME.u [rows, rank] and NAME.v [rank, columns], whose outputs on the calibration pairs differ least
// (whitened singular value decomposition). Embeddings and the output projection stay, and so does a matrix whose
// factors would be no smaller. ParameterInfo.SignalToNoise of NAME.u is measured on the layer's outputs. The new
// model is on the same Context, and m does not change. Fine-tune it. When ctx ends the error is ErrCancelled and
// the error of ctx. ErrInvalidArgument: an option, no calibration pair or another vocabulary, a Ratio that is too
// low, a Rank that makes no matrix smaller, or the model is factorized already or has an adapter. ErrNotFound: a
// pattern matches no matrix. ErrUnsupported: int8 weights. ErrNonFinite: a weight, or an input of a layer.
func (m *Model) Factorize(ctx context.Context, options FactorizeOptions) (*Model, error) {
	c := new(C.trafo_factorize_options)
	mustInit(C.trafo_factorize_options_init(c, C.sizeof_trafo_factorize_options))
	c.rank, c.ratio = C.int64_t(options.Rank), C.double(options.Ratio)
	names, free := views(options.Layers)
	defer free()
	c.layers, c.layers_count = names, C.size_t(len(options.Layers))
	return m.calibrated(ctx, "Model.Factorize", options.Calibration, options.Tokenizer,
		func(corpus *C.trafo_corpus, subwords *C.trafo_tokenizer, cancel *C.trafo_cancel, out **C.trafo_model) *C.trafo_error {
			c.calibration, c.tokenizer = corpus, subwords
			return C.trafo_model_factorize(m.ptr, c, cancel, out)
		})
}
