package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/settings"
)

var room = Room{Domains: 2, PerPerson: 2000, PerDomain: 3000}

func open(t *testing.T) (*Store, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "service.db")
	s, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, file
}

func correction(who, source, right string) NewCorrection {
	return NewCorrection{Domain: "d", Who: who, Source: source, Said: "?", Right: right}
}

func add(t *testing.T, s *Store, c NewCorrection) (id int64, fresh bool) {
	t.Helper()
	id, fresh, err := s.AddCorrection(&c, room)
	if err != nil {
		t.Fatal(err)
	}
	return id, fresh
}

func next(t *testing.T, s *Store, batch int, learning settings.Learning) *Round {
	t.Helper()
	round, err := s.NextRound(batch, &learning)
	if err != nil {
		t.Fatal(err)
	}
	return round
}

func refused(t *testing.T, kind fault.Kind, err error) {
	t.Helper()
	if err == nil || fault.KindOf(err) != kind {
		t.Errorf("%v, and not of kind %d", err, kind)
	}
}

var learning = settings.Default().Learning

func TestAThousandContradictionsOfAPersonAreBounded(t *testing.T) {
	s, _ := open(t)
	if err := s.run("PRAGMA synchronous = OFF"); err != nil { // this test is not about the disk
		t.Fatal(err)
	}
	for n := range 10 {
		add(t, s, correction("Anna", fmt.Sprint("s", n), fmt.Sprint("right ", n)))
	}
	for n := range 1000 { // of 100 sentences, ten of which are Anna's
		add(t, s, correction("Otto", fmt.Sprint("s", n%100), fmt.Sprint("wrong ", n)))
	}
	bounded := learning
	bounded.PerPerson = 50
	round := next(t, s, 1, bounded)
	all, ofOtto, annas := append(round.Train, round.Held...), 0, false
	for _, pair := range all {
		if strings.HasPrefix(pair.Target, "wrong") {
			ofOtto++
			if len(pair.Target) != len("wrong 999") {
				t.Error("not the newest: ", pair)
			}
		}
		annas = annas || pair == Pair{"s0", "right 0"}
	}
	if len(all) != 60 || ofOtto != 50 || !annas {
		t.Error(len(all), ofOtto, annas)
	}
	for _, full := range []Room{{Domains: 2, PerPerson: 1000, PerDomain: 3000}, {Domains: 2, PerPerson: 2000, PerDomain: 1010}} {
		more := correction("Otto", "s0", "more")
		_, _, err := s.AddCorrection(&more, full)
		refused(t, fault.Limit, err)
	}
}

func TestTheNewestCorrectionIsLearnedAndARoundKeepsItsInputs(t *testing.T) {
	s, _ := open(t)
	for n := range 5 {
		add(t, s, correction("Anna", fmt.Sprint("s", n), "old"))
	}
	later := correction("Otto", "s0", "new")
	later.When = -1 // whatever the clock says
	add(t, s, later)
	round := next(t, s, 1, learning)
	if fmt.Sprint(round.Train, round.Held) != "[{s1 old} {s3 old} {s4 old} {s0 new}] [{s2 old}]" {
		t.Error(round)
	}
	add(t, s, correction("Otto", "s1", "newer"))
	again := next(t, s, 1, learning)
	if again.Version != 1 || again.Seed != round.Seed || fmt.Sprint(again.Train) != fmt.Sprint(round.Train) {
		t.Error(again)
	}
	if err := s.run("UPDATE versions SET learning = '{}'"); err != nil {
		t.Fatal(err)
	}
	if round := next(t, s, 100, learning); round != nil {
		t.Error("a round whose settings cannot be read: ", round)
	}
	domain, _ := s.Domain("d")
	versions, err := s.Versions(&domain, 9)
	if err != nil || versions[0].State != "failed" || !strings.Contains(*versions[0].Reason, "missing field") {
		t.Error(versions, err)
	}
}

func TestRepeatedCorrectionsAreStoredOnce(t *testing.T) {
	s, _ := open(t)
	keyed, key := correction("Anna", "s", "right"), "k"
	keyed.Key = &key
	first, fresh := add(t, s, keyed)
	if again, twice := add(t, s, keyed); !fresh || twice || again != first {
		t.Error(again, first)
	}
	keyed.Right = "other"
	_, _, err := s.AddCorrection(&keyed, room)
	refused(t, fault.Conflict, err)
	for n, c := range []struct {
		right string
		fresh bool
	}{{"A", true}, {"A", false}, {"B", true}, {"A", true}} {
		if _, fresh := add(t, s, correction("Otto", "t", c.right)); fresh != c.fresh {
			t.Error(n, c)
		}
	}
	for n, domain := range []string{"e", "f"} {
		c := correction("Anna", "s", "right")
		c.Domain = domain
		if _, _, err := s.AddCorrection(&c, room); n == 0 && err != nil || n == 1 && fault.KindOf(err) != fault.Limit {
			t.Error(domain, err)
		}
	}
}

