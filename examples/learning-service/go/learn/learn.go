// Package learn is the learner: a goroutine that trains, measures and switches, within its share of the time.
package learn

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/trafo-engine/trafo/examples/learning-service/go/core"
	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/hash"
	"github.com/trafo-engine/trafo/examples/learning-service/go/models"
	"github.com/trafo-engine/trafo/examples/learning-service/go/store"
)

const (
	examplesShown = 12 // translations of held-out corrections that a version shows, before and after
	longestPause  = 10 * time.Second
	firstRetry    = 2 * time.Second
	lastRetry     = 300 * time.Second
	mostFailures  = 5 // after which a round begins anew without its checkpoints, and after as many more ends
)

// Start starts the learner. The channel is closed when it has ended, after Close of the core.
func Start(c *core.Core) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// The C library keeps the memory of a round for each thread that has trained: this goroutine stays on one.
		runtime.LockOSThread()
		work(c)
	}()
	return ended
}

func work(c *core.Core) {
	// Untidy also the first time: a process that was killed may have left something.
	retry, untidy := firstRetry, true
	var failures failures
	for c.Closing().Err() == nil {
		untidy = c.BeginRound() || untidy
		var worked bool
		var err error
		if untidy {
			err = c.Tidy()
			untidy = err != nil
		}
		if err == nil {
			worked, err = oneRound(c, &failures)
		}
		untidy = untidy || worked
		switch {
		case err != nil:
			c.SetFault(err.Error())
			c.Sleep(retry)
			retry = min(2*retry, lastRetry)
		case worked:
			c.SetFault("")
			retry = firstRetry
		default:
			c.SetFault("")
			c.Sleep(time.Hour)
		}
		c.SetProgress(nil)
	}
}

// failures counts how often a round has failed in a row, for reasons that time alone does not mend.
type failures struct {
	domain, version int64
	count           int
}

// note decides about a round that has failed. True: it ends. False: it is tried again, once from its beginning.
func (f *failures) note(data string, round *store.Round, err error) (bool, error) {
	switch fault.KindOf(err) {
	case fault.Invalid, fault.Hopeless:
		return true, nil
	case fault.Unavailable:
		return false, nil
	}
	if f.domain != round.DomainID || f.version != round.Version {
		*f = failures{domain: round.DomainID, version: round.Version}
	}
	f.count++
	if f.count == mostFailures {
		if err := models.Remove(models.WorkFolder(data, round.Domain, round.Version)); err != nil {
			return false, err
		}
	}
	return f.count >= 2*mostFailures, nil
}

// oneRound works on the next round. False: there is none.
func oneRound(c *core.Core, f *failures) (bool, error) {
	round, err := c.Store.NextRound(c.Settings.Batch, &c.Settings.Learning)
	if round == nil || err != nil {
		return false, err
	}
	failed := learn(c, round)
	if failed == nil || c.MustEndRound() {
		return true, nil
	}
	ends, err := f.note(c.Settings.Data, round, failed)
	if err != nil {
		return false, err
	}
	if !ends {
		return false, failed
	}
	_, err = c.Store.Finish(round, &store.Outcome{Reason: failed.Error()})
	return true, err
}

