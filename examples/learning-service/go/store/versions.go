package store

import (
	"encoding/json"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
)

// Chosen is a version that is to be served, and the hash of its adapter.
type Chosen struct {
	Version int64
	Hash    string
}

// Version is a version as clients get it.
type Version struct {
	Domain      string          `json:"domain"`
	Version     int64           `json:"version"`
	State       string          `json:"state"` // learning, good, refused, failed, damaged or forgotten
	Current     bool            `json:"current"`
	Seed        uint64          `json:"seed"`
	Learning    json.RawMessage `json:"learning"`
	Began       int64           `json:"began"` // milliseconds since 1970
	Ended       *int64          `json:"ended"`
	Hash        *string         `json:"hash"`
	Figures     json.RawMessage `json:"figures"`
	Reason      *string         `json:"reason"`
	Corrections []int64         `json:"corrections"` // numbers of those that it learned
	HeldOut     []int64         `json:"held_out"`    // and of those that it was measured on
	Points      []Point         `json:"points"`
}

// OfVersion names a version.
type OfVersion struct {
	Domain  string `json:"domain"`
	Version int64  `json:"version"`
}

// Forgotten is the result of the deletion of a person's rows.
type Forgotten struct {
	Corrections int         `json:"corrections"`
	Versions    []OfVersion `json:"versions"` // whose adapters had learned from them
}

// Chosen gives the version that a domain serves; nil is the base.
func (s *Store) Chosen(domain int64) (*Chosen, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	var c Chosen
	there, err := s.get(`SELECT v.version, v.hash FROM domains d JOIN versions v ON v.domain = d.id AND v.version = d.current
		WHERE d.id = ?1`, []any{domain}, &c.Version, &c.Hash)
	if !there {
		return nil, err
	}
	return &c, nil
}

// Good gives a version that may be served if its files have the hash, nil for 0. It may have been damaged before.
// Conflict says why it may not.
func (s *Store) Good(domain *Domain, version int64) (*Chosen, error) {
	if version == 0 {
		return nil, nil
	}
	var state string
	var hash *string
	s.lock.Lock()
	there, err := s.get("SELECT state, hash FROM versions WHERE domain = ?1 AND version = ?2",
		[]any{domain.ID, version}, &state, &hash)
	s.lock.Unlock()
	switch {
	case err != nil:
		return nil, err
	case !there:
		return nil, fault.New(fault.NotFound, "%s has no version %d", domain.Name, version)
	case hash == nil || state != "good" && state != "damaged":
		return nil, fault.New(fault.Conflict, "version %d of %s is %s and cannot be served", version, domain.Name, state)
	}
	return &Chosen{version, *hash}, nil
}

// RollBack makes a version whose files are whole, or 0 for the base, the current one.
func (s *Store) RollBack(domain, version int64) error {
	return s.write(func() error {
		if err := s.run(`UPDATE versions SET state = 'good', reason = 'its files are whole again'
			WHERE domain = ?1 AND version = ?2 AND state = 'damaged'`, domain, version); err != nil {
			return err
		}
		return s.toVersion(domain, version, "rollback")
	})
}

// MarkDamaged notes that an adapter is damaged; another good version becomes the current one if it was.
func (s *Store) MarkDamaged(domain, version int64, reason string) error {
	return s.write(func() error {
		if err := s.run("UPDATE versions SET state = 'damaged', reason = ?3 WHERE domain = ?1 AND version = ?2",
			domain, version, reason); err != nil {
			return err
		}
		return s.fallBack(domain, version, "damaged")
	})
}

func (s *Store) toVersion(domain, version int64, cause string) error {
	if err := s.run("UPDATE domains SET current = ?2 WHERE id = ?1", domain, version); err != nil {
		return err
	}
	return s.run("INSERT INTO switches (domain, version, cause, at) VALUES (?1, ?2, ?3, ?4)", domain, version, cause, Now())
}

// fallBack takes a version that cannot be served away from its domain, which gets the newest good version below
// it, else the newest good one, else the base.
func (s *Store) fallBack(domain, version int64, cause string) error {
	var current, other int64
	if _, err := s.get("SELECT current FROM domains WHERE id = ?1", []any{domain}, &current); current != version || err != nil {
		return err
	}
	if _, err := s.get(`SELECT version FROM versions WHERE domain = ?1 AND version <> ?2 AND state = 'good'
		ORDER BY version < ?2 DESC, version DESC LIMIT 1`, []any{domain, version}, &other); err != nil {
		return err
	}
	return s.toVersion(domain, other, cause)
}