func TestDomainsTakeTurnsAndARoundCanBeAskedFor(t *testing.T) {
	s, _ := open(t)
	three := func(domain string, from int, who string) {
		for n := range 3 {
			c := correction(who, fmt.Sprint("s", from+n), "x")
			c.Domain = domain
			add(t, s, c)
		}
	}
	finish := func(domain string) {
		t.Helper()
		round := next(t, s, 3, learning)
		if round == nil || round.Domain != domain {
			t.Fatal(round)
		}
		if done, err := s.Finish(round, &Outcome{Reason: "x"}); !done || err != nil {
			t.Error(err)
		}
	}
	three("d", 0, "Anna")
	three("e", 0, "Otto")
	three("d", 3, "Anna")
	finish("d")
	three("d", 6, "Anna")
	finish("e")
	finish("d")
	refused(t, fault.Conflict, s.Ask("d"))
	refused(t, fault.NotFound, s.Ask("f"))
	add(t, s, correction("Anna", "s9", "x"))
	if err := s.Ask("d"); err != nil {
		t.Error(err)
	}
	finish("d")
	// Nothing is left to learn in e; when there is again, its round begins without a full batch.
	if forgotten, err := s.Forget("Otto"); err != nil || forgotten.Corrections != 3 || forgotten.Versions[0] != (OfVersion{"e", 1}) {
		t.Error(forgotten, err)
	}
	if round := next(t, s, 100, learning); round != nil {
		t.Error(round)
	}
	three("e", 0, "Zoe")
	finish("e")
}

func TestASecondInstanceANewerFileAndAnotherBaseAreRefused(t *testing.T) {
	s, file := open(t)
	for _, c := range []struct {
		hash string
		good bool
	}{{"one", true}, {"one", true}, {"two", false}} {
		if err := s.BindBase(c.hash); (err == nil) != c.good || err != nil && fault.KindOf(err) != fault.Conflict {
			t.Error(c, err)
		}
	}
	_, err := Open(file)
	refused(t, fault.Unavailable, err)
	if err := s.run("PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	_, err = Open(file)
	refused(t, fault.Conflict, err)
}

func TestAFullDiskLosesNothingAndAcknowledgesNothing(t *testing.T) {
	s, _ := open(t)
	pages := func(most int) {
		if err := s.run(fmt.Sprint("PRAGMA max_page_count = ", most)); err != nil {
			t.Fatal(err)
		}
	}
	pages(40)
	stored := 0
	for ; ; stored++ {
		c := correction("Anna", fmt.Sprint(stored, strings.Repeat("x", 1000)), "y")
		if _, _, err := s.AddCorrection(&c, room); err != nil {
			refused(t, fault.Unavailable, err)
			break
		}
	}
	if found, err := s.Export("Anna"); err != nil || len(found) != stored || stored == 0 {
		t.Error(len(found), stored, err)
	}
	pages(4000)
	add(t, s, correction("Anna", "z", "y"))
	if found, err := s.Export("Anna"); err != nil || len(found) != stored+1 {
		t.Error(len(found), stored, err)
	}
}

func TestNoTextOfADeletedPersonIsLeftInTheFiles(t *testing.T) {
	s, file := open(t)
	people := []string{"Annegret", "Ottokar", "Zacharias"}
	text := func(side string, n int) string { // lengths differ, so that rows move within their pages
		return fmt.Sprintf("%s <%03d> %s", side, n, strings.Repeat("x", n*7%90))
	}
	for n := range 300 {
		c := correction(people[n%3], text("source", n), text("right", n))
		key := text("key", n)
		c.Key, c.Said = &key, text("said", n)
		add(t, s, c)
	}
	content := func() []byte {
		var all []byte
		for _, name := range []string{file, file + "-wal"} {
			bytes, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, bytes...)
		}
		return all
	}
	if !bytes.Contains(content(), []byte(people[1])) {
		t.Error("nothing is stored")
	}
	if forgotten, err := s.Forget(people[1]); err != nil || forgotten.Corrections != 100 {
		t.Error(forgotten, err)
	}
	if err := s.RemoveDeletedText(); err != nil {
		t.Error(err)
	}
	left := content()
	for n := range 300 {
		for _, side := range []string{"key", "said", "source", "right"} {
			if found := bytes.Contains(left, fmt.Appendf(nil, "%s <%03d>", side, n)); found != (n%3 != 1) {
				t.Errorf("%s %d: %v", side, n, found)
			}
		}
	}
}
