package trafo

// #include <stdlib.h>
// #include "trafo.h"
import "C"

import (
	"context"
	"unsafe"
)

// idViews is an array of views of rows of ids in C memory; free it.
func idViews(rows [][]int32) (array *C.trafo_ids_view, free func()) {
	if len(rows) == 0 {
		return nil, func() {}
	}
	ids := 0
	for _, row := range rows {
		ids += len(row)
	}
	const size = unsafe.Sizeof(C.trafo_ids_view{})
	memory := C.malloc(C.size_t(uintptr(len(rows))*size + uintptr(ids)*unsafe.Sizeof(C.int32_t(0))))
	array = (*C.trafo_ids_view)(memory)
	views := unsafe.Slice(array, len(rows))
	rest := unsafe.Slice((*int32)(unsafe.Add(memory, uintptr(len(rows))*size)), ids)
	for i, row := range rows {
		views[i] = C.trafo_ids_view{ids: (*C.int32_t)(unsafe.SliceData(rest)), count: C.size_t(len(row))}
		rest = rest[copy(rest, row):]
	}
	return array, func() { C.free(memory) }
}

// holdOptional is hold for calls that need no tokenizer: nil is NULL there.
func (t *Tokenizer) holdOptional(origin string) (ptr *C.trafo_tokenizer, release func(), err error) {
	if t == nil {
		return nil, func() {}, nil
	}
	if ptr, err = t.shared.hold(origin, "the tokenizer"); err != nil {
		return nil, nil, err
	}
	return ptr, t.shared.release, nil
}

// ParseSpecial gives the same vocabulary as another tokenizer, for which the name of a special token in a text,
// such as "</s>" or "[INST]", is that token, in Encode and every call that takes a tokenizer and text. A
// SentencePiece model has its control tokens (user-defined ones are read in any text), a tokenizer.json the special
// tokens of its file, and a byte vocabulary none. Other tokenizers never make such a token of a text. Use it for texts of the program alone: in text of its users,
// a name would be a token as well.
func (t *Tokenizer) ParseSpecial() (*Tokenizer, error) {
	ptr, err := t.hold("Tokenizer.ParseSpecial")
	if err != nil {
		return nil, err
	}
	defer t.shared.release()
	var out *C.trafo_tokenizer
	e := C.trafo_tokenizer_parse_special(ptr, &out)
	return newTokenizer(out, e)
}

// WithLanguages gives the same vocabulary as another tokenizer, for texts of two languages, as M2M100 and NLLB-200
// have them: Encode and every call that takes a tokenizer and text put the token of the source language in front of
// a source, and that of the target language in front of a target; a translation begins with it. A language is the
// name of a special token, such as "eng_Latn", or what "__" surrounds in it, such as "en". ErrInvalidArgument: the
// vocabulary has no such language; the message lists some.
func (t *Tokenizer) WithLanguages(source, target string) (*Tokenizer, error) {
	ptr, err := t.hold("Tokenizer.WithLanguages")
	if err != nil {
		return nil, err
	}
	defer t.shared.release()
	from, fromLength := chars(source)
	to, toLength := chars(target)
	var out *C.trafo_tokenizer
	e := C.trafo_tokenizer_with_languages(ptr, from, fromLength, to, toLength, &out)
	return newTokenizer(out, e)
}

// NewCorpusOfIDs pairs source[i] with target[i], rows of token ids that a trainer reads as they are: it adds no
// token and needs no tokenizer. A target should end with the id of </s>, which the model then learns to predict; a
// source of an encoder-decoder ends with it, too. An empty source is for a decoder-lm, which reads </s> in its
// place: the target is plain text. A nil source: all are empty. Pairs with an empty target are left out.
// ErrInvalidArgument: no pair is left, or an id is negative.
func NewCorpusOfIDs(source, target [][]int32) (*Corpus, error) {
	if source != nil && len(source) != len(target) {
		return nil, refuse("NewCorpusOfIDs", "%d sources, %d targets: a corpus is pairs", len(source), len(target))
	}
	sources, freeSources := idViews(source)
	defer freeSources()
	targets, freeTargets := idViews(target)
	defer freeTargets()
	var out *C.trafo_corpus
	e := C.trafo_corpus_new_ids(sources, targets, C.size_t(len(target)), &out)
	return newCorpus(out, e)
}

// SpecialTokens gives the special tokens that the model knows, and the further tokens that end a generated text.
// ErrNotFound: it knows none, as a new model and one that was trained with a tokenizer.
func (m *Model) SpecialTokens() (tokens SpecialTokens, furtherEnds []int32, err error) {
	const origin = "Model.SpecialTokens"
	err = m.within(context.Background(), origin, func() error {
		var c C.trafo_special_tokens
		var ends *C.int32_t
		var count C.size_t
		if err := m.c.core.finish(C.trafo_model_get_special_tokens(m.ptr, &c, &ends, &count)); err != nil {
			return err
		}
		tokens = newSpecialTokens(&c)
		furtherEnds = append(furtherEnds, unsafe.Slice((*int32)(ends), count)...)
		return nil
	})
	return tokens, furtherEnds, err
}

