// Package api is the HTTP interface but for its part that is OpenAI's. shared/openapi.json describes it.
package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
	"github.com/trafo-engine/trafo/bindings/go/trafo/examples/serving"

	"github.com/trafo-engine/trafo/examples/learning-service/go/core"
	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/models"
	"github.com/trafo-engine/trafo/examples/learning-service/go/store"
	"github.com/trafo-engine/trafo/examples/learning-service/go/web"
	"github.com/trafo-engine/trafo/examples/learning-service/shared"
)

const (
	MostLines = 256 // of a request
	MostBeam  = 16

	mostWork = 64   // requests at a time that work on the database
	mostText = 4000 // bytes of a sentence
	mostName = 100  // bytes
	// Lines translated together, and how long the first of them waits for others.
	batch  = 64
	window = 5 * time.Millisecond
)

// OpenPaths tell nothing about texts and people.
var OpenPaths = []string{"/", "/openapi.json", "/healthz", "/readyz"}

// App answers requests.
type App struct {
	Core *core.Core
	// More writes metrics of other parts of the interface; nil: there are none.
	More func(*bytes.Buffer)

	batcher *serving.Batcher[models.Search, models.Line]
	metrics *serving.Metrics
	room    chan struct{} // a token for each request that works on the database
}

// New starts to translate.
func New(c *core.Core) *App {
	metrics := serving.NewMetrics()
	batcher := serving.NewBatcher(c.Models.Translator(c.Base), window, batch, c.Settings.Queue, metrics)
	return &App{Core: c, batcher: batcher, metrics: metrics, room: make(chan struct{}, mostWork)}
}

// Close translates what was accepted, and then ends.
func (a *App) Close() { a.batcher.Close() }

// Routes of this part.
func (a *App) Routes() []web.Route {
	static := func(contentType, text string) web.Handler {
		return func(w http.ResponseWriter, _ *http.Request, _ []string) error {
			web.Send(w, http.StatusOK, contentType, []byte(text))
			return nil
		}
	}
	return []web.Route{
		{Method: "GET", Path: "/", Handler: static("text/html; charset=utf-8", shared.Page)},
		{Method: "GET", Path: "/openapi.json", Handler: static("application/json", shared.OpenAPI)},
		{Method: "GET", Path: "/healthz", Handler: static("text/plain", "ok\n")},
		{Method: "GET", Path: "/readyz", Handler: a.ready},
		{Method: "GET", Path: "/metrics", Handler: a.showMetrics},
		{Method: "POST", Path: "/translate", Handler: a.translate},
		{Method: "POST", Path: "/corrections", Handler: a.correct},
		{Method: "POST", Path: "/terms", Handler: a.post(a.setTerm)},
		{Method: "DELETE", Path: "/terms/*/*", Handler: a.get(a.deleteTerm)},
		{Method: "POST", Path: "/learn", Handler: a.post(a.learn)},
		{Method: "GET", Path: "/domains", Handler: a.get(a.domains)},
		{Method: "GET", Path: "/versions", Handler: a.versions},
		{Method: "POST", Path: "/rollback", Handler: a.post(a.rollBack)},
		{Method: "GET", Path: "/people/*", Handler: a.get(a.export)},
		{Method: "DELETE", Path: "/people/*", Handler: a.get(a.forget)},
	}
}

// Within does work on the database, or refuses it if too much of it waits.
func (a *App) Within(work func() (any, error)) (any, error) {
	select {
	case a.room <- struct{}{}:
	default:
		return nil, fault.New(fault.Unavailable, "too many requests wait for the database")
	}
	defer func() { <-a.room }()
	return work()
}

// post handles requests with a body.
func (a *App) post(work func(web.Fields) (any, error)) web.Handler {
	return func(w http.ResponseWriter, r *http.Request, _ []string) error {
		fields, err := web.ReadFields(w, r, a.Core.Settings.MostBody)
		if err != nil {
			return err
		}
		return a.answer(w, func() (any, error) { return work(fields) })
	}
}

// get handles requests without a body.
func (a *App) get(work func(values []string) (any, error)) web.Handler {
	return func(w http.ResponseWriter, _ *http.Request, values []string) error {
		return a.answer(w, func() (any, error) { return work(values) })
	}
}

func (a *App) answer(w http.ResponseWriter, work func() (any, error)) error {
	value, err := a.Within(work)
	if err == nil {
		web.JSON(w, http.StatusOK, value)
	}
	return err
}

// text checks a member and removes spaces around it.
func text(field, value string, most int) (string, error) {
	value = strings.TrimSpace(value)
	if value == "" || len(value) > most || strings.ContainsFunc(value, unicode.IsControl) {
		return "", fault.New(fault.Invalid, "%q is 1 to %d bytes of text without control characters", field, most)
	}
	return value, nil
}

// CheckDomain checks a name. Names of domains are names of folders.
func CheckDomain(name string) error {
	forbidden := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	}
	if name == "" || len(name) > mostName || strings.ContainsFunc(name, forbidden) {
		return fault.New(fault.Invalid, `"domain" is 1 to %d of the characters a-z, 0-9, - and _`, mostName)
	}
	return nil
}

