package models

import (
	"context"
	"errors"
	"slices"

	"github.com/trafo-engine/trafo/bindings/go/trafo"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/store"
)

// longest is the longest sequence that is learned, in tokens: the default of a trainer.
const longest = 256

// Frame says how sentence pairs are read by the base: as a source and its target, or, by a decoder-only model with a
// chat template, as a message of the user and the answer of the assistant.
type Frame struct {
	Tokenizer *trafo.Tokenizer
	Template  string // of conversations; empty if pairs are not conversations
	positions int
}

func newFrame(vocabulary, model string, languages []string) (*Frame, error) {
	config, err := trafo.ReadModelConfig(model)
	if err != nil {
		return nil, err
	}
	tokenizer, err := trafo.LoadTokenizer(vocabulary)
	if err == nil && languages != nil {
		tokenizer, err = tokenizer.WithLanguages(languages[0], languages[1])
	}
	if err != nil {
		return nil, err
	}
	f := &Frame{Tokenizer: tokenizer, positions: config.MaxPositions}
	if config.Architecture == trafo.DecoderLM {
		f.Template, err = tokenizer.ChatTemplate()
		if errors.Is(err, trafo.ErrNotFound) {
			err = nil
		}
	}
	return f, err
}

// Longest is the most tokens of a pair that is learned. Longer pairs are dropped.
func (f *Frame) Longest() int { return min(longest, f.positions) }

// Corpus has pairs as the model reads them.
func (f *Frame) Corpus(pairs []store.Pair) (*trafo.Corpus, error) {
	if f.Template == "" {
		var sources, targets []string
		for _, pair := range pairs {
			sources, targets = append(sources, pair.Source), append(targets, pair.Target)
		}
		return trafo.NewCorpus(sources, targets)
	}
	var prompts, answers [][]int32
	for _, pair := range pairs {
		prompt, answer, err := f.turn(pair)
		if err != nil {
			return nil, err
		}
		prompts, answers = append(prompts, prompt), append(answers, answer)
	}
	return trafo.NewCorpusOfIDs(prompts, answers)
}

// turn gives the tokens that an answer begins after, and those of the answer with its end.
func (f *Frame) turn(pair store.Pair) (prompt, answer []int32, err error) {
	if prompt, err = f.prompt(pair.Source); err != nil {
		return nil, nil, err
	}
	whole, err := f.Tokenizer.EncodeChat([]trafo.ChatMessage{
		{Role: "user", Content: pair.Source}, {Role: "assistant", Content: pair.Target}}, false)
	if err != nil {
		return nil, nil, err
	}
	end := len(whole.IDs)
	for end > 0 && !whole.Answers[end-1] {
		end--
	}
	if end <= len(prompt) || !slices.Equal(whole.IDs[:len(prompt)], prompt) {
		return nil, nil, fault.New(fault.Invalid,
			"by the chat template, the answer to %q does not follow the prompt of an answer", pair.Source)
	}
	return prompt, whole.IDs[len(prompt):end], nil
}

func (f *Frame) prompt(message string) ([]int32, error) {
	tokens, err := f.Tokenizer.EncodeChat([]trafo.ChatMessage{{Role: "user", Content: message}}, true)
	return tokens.IDs, err
}

// Translate gives the translations of lines, or the answers to them.
func (f *Frame) Translate(ctx context.Context, model *trafo.Model, lines []string, options *trafo.TranslateOptions) (*trafo.Translations, error) {
	if f.Template == "" {
		return model.Translate(ctx, f.Tokenizer, lines, options)
	}
	prompts := make([][]int32, len(lines))
	for i, line := range lines {
		var err error
		if prompts[i], err = f.prompt(line); err != nil {
			return nil, err
		}
	}
	framed := *options
	framed.EndSource = trafo.FrameOff
	return model.TranslateIDs(ctx, f.Tokenizer, prompts, nil, &framed)
}
