package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"github.com/trafo-engine/trafo/examples/learning-service/go/api"
	"github.com/trafo-engine/trafo/examples/learning-service/go/web"
)

const (
	completion = 16 // tokens of a completion of a language model if the request does not say how many: OpenAI's default
	mostStop   = 4
)

// withoutEffect are members that decide nothing here.
var withoutEffect = []string{"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}

// message is a message as templates read it.
type message struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Name    *string `json:"name,omitempty"`
}

// asked is a request with the defaults that do not depend on the model.
type asked struct {
	model                             string
	chat                              bool
	prompts                           []string  // to be continued or translated; of completions
	messages                          []message // to be answered; of chats
	count                             int       // choices of each prompt
	most                              *int      // tokens of a choice
	temperature, topP                 *float64
	presencePenalty, frequencyPenalty float64
	seed                              uint64 // a drawn one if the request has none
	stop                              []string
	stream, withUsage                 bool
}

// number takes a number in a range.
func number(f web.Fields, name string, least, most float64) (*float64, error) {
	what := fmt.Sprintf("a number from %g to %g", least, most)
	value, err := web.Take[float64](f, name, what)
	if value != nil && (*value < least || *value > most) {
		return nil, web.About(name, "is %s", what)
	}
	return value, err
}

// counted takes an integer from 1.
func counted(f web.Fields, name string, most int) (*int, error) {
	what := fmt.Sprintf("an integer from 1 to %d", most)
	value, err := web.Take[int](f, name, what)
	if value != nil && (*value < 1 || *value > most) {
		return nil, web.About(name, "is %s", what)
	}
	return value, err
}

