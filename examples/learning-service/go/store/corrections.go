package store

import (
	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
)

// NewCorrection is a correction as a client sends it, checked.
type NewCorrection struct {
	Domain, Who         string
	Key                 *string
	Source, Said, Right string
	When                int64 // milliseconds since 1970; it orders nothing: the number of a correction does
}

// Correction is a stored correction.
type Correction struct {
	ID      int64  `json:"id"`
	Domain  string `json:"domain"`
	Who     string `json:"who"`
	Source  string `json:"source"`
	Said    string `json:"said"`
	Right   string `json:"right"`
	When    int64  `json:"when"`
	HeldOut bool   `json:"held_out"` // whether it measures and is not learned
}

// Domain has its own terms, corrections and versions.
type Domain struct {
	ID          int64
	Name        string
	Current     int64 // version that is served; 0 is the base
	Asked       bool  // whether a round was asked for, or must be because corrections were deleted
	Corrections int
	Pending     int   // corrections after the last round
	UpTo        int64 // the last correction before the last round
}

// AddCorrection stores a correction, once for each key, and gives its number and whether it is new. Without a
// key, a repetition of the newest correction of a sentence by the same person is not stored again.
func (s *Store) AddCorrection(c *NewCorrection, room Room) (id int64, fresh bool, err error) {
	err = s.write(func() error {
		domain, err := s.makeDomain(c.Domain, room.Domains)
		if err != nil {
			return err
		}
		there, err := s.repeated(domain, c, &id)
		if err != nil || there {
			return err
		}
		var inDomain, ofPerson int
		if _, err := s.get(`SELECT (SELECT count(*) FROM corrections WHERE domain = ?1),
			(SELECT count(*) FROM corrections WHERE person = ?2)`, []any{domain, c.Who}, &inDomain, &ofPerson); err != nil {
			return err
		}
		if inDomain >= room.PerDomain {
			return fault.New(fault.Limit, "a domain can have %d corrections", room.PerDomain)
		}
		if ofPerson >= room.PerPerson {
			return fault.New(fault.Limit, "a person can have %d corrections", room.PerPerson)
		}
		held, err := s.isHeldOut(domain, c.Source)
		if err != nil {
			return err
		}
		fresh = true
		_, err = s.get(`INSERT INTO corrections (domain, person, key, source, said, correct, at, held)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) RETURNING id`,
			[]any{domain, c.Who, c.Key, c.Source, c.Said, c.Right, c.When, held}, &id)
		return err
	})
	return id, fresh && err == nil, err
}

// repeated looks for the correction that c repeats. Conflict: its key is that of a correction with other content.
func (s *Store) repeated(domain int64, c *NewCorrection, id *int64) (bool, error) {
	var source, who, right string
	if c.Key != nil {
		there, err := s.get("SELECT id, source, correct FROM corrections WHERE domain = ?1 AND person = ?2 AND key = ?3",
			[]any{domain, c.Who, *c.Key}, id, &source, &right)
		if there && (source != c.Source || right != c.Right) {
			return true, fault.New(fault.Conflict, "correction %d has the same id %q and other content", *id, *c.Key)
		}
		return there, err
	}
	there, err := s.get("SELECT id, person, correct FROM corrections WHERE domain = ?1 AND source = ?2 ORDER BY id DESC LIMIT 1",
		[]any{domain, c.Source}, id, &who, &right)
	return there && who == c.Who && right == c.Right, err
}

// isHeldOut: every fifth sentence of a domain is held out, the third first, for good: a version is never measured
// on a sentence that an earlier one has learned.
func (s *Store) isHeldOut(domain int64, source string) (held bool, err error) {
	there, err := s.get("SELECT held FROM corrections WHERE domain = ?1 AND source = ?2 LIMIT 1", []any{domain, source}, &held)
	if there || err != nil {
		return held, err
	}
	var sentences int64
	_, err = s.get("SELECT count(DISTINCT source) FROM corrections WHERE domain = ?1", []any{domain}, &sentences)
	return sentences%5 == 2, err
}

func (s *Store) makeDomain(name string, most int) (id int64, err error) {
	if there, err := s.get("SELECT id FROM domains WHERE name = ?1", []any{name}, &id); there || err != nil {
		return id, err
	}
	var count int
	if _, err := s.get("SELECT count(*) FROM domains", nil, &count); err != nil {
		return 0, err
	}
	if count >= most {
		return 0, fault.New(fault.Limit, "there can be %d domains", most)
	}
	_, err = s.get("INSERT INTO domains (name) VALUES (?1) RETURNING id", []any{name}, &id)
	return id, err
}

