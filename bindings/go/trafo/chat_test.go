package trafo_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func TestChat(t *testing.T) {
	plain := newTokenizer(t, nil)
	defer plain.Close()
	messages := []trafo.ChatMessage{{Role: "user", Content: "eins \"<zwei>\"\n"}, {Role: "assistant", Content: "vier"}}
	if _, err := plain.RenderChat(messages, false); !errors.Is(err, trafo.ErrNotFound) {
		t.Error(err)
	}
	const source = "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ eos_token }}{% endfor %}" +
		"{% if add_generation_prompt %}assistant:{% endif %}"
	tokenizer := must[*trafo.Tokenizer](t)(plain.WithChatTemplate(source))
	defer tokenizer.Close()
	if got := must[string](t)(tokenizer.ChatTemplate()); got != source {
		t.Error(got)
	}
	const text = "user:eins \"<zwei>\"\n</s>assistant:vier</s>"
	if got := must[string](t)(tokenizer.RenderChat(messages, false)); got != text {
		t.Errorf("%q", got)
	}
	if got := must[string](t)(tokenizer.RenderChat(messages, true)); got != text+"assistant:" {
		t.Errorf("%q", got)
	}
	tokens := must[trafo.ChatTokens](t)(tokenizer.EncodeChat(messages, false))
	if len(tokens.IDs) != len(tokens.Answers) || !tokens.Answers[len(tokens.Answers)-1] || tokens.Answers[0] ||
		tokens.IDs[len(tokens.IDs)-1] != trafo.TokenEOS {
		t.Error(tokens)
	}
	var answer []int32
	for i, id := range tokens.IDs {
		if tokens.Answers[i] {
			answer = append(answer, id)
		}
	}
	if got := must[string](t)(tokenizer.Decode(answer)); got != "vier" {
		t.Errorf("%q", got)
	}
	// The template is saved beside the vocabulary.
	path := filepath.Join(t.TempDir(), "vocab.spm")
	if err := tokenizer.Save(path); err != nil {
		t.Fatal(err)
	}
	again := must[*trafo.Tokenizer](t)(trafo.LoadTokenizer(path))
	defer again.Close()
	if got := must[trafo.ChatTokens](t)(again.EncodeChat(messages, false)); !slices.Equal(got.IDs, tokens.IDs) {
		t.Error(got.IDs)
	}
	if _, err := plain.WithChatTemplate("\n{% include 'x' %}"); !errors.Is(err, trafo.ErrUnsupported) {
		t.Error(err)
	}
}