// SetSpecialTokens tells the model the special tokens of its vocabulary, so that it works on token ids without a
// tokenizer; Save keeps them, and an imported model knows those of its directory. furtherEnds end a generated text
// as EOS does. BOS, Pad and Unk may be -1: the vocabulary has none. ErrInvalidArgument: an id is not in the
// vocabulary.
func (m *Model) SetSpecialTokens(tokens SpecialTokens, furtherEnds ...int32) error {
	return m.within(context.Background(), "Model.SetSpecialTokens", func() error {
		c := C.trafo_special_tokens{unk: C.int32_t(tokens.Unk), bos: C.int32_t(tokens.BOS), eos: C.int32_t(tokens.EOS), pad: C.int32_t(tokens.Pad)}
		return m.c.core.finish(C.trafo_model_set_special_tokens(m.ptr, &c, (*C.int32_t)(first(furtherEnds)), C.size_t(len(furtherEnds))))
	})
}

// TranslateIDs translates rows of token ids. The model reads them as they are: nothing is added. A row ends with
// the id of </s>, unless options.EndSource says otherwise; an empty one gives an empty translation. prefixes are the
// first tokens of each translation; nil: none. tokenizer may be nil: the special tokens are then those that the
// model knows (SetSpecialTokens), and hypotheses have Tokens and no Text. options may be nil. ErrInvalidArgument:
// an id is not in the vocabulary. When ctx ends the error is ErrCancelled and the error of ctx.
func (m *Model) TranslateIDs(ctx context.Context, tokenizer *Tokenizer, rows, prefixes [][]int32, options *TranslateOptions) (*Translations, error) {
	const origin = "Model.TranslateIDs"
	if prefixes != nil && len(rows) != len(prefixes) {
		return nil, refuse(origin, "%d rows, %d prefixes: each row has one, which may be empty", len(rows), len(prefixes))
	}
	array, free := idViews(rows)
	defer free()
	begins, freeBegins := idViews(prefixes)
	defer freeBegins()
	return m.decode(ctx, origin, tokenizer, len(rows), options, func(handle *C.trafo_tokenizer, settings *C.trafo_translate_options, cancel *C.trafo_cancel, out **C.trafo_translations) *C.trafo_error {
		return C.trafo_translate_ids(m.ptr, handle, array, begins, C.size_t(len(rows)), settings, cancel, out)
	})
}

// ForceDecodeIDs is ForceDecode of token ids, to which nothing is added: every token of a target is scored, and
// </s> only where its id is the last one. The empty source of a decoder-lm is </s>, so that the target is plain
// text; a nil source: all are empty. The tokenizer may be nil, as for TranslateIDs.
func (m *Model) ForceDecodeIDs(ctx context.Context, tokenizer *Tokenizer, source, target [][]int32, options *TranslateOptions) (*Translations, error) {
	const origin = "Model.ForceDecodeIDs"
	source, err := sourcesOf(origin, source, target)
	if err != nil {
		return nil, err
	}
	sources, freeSources := idViews(source)
	defer freeSources()
	targets, freeTargets := idViews(target)
	defer freeTargets()
	return m.decode(ctx, origin, tokenizer, len(target), options, func(handle *C.trafo_tokenizer, settings *C.trafo_translate_options, cancel *C.trafo_cancel, out **C.trafo_translations) *C.trafo_error {
		return C.trafo_force_decode_ids(m.ptr, handle, sources, targets, C.size_t(len(target)), settings, cancel, out)
	})
}

// sourcesOf gives empty sources for nil.
func sourcesOf(origin string, source, target [][]int32) ([][]int32, error) {
	if source == nil {
		return make([][]int32, len(target)), nil
	}
	if len(source) != len(target) {
		return nil, refuse(origin, "%d sources, %d targets: pairs are decoded", len(source), len(target))
	}
	return source, nil
}

// HiddenStatesIDs is HiddenStates of rows of token ids, to which nothing is added; none is empty.
func (m *Model) HiddenStatesIDs(rows [][]int32) (states, cuSeqlens *Tensor, err error) {
	array, free := idViews(rows)
	defer free()
	return m.twoTensors("Model.HiddenStatesIDs", nil, func(_ *C.trafo_tokenizer, first, second **C.trafo_tensor) *C.trafo_error {
		return C.trafo_model_hidden_states_ids(m.ptr, array, C.size_t(len(rows)), 1, first, second)
	})
}

// LogitsIDs is Logits of token ids, as ForceDecodeIDs takes them.
func (m *Model) LogitsIDs(tokenizer *Tokenizer, source, target [][]int32) (logits, labels *Tensor, err error) {
	const origin = "Model.LogitsIDs"
	if source, err = sourcesOf(origin, source, target); err != nil {
		return nil, nil, err
	}
	sources, freeSources := idViews(source)
	defer freeSources()
	targets, freeTargets := idViews(target)
	defer freeTargets()
	return m.twoTensors(origin, tokenizer, func(handle *C.trafo_tokenizer, first, second **C.trafo_tensor) *C.trafo_error {
		return C.trafo_model_logits_ids(m.ptr, handle, sources, targets, C.size_t(len(target)), 1, first, second)
	})
}