// Term is a term and its translation.
type Term struct{ Source, Target string }

// SetTerm sets the translation of a term, in place of an earlier one.
func (s *Store) SetTerm(domain string, term Term, room Room) error {
	return s.write(func() error {
		id, err := s.makeDomain(domain, room.Domains)
		if err != nil {
			return err
		}
		if err := s.run(`INSERT INTO terms VALUES (?1, ?2, ?3)
			ON CONFLICT (domain, source) DO UPDATE SET target = excluded.target`, id, term.Source, term.Target); err != nil {
			return err
		}
		var count int
		if _, err := s.get("SELECT count(*) FROM terms WHERE domain = ?1", []any{id}, &count); err != nil {
			return err
		}
		if count > mostTerms { // the transaction is not committed
			return fault.New(fault.Limit, "a domain can have %d terms", mostTerms)
		}
		return nil
	})
}

// DeleteTerm deletes a term and says how many were there: 1 or 0.
func (s *Store) DeleteTerm(domain, source string) (deleted int, err error) {
	found, err := s.Domain(domain)
	if err != nil {
		return 0, err
	}
	err = s.write(func() error {
		deleted, err = s.change("DELETE FROM terms WHERE domain = ?1 AND source = ?2", found.ID, source)
		return err
	})
	return deleted, err
}

// Terms of a domain, in the order of their sources.
func (s *Store) Terms(domain int64) ([]Term, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return list(s, func(scan func(...any) error) (t Term, err error) {
		err = scan(&t.Source, &t.Target)
		return t, err
	}, "SELECT source, target FROM terms WHERE domain = ?1 ORDER BY source", domain)
}

// Domains gives all, in the order in which they were made.
func (s *Store) Domains() ([]Domain, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return list(s, func(scan func(...any) error) (d Domain, err error) {
		err = scan(&d.ID, &d.Name, &d.Current, &d.Asked, &d.Corrections, &d.Pending, &d.UpTo)
		return d, err
	}, `SELECT id, name, current, asked,
			(SELECT count(*) FROM corrections c WHERE c.domain = d.id),
			(SELECT count(*) FROM corrections c WHERE c.domain = d.id AND c.id >
				(SELECT coalesce(max(up_to), 0) FROM versions v WHERE v.domain = d.id)),
			(SELECT coalesce(max(up_to), 0) FROM versions v WHERE v.domain = d.id)
		FROM domains d ORDER BY id`)
}

// Domain finds a domain by its name.
func (s *Store) Domain(name string) (Domain, error) {
	domains, err := s.Domains()
	for _, domain := range domains {
		if domain.Name == name {
			return domain, nil
		}
	}
	if err == nil {
		err = fault.New(fault.NotFound, "there is no domain %q", name)
	}
	return Domain{}, err
}

// Ask notes that a round was asked for. Conflict: no correction came after the last round, or there are too few.
func (s *Store) Ask(name string) error {
	domain, err := s.Domain(name)
	if err != nil {
		return err
	}
	return s.write(func() error {
		var pending, kinds int
		if _, err := s.get(`SELECT count(*) FILTER (WHERE id >
				(SELECT coalesce(max(up_to), 0) FROM versions WHERE domain = ?1)), count(DISTINCT held)
			FROM corrections WHERE domain = ?1`, []any{domain.ID}, &pending, &kinds); err != nil {
			return err
		}
		if pending == 0 {
			return fault.New(fault.Conflict, "%s has no new corrections", name)
		}
		if kinds < 2 {
			return fault.New(fault.Conflict, "a round needs corrections of three sentences: the third is held out")
		}
		return s.run("UPDATE domains SET asked = 1 WHERE id = ?1", domain.ID)
	})
}

// Export gives all corrections of a person, the oldest first.
func (s *Store) Export(who string) ([]Correction, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return list(s, func(scan func(...any) error) (c Correction, err error) {
		err = scan(&c.ID, &c.Domain, &c.Who, &c.Source, &c.Said, &c.Right, &c.When, &c.HeldOut)
		return c, err
	}, `SELECT c.id, d.name, c.person, c.source, c.said, c.correct, c.at, c.held
		FROM corrections c JOIN domains d ON d.id = c.domain WHERE c.person = ?1 ORDER BY c.id`, who)
}