// learn trains, measures and decides, unless the round must end before its time.
func learn(c *core.Core, round *store.Round) error {
	data := c.Settings.Data
	adapter := models.AdapterFolder(data, round.Domain, round.Version)
	log(round, "training")
	trained, err := train(c.Base, round, c.Learner(), models.WorkFolder(data, round.Domain, round.Version), adapter, &watch{c, round})
	if !trained || err != nil {
		return err
	}
	digest, err := hash.Adapter(adapter)
	if err != nil {
		return err
	}
	for ended := false; !ended; {
		log(round, "measuring")
		judged, err := judge(c, round, digest)
		if judged == nil || err != nil {
			return err
		}
		log(round, "switching")
		err = c.Switching(func() (err error) {
			ended, err = end(c, round, judged)
			return err
		})
		if judged.model != nil && !judged.served {
			judged.model.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// judged is a measured candidate.
type judged struct {
	outcome store.Outcome
	model   *models.Model // if it is good
	before  *store.Chosen // the version that it was compared with; nil is the base
	served  bool          // whether the model has been given to those that serve
}

// end ends a round. False: another version than the measured one is served meanwhile, and nothing has changed.
func end(c *core.Core, round *store.Round, j *judged) (bool, error) {
	now, err := c.Store.Chosen(round.DomainID)
	if err != nil {
		return false, err
	}
	if (now == nil) != (j.before == nil) || now != nil && *now != *j.before {
		return false, nil
	}
	done, err := c.Store.Finish(round, &j.outcome)
	if err != nil || !done {
		return err == nil, err
	}
	if j.model != nil {
		c.Models.Put(round.DomainID, round.Domain, round.Version, j.model)
		j.served = true
		log(round, "served")
	} else {
		log(round, "refused")
	}
	return true, nil
}

// judge measures the candidate, the current version and the base on the same sentences. nil: the round must end.
func judge(c *core.Core, round *store.Round, digest string) (*judged, error) {
	terms, err := c.Store.Terms(round.DomainID)
	if err != nil {
		return nil, err
	}
	s := newSets(round, c.Base.Regression, terms)
	base, err := c.Base.LoadToServe(c.Learner())
	if err != nil {
		return nil, err
	}
	defer base.Close()
	measureModel := func(model *models.Model) (*measured, error) {
		c.SetProgress(progress(round, "measuring", 0))
		return measure(c.Closing(), model.Model, c.Base.Frame, s, c.Settings.Beam,
			func(took time.Duration) { rest(c, took) })
	}
	measureAdapter := func(version int64) (*measured, error) {
		model, err := base.WithAdapter(models.AdapterFolder(c.Settings.Data, round.Domain, version))
		if err != nil {
			return nil, err
		}
		defer model.Close()
		return measureModel(model)
	}
	ofBase, err := measureModel(base)
	if err != nil {
		return nil, err
	}
	before, version := ofBase, int64(0)
	current, err := currentVersion(c, round)
	if err != nil {
		return nil, err
	}
	if current != nil {
		version = current.Version
		if before, err = measureAdapter(version); err != nil {
			return nil, err
		}
	}
	candidate, err := measureAdapter(round.Version)
	if err != nil || c.MustEndRound() {
		return nil, err
	}
	j := &judged{before: current}
	if j.outcome, err = outcomeOf(c, round, digest, version, before, candidate, ofBase); err != nil {
		return nil, err
	}
	if j.outcome.Serve {
		j.model, err = c.Models.WithAdapter(models.AdapterFolder(c.Settings.Data, round.Domain, round.Version))
	}
	return j, err
}

func outcomeOf(c *core.Core, round *store.Round, digest string, version int64, before, candidate, base *measured) (store.Outcome, error) {
	why := refusal(&candidate.figures, &before.figures, &base.figures, &c.Settings.Bounds)
	outcome := store.Outcome{Serve: why == "", Hash: &digest, Reason: why}
	if outcome.Serve {
		outcome.Reason = "it is better"
	}
	var err error
	outcome.Figures, err = json.Marshal(map[string]any{
		"candidate": candidate.figures, "before": before.figures, "base": base.figures,
		"before_version": version, "examples": examples(round, before.held, candidate.held),
	})
	return outcome, err
}

// currentVersion is the version that is served, after one that is damaged on disk was replaced; nil is the base.
func currentVersion(c *core.Core, round *store.Round) (*store.Chosen, error) {
	for {
		chosen, err := c.Store.Chosen(round.DomainID)
		if chosen == nil || err != nil {
			return nil, err
		}
		err = models.CheckAdapter(models.AdapterFolder(c.Settings.Data, round.Domain, chosen.Version), chosen.Hash)
		if err == nil {
			return chosen, nil
		}
		if fault.KindOf(err) != fault.Damaged {
			return nil, err
		}
		domain, err := c.Store.Domain(round.Domain)
		if err != nil {
			return nil, err
		}
		if err := c.Switching(func() error { _, err := c.LoadCurrent(&domain); return err }); err != nil {
			return nil, err
		}
	}
}

type example struct {
	Source string `json:"source"`
	Right  string `json:"right"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// examples gives held-out corrections whose translation has changed, before others.
func examples(round *store.Round, before, after []string) []example {
	all := make([]example, len(before))
	for i := range all {
		all[i] = example{round.Held[i].Source, round.Held[i].Target, before[i], after[i]}
	}
	same := func(e example) int {
		if e.Before == e.After {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b example) int { return same(a) - same(b) })
	return all[:min(len(all), examplesShown)]
}

func log(round *store.Round, phase string) {
	fmt.Fprintf(os.Stderr, "learning-service: %s %d: %s\n", round.Domain, round.Version, phase)
}

func progress(round *store.Round, phase string, update int64) *core.Progress {
	return &core.Progress{Domain: round.Domain, Version: round.Version, Phase: phase, Update: update, Of: round.Learning.Updates}
}

// rest leaves the rest of the time to other programs: took was the learner's share.
func rest(c *core.Core, took time.Duration) {
	share := c.Settings.TrainShare
	pause := min(time.Duration(float64(took)*(1-share)/share), longestPause)
	for end := time.Now().Add(pause); time.Now().Before(end) && !c.MustEndRound(); {
		time.Sleep(min(time.Until(end), 50*time.Millisecond))
	}
}

// watch is the observer of a round.
type watch struct {
	core  *core.Core
	round *store.Round
}

func (w *watch) updated(update int64, took time.Duration) error {
	w.core.SetProgress(progress(w.round, "training", update))
	rest(w.core, took)
	if w.core.MustEndRound() {
		return errEnd
	}
	return nil
}

func (w *watch) writing() { log(w.round, "writing") }

func (w *watch) validated(point store.Point) error { return w.core.Store.AddPoint(w.round, point) }
