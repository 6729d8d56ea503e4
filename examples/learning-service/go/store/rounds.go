package store

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/hash"
	"github.com/trafo-engine/trafo/examples/learning-service/go/settings"
)

// Pair is a source and its translation.
type Pair struct{ Source, Target string }

// Round has the inputs of a round. They are stored when it begins and do not change any more.
type Round struct {
	DomainID    int64
	Domain      string
	Version     int64
	Seed        uint64
	Learning    settings.Learning
	Train, Held []Pair
}

// Outcome is the end of a round.
type Outcome struct {
	Serve   bool    // whether the version is served from now on
	Hash    *string // of the adapter; nil if there is none
	Figures json.RawMessage
	Reason  string
}

// Point is a validation of a round.
type Point struct {
	Update   int64            `json:"update"`
	Loss     settings.Decimal `json:"loss"`      // cross-entropy per token of the last update
	HeldLoss settings.Decimal `json:"held_loss"` // of the held-out corrections
}

// NextRound gives the round that was begun and has not ended, or a new one of a domain that is due: with batch
// corrections after the last round, or if one was asked for. nil: there is none.
func (s *Store) NextRound(batch int, learning *settings.Learning) (*Round, error) {
	if round, err := s.unfinished(); round != nil || err != nil {
		return round, err
	}
	domains, err := s.Domains()
	if err != nil {
		return nil, err
	}
	// Those whose last round is the longest ago, counted in corrections, go first: no domain keeps others waiting.
	slices.SortStableFunc(domains, func(a, b Domain) int { return int(a.UpTo - b.UpTo) })
	for _, domain := range domains {
		if !domain.Asked && domain.Pending < batch {
			continue
		}
		version, err := s.begin(&domain, learning)
		if err != nil {
			return nil, err
		}
		if version != 0 {
			return s.round(domain.ID, version)
		}
	}
	return nil, nil
}

// unfinished ends a round whose settings cannot be read, of another version of the program, as failed.
func (s *Store) unfinished() (*Round, error) {
	for {
		var domain, version int64
		var text string
		s.lock.Lock()
		there, err := s.get(`SELECT domain, version, learning FROM versions WHERE state = 'learning'
			ORDER BY began, domain LIMIT 1`, nil, &domain, &version, &text)
		s.lock.Unlock()
		if !there || err != nil {
			return nil, err
		}
		var learning settings.Learning
		unreadable := learning.Read(text)
		if unreadable == nil {
			return s.round(domain, version)
		}
		if err := s.write(func() error {
			return s.run("UPDATE versions SET state = 'failed', reason = ?3, ended = ?4 WHERE domain = ?1 AND version = ?2",
				domain, version, "its settings cannot be read: "+unreadable.Error(), Now())
		}); err != nil {
			return nil, err
		}
	}
}

