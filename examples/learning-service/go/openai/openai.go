// Package openai is OpenAI's interface: chat, completions and models.
//
// The model "translation" translates with the base, "translation:DOMAIN" with the version that the domain serves, and the
// language model has the name of its folder. Of a conversation, a translation model translates the last message of the
// user.
package openai

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/trafo-engine/trafo/bindings/go/trafo"

	"github.com/trafo-engine/trafo/examples/learning-service/go/api"
	"github.com/trafo-engine/trafo/examples/learning-service/go/models"
	"github.com/trafo-engine/trafo/examples/learning-service/go/web"
)

const (
	// translation is the name of the translation model. The names of the domains' models begin with it.
	translation   = "translation"
	mostSequences = 64 // of a request
	events        = "text/event-stream"
)

// Interface answers requests to /v1.
type Interface struct {
	app      *api.App
	language *LanguageModel // nil: there is none

	lock     sync.Mutex
	requests map[int]int64 // by status
	tokens   usage         // that answers were told to have used
	draws    atomic.Uint64
}

// New adds the metrics to those of app. language may be nil.
func New(app *api.App, language *LanguageModel) *Interface {
	i := &Interface{app: app, language: language, requests: map[int]int64{}}
	app.More = i.writeMetrics
	return i
}

// Routes of this part.
func (i *Interface) Routes() []web.Route {
	return []web.Route{
		{Method: "GET", Path: "/v1/models", Handler: i.models},
		{Method: "GET", Path: "/v1/models/*", Handler: i.model},
		{Method: "POST", Path: "/v1/chat/completions", Handler: i.completions(true)},
		{Method: "POST", Path: "/v1/completions", Handler: i.completions(false)},
	}
}

func (i *Interface) writeMetrics(text *bytes.Buffer) {
	i.lock.Lock()
	defer i.lock.Unlock()
	text.WriteString("# HELP openai_requests_total Requests to /v1, by status.\n# TYPE openai_requests_total counter\n")
	for _, status := range slices.Sorted(maps.Keys(i.requests)) {
		fmt.Fprintf(text, "openai_requests_total{code=\"%d\"} %d\n", status, i.requests[status])
	}
	for _, each := range []struct {
		name  string
		count int64
	}{{"prompt", i.tokens.prompt}, {"completion", i.tokens.completion}} {
		fmt.Fprintf(text, "# HELP openai_%s_tokens_total Tokens that answers were told to have used.\n"+
			"# TYPE openai_%[1]s_tokens_total counter\nopenai_%[1]s_tokens_total %[2]d\n", each.name, each.count)
	}
}

func (i *Interface) count(status int, u *usage) {
	i.lock.Lock()
	defer i.lock.Unlock()
	if status != 0 {
		i.requests[status]++
	}
	i.tokens.prompt += u.prompt
	i.tokens.completion += u.completion
}

func (i *Interface) completions(chat bool) web.Handler {
	return func(w http.ResponseWriter, r *http.Request, _ []string) error {
		fields, err := web.ReadFields(w, r, i.app.Core.Settings.MostBody)
		var a *asked
		if err == nil {
			a, err = read(fields, chat)
		}
		if err == nil && i.language != nil && a.model == i.language.name {
			err = i.generate(w, r, a)
		} else if err == nil {
			err = i.translate(w, r, a)
		}
		status := web.StatusOf(err)
		if r.Context().Err() != nil {
			status = web.StatusClientGone
		}
		i.count(status, &usage{})
		return err
	}
}

// domainOf is the domain of a translation model.
func domainOf(model string) (string, error) {
	domain := "default"
	if model != translation {
		var found bool
		if domain, found = strings.CutPrefix(model, translation+":"); !found {
			return "", noModel(model)
		}
	}
	if api.CheckDomain(domain) != nil {
		return "", noModel(model)
	}
	return domain, nil
}

func noModel(model string) error {
	return &web.Refusal{Status: http.StatusNotFound, Param: "model", Code: "model_not_found",
		Message: fmt.Sprintf("there is no model %q; /v1/models lists them", model)}
}

