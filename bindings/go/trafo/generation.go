package trafo

// #include "trafo.h"
import "C"

import (
	"context"
	"iter"
	"math"
	"runtime"
	"unsafe"
)

// GenerationOptions are settings of a generation. Of TranslateOptions, MaxLength (0: as far as the model has
// positions), MinLength, NBest (samples of each prompt), the penalties, NoRepeatNgramSize, WordScores, Sampling,
// BeginSource and EndSource are used. Without Sampling each token is the most probable one.
type GenerationOptions struct {
	TranslateOptions
	// Stop are texts that end a sequence, also where tokens divide them. The sequence's text ends before the one
	// that is complete first.
	Stop []string `json:"stop,omitempty"`
	// StopTokens are tokens that end a sequence, beside the model's own.
	StopTokens []int32 `json:"stop_tokens,omitempty"`
	// BannedTokens are never generated.
	BannedTokens []int32 `json:"banned_tokens,omitempty"`
	// LogitBias is added to the logits of tokens (OpenAI's logit_bias).
	LogitBias map[int32]float64 `json:"logit_bias,omitempty"`
	// JSONSchema: only texts of JSON values that the schema allows are generated, and then an end; "true" allows
	// every value. docs/guide/generating.md lists the keys that a schema may have. Empty: any text.
	JSONSchema string `json:"json_schema,omitempty"`
	// Alternatives: how many of the most probable tokens of a step each piece has (OpenAI's top_logprobs).
	Alternatives int `json:"alternatives,omitempty"`
	// DraftTokens: how many tokens the draft model (LoadDraft) proposes in a step, at most; 0 to 64. 0: none.
	DraftTokens int `json:"draft_tokens,omitempty"`
}

// c gives both structs of C, which are valid until free; o may be nil.
func (o *GenerationOptions) c() (decoding *C.trafo_translate_options, more *C.trafo_generation_options, free func()) {
	more = new(C.trafo_generation_options)
	mustInit(C.trafo_generation_options_init(more, C.sizeof_trafo_generation_options))
	if o == nil {
		return nil, more, func() {}
	}
	var pinner runtime.Pinner
	stop, freeStop := views(o.Stop)
	more.stop, more.stop_count = stop, C.size_t(len(o.Stop))
	pinned := func(ids []int32) (*C.int32_t, C.size_t) {
		if len(ids) == 0 {
			return nil, 0
		}
		pinner.Pin(first(ids))
		return (*C.int32_t)(first(ids)), C.size_t(len(ids))
	}
	more.stop_tokens, more.stop_token_count = pinned(o.StopTokens)
	more.banned_tokens, more.banned_token_count = pinned(o.BannedTokens)
	bias := make([]C.trafo_token_bias, 0, len(o.LogitBias))
	for token, value := range o.LogitBias {
		bias = append(bias, C.trafo_token_bias{token: C.int32_t(token), bias: C.double(value)})
	}
	if len(bias) > 0 {
		pinner.Pin(first(bias))
		more.logit_bias, more.logit_bias_count = first(bias), C.size_t(len(bias))
	}
	schema, freeSchema := views([]string{o.JSONSchema})
	more.json_schema = viewAt(schema, 0)
	more.alternatives = C.int64_t(o.Alternatives)
	more.draft_tokens = C.int64_t(o.DraftTokens)
	return o.TranslateOptions.c(), more, func() {
		pinner.Unpin()
		freeStop()
		freeSchema()
	}
}

// TokenScore is a token and its natural log-probability.
type TokenScore struct {
	Token          int32   `json:"token"`
	LogProbability float64 `json:"log_probability"`
}

// GenerationPiece is what a token adds to a sequence.
type GenerationPiece struct {
	Sequence int64 `json:"sequence"` // its number
	// Text: whole characters that no later token changes. It may be empty: a token can be a part of a character, or
	// the text may become a stop string.
	Text string `json:"text"`
	// Token is also the one that ends the sequence, which has no text; -1: no token was allowed to follow.
	Token    int32        `json:"token"`
	Finished bool         `json:"finished"` // whether this is the last piece of the sequence
	Finish   FinishReason `json:"finish"`   // why the sequence ends, if Finished
	// LogProbability: with WordScores, the natural log-probability that the model gives to the token, before
	// penalties, biases, bans and temperature; otherwise 0.
	LogProbability float64 `json:"log_probability"`
	// Alternatives are the most probable tokens in place of this one, the most probable first.
	Alternatives    []TokenScore `json:"alternatives,omitempty"`
	PromptTokens    int64        `json:"prompt_tokens"`    // tokens of the prompt
	CachedTokens    int64        `json:"cached_tokens"`    // of them, those whose keys and values were there
	GeneratedTokens int64        `json:"generated_tokens"` // so far, the one that ends the sequence included
	DraftedTokens   int64        `json:"drafted_tokens"`   // that the draft model has proposed so far
	AcceptedTokens  int64        `json:"accepted_tokens"`  // of them, those that were generated
}

