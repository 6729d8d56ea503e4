package models

import (
	"context"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
	"github.com/trafo-engine/trafo/bindings/go/trafo/examples/serving"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/store"
)

// BaseID is the id of no domain: the base.
const BaseID = 0

// Search is the settings that lines must share to be translated together.
type Search struct {
	Domain                            int64
	Beam                              int
	Count                             int // translations of a line, at most Beam
	PresencePenalty, FrequencyPenalty float64
	Draws                             bool // whether the tokens are drawn in place of the search
	Draw                              Draw
}

// Draw says how tokens are drawn.
type Draw struct {
	Temperature, TopP float64
	Seed              uint64
	// Request is another number for each request: a draw depends on the place of a line among those that are
	// translated together.
	Request uint64
}

// Best asks for the best translation by beam search.
func Best(domain int64, beam int) Search { return Search{Domain: domain, Beam: beam, Count: 1} }

func (s *Search) options() *trafo.TranslateOptions {
	options := trafo.DefaultTranslateOptions()
	options.Beam, options.NBest = s.Beam, s.Count
	options.PresencePenalty, options.FrequencyPenalty = s.PresencePenalty, s.FrequencyPenalty
	if s.Draws {
		options.Sampling = Sampling(s.Draw)
	}
	return &options
}

// Sampling gives the options of the engine.
func Sampling(draw Draw) *trafo.Sampling {
	sampling := trafo.DefaultSampling()
	sampling.Temperature, sampling.TopP, sampling.Seed = draw.Temperature, draw.TopP, trafo.Some(draw.Seed)
	return &sampling
}

// Line has the translations of a line, by a version.
type Line struct {
	// Hypotheses has the best first; at least one, and fewer than were asked for if the search has found no more.
	Hypotheses   []trafo.Hypothesis
	SourceTokens int64
	Version      int64
}

// served is a model that is closed when nobody uses it any more.
type served struct {
	name    string
	version int64
	model   *Model
	users   int // of it, the one that serves the domain included; guarded by the lock of Models
}

// Models says which model serves a domain. A batch keeps the model that it began with, so that a switch fails no
// request.
type Models struct {
	base    *served
	lock    sync.Mutex
	domains map[int64]*served
}

// NewModels serves the base.
func NewModels(base *Base, engine Engine) (*Models, error) {
	model, err := base.LoadToServe(engine)
	if err != nil {
		return nil, err
	}
	return &Models{base: &served{model: model, users: 1}, domains: map[int64]*served{}}, nil
}

// ID is the id of a domain that has an adapter, or BaseID.
func (m *Models) ID(name string) int64 {
	m.lock.Lock()
	defer m.lock.Unlock()
	for id, served := range m.domains {
		if served.name == name {
			return id
		}
	}
	return BaseID
}

func (m *Models) take(domain int64) *served {
	m.lock.Lock()
	defer m.lock.Unlock()
	found := m.domains[domain]
	if found == nil {
		found = m.base
	}
	found.users++
	return found
}

func (m *Models) leave(s *served) {
	m.lock.Lock()
	s.users--
	unused := s.users == 0
	m.lock.Unlock()
	if unused { // not under the lock: freeing a model takes a moment
		s.model.Close()
	}
}

// Load loads the model of chosen, whose adapter is in data; nil is the base. Damaged: its files are. Other errors
// say nothing about the adapter: there may be no memory, for instance.
func (m *Models) Load(data, domain string, chosen *store.Chosen) (*Model, error) {
	if chosen == nil {
		return nil, nil
	}
	adapter := AdapterFolder(data, domain, chosen.Version)
	if err := CheckAdapter(adapter, chosen.Hash); err != nil {
		return nil, err
	}
	model, err := m.WithAdapter(adapter)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "version %d of %s cannot be loaded: %v", chosen.Version, domain, err)
	}
	return model, nil
}

// WithAdapter gives the model of an adapter, which takes the memory of the adapter alone.
func (m *Models) WithAdapter(adapter string) (*Model, error) {
	return m.base.model.WithAdapter(adapter)
}

// Put serves a version from the next batch on, or the base if model is nil.
func (m *Models) Put(domain int64, name string, version int64, model *Model) {
	m.lock.Lock()
	before := m.domains[domain]
	delete(m.domains, domain)
	if model != nil {
		m.domains[domain] = &served{name: name, version: version, model: model, users: 1}
	}
	m.lock.Unlock()
	if before != nil {
		m.leave(before)
	}
}

// Withdraw serves the base in place of versions that may not be served any more.
func (m *Models) Withdraw(versions []store.OfVersion) {
	for _, gone := range versions {
		m.lock.Lock()
		id, found := int64(BaseID), false
		for each, served := range m.domains {
			if served.name == gone.Domain && served.version == gone.Version {
				id, found = each, true
			}
		}
		m.lock.Unlock()
		if found {
			m.Put(id, gone.Domain, 0, nil)
		}
	}
}

// Translator translates with the model that is served when a batch begins.
func (m *Models) Translator(base *Base) serving.Translator[Search, Line] {
	return func(ctx context.Context, lines []string, how Search) ([]Line, int, error) {
		served := m.take(how.Domain)
		defer m.leave(served)
		result, err := base.Translate(ctx, served.model.Model, lines, how.options())
		if err != nil {
			return nil, 0, err
		}
		found := make([]Line, len(lines))
		for i := range found {
			found[i] = Line{result.Lines[i], result.Sources[i].Used, served.version}
		}
		return found, result.Truncated, nil
	}
}

// AdapterFolder is the directory of the adapter of a version.
func AdapterFolder(data, domain string, version int64) string {
	return filepath.Join(data, "adapters", domain, strconv.FormatInt(version, 10))
}

// WorkFolder is the directory of the checkpoints of a round.
func WorkFolder(data, domain string, version int64) string {
	return filepath.Join(data, "work", domain, strconv.FormatInt(version, 10))
}
