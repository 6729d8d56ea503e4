// Package models has the base model, the adapters on disk and the models that translate.
//
// A directory of a base has a model and a vocabulary as a run directory or translate-train import leaves them, and
// two sets of sentence pairs, one sentence a line: replay.source and replay.target are learned again in every
// round, regression.source and regression.target are never learned and show what a version has forgotten. That of a
// multilingual model has the file languages.
package models

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/trafo-engine/trafo/bindings/go/trafo"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/hash"
	"github.com/trafo-engine/trafo/examples/learning-service/go/settings"
	"github.com/trafo-engine/trafo/examples/learning-service/go/store"
)

// mostRegression is the most pairs of the regression set that are measured.
const mostRegression = 400

// languagesFile of a base has the names of two languages.
const languagesFile = "languages"

// Engine says how a model computes.
type Engine struct {
	Device  string  // cpu, cuda, cuda:N or auto
	Threads int     // 0: one for each core
	Share   float64 // of the time while models with share 1 compute
}

// Server says how requests are computed.
func Server(s *settings.Settings) Engine {
	return Engine{Device: s.Device, Threads: s.ServeThreads, Share: 1}
}

func (e Engine) newContext() (*trafo.Context, error) {
	device, index, err := trafo.ParseDevice(e.Device)
	if err != nil {
		return nil, err
	}
	options := []trafo.Option{trafo.WithDevice(device, index), trafo.WithBackgroundShare(e.Share)}
	if e.Threads > 0 {
		options = append(options, trafo.WithThreads(e.Threads))
	}
	return trafo.NewContext(options...)
}

// Model is a model with its device, which those with an adapter share with their base.
type Model struct {
	*trafo.Model
	Device *trafo.Context // nil: that of the base
}

// Close frees both, after the call in progress.
func (m *Model) Close() {
	// They fail in callbacks of the engine only.
	_ = m.Model.Close()
	if m.Device != nil {
		_ = m.Device.Close()
	}
}

// WithAdapter gives a model that translates by the adapter in a directory and takes the memory of the adapter alone.
// It is closed before m.
func (m *Model) WithAdapter(adapter string) (*Model, error) {
	model, err := m.Model.WithAdapter(adapter)
	if err != nil {
		return nil, err
	}
	return &Model{Model: model}, nil
}

// Load reads a model.
func Load(path string, engine Engine) (*Model, error) {
	device, err := engine.newContext()
	if err != nil {
		return nil, err
	}
	model, err := device.LoadModel(path)
	if err != nil {
		_ = device.Close()
		return nil, err
	}
	return &Model{model, device}, nil
}

// Base is the model that all adapters belong to.
type Base struct {
	*Frame
	model              string
	Replay, Regression []store.Pair
	// Hash is of model, vocabulary, both sets, and the chat template and the languages if there are any.
	Hash string
}

// readLanguages reads the languages of a multilingual base such as NLLB-200: two names with a space between; nil
// without the file.
func readLanguages(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := strings.Fields(string(text))
	if err == nil && len(names) != 2 {
		err = fault.New(fault.Invalid, "%s: it has %d names, it must have two, of the source's and the target's language", path, len(names))
	}
	return names, err
}

// OpenBase reads a directory.
func OpenBase(folder string) (*Base, error) {
	model, err := trafo.FindModel(folder)
	if err != nil {
		return nil, err
	}
	vocabulary, err := trafo.FindVocabulary(folder)
	if err != nil {
		return nil, err
	}
	files := []string{model, vocabulary}
	for _, name := range []string{"replay.source", "replay.target", "regression.source", "regression.target"} {
		files = append(files, filepath.Join(folder, name))
	}
	b := &Base{model: model}
	languages, err := readLanguages(filepath.Join(folder, languagesFile))
	if err != nil {
		return nil, err
	}
	if b.Frame, err = newFrame(vocabulary, model, languages); err != nil {
		return nil, err
	}
	if b.Replay, err = readPairs(files[2], files[3]); err != nil {
		return nil, err
	}
	if b.Regression, err = readPairs(files[4], files[5]); err != nil {
		return nil, err
	}
	b.Regression = b.Regression[:min(len(b.Regression), mostRegression)]
	if b.Hash, err = hash.Files(files...); b.Template != "" {
		sum := hash.Texts(b.Hash, b.Template)
		b.Hash = hex.EncodeToString(sum[:])
	}
	if languages != nil {
		sum := hash.Texts(b.Hash, languages[0], languages[1])
		b.Hash = hex.EncodeToString(sum[:])
	}
	return b, err
}

// Load gives a model to add an adapter to.
func (b *Base) Load(engine Engine) (*Model, error) { return Load(b.model, engine) }

// LoadToServe gives a model to translate with, and to make others of by WithAdapter.
func (b *Base) LoadToServe(engine Engine) (*Model, error) {
	model, err := b.Load(engine)
	if err != nil {
		return nil, err
	}
	if err := model.PrepareInference(); err != nil {
		model.Close()
		return nil, err
	}
	return model, nil
}

func readLines(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.New(fault.Invalid,
			"%v; a base has replay.source, replay.target, regression.source and regression.target", err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		lines = append(lines, strings.TrimSuffix(line, "\r"))
	}
	return lines, nil
}

// readPairs reads two files of equal line count without empty lines.
func readPairs(source, target string) ([]store.Pair, error) {
	sources, err := readLines(source)
	if err != nil {
		return nil, err
	}
	targets, err := readLines(target)
	if err != nil {
		return nil, err
	}
	if len(sources) != len(targets) || len(sources) == 0 {
		return nil, fault.New(fault.Invalid, "%s has %d lines and %s has %d: they must be as many, and at least one",
			source, len(sources), target, len(targets))
	}
	pairs := make([]store.Pair, len(sources))
	for i := range pairs {
		for path, line := range map[string]string{source: sources[i], target: targets[i]} {
			if strings.TrimSpace(line) == "" {
				return nil, fault.New(fault.Invalid, "%s:%d: the line is empty", path, i+1)
			}
		}
		pairs[i] = store.Pair{Source: sources[i], Target: targets[i]}
	}
	return pairs, nil
}
