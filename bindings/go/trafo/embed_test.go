package trafo_test

import (
	"bytes"
	"errors"
	"math"
	"sync/atomic"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func losses(t *testing.T, trainer *trafo.Trainer, count int) (all []float64) {
	t.Helper()
	for range count {
		all = append(all, must[trafo.StepResult](t)(trainer.Step(t.Context())).Loss)
	}
	return all
}

func TestRateOfAFunction(t *testing.T) {
	trainer := newLesson(t).trainer(t)
	ok(t, trainer.SetRate(func(update int64, scheduled float64) float64 { return float64(update) + scheduled }))
	if rate := must[trafo.StepResult](t)(trainer.Step(t.Context())).LearningRate; rate <= 1 || rate > 1.1 {
		t.Errorf("rate %v", rate)
	}
	ok(t, trainer.SetRate(func(int64, float64) float64 { return -1 }))
	_, err := trainer.Step(t.Context())
	wantError(t, err, trafo.ErrInvalidArgument)
	ok(t, trainer.SetRate(func(int64, float64) float64 { panic("in a function") }))
	wantPanicOf(t, "in a function", func() { trainer.Step(t.Context()) })
	ok(t, trainer.SetRate(nil))
	if rate := must[trafo.StepResult](t)(trainer.Step(t.Context())).LearningRate; rate <= 0 || rate > 1e-3 {
		t.Errorf("rate %v", rate)
	}
}

func wantPanicOf(t *testing.T, want any, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got := recover(); got != want {
			t.Errorf("panic %v, not %v", got, want)
		}
	}()
	f()
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
}

var errNoPair = errors.New("no pair")

// The call that needs a pair reports the error of the function of pairs, and may be made again.
func TestFailuresOfPairs(t *testing.T) {
	l := newLesson(t)
	source, target := sentences()
	var fail func() error
	pairs := must[*trafo.Corpus](t)(trafo.NewCorpusFunc(int64(len(source)), 1, func(i int64) (string, string, error) {
		return source[i], target[i], fail()
	}))
	defer pairs.Close()
	broken := func() error { return errNoPair }
	whole := func() error { return nil }
	fail = broken
	_, _, err := pairs.Pair(0)
	wantError(t, err, trafo.ErrIO, errNoPair)
	_, err = pairs.TrainTokenizer(t.Context(), nil)
	wantError(t, err, trafo.ErrIO, errNoPair)
	_, _, err = pairs.HoldOut(3)
	wantError(t, err, trafo.ErrIO, errNoPair)
	fail = func() error { panic("in a function") }
	wantPanicOf(t, "in a function", func() { pairs.Pair(0) })
	fail = whole
	mixed := must[*trafo.Corpus](t)(trafo.MixCorpora([]trafo.WeightedCorpus{{pairs, 1}, {pairs, 2}}))
	defer mixed.Close()
	fail = broken
	_, err = l.model.NewTrainer(t.Context(), l.tokenizer, mixed, mixed, &l.options)
	wantError(t, err, trafo.ErrIO, errNoPair)

	// In the midst of a run, which says so, and not that it was stopped; it goes on when it can.
	// The first epoch, whose memory is planned, is asked for before the trainer is made.
	var asked, until atomic.Int64
	until.Store(math.MaxInt64)
	fail = func() error {
		if asked.Add(1) > until.Load() {
			return errNoPair
		}
		return nil
	}
	l.train.Close()
	l.train = mixed
	trainer := l.trainer(t)
	until.Store(asked.Load())
	stop, err := trainer.Run(t.Context(), 1000, nil)
	wantError(t, err, trafo.ErrIO, errNoPair)
	if stop != trafo.StopNone {
		t.Errorf("stop: %v", stop)
	}
	until.Store(math.MaxInt64)
	must[trafo.StepResult](t)(trainer.Step(t.Context()))
}

// Closed by its own function, while it is read: what is being done is done, and nothing waits.
func TestCorporaAreClosedInTheMidstOfACall(t *testing.T) {
	var pairs *trafo.Corpus
	var during error
	pairs = must[*trafo.Corpus](t)(trafo.NewCorpusFunc(3, 1, func(int64) (string, string, error) {
		ok(t, pairs.Close())
		_, during = pairs.Info()
		return "a", "b", nil
	}))
	source, target, err := pairs.Pair(0)
	ok(t, err)
	if source != "a" || target != "b" {
		t.Error(source, target)
	}
	wantError(t, during, trafo.ErrClosed)
}

type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

type panicking struct{}

func (panicking) Write([]byte) (int, error) { panic("in a writer") }
func (panicking) Read([]byte) (int, error)  { panic("in a reader") }

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
	err := second.WriteState(full{})
	wantError(t, err, errFull, trafo.ErrIO)
	var e *trafo.Error
	if !errors.As(err, &e) || e.Origin != "Trainer.WriteState" {
		t.Errorf("%#v", err)
	}
	wantPanicOf(t, "in a writer", func() { second.WriteState(panicking{}) })
	wantPanicOf(t, "in a reader", func() { second.ReadState(panicking{}) })
	second.Close()

	var file, vocabulary bytes.Buffer
	ok(t, l.model.WriteModel(&file))
	if file.String() != l.weights(t) {
		t.Error("a model's bytes are not those of its file")
	}
	data := file.Bytes()
	read := must[*trafo.Model](t)(l.context.ReadModel(&file))
	ok(t, read.Close())
	as := must[*trafo.Model](t)(l.context.ReadModelAs(bytes.NewReader(data), trafo.Float32))
	ok(t, as.Close())
	_, err = l.context.ReadModelAs(bytes.NewReader(data), trafo.BFloat16)
	wantError(t, err, trafo.ErrUnsupported)
	ok(t, l.tokenizer.WriteModel(&vocabulary))
	if vocabulary.Len() == 0 {
		t.Error("a tokenizer has no bytes")
	}
}