// Generator continues texts with a decoder-only model. It keeps the keys and values of what it has read: a prompt
// that begins like a sequence that has ended, such as a conversation with a further message, is not computed from its
// beginning again. Several generators may be made of a model; their steps take turns.
type Generator struct {
	c       *Context
	ptr     *C.trafo_generator
	cleanup runtime.Cleanup
}

// NewGenerator makes a generator of a model after PrepareInference. The KV cache of keptSequences ended sequences
// stays, the newest ones. tokenizer may be nil: prompts are ids then, and pieces have no text. ErrUnsupported: the model
// has an encoder.
func (m *Model) NewGenerator(tokenizer *Tokenizer, keptSequences int) (*Generator, error) {
	const origin = "Model.NewGenerator"
	var g *Generator
	err := m.within(context.Background(), origin, func() error {
		handle, release, err := tokenizer.holdOptional(origin)
		if err != nil {
			return err
		}
		defer release()
		var out *C.trafo_generator
		if err := m.c.core.finish(C.trafo_generator_new(m.ptr, handle, C.int64_t(keptSequences), &out)); err != nil {
			return err
		}
		g = &Generator{c: m.c, ptr: out}
		g.cleanup = runtime.AddCleanup(g, abandoned.run, abandoned{m.c.core, func() { C.trafo_generator_free(out) }})
		return nil
	})
	return g, err
}

// within runs calls of an open generator, unless ctx ends before its turn comes.
func (g *Generator) within(ctx context.Context, origin string, f func() error) error {
	if g == nil || g.c == nil {
		return closed(origin, "the generator")
	}
	nested, err := g.c.core.enterWith(ctx, origin)
	if err != nil {
		return err
	}
	defer g.c.core.leave(nested)
	if g.ptr == nil {
		return closed(origin, "the generator")
	}
	defer runtime.KeepAlive(g)
	return f()
}

// LoadDraft loads a draft model, for speculative decoding: it proposes the tokens of sequences that are started with
// DraftTokens, and the generator's model reads those of a step in one pass. Tokens, texts and log-probabilities are the
// same as without it; on a GPU rounding may, in rare cases, change a token. path is a model.safetensors, or the directory
// of a run, of a smaller model of the same vocabulary. It computes in the precision of the generator's model, and
// replaces a draft model that was loaded. ErrUnsupported: it has an encoder. ErrInvalidArgument: it was trained with
// another vocabulary.
func (g *Generator) LoadDraft(path string) error {
	return g.within(context.Background(), "Generator.LoadDraft", func() error {
		data, length := chars(path)
		return g.c.core.finish(C.trafo_generator_load_draft(g.ptr, data, length))
	})
}

func (g *Generator) start(origin string, options *GenerationOptions, call func(*C.trafo_translate_options, *C.trafo_generation_options, *C.int64_t) *C.trafo_error) (sequence int64, err error) {
	err = g.within(context.Background(), origin, func() error {
		decoding, more, free := options.c()
		defer free()
		if options != nil && options.Shortlist != nil {
			return refuse(origin, "a shortlist is not for generation")
		}
		var number C.int64_t
		err := g.c.core.finish(call(decoding, more, &number))
		sequence = int64(number)
		return err
	})
	return sequence, err
}

// Start adds sequences that continue the prompts, NBest of each, and gives the number of the first one; the others
// follow, prompt by prompt. Sequences that are in flight go on beside them. An empty prompt is the token in front of
// texts. options may be nil. ErrInvalidArgument: a prompt leaves no position of the model for a token, or an option is
// out of range; nothing is added then.
func (g *Generator) Start(prompts []string, options *GenerationOptions) (int64, error) {
	array, free := views(prompts)
	defer free()
	return g.start("Generator.Start", options, func(decoding *C.trafo_translate_options, more *C.trafo_generation_options, first *C.int64_t) *C.trafo_error {
		return C.trafo_generator_start(g.ptr, array, C.size_t(len(prompts)), decoding, more, first)
	})
}

// StartIDs is Start of token ids, such as EncodeChat gives. Nothing is added to a row, and none may be empty.
func (g *Generator) StartIDs(prompts [][]int32, options *GenerationOptions) (int64, error) {
	array, free := idViews(prompts)
	defer free()
	return g.start("Generator.StartIDs", options, func(decoding *C.trafo_translate_options, more *C.trafo_generation_options, first *C.int64_t) *C.trafo_error {
		return C.trafo_generator_start_ids(g.ptr, array, C.size_t(len(prompts)), decoding, more, first)
	})
}