// Forget deletes a person's corrections. The versions that learned or were measured with them cannot be served any
// more, and their domains learn anew. Their text is in the files until RemoveDeletedText.
func (s *Store) Forget(who string) (forgotten Forgotten, err error) {
	type affected struct {
		domain, version int64
		name            string
	}
	forgotten.Versions = []OfVersion{}
	err = s.write(func() error {
		all, err := list(s, func(scan func(...any) error) (a affected, err error) {
			err = scan(&a.domain, &a.name, &a.version)
			return a, err
		}, `SELECT DISTINCT v.domain, d.name, v.version FROM corrections c
			JOIN version_corrections v ON v.correction = c.id JOIN domains d ON d.id = v.domain
			WHERE c.person = ?1 ORDER BY v.domain, v.version DESC`, who)
		if err != nil {
			return err
		}
		for _, a := range all {
			if err := s.run(`UPDATE versions SET state = 'forgotten', figures = NULL,
				reason = 'corrections that it learned from were deleted' WHERE domain = ?1 AND version = ?2`,
				a.domain, a.version); err != nil {
				return err
			}
			if err := s.run("UPDATE domains SET asked = 1 WHERE id = ?1", a.domain); err != nil {
				return err
			}
			forgotten.Versions = append(forgotten.Versions, OfVersion{a.name, a.version})
		}
		for _, a := range all {
			if err := s.fallBack(a.domain, a.version, "deletion"); err != nil {
				return err
			}
		}
		if forgotten.Corrections, err = s.change("DELETE FROM corrections WHERE person = ?1", who); err != nil {
			return err
		}
		// Noted in the same transaction: a process that is killed before it removes the text does so later.
		return s.run("INSERT OR REPLACE INTO meta VALUES ('deleted', '1')")
	})
	return forgotten, err
}

// RemoveDeletedText removes the text of deleted rows from the files of the database, if there is some. The log
// has it until it is truncated, and so have the gaps between rows, also with secure_delete: pages are written
// anew, whole.
func (s *Store) RemoveDeletedText() error {
	s.lock.Lock()
	defer s.lock.Unlock()
	var deleted, waits bool
	if _, err := s.get("SELECT EXISTS (SELECT * FROM meta WHERE name = 'deleted')", nil, &deleted); !deleted || err != nil {
		return err
	}
	if err := s.run("VACUUM"); err != nil {
		return err
	}
	var inLog, written int64
	if _, err := s.get("PRAGMA wal_checkpoint(TRUNCATE)", nil, &waits, &inLog, &written); err != nil {
		return err
	}
	if waits {
		return fault.New(fault.Unavailable, "the log of the database is in use")
	}
	return s.run("DELETE FROM meta WHERE name = 'deleted'")
}

// States gives the state of each version of a domain.
func (s *Store) States(domain int64) (map[int64]string, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	states := map[int64]string{}
	_, err := list(s, func(scan func(...any) error) (struct{}, error) {
		var version int64
		var state string
		err := scan(&version, &state)
		states[version] = state
		return struct{}{}, err
	}, "SELECT version, state FROM versions WHERE domain = ?1", domain)
	return states, err
}

// Versions gives the newest versions of a domain up to last, the newest first, at most 50.
func (s *Store) Versions(domain *Domain, last int64) ([]Version, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	versions, err := list(s, func(scan func(...any) error) (v Version, err error) {
		var seed int64
		var learning string
		var figures *string
		err = scan(&v.Version, &v.State, &seed, &learning, &v.Began, &v.Ended, &v.Hash, &figures, &v.Reason)
		v.Domain, v.Current, v.Seed = domain.Name, v.Version == domain.Current, uint64(seed)
		v.Learning, v.Figures = asJSON(&learning), asJSON(figures)
		v.Corrections, v.HeldOut, v.Points = []int64{}, []int64{}, []Point{}
		return v, err
	}, `SELECT version, state, seed, learning, began, ended, hash, figures, reason
		FROM versions WHERE domain = ?1 AND version <= ?2 ORDER BY version DESC LIMIT ?3`, domain.ID, last, shown)
	if err != nil || len(versions) == 0 {
		return versions, err
	}
	of := map[int64]*Version{}
	for i := range versions {
		of[versions[i].Version] = &versions[i]
	}
	first := versions[len(versions)-1].Version
	if _, err = list(s, func(scan func(...any) error) (struct{}, error) {
		var version, correction int64
		var held bool
		err := scan(&version, &correction, &held)
		if v := of[version]; v != nil && held {
			v.HeldOut = append(v.HeldOut, correction)
		} else if v != nil {
			v.Corrections = append(v.Corrections, correction)
		}
		return struct{}{}, err
	}, `SELECT version, correction, held FROM version_corrections
		WHERE domain = ?1 AND version BETWEEN ?2 AND ?3 ORDER BY 1, 2`, domain.ID, first, last); err != nil {
		return nil, err
	}
	_, err = list(s, func(scan func(...any) error) (struct{}, error) {
		var version int64
		var p Point
		err := scan(&version, &p.Update, (*float64)(&p.Loss), (*float64)(&p.HeldLoss))
		if v := of[version]; v != nil {
			v.Points = append(v.Points, p)
		}
		return struct{}{}, err
	}, `SELECT version, step, loss, held_loss FROM points
		WHERE domain = ?1 AND version BETWEEN ?2 AND ?3 ORDER BY 1, 2`, domain.ID, first, last)
	return versions, err
}

// asJSON is null for a text that is missing or no JSON.
func asJSON(text *string) json.RawMessage {
	if text == nil || !json.Valid([]byte(*text)) {
		return json.RawMessage("null")
	}
	return json.RawMessage(*text)
}
