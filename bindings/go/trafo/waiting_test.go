package trafo_test

import (
	"context"
	"errors"
	"runtime/debug"
	"testing"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// A callback that waits for a goroutine that uses the same context waits for itself: that call is refused.
func TestCallbacksCannotWaitForTheirOwnContext(t *testing.T) {
	defer trafo.SetPatience(100 * time.Millisecond)()
	l := newLesson(t)
	l.options.LogFreq = trafo.Every(3, trafo.Updates)
	trainer := l.trainer(t)
	refused := 0
	reason, err := trainer.Run(t.Context(), 6, func(e trafo.Event) error {
		if e.Kind != trafo.EventLog {
			return nil
		}
		translated := make(chan error)
		go func() {
			_, err := l.model.Translate(t.Context(), l.tokenizer, []string{"eins"}, nil)
			translated <- err
		}()
		select {
		case err := <-translated:
			wantError(t, err, trafo.ErrInvalidArgument)
			refused++
		case <-time.After(time.Minute):
			return errors.New("the callback hangs")
		}
		return nil
	})
	if ok(t, err); reason != trafo.StopPaused || refused != 2 {
		t.Errorf("%v, %d refused", reason, refused)
	}
	must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, []string{"eins"}, nil))
}

// A goroutine that waits for the end of a run is served then, and a callback may take its time in the engine.
func TestCallsWaitForARunWithCallbacks(t *testing.T) {
	defer trafo.SetPatience(200 * time.Millisecond)()
	l := newLesson(t)
	l.options.LogFreq = trafo.Every(1, trafo.Updates)
	trainer, began, translated := l.trainer(t), make(chan bool, 1), make(chan error, 1)
	go func() {
		<-began
		_, err := l.model.Translate(t.Context(), l.tokenizer, []string{"eins"}, nil)
		translated <- err
	}()
	_, err := trainer.Run(t.Context(), 10, func(e trafo.Event) error {
		if e.Update == 1 && e.Kind == trafo.EventLog {
			began <- true
		}
		for begin := time.Now(); e.Update == 2 && time.Since(begin) < time.Second; {
			if _, err := l.model.Translate(t.Context(), l.tokenizer, []string{"zwei"}, nil); err != nil {
				return err
			}
		}
		return nil
	})
	ok(t, err)
	ok(t, <-translated)
}

// Functions that give the engine something get an error at once where they would wait for their own call.
func TestSuppliersCannotUseTheirOwnContext(t *testing.T) {
	l := newLesson(t)
	trainer := l.trainer(t)
	translate := func() error {
		_, err := l.model.Translate(t.Context(), l.tokenizer, []string{"eins"}, nil)
		return err
	}
	ok(t, trainer.SetBatches(func(int64) (trafo.Batch, error) { return trafo.Batch{}, translate() }))
	_, err := trainer.Step(t.Context())
	wantError(t, err, trafo.ErrInvalidArgument)
	ok(t, trainer.SetBatches(nil))
	wantError(t, l.model.WriteModel(writerFunc(func(data []byte) (int, error) { return len(data), translate() })), trafo.ErrInvalidArgument)
	// Another context is free.
	other := newContext(t)
	ok(t, trainer.SetRate(func(_ int64, scheduled float64) float64 { stillWorks(t, other); return scheduled }))
	must[trafo.StepResult](t)(trainer.Step(t.Context()))
	ok(t, translate())
}

type writerFunc func(data []byte) (int, error)

func (f writerFunc) Write(data []byte) (int, error) { return f(data) }

const mebibyte = 1 << 18 // float32s

// Tensors that the program forgets are collected although the collector does not see their memory.
func TestForgottenTensorsDriveTheCollector(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it does not run by itself
	c := newContext(t)
	data := make([]float32, 4*mebibyte)
	for range 300 {
		must[*trafo.Tensor](t)(trafo.NewTensor(c, data, len(data)))
	}
	if peak := must[trafo.MemoryStats](t)(c.MemoryStats()).Peak; peak > 600<<20 {
		t.Errorf("1200 MiB of forgotten tensors took %d MiB", peak>>20)
	}
}

// Closing a context frees its tensors, also those that nobody can close any more.
func TestClosingAContextFreesItsTensors(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	c := must[*trafo.Context](t)(trafo.NewContext())
	l := newLesson(t)
	data := make([]float32, 40*mebibyte) // more than malloc keeps
	held := tensor(t, c, data[:mebibyte], mebibyte)
	for range 5 {
		tensor(t, c, data, len(data))
	}
	ok(t, must[*trafo.Tensor](t)(c.Zeros(trafo.BFloat16, 7)).Close())
	ok(t, must[*trafo.Tensor](t)(c.Zeros(trafo.Float64, 7)).Close())
	if count, bytes := c.OpenTensors(); count != 6 || bytes != 201<<20 {
		t.Errorf("%d tensors of %d bytes are open", count, bytes)
	}
	before := resident(t)
	ok(t, c.Close())
	if count, bytes := c.OpenTensors(); count != 0 || bytes != 0 {
		t.Errorf("%d tensors of %d bytes are open", count, bytes)
	}
	if freed := before - resident(t); freed < 100<<10 {
		t.Errorf("closing the context freed %d KiB of 201 MiB", freed)
	}
	_, err := held.Float32s()
	wantError(t, err, trafo.ErrClosed)
	ok(t, held.Close())
	must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, []string{"eins"}, nil))
}

// A call that waits for the engine ends with its context, and so does a score that has begun.
func TestContextsEndWaitingCalls(t *testing.T) {
	l := newLesson(t)
	l.options.LogFreq = trafo.Every(1, trafo.Updates)
	trainer, other := l.trainer(t), l.trainer(t)
	source, target := sentences()
	_, err := trainer.Run(t.Context(), 1, func(e trafo.Event) error {
		if e.Kind != trafo.EventLog {
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		calls := map[string]func() error{
			"new trainer": func() error { _, err := l.model.NewTrainer(ctx, l.tokenizer, l.train, nil, nil); return err },
			"step":        func() error { _, err := other.Step(ctx); return err },
			"validate":    func() error { _, err := other.Validate(ctx); return err },
			"score":       func() error { _, err := l.model.Score(ctx, l.tokenizer, source, target); return err },
		}
		failures := make(chan error)
		for _, call := range calls {
			go func() { failures <- call() }()
		}
		time.AfterFunc(20*time.Millisecond, cancel)
		for range calls {
			wantError(t, <-failures, trafo.ErrCancelled, context.Canceled)
		}
		return nil
	})
	ok(t, err)
	ended, cancel := context.WithCancel(t.Context())
	time.AfterFunc(30*time.Millisecond, cancel)
	for begin := time.Now(); err == nil && time.Since(begin) < time.Minute; {
		_, err = l.model.Score(ended, l.tokenizer, source, target)
	}
	wantError(t, err, trafo.ErrCancelled, context.Canceled)
}
