package trafo

// #include "trafo.h"
import "C"

import "context"

// PruneOptions says what Model.Prune leaves. A field of zero means all. A decoder-lm ignores what is
// said of the encoder.
type PruneOptions struct {
	// Shares of the feed-forward columns of a layer that stay, at most 1; rounded up to a multiple of 8
	// columns.
	EncoderFFNShare, DecoderFFNShare float64
	// Shares of the attention heads of a layer that stay, at most 1; at least one head. Query heads that
	// share keys and values stay or go together.
	EncoderHeadShare, DecoderHeadShare float64
	EncoderLayers, DecoderLayers       int // that stay
}

func (o PruneOptions) c() *C.trafo_prune_options {
	var c C.trafo_prune_options
	mustInit(C.trafo_prune_options_init(&c, C.sizeof_trafo_prune_options))
	setUnlessZero(&c.encoder_ffn_share, C.double(o.EncoderFFNShare))
	setUnlessZero(&c.decoder_ffn_share, C.double(o.DecoderFFNShare))
	setUnlessZero(&c.encoder_head_share, C.double(o.EncoderHeadShare))
	setUnlessZero(&c.decoder_head_share, C.double(o.DecoderHeadShare))
	c.encoder_layers, c.decoder_layers = C.int64_t(o.EncoderLayers), C.int64_t(o.DecoderLayers)
	return &c
}

// Prune makes a smaller float32 model by removing whole layers, attention heads and feed-forward
// columns. calibration says which are needed least; pairs of more than 256 tokens a side are left out.
// The new model is on the same Context, and m does not change. It has lost quality: fine-tune it. When
// ctx ends the error is ErrCancelled and the error of ctx. ErrInvalidArgument: an option, or the model
// has an adapter. ErrUnsupported: int8 weights.
func (m *Model) Prune(ctx context.Context, tokenizer *Tokenizer, calibration *Corpus, options PruneOptions) (*Model, error) {
	const origin = "Model.Prune"
	if tokenizer == nil {
		return nil, closed(origin, "the tokenizer")
	}
	if calibration == nil {
		return nil, closed(origin, "the corpus")
	}
	return m.calibrated(ctx, origin, calibration, tokenizer,
		func(corpus *C.trafo_corpus, subwords *C.trafo_tokenizer, cancel *C.trafo_cancel, out **C.trafo_model) *C.trafo_error {
			return C.trafo_model_prune(m.ptr, subwords, corpus, options.c(), cancel, out)
		})
}
