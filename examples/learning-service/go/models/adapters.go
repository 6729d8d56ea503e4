package models

import (
	"errors"
	"fmt"
	"os"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/hash"
	"github.com/trafo-engine/trafo/examples/learning-service/go/store"
)

// CheckAdapter: Damaged says that files of an adapter are missing, or were read and are not those that the
// database knows.
func CheckAdapter(adapter, expected string) error {
	found, err := hash.Adapter(adapter)
	switch {
	case err != nil && fault.KindOf(err) == fault.NotFound:
		return fault.New(fault.Damaged, "%v", err)
	case err != nil:
		return err
	case found != expected:
		return fault.New(fault.Damaged, "%s is damaged: its hash is %s, not %s", adapter, found, expected)
	}
	return nil
}

// LoadCurrent serves the current version of a domain. A damaged one is noted, and another good one is served.
// Returns the reasons.
func LoadCurrent(m *Models, s *store.Store, data string, domain *store.Domain) (refused []string, err error) {
	for {
		chosen, err := s.Chosen(domain.ID)
		if err != nil {
			return refused, err
		}
		model, err := m.Load(data, domain.Name, chosen)
		switch {
		case err == nil && chosen == nil:
			m.Put(domain.ID, domain.Name, 0, nil)
			return refused, nil
		case err == nil:
			m.Put(domain.ID, domain.Name, chosen.Version, model)
			return refused, nil
		case fault.KindOf(err) != fault.Damaged:
			return refused, err
		}
		if err := s.MarkDamaged(domain.ID, chosen.Version, err.Error()); err != nil {
			return refused, err
		}
		refused = append(refused, fmt.Sprintf("version %d of %s is not served: %v", chosen.Version, domain.Name, err))
	}
}

// Remove removes a folder if it is there.
func Remove(folder string) error { return fault.IO(os.RemoveAll(folder)) }

// RemoveAdapters removes the adapters of versions, all that can be removed.
func RemoveAdapters(data string, versions []store.OfVersion) error {
	var failed []error
	for _, of := range versions {
		failed = append(failed, Remove(AdapterFolder(data, of.Domain, of.Version)))
	}
	return errors.Join(failed...)
}

// Clean removes files that versions no longer need: checkpoints of rounds that have ended, adapters that may not
// be served.
func Clean(s *store.Store, data string) error {
	domains, err := s.Domains()
	if err != nil {
		return err
	}
	for _, domain := range domains {
		states, err := s.States(domain.ID)
		if err != nil {
			return err
		}
		for version, state := range states {
			if state != "learning" {
				if err := Remove(WorkFolder(data, domain.Name, version)); err != nil {
					return err
				}
			}
			if state == "failed" || state == "forgotten" {
				if err := Remove(AdapterFolder(data, domain.Name, version)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
