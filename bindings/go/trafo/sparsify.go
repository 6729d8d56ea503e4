package trafo

// #include "trafo.h"
import "C"

import "context"

// SparsifyOptions say which weights Model.Sparsify sets to zero.
type SparsifyOptions struct {
	// Share of the weights of each linear layer that becomes zero, at least 0 and below 1. Default 0.5.
	Sparsity Optional[float64]
	// Whether the score of a weight is |weight| times the norm of its input, compared with the weights of its
	// row (Wanda, arXiv 2306.11695); it needs Calibration. Otherwise it is |weight|, compared with all weights of
	// the matrix. Those with the lowest score become zero.
	Wanda bool
	// Whether two of each four neighbours of a row become zero; Sparsity is 0.5 then.
	TwoOfFour bool
	// Calibration: pairs that show what the layers multiply, which need the model's Tokenizer. Default nil: none.
	Calibration *Corpus
	Tokenizer   *Tokenizer
}

// Sparsify makes a float32 model in which single weights of the linear layers are zero (unstructured pruning);
// embeddings, the output projection, biases and norms stay. The new model is on the same Context, and m does not
// change. Fine-tune it with TrainerOptions.KeepZeros. When ctx ends the error is ErrCancelled and the error of
// ctx. ErrInvalidArgument: an option, Wanda without calibration or with another vocabulary, TwoOfFour and a row
// that is no multiple of 4 weights long, or the model has an adapter. ErrUnsupported: int8 weights. ErrNonFinite:
// a weight, or an input of a layer.
func (m *Model) Sparsify(ctx context.Context, options SparsifyOptions) (*Model, error) {
	c := new(C.trafo_sparsify_options)
	mustInit(C.trafo_sparsify_options_init(c, C.sizeof_trafo_sparsify_options))
	if share, given := options.Sparsity.Get(); given {
		c.sparsity = C.double(share)
	}
	if options.Wanda {
		c.score = C.TRAFO_PRUNE_WANDA
	}
	if options.TwoOfFour {
		c.pattern = C.TRAFO_SPARSITY_2_4
	}
	return m.calibrated(ctx, "Model.Sparsify", options.Calibration, options.Tokenizer,
		func(corpus *C.trafo_corpus, subwords *C.trafo_tokenizer, cancel *C.trafo_cancel, out **C.trafo_model) *C.trafo_error {
			c.calibration, c.tokenizer = corpus, subwords
			return C.trafo_model_sparsify(m.ptr, c, cancel, out)
		})
}

// Zeros is the number of elements of the parameter with this index (of ParameterInfos) that are exactly zero; of
// an int8 weight, of its codes. It reads the parameter.
func (m *Model) Zeros(index int) (int64, error) {
	var zeros C.int64_t
	err := m.in("Model.Zeros", func() *C.trafo_error {
		return C.trafo_model_get_zeros(m.ptr, C.int64_t(index), &zeros)
	})
	return int64(zeros), err
}
