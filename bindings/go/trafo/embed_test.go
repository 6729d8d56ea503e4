package trafo_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func losses(t *testing.T, trainer *trafo.Trainer, count int) (all []float64) {
	t.Helper()
	for range count {
		all = append(all, must[trafo.StepResult](t)(trainer.Step()).Loss)
	}
	return all
}

func TestRateOfAFunction(t *testing.T) {
	trainer := newLesson(t).trainer(t)
	ok(t, trainer.SetRate(func(update int64, scheduled float64) float64 { return float64(update) + scheduled }))
	if rate := must[trafo.StepResult](t)(trainer.Step()).LearningRate; rate <= 1 || rate > 1.1 {
		t.Errorf("rate %v", rate)
	}
	ok(t, trainer.SetRate(func(int64, float64) float64 { panic("in a function") }))
	_, err := trainer.Step()
	wantError(t, err, trafo.ErrInvalidArgument)
}

func TestPairsOfAFunction(t *testing.T) {
	l := newLesson(t)
	want := losses(t, l.trainer(t), 3)
	source, target := sentences()
	asked := 0
	train := must[*trafo.Corpus](t)(trafo.NewCorpusFunc(int64(len(source)), 1, func(i int64) (string, string, error) {
		asked++
		return source[i], target[i], nil
	}))
	defer train.Close()
	l.newModel(t)
	l.train.Close()
	l.train = train
	got := losses(t, l.trainer(t), 3)
	wantValues(t, "losses", got, want)
	if asked < len(source) {
		t.Errorf("asked for %d pairs", asked)
	}
	l.newModel(t)
	l.train = must[*trafo.Corpus](t)(trafo.NewCorpusFunc(3, 1, func(int64) (string, string, error) {
		return "", "", errors.New("no pair")
	}))
	defer l.train.Close()
	trainer, err := l.model.NewTrainer(l.tokenizer, l.train, l.valid, &l.options)
	if err == nil {
		_, err = trainer.Step()
		trainer.Close()
	}
	wantError(t, err, trafo.ErrCancelled)
}

type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestRunsInBytes(t *testing.T) {
	l := newLesson(t)
	first := l.trainer(t)
	losses(t, first, 2)
	var state bytes.Buffer
	ok(t, first.WriteState(&state))
	want := losses(t, first, 2)
	first.Close()
	l.newModel(t)
	second := l.trainer(t)
	ok(t, second.ReadState(bytes.NewReader(state.Bytes())))
	wantValues(t, "losses", losses(t, second, 2), want)
	wantError(t, second.ReadState(bytes.NewReader(state.Bytes()[:state.Len()-1])), trafo.ErrCorruptFile)
	wantError(t, second.WriteState(full{}), errFull)
	second.Close()

	var file, pieces bytes.Buffer
	ok(t, l.model.WriteModel(&file))
	if file.String() != l.weights(t) {
		t.Error("a model's bytes are not those of its file")
	}
	read := must[*trafo.Model](t)(l.context.ReadModel(&file))
	ok(t, read.Close())
	ok(t, l.tokenizer.WriteModel(&pieces))
	if pieces.Len() == 0 {
		t.Error("a tokenizer has no bytes")
	}
}