func (a *App) translate(w http.ResponseWriter, r *http.Request, _ []string) error {
	began := time.Now()
	value, err := a.translated(w, r)
	status := web.StatusOf(err)
	if r.Context().Err() != nil {
		status = web.StatusClientGone
	}
	a.metrics.Answered(status, time.Since(began))
	if err == nil {
		web.JSON(w, http.StatusOK, value)
	}
	return err
}

func (a *App) translated(w http.ResponseWriter, r *http.Request) (any, error) {
	fields, err := web.ReadFields(w, r, a.Core.Settings.MostBody)
	if err != nil {
		return nil, err
	}
	const what = "a string or a list of 1 to 256 strings"
	lines, err := web.Need[web.Texts](fields, "text", what)
	if err != nil {
		return nil, err
	}
	domain, err := web.TakeOr(fields, "domain", "a string", "default")
	if err != nil {
		return nil, err
	}
	beam, err := web.TakeOr(fields, "beam", "an integer", a.Core.Settings.Beam)
	if err != nil {
		return nil, err
	}
	if err := fields.End(); err != nil {
		return nil, err
	}
	if len(lines) == 0 || len(lines) > MostLines {
		return nil, web.About("text", "is %s", what)
	}
	if beam < 1 || beam > MostBeam {
		return nil, web.About("beam", "is 1 to %d", MostBeam)
	}
	if err := CheckDomain(domain); err != nil {
		return nil, err
	}
	found, err := a.TranslateLines(r.Context(), lines, models.Best(a.Core.Models.ID(domain), beam))
	if err != nil {
		return nil, err
	}
	type translation struct {
		Text  string  `json:"text"`
		Score float64 `json:"score"`
	}
	translations := make([]translation, len(found))
	for i, line := range found {
		translations[i] = translation{line.Hypotheses[0].Text, line.Hypotheses[0].Score}
	}
	return map[string]any{"domain": domain, "version": found[0].Version, "translations": translations}, nil
}

// TranslateLines gives the translations of lines, in their order.
func (a *App) TranslateLines(ctx context.Context, lines []string, search models.Search) ([]models.Line, error) {
	limit := a.TimeLimit()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found, err := a.batcher.Submit(ctx, lines, search)
	switch {
	case err == nil:
		return found, nil
	case errors.Is(err, serving.ErrClosing), errors.Is(err, serving.ErrQueueFull):
		return nil, fault.New(fault.Unavailable, "%v", err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, web.Refuse(http.StatusGatewayTimeout, "not translated within %v", limit)
	case errors.Is(err, trafo.ErrInvalidArgument):
		return nil, fault.New(fault.Invalid, "%v", err)
	}
	return nil, fault.New(fault.Internal, "%v", err)
}

// TimeLimit is how long a request is worked on.
func (a *App) TimeLimit() time.Duration {
	return time.Duration(a.Core.Settings.TimeLimit * float64(time.Second))
}

func (a *App) ready(w http.ResponseWriter, _ *http.Request, _ []string) error {
	if a.Core.Closing().Err() != nil {
		return fault.New(fault.Unavailable, "the server is shutting down")
	}
	if _, err := a.Within(func() (any, error) { return a.Core.Store.Domains() }); err != nil {
		return fault.New(fault.Unavailable, "%v", err)
	}
	web.Send(w, http.StatusOK, "text/plain", []byte("ready\n"))
	return nil
}

func (a *App) showMetrics(w http.ResponseWriter, _ *http.Request, _ []string) error {
	domains, err := a.Within(func() (any, error) { return a.Core.Store.Domains() })
	if err != nil {
		return err
	}
	var text bytes.Buffer
	a.metrics.Write(&text)
	if a.More != nil {
		a.More(&text)
	}
	writeLearning(&text, domains.([]store.Domain), a.Core.Progress() != nil, a.Core.Fault() != "")
	web.Send(w, http.StatusOK, "text/plain; version=0.0.4", text.Bytes())
	return nil
}

// writeLearning writes the part of the metrics about learning.
func writeLearning(text *bytes.Buffer, domains []store.Domain, running, failing bool) {
	head := func(name, help string) {
		fmt.Fprintf(text, "# HELP learning_%s %s\n# TYPE learning_%s gauge\n", name, help, name)
	}
	for _, each := range []struct {
		name, help string
		value      func(*store.Domain) int64
	}{
		{"corrections", "Corrections that are stored.", func(d *store.Domain) int64 { return int64(d.Corrections) }},
		{"pending", "Corrections after the last round.", func(d *store.Domain) int64 { return int64(d.Pending) }},
		{"version", "Version that is served; 0 is the base.", func(d *store.Domain) int64 { return d.Current }},
	} {
		head(each.name, each.help)
		for i := range domains {
			fmt.Fprintf(text, "learning_%s{domain=%q} %d\n", each.name, domains[i].Name, each.value(&domains[i]))
		}
	}
	for _, each := range []struct {
		name, help string
		is         bool
	}{
		{"running", "Whether a round is in progress.", running},
		{"failing", "Whether the round could not be continued and is tried again.", failing},
	} {
		value := 0
		if each.is {
			value = 1
		}
		head(each.name, each.help)
		fmt.Fprintf(text, "learning_%s %d\n", each.name, value)
	}
}
