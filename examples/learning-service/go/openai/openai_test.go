package openai

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/models"
	"github.com/trafo-engine/trafo/examples/learning-service/go/web"
)

func parse(t *testing.T, chat bool, member string) (*asked, error) {
	t.Helper()
	text := `"model": "m", "prompt": "a"`
	if chat {
		text = `"model": "m", "messages": [{"role": "user", "content": "a"}]`
	}
	if name, _, _ := strings.Cut(member, ":"); strings.Contains(text, name) {
		text = strings.Replace(text, name, `"user"`, 1) // the member in place of the one above
	}
	fields, err := web.ParseFields([]byte("{" + text + ", " + member + "}"))
	if err != nil {
		t.Fatal(err)
	}
	return read(fields, chat)
}

func TestAWrongMemberIsNamed(t *testing.T) {
	for _, c := range []struct {
		chat          bool
		member, param string
	}{
		{true, `"model": null`, "model"}, {true, `"messages": []`, "messages"},
		{true, `"messages": [{"role": "tool", "content": "a"}]`, "messages"}, {true, `"messages": [{"role": "user"}]`, "messages"},
		{true, `"messages": [{"role": "user", "content": [{"type": "image_url"}]}]`, "messages"},
		{true, `"messages": [{"role": "user", "content": "a", "tool_calls": [1]}]`, "messages"},
		{true, `"n": 0`, "n"}, {true, `"n": 17`, "n"}, {true, `"max_tokens": 0`, "max_tokens"},
		{true, `"temperature": 2.1`, "temperature"}, {true, `"temperature": "1"`, "temperature"}, {true, `"top_p": 0`, "top_p"},
		{true, `"stop": ["a", "b", "c", "d", "e"]`, "stop"}, {true, `"stop": ""`, "stop"}, {true, `"stream": "yes"`, "stream"},
		{true, `"stream_options": {"include_usage": true}`, "stream_options"}, {true, `"seed": 1.5`, "seed"},
		{true, `"tools": [{"type": "function"}]`, "tools"}, {true, `"logprobs": true`, "logprobs"},
		{false, `"prompt": []`, "prompt"}, {false, `"prompt": [1, 2]`, "prompt"}, {false, `"echo": true`, "echo"},
		// Members that are off, or decide nothing.
		{true, `"tools": [], "logprobs": false, "top_logprobs": 0, "logit_bias": {}, "user": "x", "stop": null`, ""},
		{false, `"suffix": ""`, ""},
	} {
		_, err := parse(t, c.chat, c.member)
		var refusal *web.Refusal
		if param := ""; errors.As(err, &refusal) {
			param = refusal.Param
			if param != c.param {
				t.Errorf("%s: %v", c.member, err)
			}
		} else if c.param != "" || err != nil {
			t.Errorf("%s: %v", c.member, err)
		}
	}
}

func TestLengthsAndMessages(t *testing.T) {
	most := func(chat bool, member string) string {
		a, err := parse(t, chat, member)
		if err != nil {
			t.Fatal(err)
		}
		if a.most == nil {
			return "none"
		}
		return fmt.Sprint(*a.most)
	}
	for _, c := range []struct {
		chat           bool
		member, expect string
	}{
		{true, `"n": 1`, "none"}, {false, `"n": 1`, "16"}, {false, `"model": "translation:rail"`, "none"},
		{true, `"max_tokens": 5, "max_completion_tokens": 7`, "7"},
	} {
		if found := most(c.chat, c.member); found != c.expect {
			t.Error(c, found)
		}
	}
	a, err := parse(t, true, `"messages": [{"role": "developer", "content": "a"},
		{"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}], "name": "Anna"},
		{"role": "assistant", "content": null, "refusal": null, "annotations": []}]`)
	if err != nil || a.messages[0].Role != "system" || a.messages[1].Content != "bc" || *a.messages[1].Name != "Anna" {
		t.Error(a, err)
	}
	if last, err := lastOfUser(a.messages); last != "bc" || err != nil {
		t.Error(last, err)
	}
	if _, err := lastOfUser(a.messages[2:]); err == nil {
		t.Error("nobody has asked")
	}
}