func (i *Interface) translate(w http.ResponseWriter, r *http.Request, a *asked) error {
	domain, err := domainOf(a.model)
	if err != nil {
		return err
	}
	texts := a.prompts
	if a.chat {
		text, err := lastOfUser(a.messages)
		if err != nil {
			return err
		}
		texts = []string{text}
	}
	var lines []string // of all texts
	counts := make([]int, len(texts))
	for n, text := range texts {
		if i.app.Core.Base.Template != "" { // a message may have several lines
			lines = append(lines, text)
			counts[n] = 1
			continue
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			lines = append(lines, strings.TrimSuffix(line, "\r"))
			counts[n]++
		}
	}
	if len(lines) > api.MostLines {
		return web.Refuse(http.StatusBadRequest, "a request has at most %d lines", api.MostLines)
	}
	var found []models.Line
	if len(lines) > 0 {
		if found, err = i.app.TranslateLines(r.Context(), lines, i.search(domain, a)); err != nil {
			return err
		}
	}
	var u usage
	fingerprint := ""
	for _, line := range found {
		u.prompt += line.SourceTokens
		fingerprint = fmt.Sprintf("%s@%d", domain, line.Version)
	}
	var choices []choice
	for _, count := range counts {
		for rank := range a.count {
			c, tokens, err := i.choiceOf(found[:count], rank, a)
			if err != nil {
				return err
			}
			u.completion += int64(tokens)
			choices = append(choices, c)
		}
		found = found[count:]
	}
	i.count(0, &u)
	h := newHead(a, fingerprint)
	if !a.stream {
		web.JSON(w, http.StatusOK, h.whole(choices, &u))
		return nil
	}
	var all strings.Builder
	for index, c := range choices {
		all.WriteString(h.begin(index))
		for line := range strings.Lines(c.text) {
			all.WriteString(h.text(index, line))
		}
		all.WriteString(h.finish(index, c.finish))
	}
	web.Send(w, http.StatusOK, events, []byte(all.String()+h.end(&u)))
	return nil
}

func (i *Interface) search(domain string, a *asked) models.Search {
	search := models.Best(i.app.Core.Models.ID(domain), max(i.app.Core.Settings.Beam, a.count))
	search.Count = a.count
	search.PresencePenalty, search.FrequencyPenalty = a.presencePenalty, a.frequencyPenalty
	temperature, topP := 0.0, 1.0
	if a.topP != nil {
		temperature, topP = 1, *a.topP
	}
	if a.temperature != nil {
		temperature = *a.temperature
	}
	if temperature > 0 {
		search.Draws = true
		search.Draw = models.Draw{Temperature: temperature, TopP: topP, Seed: a.seed, Request: i.draws.Add(1)}
	}
	return search
}

// choiceOf gives a translation of a text of several lines, and its tokens: the hypotheses of a rank, up to the most tokens
// and a stop string.
func (i *Interface) choiceOf(lines []models.Line, rank int, a *asked) (choice, int, error) {
	text, tokens, cut := "", 0, false
	for number, line := range lines {
		found := &line.Hypotheses[min(rank, len(line.Hypotheses)-1)]
		if number > 0 {
			text += "\n"
		}
		room := math.MaxInt
		if a.most != nil {
			room = *a.most - tokens
		}
		cut = cut || found.Finish == trafo.FinishLength || len(found.Tokens) > room
		if len(found.Tokens) > room {
			part, err := i.app.Core.Base.Tokenizer.Decode(found.Tokens[:room])
			if err != nil {
				return choice{}, 0, err
			}
			text += part
			tokens += room
			break
		}
		text += found.Text
		tokens += len(found.Tokens)
	}
	end := len(text)
	for _, stop := range a.stop {
		if at := strings.Index(text, stop); at >= 0 {
			end = min(end, at)
		}
	}
	if cut && end == len(text) {
		return choice{text, "length"}, tokens, nil
	}
	return choice{text[:end], "stop"}, tokens, nil
}

func (i *Interface) names() ([]string, error) {
	domains, err := i.app.Within(func() (any, error) {
		names := []string{translation}
		domains, err := i.app.Core.Store.Domains()
		for _, domain := range domains {
			names = append(names, translation+":"+domain.Name)
		}
		return names, err
	})
	if err != nil {
		return nil, err
	}
	names := domains.([]string)
	if i.language != nil {
		names = append(names, i.language.name)
	}
	return names, nil
}

func listed(id string) any {
	return map[string]any{"id": id, "object": "model", "created": 0, "owned_by": "trafo"}
}

func (i *Interface) models(w http.ResponseWriter, _ *http.Request, _ []string) error {
	names, err := i.names()
	if err != nil {
		return err
	}
	list := []any{}
	for _, name := range names {
		list = append(list, listed(name))
	}
	web.JSON(w, http.StatusOK, map[string]any{"object": "list", "data": list})
	return nil
}

func (i *Interface) model(w http.ResponseWriter, _ *http.Request, values []string) error {
	names, err := i.names()
	if err == nil && !slices.Contains(names, values[0]) {
		err = noModel(values[0])
	}
	if err == nil {
		web.JSON(w, http.StatusOK, listed(values[0]))
	}
	return err
}
