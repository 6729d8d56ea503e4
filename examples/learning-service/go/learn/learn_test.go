package learn

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/models"
	"github.com/trafo-engine/trafo/examples/learning-service/go/settings"
	"github.com/trafo-engine/trafo/examples/learning-service/go/store"
)

func TestAVersionIsRefusedForEachReason(t *testing.T) {
	now := figures{HeldChrF: 50, RegressionBLEU: 60, TermsRight: 3, TermsCount: 4, Tokens: 1000}
	better := now
	better.HeldChrF = 51
	for _, c := range []struct {
		change func(*figures)
		says   string
	}{
		{func(*figures) {}, ""},
		{func(f *figures) { f.HeldChrF = 50 }, "it is no better on the held-out corrections: chrF 50.00, and 50.00 now"},
		{func(f *figures) { f.RegressionBLEU = 59.4 }, "it forgets: BLEU 59.40"},
		{func(f *figures) { f.RegressionBLEU = 59.6 }, ""},
		{func(f *figures) { f.TermsRight = 2 }, "it has fewer terms right: 2 of 4, and 3 now"},
		{func(f *figures) { f.Tokens = 1500 }, ""},
		{func(f *figures) { f.Tokens = 1501 }, "it would be slow"},
	} {
		candidate := better
		c.change(&candidate)
		why := refusal(&candidate, &now, &now, &settings.Bounds{RegressionLoss: 0.5, Length: 1.5})
		if !strings.HasPrefix(why, c.says) || (why == "") != (c.says == "") {
			t.Errorf("%q, not %q", why, c.says)
		}
	}
}

func TestTermsAreWordsAndNotPartsOfWords(t *testing.T) {
	for _, c := range []struct {
		text, words string
		has         bool
	}{
		{"Das ist der Tisch.", "tisch", true}, {"Das ist der Tischler.", "Tisch", false}, {"ein Nachtisch", "tisch", false},
		{"ein Nachtisch, ein Tisch", "Tisch", true}, {"GRÜN", "grün", true}, {"a", "", false},
	} {
		if containsWords(c.text, c.words) != c.has {
			t.Error(c)
		}
	}
	terms := []store.Term{{Source: "Tisch", Target: "desk"}}
	right, count := countTerms([]string{"ein Tisch", "Tisch", "Hut"}, []string{"a desk", "a table", "a desk"}, terms)
	if right != 1 || count != 2 {
		t.Error(right, count)
	}
}

func TestARoundThatFailsAgainAndAgainBeginsAnewAndThenEnds(t *testing.T) {
	data := t.TempDir()
	folder := models.WorkFolder(data, "rail", 7)
	addCheckpoints := func() {
		if err := os.MkdirAll(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	addCheckpoints()
	var f failures
	note := func(version int64, err error) bool {
		t.Helper()
		ends, failed := f.note(data, &store.Round{DomainID: 1, Domain: "rail", Version: version}, err)
		if failed != nil {
			t.Error(failed)
		}
		return ends
	}
	for range 20 { // what time mends does not count
		if note(7, fault.New(fault.Unavailable, "no space")) {
			t.Fatal("it ends")
		}
	}
	broken := errors.New("a checkpoint")
	for n := 1; n < 2*mostFailures; n++ {
		ends := note(7, broken)
		_, err := os.Stat(folder)
		if ends || (err != nil) != (n == mostFailures) {
			t.Error(n, ends, err)
		}
		addCheckpoints()
	}
	if !note(7, broken) {
		t.Error("it continues")
	}
	// Another round counts from the beginning, and what would fail in the same way again ends at once.
	if note(8, broken) || !note(8, fault.New(fault.Hopeless, "not finite")) || !note(9, fault.New(fault.Invalid, "no such option")) {
		t.Error("another round")
	}
}

func TestASampleIsTheSameInAnyOrder(t *testing.T) {
	var pairs, reversed []store.Pair
	for n := range 50 {
		pairs = append(pairs, store.Pair{Source: fmt.Sprint(n), Target: "x"})
		reversed = append([]store.Pair{pairs[n]}, reversed...)
	}
	one, other := fmt.Sprint(sample(pairs, 9, 1)), fmt.Sprint(sample(pairs, 9, 2))
	if one != fmt.Sprint(sample(reversed, 9, 1)) || one == other || len(sample(pairs, 99, 1)) != 50 {
		t.Error(one, other)
	}
}