// tiny is a model that was not trained, whose goroutine does not run.
func tiny(t *testing.T, queue int) (*LanguageModel, *trafo.Generator) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	vocabulary := trafo.DefaultTokenizerOptions()
	vocabulary.Vocabulary, vocabulary.SoftLimit = 60, true
	tokenizer, err := trafo.TrainTokenizer(t.Context(), []string{"eins zwei drei", "vier fünf sechs"}, &vocabulary)
	must(err)
	config := trafo.DefaultModelConfig()
	config.Vocabulary, err = tokenizer.Vocabulary()
	must(err)
	config.Architecture, config.DecoderLayers, config.Width = trafo.DecoderLM, 1, 16
	config.FFNWidth, config.Heads, config.MaxPositions = 32, 2, 64
	device, err := trafo.NewContext(trafo.WithThreads(1))
	must(err)
	model, err := device.NewModel(config, 3)
	must(err)
	must(model.PrepareInference())
	generator, err := model.NewGenerator(tokenizer, 1)
	must(err)
	return &LanguageModel{"m", tokenizer, &models.Model{Model: model, Device: device}, make(chan *generation, queue), make(chan struct{})}, generator
}

func ask(t *testing.T, l *LanguageModel, length int) (*generation, context.CancelFunc) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	options := optionsOf(&asked{most: &length, temperature: new(float64)}, 1)
	options.MinLength = length - 1
	g := &generation{ctx: ctx, prompts: []string{"eins"}, options: options}
	if err := l.submit(g); err != nil {
		t.Fatal(err)
	}
	return g, leave
}

func TestClientsThatGoAwayEndTheirSequencesAndNoOthers(t *testing.T) {
	l, generator := tiny(t, 3)
	_, leaveBefore := ask(t, l, 40)
	_, leaveSoon := ask(t, l, 40)
	there, _ := ask(t, l, 4)
	if err := l.submit(&generation{}); fault.KindOf(err) != fault.Unavailable {
		t.Error("the queue is full: ", err)
	}
	leaveBefore()
	clients := map[int64]client{}
	for len(l.requests) > 0 {
		begin(generator, <-l.requests, clients)
	}
	if len(clients) != 2 {
		t.Error(len(clients))
	}
	step(generator, clients)
	leaveSoon()
	for len(clients) > 0 {
		step(generator, clients)
	}
	var last trafo.GenerationPiece
	for !last.Finished {
		var err error
		if last, err = there.next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if last.GeneratedTokens != 4 || last.Finish != trafo.FinishLength || last.Sequence != 0 {
		t.Error(last)
	}
	if _, more, err := generator.Next(t.Context()); more || err != nil {
		t.Error("something is generated for nobody: ", err)
	}
}

func TestAPromptThatIsTooLongIsItsClientsErrorAlone(t *testing.T) {
	l, _ := tiny(t, 8)
	generator, err := l.model.NewGenerator(l.tokenizer, 1)
	if err != nil {
		t.Fatal(err)
	}
	long := &generation{ctx: t.Context(), ids: [][]int32{make([]int32, 65)}, options: optionsOf(&asked{}, 1)}
	if err := l.submit(long); err != nil {
		t.Fatal(err)
	}
	there, _ := ask(t, l, 2)
	go l.work(generator)
	ctx, end := context.WithTimeout(t.Context(), time.Minute)
	defer end()
	if _, err := long.next(ctx); !errors.Is(err, trafo.ErrInvalidArgument) {
		t.Error(err)
	}
	l.Close() // generates what was accepted
	for n := range 2 {
		if piece, err := there.next(ctx); err != nil || piece.Sequence != 0 || piece.Finished != (n == 1) {
			t.Error(piece, err)
		}
	}
}
