package trafo

// #include "trafo.h"
import "C"

import "context"

// AddedTokens are the tokens that WithTokens adds.
type AddedTokens struct {
	Tokens []string
	// Found only by a tokenizer of ParseSpecial, and usable as a language (WithLanguages). Others are
	// found in every text.
	Special bool
	// The token whose rows the new ones get. "": the mean of the rows of the subwords that the text of
	// each has.
	Like string
}

// WithTokens gives a new model of the same context with tokens after those of its vocabulary, and the
// tokenizer that has them. All other weights are copied. ErrInvalidArgument names the token: it is
// there already, is given twice, is empty or too long, or no text has it; or there is no token Like; or the model has an
// adapter or int8 weights. ErrUnsupported: a vocabulary of bytes or of Marian.
func (m *Model) WithTokens(tokenizer *Tokenizer, added AddedTokens) (model *Model, more *Tokenizer, err error) {
	const origin = "Model.WithTokens"
	names, free := views(added.Tokens)
	defer free()
	err = m.within(context.Background(), origin, func() error {
		handle, err := tokenizer.hold(origin)
		if err != nil {
			return err
		}
		defer tokenizer.shared.release()
		var special C.int32_t
		if added.Special {
			special = 1
		}
		like, length := chars(added.Like)
		var outModel *C.trafo_model
		var outTokenizer *C.trafo_tokenizer
		if err := m.c.core.finish(C.trafo_model_add_tokens(m.ptr, handle, names, C.size_t(len(added.Tokens)), special, like, length, &outModel, &outTokenizer)); err != nil {
			return err
		}
		model = m.c.adoptModel(outModel)
		more, err = newTokenizer(outTokenizer, nil)
		return err
	})
	return model, more, err
}
