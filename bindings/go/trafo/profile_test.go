package trafo_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func TestProfiles(t *testing.T) {
	c := newContext(t)
	_, err := c.WriteProfile("")
	wantError(t, err, trafo.ErrInvalidArgument)
	x := tensor(t, c, []float32{1, 2}, 2)
	ok(t, x.SetRequiresGrad(true))
	ok(t, c.StartProfile(false))
	y, err := c.Exp(x)
	ok(t, err)
	mean, err := c.Mean(y)
	ok(t, err)
	ok(t, mean.Backward())
	_, err = c.WriteProfile("/no/such/folder/trace.json")
	wantError(t, err, trafo.ErrIO)
	path := filepath.Join(t.TempDir(), "trace.json")
	table, err := c.WriteProfile(path)
	ok(t, err)
	text, err := os.ReadFile(path)
	ok(t, err)
	var trace struct {
		TraceEvents []struct{ Name, Cat, Ph string }
	}
	ok(t, json.Unmarshal(text, &trace))
	var seen []string
	for _, event := range trace.TraceEvents {
		if event.Ph == "X" {
			seen = append(seen, event.Name+" "+event.Cat)
		}
	}
	want := "exp forward, mean forward, mean backward, exp backward"
	if got := strings.Join(seen, ", "); got != want {
		t.Errorf("the trace has %s, want %s", got, want)
	}
	again, err := c.WriteProfile("")
	ok(t, err)
	if again != table || !strings.Contains(table, "exp") {
		t.Errorf("%q and then %q", table, again)
	}
}
