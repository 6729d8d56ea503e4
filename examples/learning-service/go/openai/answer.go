package openai

import (
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/trafo-engine/trafo/examples/learning-service/go/store"
)

// choice is an answer to a prompt.
type choice struct{ text, finish string }

// usage counts the tokens of a request.
type usage struct {
	prompt, cached int64 // cached: of the prompt, those whose keys and values were there
	completion     int64
}

func (u *usage) json() map[string]any {
	return map[string]any{
		"prompt_tokens": u.prompt, "completion_tokens": u.completion, "total_tokens": u.prompt + u.completion,
		"prompt_tokens_details": map[string]any{"cached_tokens": u.cached},
	}
}

var answers atomic.Int64

// head has the members that all parts of an answer have.
type head struct {
	chat        bool
	id, model   string
	created     int64
	fingerprint string // none if empty
	withUsage   bool   // whether events have the member usage
}

func newHead(a *asked, fingerprint string) *head {
	prefix, now := "cmpl", store.Now()
	if a.chat {
		prefix = "chatcmpl"
	}
	id := fmt.Sprintf("%s-%x-%d", prefix, now, answers.Add(1))
	return &head{a.chat, id, a.model, now / 1000, fingerprint, a.withUsage}
}

func (h *head) object(kind string, choices []any) map[string]any {
	value := map[string]any{"id": h.id, "object": kind, "created": h.created, "model": h.model, "choices": choices}
	if h.fingerprint != "" {
		value["system_fingerprint"] = h.fingerprint
	}
	return value
}

// whole is an answer that is not in events.
func (h *head) whole(choices []choice, u *usage) any {
	list, kind := []any{}, "text_completion"
	if h.chat {
		kind = "chat.completion"
	}
	for i, c := range choices {
		value := map[string]any{"index": i, "logprobs": nil, "finish_reason": c.finish}
		if h.chat {
			value["message"] = map[string]any{"role": "assistant", "content": c.text, "refusal": nil}
		} else {
			value["text"] = c.text
		}
		list = append(list, value)
	}
	answer := h.object(kind, list)
	answer["usage"] = u.json()
	return answer
}

func (h *head) chunk(choices []any, u any) string {
	kind := "text_completion"
	if h.chat {
		kind = "chat.completion.chunk"
	}
	value := h.object(kind, choices)
	if h.withUsage {
		value["usage"] = u
	}
	return event(value)
}

func (h *head) change(index int, delta map[string]any, text string, finish any) string {
	value := map[string]any{"index": index, "logprobs": nil, "finish_reason": finish}
	if h.chat {
		value["delta"] = delta
	} else {
		value["text"] = text
	}
	return h.chunk([]any{value}, nil)
}

// begin is the event in front of a sequence of a conversation, which tells its role.
func (h *head) begin(index int) string {
	if !h.chat {
		return ""
	}
	return h.change(index, map[string]any{"role": "assistant", "content": ""}, "", nil)
}

func (h *head) text(index int, text string) string {
	return h.change(index, map[string]any{"content": text}, text, nil)
}

func (h *head) finish(index int, finish string) string {
	return h.change(index, map[string]any{}, "", finish)
}

// end gives the last events of an answer.
func (h *head) end(u *usage) string {
	last := ""
	if h.withUsage {
		last = h.chunk([]any{}, u.json())
	}
	return last + "data: [DONE]\n\n"
}

// event is a server-sent event.
func event(value any) string {
	text, err := json.Marshal(value)
	if err != nil { // maps of texts and numbers have a form in JSON
		panic(err)
	}
	return fmt.Sprintf("data: %s\n\n", text)
}
