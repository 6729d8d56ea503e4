package trafo

// #include "trafo.h"
import "C"

import "context"

// HiddenStates gives what the model computes of every token of the texts and of the end of each text:
// states [T, width] of the encoder, or of a decoder-only model's last layer before the output
// projection. Text i has the rows cuSeqlens[i] to cuSeqlens[i+1]-1, as Context.SegmentMean and
// Context.Attention take them. One pass over all texts, without dropout. The tensors belong to the
// model's context. The pass is recorded while that records: Backward then reaches the parameters of the
// model. A model with a trainer, or prepared for inference, records nothing. ErrInvalidArgument: no
// texts, or one that is no UTF-8 or too long.
func (m *Model) HiddenStates(tokenizer *Tokenizer, texts []string) (states, cuSeqlens *Tensor, err error) {
	const origin = "Model.HiddenStates"
	lines, free := views(texts)
	defer free()
	return m.twoTensors(origin, tokenizer, func(handle *C.trafo_tokenizer, first, second **C.trafo_tensor) *C.trafo_error {
		return C.trafo_model_hidden_states(m.ptr, handle, lines, C.size_t(len(texts)), 1, first, second)
	})
}

// Logits gives the logits [T, vocabulary] of every target token and of the end of each target, given its
// source and the target tokens before it, and the tokens that they predict: labels [T] as
// Context.CrossEntropy takes them. In a decoder-only model the tokens of the sources are rows as well,
// with the label -100, which is ignored. One pass, recorded like HiddenStates, with its errors.
func (m *Model) Logits(tokenizer *Tokenizer, source, target []string) (logits, labels *Tensor, err error) {
	const origin = "Model.Logits"
	if len(source) != len(target) {
		return nil, nil, refuse(origin, "%d source lines, %d target lines: pairs have logits", len(source), len(target))
	}
	sources, freeSources := views(source)
	defer freeSources()
	targets, freeTargets := views(target)
	defer freeTargets()
	return m.twoTensors(origin, tokenizer, func(handle *C.trafo_tokenizer, first, second **C.trafo_tensor) *C.trafo_error {
		return C.trafo_model_logits(m.ptr, handle, sources, targets, C.size_t(len(source)), 1, first, second)
	})
}

// twoTensors adopts what a call with the model and the tokenizer makes.
func (m *Model) twoTensors(origin string, tokenizer *Tokenizer, call func(handle *C.trafo_tokenizer, first, second **C.trafo_tensor) *C.trafo_error) (a, b *Tensor, err error) {
	err = m.within(context.Background(), origin, func() error {
		handle, release, err := tokenizer.holdOptional(origin)
		if err != nil {
			return err
		}
		defer release()
		var first, second *C.trafo_tensor
		if err := m.c.core.finish(call(handle, &first, &second)); err != nil {
			return err
		}
		a, b = m.c.adopt(first), m.c.adopt(second)
		return nil
	})
	return a, b, err
}
