package api

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"github.com/trafo-engine/trafo/examples/learning-service/go/core"
	"github.com/trafo-engine/trafo/examples/learning-service/go/store"
	"github.com/trafo-engine/trafo/examples/learning-service/go/web"
)

// members takes members that are strings, all of which must be there.
func members(fields web.Fields, into map[string]*string) (err error) {
	for name, value := range into {
		if *value, err = web.Need[string](fields, name, "a string"); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) correct(w http.ResponseWriter, r *http.Request, _ []string) error {
	fields, err := web.ReadFields(w, r, a.Core.Settings.MostBody)
	if err != nil {
		return err
	}
	status := http.StatusOK
	value, err := a.Within(func() (any, error) {
		correction, err := newCorrection(fields)
		if err != nil {
			return nil, err
		}
		id, fresh, err := a.Core.Store.AddCorrection(correction, a.Core.Room())
		if err != nil {
			return nil, err
		}
		if fresh {
			status = http.StatusCreated
		}
		a.Core.Wake()
		return map[string]any{"id": id, "new": fresh}, nil
	})
	if err == nil {
		web.JSON(w, status, value)
	}
	return err
}

func newCorrection(fields web.Fields) (c *store.NewCorrection, err error) {
	c = new(store.NewCorrection)
	if err = members(fields, map[string]*string{
		"domain": &c.Domain, "source": &c.Source, "said": &c.Said, "right": &c.Right, "who": &c.Who}); err != nil {
		return nil, err
	}
	if c.When, err = web.TakeOr(fields, "when", "an integer", store.Now()); err != nil {
		return nil, err
	}
	if c.Key, err = web.Take[string](fields, "id", "a string"); err != nil {
		return nil, err
	}
	if err = fields.End(); err != nil {
		return nil, err
	}
	if err = CheckDomain(c.Domain); err != nil {
		return nil, err
	}
	if c.Who, err = text("who", c.Who, mostName); err != nil {
		return nil, err
	}
	if c.Key != nil {
		if *c.Key, err = text("id", *c.Key, mostName); err != nil {
			return nil, err
		}
	}
	if c.Source, err = text("source", c.Source, mostText); err != nil {
		return nil, err
	}
	if c.Right, err = text("right", c.Right, mostText); err != nil {
		return nil, err
	}
	said := []rune(c.Said)[:0]
	for _, r := range c.Said {
		if !unicode.IsControl(r) && len(said) < mostText {
			said = append(said, r)
		}
	}
	c.Said = string(said)
	return c, nil
}

func (a *App) setTerm(fields web.Fields) (any, error) {
	var domain string
	var term store.Term
	err := members(fields, map[string]*string{"domain": &domain, "source": &term.Source, "target": &term.Target})
	if err == nil {
		err = fields.End()
	}
	if err == nil {
		term.Source, err = text("source", term.Source, mostName)
	}
	if err == nil {
		term.Target, err = text("target", term.Target, mostName)
	}
	if err == nil {
		err = CheckDomain(domain)
	}
	if err == nil {
		err = a.Core.Store.SetTerm(domain, term, a.Core.Room())
	}
	return map[string]any{"source": term.Source, "target": term.Target}, err
}

func (a *App) deleteTerm(values []string) (any, error) {
	deleted, err := a.Core.Store.DeleteTerm(values[0], strings.TrimSpace(values[1]))
	return map[string]any{"terms": deleted}, err
}

func (a *App) learn(fields web.Fields) (any, error) {
	domain, err := web.Need[string](fields, "domain", "a string")
	if err == nil {
		err = fields.End()
	}
	if err == nil {
		err = a.Core.Store.Ask(domain)
	}
	a.Core.Wake()
	return map[string]any{"domain": domain}, err
}

func (a *App) domains([]string) (any, error) {
	domains, err := a.Core.Store.Domains()
	if err != nil {
		return nil, err
	}
	list := []any{}
	for _, domain := range domains {
		terms, err := a.Core.Store.Terms(domain.ID)
		if err != nil {
			return nil, err
		}
		translations := map[string]string{}
		for _, term := range terms {
			translations[term.Source] = term.Target
		}
		var learning *core.Progress
		if now := a.Core.Progress(); now != nil && now.Domain == domain.Name {
			learning = now
		}
		list = append(list, map[string]any{
			"name": domain.Name, "current": domain.Current, "corrections": domain.Corrections, "pending": domain.Pending,
			"terms": translations, "learning": learning})
	}
	var fault *string
	if text := a.Core.Fault(); text != "" {
		fault = &text
	}
	return map[string]any{"domains": list, "batch": a.Core.Settings.Batch, "fault": fault}, nil
}

func (a *App) versions(w http.ResponseWriter, r *http.Request, _ []string) error {
	// Neither names of domains nor numbers have a character that a query encodes.
	name, last, named, wrong := "", int64(math.MaxInt64), false, false
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "domain":
			name, named = value, true
		case "last":
			var err error
			last, err = strconv.ParseInt(value, 10, 64)
			wrong = wrong || err != nil
		default:
			wrong = true
		}
	}
	if !named || wrong {
		return web.Refuse(http.StatusBadRequest, "the query is domain=NAME or domain=NAME&last=VERSION")
	}
	return a.answer(w, func() (any, error) {
		domain, err := a.Core.Store.Domain(name)
		if err != nil {
			return nil, err
		}
		versions, err := a.Core.Store.Versions(&domain, last)
		return map[string]any{"domain": domain.Name, "current": domain.Current, "versions": versions}, err
	})
}

func (a *App) rollBack(fields web.Fields) (any, error) {
	domain, err := web.Need[string](fields, "domain", "a string")
	if err != nil {
		return nil, err
	}
	version, err := web.Need[int64](fields, "version", "an integer")
	if err == nil {
		err = fields.End()
	}
	if err == nil {
		err = a.Core.RollBack(domain, version)
	}
	return map[string]any{"domain": domain, "current": version}, err
}

func (a *App) export(values []string) (any, error) {
	corrections, err := a.Core.Store.Export(values[0])
	return map[string]any{"who": values[0], "corrections": corrections}, err
}

func (a *App) forget(values []string) (any, error) { return a.Core.Forget(values[0]) }
