package trafo_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// Batches of a function are trained on as the same ones of the corpus are, bit by bit.
func TestBatchesOfAFunction(t *testing.T) {
	l := newLesson(t)
	words := strings.Fields(func() string { source, _ := sentences(); return source[0] }())
	var texts []string
	var batch trafo.Batch
	for count := 1; count <= len(words); count++ { // shortest first, as the corpus's own batches are
		text := strings.Join(words[:count], " ")
		ids := append(must[[]int32](t)(l.tokenizer.Encode(text)), trafo.EOS)
		texts = append(texts, text)
		batch.Source, batch.Target = append(batch.Source, ids), append(batch.Target, ids)
	}
	l.train.Close()
	l.train = must[*trafo.Corpus](t)(trafo.NewCorpus(texts, texts))
	want := losses(t, l.trainer(t), 4)
	l.newModel(t)
	trainer := l.trainer(t)
	asked := int64(0)
	ok(t, trainer.SetBatches(func(index int64) (trafo.Batch, error) {
		if index != asked {
			t.Errorf("batch %d, want %d", index, asked)
		}
		asked++
		return batch, nil
	}))
	wantValues(t, "losses", losses(t, trainer, 4), want)

	step := func() error { _, err := trainer.Step(t.Context()); return err }
	none := errors.New("none")
	ok(t, trainer.SetBatches(func(int64) (trafo.Batch, error) { return trafo.Batch{}, none }))
	wantError(t, step(), none)
	ok(t, trainer.SetBatches(func(int64) (trafo.Batch, error) { panic("in a function") }))
	wantPanicOf(t, "in a function", func() { _ = step() })
	ok(t, trainer.SetBatches(func(int64) (trafo.Batch, error) { return trafo.Batch{}, nil }))
	wantError(t, step(), trafo.ErrInvalidArgument)
	ok(t, trainer.SetBatches(func(int64) (trafo.Batch, error) {
		return trafo.Batch{Source: [][]int32{{1 << 20, trafo.EOS}}, Target: [][]int32{{4, trafo.EOS}}}, nil
	}))
	wantError(t, step(), trafo.ErrInvalidArgument)
	ok(t, trainer.SetBatches(nil))
	ok(t, step())
}

// Each pair of calls on one model runs on two goroutines at a time; none is refused.
func TestPairsOfCallsOnOneModel(t *testing.T) {
	l := newLesson(t)
	options := trafo.DefaultTranslateOptions()
	options.MaxLength = 4
	source, target := sentences()
	source, target = source[:2], target[:2]
	path := filepath.Join(t.TempDir(), "model.safetensors")
	closed := func(tensor, offsets *trafo.Tensor, err error) error {
		tensor.Close()
		offsets.Close()
		return err
	}
	calls := []func() error{
		func() error { _, err := l.model.Translate(t.Context(), l.tokenizer, source, &options); return err },
		func() error { _, err := l.model.Score(t.Context(), l.tokenizer, source, target); return err },
		func() error { return closed(l.model.HiddenStates(l.tokenizer, source)) },
		func() error { return closed(l.model.Logits(l.tokenizer, source, target)) },
		func() error { _, err := l.model.Parameters(); return err },
		func() error { _, err := l.context.MemoryStats(); return err },
		func() error { return l.model.Save(path) },
		func() error { return l.model.WriteModel(io.Discard) },
	}
	for first := range calls {
		for second := first; second < len(calls); second++ {
			var both sync.WaitGroup
			for _, i := range []int{first, second} {
				spawn(&both, func() {
					for range 4 {
						if err := calls[i](); err != nil {
							t.Errorf("call %d beside %d: %v", i, first+second-i, err)
						}
					}
				})
			}
			both.Wait()
		}
	}
}

// One model translates for many goroutines; every answer equals the answer of a lone call.
func TestOneModelForManyGoroutines(t *testing.T) {
	l := newLesson(t)
	trainer := l.trainer(t)
	losses(t, trainer, 3)
	ok(t, trainer.Close())
	options := trafo.DefaultTranslateOptions()
	options.Beam, options.MaxLength = 2, 8
	source, _ := sentences()
	source = source[:min(len(source), 6)]
	translate := func(text string) (string, error) {
		all, err := l.model.Translate(context.Background(), l.tokenizer, []string{text}, &options)
		if err != nil {
			return "", err
		}
		return all.Best()[0], nil
	}
	var alone []string
	for _, text := range source {
		alone = append(alone, must[string](t)(translate(text)))
	}
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for i, text := range source {
				if got, err := translate(text); err != nil || got != alone[i] {
					t.Errorf("%q: %q, %v; want %q", text, got, err, alone[i])
				}
			}
		}()
	}
	all.Wait()
}
