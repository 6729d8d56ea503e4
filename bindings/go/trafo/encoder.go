package trafo

// #include "trafo.h"
import "C"

import "context"

// c is the number of the C constant; that of the zero value is the mean's.
func (value Pooling) c() C.int32_t {
	return C.int32_t(max(value, PoolingMean) - PoolingMean + C.TRAFO_POOLING_MEAN)
}

// Embed gives one vector for each text, [texts, width] in float32, of the hidden states of its tokens:
// their mean (also with pooling 0) or the first one. With normalize, each is divided by its Euclidean norm.
// One pass, recorded like HiddenStates, with its errors.
func (m *Model) Embed(tokenizer *Tokenizer, texts []string, pooling Pooling, normalize bool) (*Tensor, error) {
	lines, free := views(texts)
	defer free()
	return m.oneTensor("Model.Embed", tokenizer, func(handle *C.trafo_tokenizer, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_model_embed(m.ptr, handle, lines, C.size_t(len(texts)), pooling.c(), cBool(normalize), 1, out)
	})
}

// EmbedIDs is Embed of rows of token ids, to which nothing is added; none is empty.
func (m *Model) EmbedIDs(rows [][]int32, pooling Pooling, normalize bool) (*Tensor, error) {
	array, free := idViews(rows)
	defer free()
	return m.oneTensor("Model.EmbedIDs", nil, func(_ *C.trafo_tokenizer, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_model_embed_ids(m.ptr, array, C.size_t(len(rows)), pooling.c(), cBool(normalize), 1, out)
	})
}

// Classify gives the logits of the head of an encoder: [texts, labels] of a head for texts, [W, labels] of a
// head for tokens (a row for the first token of each word; there is white space between words), [T, vocabulary]
// of a head for masked tokens. Text i has the rows cuSeqlens[i] to cuSeqlens[i+1]-1. One pass, recorded like
// HiddenStates, with its errors. ErrUnsupported: the model is no encoder with a head.
func (m *Model) Classify(tokenizer *Tokenizer, texts []string) (logits, cuSeqlens *Tensor, err error) {
	lines, free := views(texts)
	defer free()
	return m.twoTensors("Model.Classify", tokenizer, func(handle *C.trafo_tokenizer, first, second **C.trafo_tensor) *C.trafo_error {
		return C.trafo_model_classify(m.ptr, handle, lines, nil, C.size_t(len(texts)), 1, first, second)
	})
}

// ClassifyPairs is Classify of pairs of texts, for a head for texts.
func (m *Model) ClassifyPairs(tokenizer *Tokenizer, first, second []string) (logits, cuSeqlens *Tensor, err error) {
	const origin = "Model.ClassifyPairs"
	if len(first) != len(second) {
		return nil, nil, refuse(origin, "%d first texts, %d second texts: pairs have labels", len(first), len(second))
	}
	a, freeFirst := views(first)
	defer freeFirst()
	b, freeSecond := views(second)
	defer freeSecond()
	return m.twoTensors(origin, tokenizer, func(handle *C.trafo_tokenizer, out, bounds **C.trafo_tensor) *C.trafo_error {
		return C.trafo_model_classify(m.ptr, handle, a, b, C.size_t(len(first)), 1, out, bounds)
	})
}

// ClassifyIDs is Classify of rows of token ids, to which nothing is added; none is empty. A head for tokens gives
// a row for each token. types is nil (all are 0), or has the token type of each token.
func (m *Model) ClassifyIDs(rows, types [][]int32) (logits, cuSeqlens *Tensor, err error) {
	const origin = "Model.ClassifyIDs"
	if types != nil && len(types) != len(rows) {
		return nil, nil, refuse(origin, "%d rows of ids, %d of token types", len(rows), len(types))
	}
	array, free := idViews(rows)
	defer free()
	typeViews, freeTypes := idViews(types)
	defer freeTypes()
	return m.twoTensors(origin, nil, func(_ *C.trafo_tokenizer, first, second **C.trafo_tensor) *C.trafo_error {
		return C.trafo_model_classify_ids(m.ptr, array, typeViews, C.size_t(len(rows)), 1, first, second)
	})
}

// Labels gives the names of the labels of an encoder's head; none without such a head.
func (m *Model) Labels() (labels []string, err error) {
	config, err := m.Config()
	if err != nil {
		return nil, err
	}
	err = m.within(context.Background(), "Model.Labels", func() error {
		for i := int64(0); i < int64(config.Labels); i++ {
			var name C.trafo_string_view
			if err := m.c.core.finish(C.trafo_model_get_label(m.ptr, C.int64_t(i), &name)); err != nil {
				return err
			}
			labels = append(labels, C.GoStringN(name.data, C.int(name.length)))
		}
		return nil
	})
	return labels, err
}

// WithHead gives a new model of the same context: the encoder with another head. labels are different names for a
// head for texts or tokens, and nil for the others. Weights that the model does not have are drawn from seed, all
// others are copied. ErrInvalidArgument: the model is no encoder, or has an adapter or int8 weights; names that do not
// fit the head.
func (m *Model) WithHead(head EncoderHead, labels []string, seed uint64) (made *Model, err error) {
	names, free := views(labels)
	defer free()
	err = m.within(context.Background(), "Model.WithHead", func() error {
		var out *C.trafo_model
		if err := m.c.core.finish(C.trafo_model_with_head(m.ptr, C.int32_t(head), names, C.size_t(len(labels)), C.uint64_t(seed), &out)); err != nil {
			return err
		}
		made = m.c.adoptModel(out)
		return nil
	})
	return made, err
}

// oneTensor adopts the tensor that a call with the model and the tokenizer makes.
func (m *Model) oneTensor(origin string, tokenizer *Tokenizer, call func(handle *C.trafo_tokenizer, out **C.trafo_tensor) *C.trafo_error) (made *Tensor, err error) {
	err = m.within(context.Background(), origin, func() error {
		handle, release, err := tokenizer.holdOptional(origin)
		if err != nil {
			return err
		}
		defer release()
		var out *C.trafo_tensor
		if err := m.c.core.finish(call(handle, &out)); err != nil {
			return err
		}
		made = m.c.adopt(out)
		return nil
	})
	return made, err
}
