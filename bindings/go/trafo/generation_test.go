package trafo_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func languageModel(t testing.TB, tokenizer *trafo.Tokenizer) *trafo.Model {
	config := trafo.DefaultModelConfig()
	config.Architecture = trafo.DecoderLM
	config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
	config.DecoderLayers, config.Width, config.FFNWidth, config.Heads, config.MaxPositions = 1, 16, 32, 2, 64
	model := must[*trafo.Model](t)(newContext(t).NewModel(config, 3))
	t.Cleanup(func() { model.Close() })
	ok(t, model.PrepareInference())
	return model
}

func drawing(length int) *trafo.GenerationOptions {
	options := new(trafo.GenerationOptions)
	options.MaxLength, options.Sampling = length, &trafo.Sampling{MinP: 0.01}
	return options
}

func TestGeneration(t *testing.T) {
	tokenizer := newTokenizer(t, nil)
	defer tokenizer.Close()
	model := languageModel(t, tokenizer)
	generator := must[*trafo.Generator](t)(model.NewGenerator(tokenizer, 1))
	defer generator.Close()
	options := drawing(8)
	options.NBest, options.WordScores, options.Alternatives = 2, true, 3
	prompts := []string{"eins zwei", "drei"}
	texts := make([]string, 4)
	for piece, err := range generator.Generate(t.Context(), prompts, options) {
		ok(t, err)
		texts[piece.Sequence] += piece.Text
		if len(piece.Alternatives) != 3 || piece.LogProbability >= 0 {
			t.Error(piece)
		}
	}
	decoding := options.TranslateOptions
	decoding.EndSource = trafo.FrameOff
	translated := must[*trafo.Translations](t)(model.Translate(t.Context(), tokenizer, prompts, &decoding))
	for i, text := range texts {
		if want := translated.Lines[i/2][i%2].Text; text != want {
			t.Errorf("%d: %q, want %q", i, text, want)
		}
	}
	// Sequences end with the loop.
	for range generator.Generate(t.Context(), prompts, options) {
		break
	}
	if _, left, err := generator.Next(t.Context()); left || err != nil {
		t.Error(left, err)
	}
}

func TestDraftModel(t *testing.T) {
	tokenizer := newTokenizer(t, nil)
	defer tokenizer.Close()
	model := languageModel(t, tokenizer)
	path := filepath.Join(t.TempDir(), "draft.safetensors")
	ok(t, model.Save(path))
	generator := must[*trafo.Generator](t)(model.NewGenerator(tokenizer, 0))
	defer generator.Close()
	generated := func(options *trafo.GenerationOptions) (text string, last trafo.GenerationPiece) {
		for piece, err := range generator.Generate(t.Context(), []string{"eins zwei"}, options) {
			ok(t, err)
			text, last = text+piece.Text, piece
		}
		return text, last
	}
	options := drawing(12)
	options.MinLength = 12 // an end is not proposed
	want, _ := generated(options)
	options.DraftTokens = 4
	if _, err := generator.Start([]string{"eins"}, options); !errors.Is(err, trafo.ErrInvalidArgument) {
		t.Error(err)
	}
	ok(t, generator.LoadDraft(path))
	if got, last := generated(options); got != want || last.DraftedTokens == 0 || last.AcceptedTokens != last.DraftedTokens {
		t.Errorf("%q, want %q: %+v", got, want, last)
	}
}

func TestGenerationSession(t *testing.T) {
	tokenizer := newTokenizer(t, nil)
	defer tokenizer.Close()
	model := languageModel(t, tokenizer)
	session := must[*trafo.Generator](t)(model.NewGenerator(tokenizer, 1))
	defer session.Close()
	tokens := func(g *trafo.Generator, prompt []int32) (found []int32, cached int64) {
		for piece, err := range g.GenerateIDs(t.Context(), [][]int32{prompt}, drawing(4)) {
			ok(t, err)
			found, cached = append(found, piece.Token), piece.CachedTokens
		}
		return found, cached
	}
	text, known := []int32{5, 6, 7}, int64(0)
	for range 3 {
		alone := must[*trafo.Generator](t)(model.NewGenerator(tokenizer, 0))
		found, cached := tokens(session, text)
		if want, _ := tokens(alone, text); !slices.Equal(found, want) || cached != known {
			t.Errorf("%v, want %v; %d cached, want %d", found, want, cached, known)
		}
		alone.Close()
		text = append(text, found...)
		known = int64(len(text) - 1)
		text = append(text, 8, 9)
	}
}

func TestGenerationErrors(t *testing.T) {
	tokenizer := newTokenizer(t, func(options *trafo.TokenizerOptions) { options.Kind, options.Vocabulary = "byte", 259 })
	defer tokenizer.Close()
	generator := must[*trafo.Generator](t)(languageModel(t, tokenizer).NewGenerator(tokenizer, 0))
	only := &trafo.GenerationOptions{JSONSchema: `{"enum": [true, null]}`}
	value := ""
	for piece, err := range generator.Generate(t.Context(), []string{"eins"}, only) {
		ok(t, err)
		value += piece.Text
	}
	if value = strings.TrimSpace(value); value != "true" && value != "null" {
		t.Error(value)
	}
	options := drawing(8)
	options.Stop = []string{""}
	_, err := generator.Start([]string{"eins"}, options)
	wantError(t, err, trafo.ErrInvalidArgument)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range generator.Generate(ctx, []string{"eins"}, drawing(8)) {
		last = err
		cancel()
	}
	wantError(t, last, trafo.ErrCancelled, context.Canceled)
	ok(t, generator.Close())
	ok(t, generator.Close())
	if _, _, err := generator.Next(t.Context()); !errors.Is(err, trafo.ErrClosed) {
		t.Error(err)
	}
}

func ExampleModel_NewGenerator() {
	c, err := trafo.NewContext()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	lines := []string{"eins zwei drei", "vier fünf sechs"}
	tokenizer, err := trafo.TrainTokenizer(context.Background(), lines, &trafo.TokenizerOptions{Vocabulary: 60, SoftLimit: true})
	if err != nil {
		log.Fatal(err)
	}
	config, err := trafo.Preset("tiny")
	if err != nil {
		log.Fatal(err)
	}
	config.Architecture = trafo.DecoderLM
	if config.Vocabulary, err = tokenizer.Vocabulary(); err != nil {
		log.Fatal(err)
	}
	model, err := c.NewModel(config, 1) // or LoadModel
	if err != nil {
		log.Fatal(err)
	}
	if err := model.PrepareInference(); err != nil {
		log.Fatal(err)
	}
	generator, err := model.NewGenerator(tokenizer, 1)
	if err != nil {
		log.Fatal(err)
	}
	defer generator.Close()
	options := trafo.GenerationOptions{Stop: []string{"\n\n"}}
	options.MaxLength, options.Sampling = 5, &trafo.Sampling{Temperature: 0.7, TopP: 0.9}
	tokens := 0
	for piece, err := range generator.Generate(context.Background(), []string{"eins zwei"}, &options) {
		if err != nil {
			log.Fatal(err)
		}
		tokens++ // and print piece.Text
		if piece.Finished {
			fmt.Println("ends after 5 tokens at most:", tokens <= 5)
		}
	}
	// Output: ends after 5 tokens at most: true
}
