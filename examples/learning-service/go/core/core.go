// Package core is shared by requests and the learner.
package core

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/models"
	"github.com/trafo-engine/trafo/examples/learning-service/go/settings"
	"github.com/trafo-engine/trafo/examples/learning-service/go/store"
)

// Progress says how far a round is.
type Progress struct {
	Domain  string `json:"domain"`
	Version int64  `json:"version"`
	Phase   string `json:"phase"` // training or measuring
	Update  int64  `json:"update"`
	Of      int    `json:"of"`
}

// Core has the state of the service.
type Core struct {
	Settings settings.Settings
	Store    *store.Store
	Base     *models.Base
	Models   *models.Models

	switching sync.Mutex // held while the current version changes, in the database and in memory
	status    sync.Mutex
	progress  *Progress
	fault     string        // why the last round could not be continued; it is tried again
	woken     chan struct{} // holds a token if the learner is to look for work
	closing   context.Context
	end       context.CancelFunc
	abandoned atomic.Bool // corrections were deleted: a round that has learned from them ends
}

// Open loads the base and the versions that are served. s: of the folder of the settings. Returns the reasons why
// versions are not served.
func Open(settings settings.Settings, s *store.Store) (*Core, []string, error) {
	base, err := models.OpenBase(settings.BaseFolder())
	if err != nil {
		return nil, nil, err
	}
	if err := s.BindBase(base.Hash); err != nil {
		return nil, nil, err
	}
	if err := models.Clean(s, settings.Data); err != nil {
		return nil, nil, err
	}
	served, err := models.NewModels(base, models.Server(&settings))
	if err != nil {
		return nil, nil, err
	}
	c := &Core{Settings: settings, Store: s, Base: base, Models: served, woken: make(chan struct{}, 1)}
	c.closing, c.end = context.WithCancel(context.Background())
	domains, err := s.Domains()
	if err != nil {
		return nil, nil, err
	}
	var refused []string
	for _, domain := range domains {
		reasons, err := c.LoadCurrent(&domain)
		if err != nil {
			return nil, nil, err
		}
		refused = append(refused, reasons...)
	}
	return c, refused, nil
}

// Room gives the largest numbers of rows.
func (c *Core) Room() store.Room {
	s := &c.Settings
	return store.Room{Domains: s.MostDomains, PerPerson: s.StoredPerPerson, PerDomain: s.MostCorrections}
}

// Learner says how training and measuring compute.
func (c *Core) Learner() models.Engine {
	s := &c.Settings
	return models.Engine{Device: s.Device, Threads: s.TrainThreads, Share: s.BusyShare}
}

// Progress of the round; nil: there is none.
func (c *Core) Progress() *Progress {
	c.status.Lock()
	defer c.status.Unlock()
	return c.progress
}

// SetProgress sets it; what p points to does not change afterwards.
func (c *Core) SetProgress(p *Progress) {
	c.status.Lock()
	defer c.status.Unlock()
	c.progress = p
}

// Fault says why the last round could not be continued; empty: it could.
func (c *Core) Fault() string {
	c.status.Lock()
	defer c.status.Unlock()
	return c.fault
}

// SetFault notes it.
func (c *Core) SetFault(fault string) {
	c.status.Lock()
	defer c.status.Unlock()
	c.fault = fault
}

// Wake has the learner look for work.
func (c *Core) Wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// Sleep waits for Wake or Close, at most so long.
func (c *Core) Sleep(most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-c.woken:
	case <-c.closing.Done():
	case <-timer.C:
	}
}

// Close ends the learner; its round is resumed by the next process.
func (c *Core) Close() { c.end() }

// Closing ends with Close, and with it translations of the learner.
func (c *Core) Closing() context.Context { return c.closing }

// BeginRound: deletions before it are in the database. Returns whether there were some.
func (c *Core) BeginRound() bool { return c.abandoned.Swap(false) }

// MustEndRound says that a round may not continue.
func (c *Core) MustEndRound() bool { return c.closing.Err() != nil || c.abandoned.Load() }

// Switching runs work while nobody else changes the current version of a domain.
func (c *Core) Switching(work func() error) error {
	c.switching.Lock()
	defer c.switching.Unlock()
	return work()
}

// RollBack serves an earlier version, or the base with 0. Conflict: it is not good. Damaged: its files are not whole.
// Then the domain serves what it did, unless that was the damaged version.
func (c *Core) RollBack(name string, version int64) error {
	return c.Switching(func() error {
		domain, err := c.Store.Domain(name)
		if err != nil {
			return err
		}
		chosen, err := c.Store.Good(&domain, version)
		if err != nil {
			return err
		}
		// Loaded first: a version that cannot be loaded must not be the current one.
		model, err := c.Models.Load(c.Settings.Data, name, chosen)
		if err != nil {
			if fault.KindOf(err) == fault.Damaged {
				if failed := c.Store.MarkDamaged(domain.ID, version, err.Error()); failed != nil {
					return failed
				}
				if _, failed := c.LoadCurrent(&domain); failed != nil {
					return failed
				}
			}
			return err
		}
		if err := c.Store.RollBack(domain.ID, version); err != nil {
			if model != nil {
				model.Close()
			}
			return err
		}
		c.Models.Put(domain.ID, name, version, model)
		return nil
	})
}

// LoadCurrent serves the current version of a domain anew. To be called within Switching.
func (c *Core) LoadCurrent(domain *store.Domain) ([]string, error) {
	return models.LoadCurrent(c.Models, c.Store, c.Settings.Data, domain)
}

// Forget deletes a person's corrections and the adapters that have learned from them. The learner removes the files of
// its round, if that has learned from them as well. An error after the commit undoes nothing: the rest is done as far
// as it can be, and the learner tries it again.
func (c *Core) Forget(who string) (forgotten store.Forgotten, err error) {
	var loaded error
	err = c.Switching(func() (err error) {
		if forgotten, err = c.Store.Forget(who); err != nil {
			return err
		}
		c.abandoned.Store(true)
		c.Models.Withdraw(forgotten.Versions)
		loaded = c.loadMissing()
		return nil
	})
	if err != nil {
		return forgotten, err
	}
	removed := models.RemoveAdapters(c.Settings.Data, forgotten.Versions)
	c.Wake()
	if failed := errors.Join(loaded, removed, c.Store.RemoveDeletedText()); failed != nil {
		return forgotten, fault.New(fault.Unavailable, "the corrections are deleted, the rest is tried again: %v", failed)
	}
	return forgotten, nil
}

// loadMissing serves the current versions of domains that serve the base in their place. To be called within Switching.
func (c *Core) loadMissing() error {
	domains, err := c.Store.Domains()
	failed := []error{err}
	for _, domain := range domains {
		if domain.Current != 0 && c.Models.ID(domain.Name) == models.BaseID {
			_, err := c.LoadCurrent(&domain)
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// Tidy does what a deletion has left to do, and removes files that are no longer needed.
func (c *Core) Tidy() error {
	loaded := c.Switching(c.loadMissing)
	return errors.Join(loaded, models.Clean(c.Store, c.Settings.Data), c.Store.RemoveDeletedText())
}