// Next gives the next piece; ok is false if no sequence is left. If each sequence has given its piece of a step, the
// next step computes a token of all sequences in flight, and the prompts of new ones. When ctx ends the error is
// ErrCancelled and the error of ctx, and the sequences stay as they are. ErrNonFinite: logits are NaN or infinite; all
// sequences have ended.
func (g *Generator) Next(ctx context.Context) (piece GenerationPiece, ok bool, err error) {
	err = g.within(ctx, "Generator.Next", func() error {
		var c C.trafo_generation_piece
		if err := g.c.core.cancellable(ctx, func(cancel *C.trafo_cancel) *C.trafo_error {
			return C.trafo_generator_next(g.ptr, cancel, &c, C.sizeof_trafo_generation_piece)
		}); err != nil {
			return err
		}
		if ok = c.sequence >= 0; !ok {
			return nil
		}
		var tokens *C.int32_t
		var scores *C.double
		var count C.size_t
		if err := check(C.trafo_generator_get_alternatives(g.ptr, &tokens, &scores, &count)); err != nil {
			return err
		}
		piece = newGenerationPiece(&c)
		ids, values := unsafe.Slice((*int32)(tokens), count), unsafe.Slice((*float64)(scores), count)
		for i, id := range ids {
			piece.Alternatives = append(piece.Alternatives, TokenScore{id, values[i]})
		}
		return nil
	})
	return piece, ok && err == nil, err
}

func newGenerationPiece(c *C.trafo_generation_piece) GenerationPiece {
	piece := GenerationPiece{
		Sequence:        int64(c.sequence),
		Text:            viewed(c.text),
		Token:           int32(c.token),
		Finished:        c.finished != 0,
		Finish:          FinishReason(c.finish),
		PromptTokens:    int64(c.prompt_tokens),
		CachedTokens:    int64(c.cached_tokens),
		GeneratedTokens: int64(c.generated_tokens),
		DraftedTokens:   int64(c.drafted_tokens),
		AcceptedTokens:  int64(c.accepted_tokens),
	}
	if score := float64(c.log_probability); !math.IsNaN(score) {
		piece.LogProbability = score
	}
	return piece
}

// End ends a sequence, which has no further pieces. A sequence that has ended is passed over. ErrInvalidArgument: there
// is no sequence of this number.
func (g *Generator) End(sequence int64) error {
	return g.within(context.Background(), "Generator.End", func() error {
		return g.c.core.finish(C.trafo_generator_end(g.ptr, C.int64_t(sequence)))
	})
}

// Generate starts sequences and gives their pieces, and the pieces of others in flight, as they come. An error is the last
// thing that it gives. Sequences that have not finished when the loop ends are ended.
func (g *Generator) Generate(ctx context.Context, prompts []string, options *GenerationOptions) iter.Seq2[GenerationPiece, error] {
	return g.pieces(ctx, len(prompts), options, func() (int64, error) { return g.Start(prompts, options) })
}

// GenerateIDs is Generate of token ids.
func (g *Generator) GenerateIDs(ctx context.Context, prompts [][]int32, options *GenerationOptions) iter.Seq2[GenerationPiece, error] {
	return g.pieces(ctx, len(prompts), options, func() (int64, error) { return g.StartIDs(prompts, options) })
}

func (g *Generator) pieces(ctx context.Context, prompts int, options *GenerationOptions, start func() (int64, error)) iter.Seq2[GenerationPiece, error] {
	return func(yield func(GenerationPiece, error) bool) {
		first, err := start()
		if err != nil {
			yield(GenerationPiece{}, err)
			return
		}
		samples := 1
		if options != nil && options.NBest > 0 {
			samples = options.NBest
		}
		defer func() {
			for i := range int64(prompts * samples) {
				_ = g.End(first + i) // it fails only after Close
			}
		}()
		for {
			piece, ok, err := g.Next(ctx)
			if err != nil {
				yield(GenerationPiece{}, err)
				return
			}
			if !ok || !yield(piece, nil) {
				return
			}
		}
	}
}

// Close frees the generator; it may be called more than once.
func (g *Generator) Close() error {
	if g == nil || g.c == nil {
		return nil
	}
	nested, err := g.c.core.enter("Generator.Close")
	if err != nil {
		return err
	}
	defer g.c.core.leave(nested)
	if g.ptr != nil {
		g.cleanup.Stop()
		C.trafo_generator_free(g.ptr)
		g.ptr = nil
	}
	return nil
}