// begin stores the inputs of a round. 0: there is nothing to learn, or nothing to measure it by.
func (s *Store) begin(domain *Domain, learning *settings.Learning) (version int64, err error) {
	text, err := json.Marshal(learning)
	if err != nil {
		return 0, err
	}
	err = s.write(func() error {
		chosen, err := s.active(domain.ID, learning)
		if err != nil {
			return err
		}
		held := 0
		for _, each := range chosen {
			if each.held {
				held++
			}
		}
		if held == 0 || held == len(chosen) {
			return nil
		}
		if err := s.run("UPDATE domains SET asked = 0 WHERE id = ?1", domain.ID); err != nil {
			return err
		}
		if _, err := s.get("SELECT coalesce(max(version), 0) + 1 FROM versions WHERE domain = ?1",
			[]any{domain.ID}, &version); err != nil {
			return err
		}
		seed := hash.Seed(strconv.FormatUint(learning.Seed, 10), domain.Name, strconv.FormatInt(version, 10))
		if err := s.run(`INSERT INTO versions (domain, version, state, up_to, seed, learning, began)
			SELECT ?1, ?2, 'learning', max(id), ?3, ?4, ?5 FROM corrections WHERE domain = ?1`,
			domain.ID, version, int64(seed), string(text), Now()); err != nil {
			return err
		}
		for _, each := range chosen {
			if err := s.run("INSERT INTO version_corrections VALUES (?1, ?2, ?3, ?4)",
				domain.ID, version, each.id, each.held); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return version, nil
}

type candidate struct {
	id             int64
	person, source string
	held           bool
}

// active gives the corrections that a round learns from or is measured by, in the order of their numbers: of each
// sentence the newest, of each person the newest PerPerson, in all the newest Most. A sentence whose newest
// correction is beyond a person's limit keeps the one before.
func (s *Store) active(domain int64, learning *settings.Learning) ([]candidate, error) {
	all, err := list(s, func(scan func(...any) error) (c candidate, err error) {
		err = scan(&c.id, &c.person, &c.source, &c.held)
		return c, err
	}, "SELECT id, person, source, held FROM corrections WHERE domain = ?1 ORDER BY id DESC", domain)
	if err != nil {
		return nil, err
	}
	seen, ofPerson := map[string]bool{}, map[string]int{}
	var chosen []candidate
	for _, c := range all {
		if len(chosen) >= learning.Most {
			break
		}
		if ofPerson[c.person] >= learning.PerPerson || seen[c.source] {
			continue
		}
		seen[c.source] = true
		ofPerson[c.person]++
		chosen = append(chosen, c)
	}
	slices.Reverse(chosen)
	return chosen, nil
}

func (s *Store) round(domain, version int64) (*Round, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	round := Round{DomainID: domain, Version: version}
	var seed int64
	var text string
	there, err := s.get(`SELECT d.name, v.seed, v.learning FROM versions v JOIN domains d ON d.id = v.domain
		WHERE v.domain = ?1 AND v.version = ?2`, []any{domain, version}, &round.Domain, &seed, &text)
	if err != nil || !there {
		return nil, errorOr(err, fault.New(fault.Internal, "there is no version %d", version))
	}
	round.Seed = uint64(seed)
	if err := round.Learning.Read(text); err != nil {
		return nil, err
	}
	_, err = list(s, func(scan func(...any) error) (struct{}, error) {
		var pair Pair
		var held bool
		err := scan(&pair.Source, &pair.Target, &held)
		if held {
			round.Held = append(round.Held, pair)
		} else {
			round.Train = append(round.Train, pair)
		}
		return struct{}{}, err
	}, `SELECT c.source, c.correct, v.held FROM version_corrections v
		JOIN corrections c ON c.id = v.correction
		WHERE v.domain = ?1 AND v.version = ?2 ORDER BY c.id`, domain, version)
	return &round, err
}

func errorOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// AddPoint stores a validation, in place of an earlier one of the same update.
func (s *Store) AddPoint(round *Round, point Point) error {
	return s.write(func() error {
		return s.run("INSERT OR REPLACE INTO points VALUES (?1, ?2, ?3, ?4, ?5)",
			round.DomainID, round.Version, point.Update, float64(point.Loss), float64(point.HeldLoss))
	})
}

// Finish ends a round, and with Serve makes its version the current one. False: its corrections were deleted
// meanwhile, and nothing has changed.
func (s *Store) Finish(round *Round, outcome *Outcome) (done bool, err error) {
	state := "failed"
	switch {
	case outcome.Serve:
		state = "good"
	case outcome.Hash != nil:
		state = "refused"
	}
	figures := string(outcome.Figures)
	if figures == "" {
		figures = "null"
	}
	err = s.write(func() error {
		changed, err := s.change(`UPDATE versions SET state = ?3, hash = ?4, figures = ?5, reason = ?6, ended = ?7
			WHERE domain = ?1 AND version = ?2 AND state = 'learning'`,
			round.DomainID, round.Version, state, outcome.Hash, figures, outcome.Reason, Now())
		if done = changed == 1; !done || !outcome.Serve || err != nil {
			return err
		}
		return s.toVersion(round.DomainID, round.Version, "better")
	})
	return done && err == nil, err
}
