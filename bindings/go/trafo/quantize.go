package trafo

// #include "trafo.h"
import "C"

import "context"

// QuantizeOptions say how Model.Quantize rounds weights. The zero value is int8, each weight to the nearest
// code, in all matrices.
type QuantizeOptions struct {
	Int4      bool     // a scale for each 32 columns of a row; otherwise int8 with a scale for each row
	GPTQ      bool     // int4, each weight with the error of the ones before it (arXiv 2210.17323); needs Calibration
	KeepFloat []string // patterns of names as of Model.Freeze: matrices that stay float32
	// Calibration: pairs that show what the layers multiply, which need the model's Tokenizer. Default nil: none.
	Calibration *Corpus
	Tokenizer   *Tokenizer
}

// Quantize makes a model with quantized weights, for translation and scoring, of a float32 model on a CPU, which
// stays as it is. It computes with int8 codes, also of int4 weights, which Save writes as they are.
// ParameterInfo.SignalToNoise says how much each matrix has lost. ErrNotFound: a pattern matches no matrix.
// ErrInvalidArgument: calibration without a pair or with another vocabulary, GPTQ without Int4 or
// Calibration, a weight that is not finite. ErrUnsupported: a model on a GPU, in another precision, or with
// quantized weights. When ctx ends the error is ErrCancelled and the error of ctx.
func (m *Model) Quantize(ctx context.Context, options QuantizeOptions) (*Model, error) {
	c := new(C.trafo_quantize_options)
	mustInit(C.trafo_quantize_options_init(c, C.sizeof_trafo_quantize_options))
	if options.Int4 {
		c.bits = 4
	}
	if options.GPTQ {
		c.method = C.TRAFO_QUANTIZE_GPTQ
	}
	names, free := views(options.KeepFloat)
	defer free()
	c.keep_float, c.keep_float_count = names, C.size_t(len(options.KeepFloat))
	return m.calibrated(ctx, "Model.Quantize", options.Calibration, options.Tokenizer,
		func(corpus *C.trafo_corpus, subwords *C.trafo_tokenizer, cancel *C.trafo_cancel, out **C.trafo_model) *C.trafo_error {
			c.calibration, c.tokenizer = corpus, subwords
			return C.trafo_model_quantize(m.ptr, c, cancel, out)
		})
}
