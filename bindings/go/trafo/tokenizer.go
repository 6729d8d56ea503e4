package trafo

// #include "trafo.h"
import "C"

import (
	"context"
	"runtime"
	"unsafe"
)

// The ids of the special tokens in SentencePiece vocabularies that are trained here. [Tokenizer.Special] gives the ids of any vocabulary.
const (
	TokenUnk = C.TRAFO_TOKEN_UNK
	TokenBOS = C.TRAFO_TOKEN_BOS
	TokenEOS = C.TRAFO_TOKEN_EOS
	TokenPad = C.TRAFO_TOKEN_PAD
)

// TokenizerOptions say how a tokenizer is trained. Zero fields have their defaults.
type TokenizerOptions struct {
	// Kind is the name of a kind; default "sentencepiece". docs/guide/vocabularies.md lists the kinds and the fields that
	// each takes.
	Kind              string        `json:"kind,omitzero"`
	Vocabulary        int           `json:"vocabulary,omitzero"`         // subwords; default 8000
	CharacterCoverage float64       `json:"character_coverage,omitzero"` // default 1
	BPE               bool          `json:"bpe,omitzero"`                // byte-pair encoding; default: a unigram model
	ByteFallback      bool          `json:"byte_fallback,omitzero"`      // unknown characters become bytes; default: <unk>
	SoftLimit         bool          `json:"soft_limit,omitzero"`         // fewer subwords are accepted when the text has no more
	Normalization     Normalization `json:"normalization,omitzero"`
	// UserSymbols are texts without white space that are one token each, wherever they stand, and not normalised.
	UserSymbols []string `json:"user_symbols,omitzero"`
}

// DefaultTokenizerOptions gives the defaults.
func DefaultTokenizerOptions() TokenizerOptions {
	var o C.trafo_tokenizer_options
	mustInit(C.trafo_tokenizer_options_init(&o, C.sizeof_trafo_tokenizer_options))
	return TokenizerOptions{
		Kind: C.GoStringN(o.kind.data, C.int(o.kind.length)), Vocabulary: int(o.vocabulary), CharacterCoverage: float64(o.character_coverage), BPE: o.bpe != 0,
		ByteFallback: o.byte_fallback != 0, SoftLimit: o.soft_limit != 0, Normalization: Normalization(o.normalization),
	}
}

// c gives the options and a function that frees what they point to.
func (o *TokenizerOptions) c() (*C.trafo_tokenizer_options, func()) {
	if o == nil {
		return nil, func() {}
	}
	c := new(C.trafo_tokenizer_options)
	mustInit(C.trafo_tokenizer_options_init(c, C.sizeof_trafo_tokenizer_options))
	if o.Vocabulary != 0 {
		c.vocabulary = C.int64_t(o.Vocabulary)
	}
	if o.CharacterCoverage != 0 {
		c.character_coverage = C.double(o.CharacterCoverage)
	}
	c.bpe = cBool(o.BPE)
	c.byte_fallback = cBool(o.ByteFallback)
	c.soft_limit = cBool(o.SoftLimit)
	c.normalization = C.int32_t(o.Normalization)
	symbols, free := views(o.UserSymbols)
	c.user_symbols, c.user_symbol_count = symbols, C.size_t(len(o.UserSymbols))
	if o.Kind == "" || o.Kind == C.GoStringN(c.kind.data, C.int(c.kind.length)) {
		return c, free
	}
	kind, freeKind := views([]string{o.Kind})
	c.kind = *kind
	return c, func() { free(); freeKind() }
}

// Tokenizer turns text into token ids and back. Goroutines may use it at once.
type Tokenizer struct {
	shared shared[*C.trafo_tokenizer]
}

func newTokenizer(ptr *C.trafo_tokenizer, e *C.trafo_error) (*Tokenizer, error) {
	if err := check(e); err != nil {
		return nil, err
	}
	t := &Tokenizer{}
	t.shared.ptr = ptr
	t.shared.cleanup = runtime.AddCleanup(t, func(ptr *C.trafo_tokenizer) { C.trafo_tokenizer_free(ptr) }, ptr)
	return t, nil
}

// TrainTokenizer trains on lines of text. options may be nil. When ctx ends the error is ErrCancelled and the error of
// ctx. SentencePiece cannot be stopped once it has read the lines: its training goes on unseen, and the next one waits
// for it.
func TrainTokenizer(ctx context.Context, lines []string, options *TokenizerOptions) (*Tokenizer, error) {
	array, free := views(lines)
	defer free()
	c, freeOptions := options.c()
	defer freeOptions()
	var out *C.trafo_tokenizer
	if err := cancellableCall(ctx, "TrainTokenizer", func(cancel *C.trafo_cancel) *C.trafo_error {
		return C.trafo_tokenizer_train(array, C.size_t(len(lines)), c, cancel, &out)
	}); err != nil {
		return nil, err
	}
	return newTokenizer(out, nil)
}

// LoadTokenizer reads the file of a tokenizer, whose content tells its kind, or the one that [FindVocabulary] finds in a directory.
func LoadTokenizer(path string) (*Tokenizer, error) {
	data, length := chars(path)
	var out *C.trafo_tokenizer
	e := C.trafo_tokenizer_load(data, length, &out)
	return newTokenizer(out, e)
}

// ParseTokenizer reads the bytes of such a file.
func ParseTokenizer(data []byte) (*Tokenizer, error) {
	var out *C.trafo_tokenizer
	e := C.trafo_tokenizer_load_buffer((*C.uint8_t)(first(data)), C.size_t(len(data)), &out)
	return newTokenizer(out, e)
}