// read takes the members of a request. Members that the service does not know are refused, unless they are off: null,
// false, 0 or empty.
func read(f web.Fields, chat bool) (*asked, error) {
	a := &asked{chat: chat, count: 1, seed: rand.Uint64()}
	var err error
	steps := []func(){
		func() { a.model, err = web.Need[string](f, "model", "a string") },
		func() {
			if chat {
				a.messages, err = messages(f)
			} else {
				a.prompts, err = prompts(f)
			}
		},
		func() { err = a.readLength(f) },
		func() {
			if a.topP, err = number(f, "top_p", 0, 1); a.topP != nil && *a.topP == 0 {
				err = web.About("top_p", "must be above 0")
			}
		},
		func() { a.stream, err = web.TakeOr(f, "stream", "true or false", false) },
		func() {
			var count *int
			if count, err = counted(f, "n", api.MostBeam); count != nil {
				a.count = *count
			}
		},
		func() { a.temperature, err = number(f, "temperature", 0, 2) },
		func() { err = penalty(f, "presence_penalty", &a.presencePenalty) },
		func() { err = penalty(f, "frequency_penalty", &a.frequencyPenalty) },
		func() {
			var seed *int64
			if seed, err = web.Take[int64](f, "seed", "an integer of 64 bits"); seed != nil {
				a.seed = uint64(*seed)
			}
		},
		func() { a.stop, err = stops(f) },
		func() { a.withUsage, err = withUsage(f, a.stream) },
		func() { err = end(f) },
	}
	for _, step := range steps {
		if step(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *asked) readLength(f web.Fields) (err error) {
	if a.most, err = counted(f, "max_tokens", math.MaxInt32); err != nil {
		return err
	}
	if a.chat {
		newer, err := counted(f, "max_completion_tokens", math.MaxInt32)
		if newer != nil {
			a.most = newer
		}
		return err
	}
	if a.most == nil && !strings.HasPrefix(a.model, translation) {
		most := completion
		a.most = &most
	}
	return nil
}

func penalty(f web.Fields, name string, into *float64) error {
	value, err := number(f, name, -2, 2)
	if value != nil {
		*into = *value
	}
	return err
}

func prompts(f web.Fields) ([]string, error) {
	what := fmt.Sprintf("a string or a list of 1 to %d strings", api.MostLines)
	found, err := web.Need[web.Texts](f, "prompt", what)
	if err == nil && (len(found) == 0 || len(found) > api.MostLines) {
		err = web.About("prompt", "is %s", what)
	}
	return found, err
}

func stops(f web.Fields) ([]string, error) {
	what := fmt.Sprintf("a string or a list of at most %d strings, none of them empty", mostStop)
	found, err := web.TakeOr(f, "stop", what, web.Texts{})
	if len(found) > mostStop || slices.Contains(found, "") {
		err = web.About("stop", "is %s", what)
	}
	return found, err
}

func withUsage(f web.Fields, stream bool) (bool, error) {
	options, err := web.Take[web.Fields](f, "stream_options", "an object")
	if options == nil || err != nil {
		return false, err
	}
	if !stream {
		return false, web.About("stream_options", `is for requests with "stream"`)
	}
	with, err := web.TakeOr(*options, "include_usage", "true or false", false)
	if err == nil {
		err = end(*options)
	}
	return with, err
}

// end refuses members that were not taken.
func end(f web.Fields) error {
	for name, value := range f {
		if !slices.Contains(withoutEffect, name) && !isOff(value) {
			return &web.Refusal{Status: http.StatusBadRequest, Message: fmt.Sprintf("%q is not supported", name),
				Param: name, Code: "unsupported_parameter"}
		}
	}
	return nil
}

func isOff(text json.RawMessage) bool {
	var value any
	if json.Unmarshal(text, &value) != nil {
		return false
	}
	switch value := value.(type) {
	case nil:
		return true
	case bool:
		return !value
	case float64:
		return value == 0
	case string:
		return value == ""
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return false
}

func messages(f web.Fields) ([]message, error) {
	list, err := web.Need[[]web.Fields](f, "messages", "a list of objects")
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, web.About("messages", "is empty")
	}
	found := make([]message, len(list))
	for i, members := range list {
		if found[i], err = readMessage(members); err != nil {
			return nil, &web.Refusal{Status: http.StatusBadRequest, Message: fmt.Sprintf("message %d: %v", i+1, err), Param: "messages"}
		}
	}
	return found, nil
}

// readMessage has the content as a text.
func readMessage(f web.Fields) (m message, err error) {
	if m.Role, err = web.Need[string](f, "role", "a string"); err != nil {
		return m, err
	}
	switch m.Role {
	case "developer":
		m.Role = "system" // OpenAI's newer name of it, which templates do not know
	case "system", "user", "assistant":
	default:
		return m, web.About("role", "is system, developer, user or assistant")
	}
	content, err := web.Take[json.RawMessage](f, "content", "a text")
	if err != nil {
		return m, err
	}
	if content == nil && m.Role != "assistant" {
		return m, web.About("content", "is a string or a list of texts")
	}
	if content != nil {
		if m.Content, err = contentOf(*content); err != nil {
			return m, err
		}
	}
	if m.Name, err = web.Take[string](f, "name", "a string"); err != nil {
		return m, err
	}
	return m, end(f)
}

func contentOf(content json.RawMessage) (string, error) {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text, nil
	}
	var parts []json.RawMessage
	if json.Unmarshal(content, &parts) != nil {
		return "", web.About("content", "is a string or a list of texts")
	}
	var all strings.Builder
	for _, part := range parts {
		if !bytes.HasPrefix(part, []byte("{")) {
			return "", web.About("content", "has a part that is no object")
		}
		f, err := web.ParseFields(part)
		if err != nil {
			return "", err
		}
		if kind, err := web.TakeOr(f, "type", "a string", ""); err != nil || kind != "text" {
			return "", web.About("content", `has a part whose type is not "text"`)
		}
		text, err := web.Take[string](f, "text", "a string")
		if err != nil {
			return "", err
		}
		if err := end(f); err != nil {
			return "", err
		}
		if text == nil {
			return "", web.About("content", "has a part without a text")
		}
		all.WriteString(*text)
	}
	return all.String(), nil
}

// lastOfUser is the text of the last message of the user.
func lastOfUser(messages []message) (string, error) {
	for _, m := range slices.Backward(messages) {
		if m.Role == "user" {
			return m.Content, nil
		}
	}
	return "", web.About("messages", "have none of the user, which would be translated")
}
