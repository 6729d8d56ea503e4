package api

import (
	"bytes"
	"strings"
	"testing"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/store"
	"github.com/trafo-engine/trafo/examples/learning-service/go/web"
)

func TestCorrectionsAreChecked(t *testing.T) {
	const good = `{"domain": "rail-2", "source": " ein Seil ", "said": "a\ncord", "right": "a rope", "who": "Anna", "id": "k", "when": 5}`
	for _, c := range []struct{ from, to, says string }{
		{"", "", ""},
		{`"rail-2"`, `"../x"`, `"domain" is 1 to 100`},
		{`"rail-2"`, `"Rail"`, `"domain" is 1 to 100`},
		{`"Anna"`, `""`, `"who" is 1 to 100 bytes`},
		{`"Anna"`, `"` + strings.Repeat("a", 101) + `"`, `"who" is 1 to 100 bytes`},
		{`"a rope"`, `"a\nrope"`, `"right" is 1 to 4000 bytes`},
		{`" ein Seil "`, `" "`, `"source" is 1 to 4000 bytes`},
		{`"k"`, `"\u0000"`, `"id" is 1 to 100 bytes`},
		{`"k"`, `7`, `"id" is a string`},
		{`5}`, `5.5}`, `"when" is an integer`},
		{`5}`, `5, "extra": 1}`, `"extra"`},
		{`"said": "a\ncord", `, "", `"said" is missing`},
	} {
		fields, err := web.ParseFields([]byte(strings.Replace(good, c.from, c.to, 1)))
		if err != nil {
			t.Fatal(err)
		}
		found, err := newCorrection(fields)
		switch {
		case c.says != "":
			if err == nil || web.StatusOf(err) != 400 || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", c.to, err)
			}
		case err != nil || found.Source != "ein Seil" || found.Said != "acord" || *found.Key != "k" || found.When != 5:
			t.Error(found, err)
		}
	}
}

func TestWorkOnTheDatabaseIsRefusedWhileAsMuchAsMayBeIsInProgress(t *testing.T) {
	app := &App{room: make(chan struct{}, mostWork)}
	begun, end, done := make(chan bool), make(chan bool), make(chan error)
	for range mostWork {
		go func() {
			_, err := app.Within(func() (any, error) { begun <- true; <-end; return nil, nil })
			done <- err
		}()
	}
	for range mostWork {
		<-begun
	}
	work := func() (any, error) { return "again", nil }
	if _, err := app.Within(work); fault.KindOf(err) != fault.Unavailable {
		t.Error(err)
	}
	close(end)
	for range mostWork {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if value, err := app.Within(work); value != "again" || err != nil {
		t.Error(value, err)
	}
}

func TestMetricsOfLearning(t *testing.T) {
	var text bytes.Buffer
	writeLearning(&text, []store.Domain{{Name: "rail", Corrections: 3, Pending: 2, Current: 1}}, true, false)
	for _, line := range []string{
		"# TYPE learning_version gauge\nlearning_version{domain=\"rail\"} 1\n", "learning_corrections{domain=\"rail\"} 3\n",
		"learning_pending{domain=\"rail\"} 2\n", "learning_running 1\n", "learning_failing 0\n",
	} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("no %q in\n%s", line, text.String())
		}
	}
}