func (t *Tokenizer) in(origin string, f func(ptr *C.trafo_tokenizer) *C.trafo_error) error {
	ptr, err := t.hold(origin)
	if err != nil {
		return err
	}
	defer t.shared.release()
	return check(f(ptr))
}

func (t *Tokenizer) hold(origin string) (*C.trafo_tokenizer, error) {
	if t == nil {
		return nil, closed(origin, "the tokenizer")
	}
	return t.shared.hold(origin, "the tokenizer")
}

// Save writes the file of the tokenizer, whole or not at all. In a directory that is there, it gets the name that
// [FindVocabulary] looks for.
func (t *Tokenizer) Save(path string) error {
	return t.in("Tokenizer.Save", func(ptr *C.trafo_tokenizer) *C.trafo_error {
		data, length := chars(path)
		return C.trafo_tokenizer_save(ptr, data, length)
	})
}

// FindVocabulary is the vocabulary file in the directory of a run or a model. ErrNotFound: it has no vocabulary.
func FindVocabulary(directory string) (string, error) {
	data, length := chars(directory)
	var found *C.char
	if err := check(C.trafo_find_vocabulary(data, length, &found)); err != nil {
		return "", err
	}
	return takeCString(found), nil
}

// Kind gives the kind of the tokenizer, by the names of [TokenizerOptions].
func (t *Tokenizer) Kind() (string, error) {
	var kind *C.char
	err := t.in("Tokenizer.Kind", func(ptr *C.trafo_tokenizer) *C.trafo_error {
		return C.trafo_tokenizer_get_kind(ptr, &kind, nil)
	})
	return C.GoString(kind), err
}

// SourceVocabulary gives the number of tokens of the vocabulary of sources, or 0 if they have that
// of targets. Only the kind marian may have two vocabularies. Then Encode returns ids of sources,
// and every other method is about ids of targets.
func (t *Tokenizer) SourceVocabulary() (int, error) {
	var size C.int64_t
	err := t.in("Tokenizer.SourceVocabulary", func(ptr *C.trafo_tokenizer) *C.trafo_error {
		return C.trafo_tokenizer_get_source_vocabulary(ptr, &size)
	})
	return int(size), err
}

// Vocabulary gives the number of tokens, of targets if sources have another vocabulary.
func (t *Tokenizer) Vocabulary() (int, error) {
	var size C.int64_t
	err := t.in("Tokenizer.Vocabulary", func(ptr *C.trafo_tokenizer) *C.trafo_error {
		return C.trafo_tokenizer_get_vocabulary(ptr, &size)
	})
	return int(size), err
}

// Special gives the ids of the special tokens.
func (t *Tokenizer) Special() (SpecialTokens, error) {
	var ids C.trafo_special_tokens
	err := t.in("Tokenizer.Special", func(ptr *C.trafo_tokenizer) *C.trafo_error {
		return C.trafo_tokenizer_get_special(ptr, &ids)
	})
	return newSpecialTokens(&ids), err
}

// Encode gives the ids of a text, without the ids of the sentence's begin and end.
func (t *Tokenizer) Encode(text string) (ids []int32, err error) {
	return t.encode("Tokenizer.Encode", func(ptr *C.trafo_tokenizer, out **C.int32_t, count *C.size_t) *C.trafo_error {
		data, length := chars(text)
		return C.trafo_tokenizer_encode(ptr, data, length, out, count)
	})
}

// EncodeTarget is Encode of a text on the target side. A vocabulary of the kind marian may have a second model for it.
// A tokenizer of two languages begins it with the target language, where Encode begins with the source language.
func (t *Tokenizer) EncodeTarget(text string) (ids []int32, err error) {
	return t.encode("Tokenizer.EncodeTarget", func(ptr *C.trafo_tokenizer, out **C.int32_t, count *C.size_t) *C.trafo_error {
		data, length := chars(text)
		return C.trafo_tokenizer_encode_target(ptr, data, length, out, count)
	})
}

func (t *Tokenizer) encode(origin string, f func(ptr *C.trafo_tokenizer, out **C.int32_t, count *C.size_t) *C.trafo_error) (ids []int32, err error) {
	err = t.in(origin, func(ptr *C.trafo_tokenizer) *C.trafo_error {
		var out *C.int32_t
		var count C.size_t
		if e := f(ptr, &out, &count); e != nil {
			return e
		}
		defer C.trafo_ids_free(out)
		ids = append([]int32{}, unsafe.Slice((*int32)(out), count)...)
		return nil
	})
	return ids, err
}

// Decode gives the text of ids.
func (t *Tokenizer) Decode(ids []int32) (text string, err error) {
	err = t.in("Tokenizer.Decode", func(ptr *C.trafo_tokenizer) *C.trafo_error {
		var out *C.char
		var length C.size_t
		if e := C.trafo_tokenizer_decode(ptr, (*C.int32_t)(first(ids)), C.size_t(len(ids)), &out, &length); e != nil {
			return e
		}
		text = takeString(out, length)
		return nil
	})
	return text, err
}

// Token gives the text of one token.
func (t *Tokenizer) Token(id int32) (token string, err error) {
	err = t.in("Tokenizer.Token", func(ptr *C.trafo_tokenizer) *C.trafo_error {
		var out *C.char
		var length C.size_t
		if e := C.trafo_tokenizer_get_token(ptr, C.int32_t(id), &out, &length); e != nil {
			return e
		}
		token = takeString(out, length)
		return nil
	})
	return token, err
}

// Close frees the tokenizer; it may be called more than once.
func (t *Tokenizer) Close() error {
	if t != nil {
		t.shared.close(func(ptr *C.trafo_tokenizer) { C.trafo_tokenizer_free(ptr) })
	}
	return nil
}
