package trafo

// #include "trafo.h"
import "C"

import (
	"encoding/json"
	"unsafe"
)

// ChatMessage is a message of a conversation.
type ChatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// ChatTokens are the tokens of a conversation.
type ChatTokens struct {
	IDs []int32
	// Answers says for each token whether it belongs to an answer of the assistant, which training learns.
	Answers []bool
}

func conversation(messages []ChatMessage) string {
	text, err := json.Marshal(map[string]any{"messages": messages})
	if err != nil { // texts always have a form in JSON
		panic(err)
	}
	return string(text)
}

// WithChatTemplate gives the same vocabulary with this chat template in place of the one that it came with. source is
// the text of a Jinja template, or "chatml", which needs the tokens <|im_start|> and <|im_end|>. Save writes it beside
// the vocabulary. ErrCorruptFile, ErrUnsupported: the template has a fault, or a construct that is not supported; the
// message names the line.
func (t *Tokenizer) WithChatTemplate(source string) (*Tokenizer, error) {
	ptr, err := t.hold("Tokenizer.WithChatTemplate")
	if err != nil {
		return nil, err
	}
	defer t.shared.release()
	data, length := chars(source)
	var out *C.trafo_tokenizer
	e := C.trafo_tokenizer_with_chat_template(ptr, data, length, &out)
	return newTokenizer(out, e)
}

// ChatTemplate gives the text of the chat template. ErrNotFound: the vocabulary came without one.
func (t *Tokenizer) ChatTemplate() (source string, err error) {
	err = t.in("Tokenizer.ChatTemplate", func(ptr *C.trafo_tokenizer) *C.trafo_error {
		var out *C.char
		var length C.size_t
		if e := C.trafo_tokenizer_get_chat_template(ptr, &out, &length); e != nil {
			return e
		}
		source = takeString(out, length)
		return nil
	})
	return source, err
}

// RenderChat gives messages as the text that the model reads. With addGenerationPrompt the text ends with the
// beginning of an answer. ErrNotFound: the tokenizer has no chat template. ErrInvalidArgument: the template refuses the
// messages.
func (t *Tokenizer) RenderChat(messages []ChatMessage, addGenerationPrompt bool) (string, error) {
	return t.RenderChatJSON(conversation(messages), addGenerationPrompt)
}

// RenderChatJSON is RenderChat of a JSON object: "messages", and variables of the template, such as "tools".
func (t *Tokenizer) RenderChatJSON(conversation string, addGenerationPrompt bool) (text string, err error) {
	err = t.in("Tokenizer.RenderChatJSON", func(ptr *C.trafo_tokenizer) *C.trafo_error {
		data, size := chars(conversation)
		var out *C.char
		var length C.size_t
		if e := C.trafo_chat_render(ptr, data, size, cBool(addGenerationPrompt), &out, &length); e != nil {
			return e
		}
		text = takeString(out, length)
		return nil
	})
	return text, err
}

// EncodeChat gives the tokens of RenderChat's text, in which names of special tokens are those tokens. ErrInvalidArgument:
// answers cannot be found in the text.
func (t *Tokenizer) EncodeChat(messages []ChatMessage, addGenerationPrompt bool) (ChatTokens, error) {
	return t.EncodeChatJSON(conversation(messages), addGenerationPrompt)
}

// EncodeChatJSON is EncodeChat of a JSON object.
func (t *Tokenizer) EncodeChatJSON(conversation string, addGenerationPrompt bool) (tokens ChatTokens, err error) {
	err = t.in("Tokenizer.EncodeChatJSON", func(ptr *C.trafo_tokenizer) *C.trafo_error {
		data, size := chars(conversation)
		var ids, answers *C.int32_t
		var count C.size_t
		if e := C.trafo_chat_encode(ptr, data, size, cBool(addGenerationPrompt), &ids, &count, &answers); e != nil {
			return e
		}
		defer C.trafo_ids_free(ids)
		defer C.trafo_ids_free(answers)
		tokens.IDs = append([]int32{}, unsafe.Slice((*int32)(ids), count)...)
		tokens.Answers = make([]bool, count)
		for i, answer := range unsafe.Slice((*int32)(answers), count) {
			tokens.Answers[i] = answer != 0
		}
		return nil
	})
	return tokens, err
}
