package trafo_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// randomLines are lines of random words.
func randomLines(count int) []string {
	random := rand.New(rand.NewPCG(1, 2))
	lines := make([]string, count)
	for i := range lines {
		line := make([]byte, 71)
		for k := range line {
			line[k] = 'a' + byte(random.IntN(24))
			if k%6 == 5 {
				line[k] = ' '
			}
		}
		lines[i] = string(line)
	}
	return lines
}

// expectCancelled: the call fails if its context has ended, and if the context ends meanwhile.
func expectCancelled(t *testing.T, name string, call func(ctx context.Context) error) {
	t.Helper()
	why := errors.New("the user has left")
	for _, wait := range []time.Duration{0, 10 * time.Millisecond} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if wait == 0 {
			cancel(why)
		} else {
			time.AfterFunc(wait, func() { cancel(why) })
		}
		err := call(ctx)
		if !errors.Is(err, trafo.ErrCancelled) || !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Errorf("%s, cancelled after %v: %v", name, wait, err)
		}
		cancel(nil)
	}
}

func TestLongCallsEndWithTheirContext(t *testing.T) {
	many := randomLines(20000)
	options := trafo.TokenizerOptions{Kind: "byte-bpe", Vocabulary: 2000, CharacterCoverage: 1, SoftLimit: true}
	corpus := must[*trafo.Corpus](t)(trafo.NewCorpus(many, many))
	defer corpus.Close()
	expectCancelled(t, "TrainTokenizer", func(ctx context.Context) error {
		_, err := trafo.TrainTokenizer(ctx, many, &options)
		return err
	})
	expectCancelled(t, "Corpus.TrainTokenizer", func(ctx context.Context) error {
		_, err := corpus.TrainTokenizer(ctx, &options)
		return err
	})
	small := trafo.TokenizerOptions{Vocabulary: 60, CharacterCoverage: 1, SoftLimit: true}
	tokenizer := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(t.Context(), many[:200], &small))
	defer tokenizer.Close()
	expectCancelled(t, "LearnShortlist", func(ctx context.Context) error {
		_, err := trafo.LearnShortlist(ctx, tokenizer, many, many, 4)
		return err
	})
	c := newContext(t)
	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
	config.EncoderLayers, config.DecoderLayers = 1, 1
	model := must[*trafo.Model](t)(c.NewModel(config, 1))
	defer model.Close()
	expectCancelled(t, "Score", func(ctx context.Context) error {
		_, err := model.Score(ctx, tokenizer, many, many)
		return err
	})
	few := must[*trafo.Corpus](t)(trafo.NewCorpus(many[:6], many[:6]))
	defer few.Close()
	training := trafo.DefaultTrainerOptions()
	training.BatchTokens = 512
	expectCancelled(t, "NewTrainer", func(ctx context.Context) error {
		_, err := model.NewTrainer(ctx, tokenizer, few, corpus, &training)
		return err
	})
	evaluation := trafo.DefaultEvaluationOptions()
	evaluation.Confidence, evaluation.Resamples = true, 1<<20 // for many minutes
	expectCancelled(t, "Evaluate", func(ctx context.Context) error {
		_, err := trafo.Evaluate(ctx, many, [][]string{many}, &evaluation)
		return err
	})
	trainer := must[*trafo.Trainer](t)(model.NewTrainer(t.Context(), tokenizer, few, corpus, &training))
	defer trainer.Close()
	expectCancelled(t, "Validate", func(ctx context.Context) error {
		_, err := trainer.Validate(ctx)
		return err
	})
	if step := must[trafo.StepResult](t)(trainer.Step(t.Context())); step.Update != 1 {
		t.Errorf("update %d, not 1", step.Update)
	}
}

// Files are not read, and models neither exported nor imported, with a context that has ended.
func TestFilesWithAContextThatHasEnded(t *testing.T) {
	c := newContext(t)
	tokenizer := newTokenizer(t, nil)
	defer tokenizer.Close()
	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
	config.EncoderLayers, config.DecoderLayers = 1, 1
	model := must[*trafo.Model](t)(c.NewModel(config, 1))
	defer model.Close()
	folder := t.TempDir()
	file, whole, target := filepath.Join(folder, "a.tsv"), filepath.Join(folder, "whole"), filepath.Join(folder, "exported")
	ok(t, os.WriteFile(file, []byte("a\tb\n"), 0o600))
	must[float64](t)(model.Export(t.Context(), tokenizer, trafo.HFPegasus, trafo.WeightsByFormat, whole))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range map[string]func() error{
		"LoadCorpus":    func() error { _, err := trafo.LoadCorpus(ended, file, file); return err },
		"LoadCorpusTSV": func() error { _, err := trafo.LoadCorpusTSV(ended, file); return err },
		"OpenCorpus":    func() error { _, err := trafo.OpenCorpus(ended, []string{file}, nil); return err },
		"Export": func() error {
			_, err := model.Export(ended, tokenizer, trafo.HFPegasus, trafo.WeightsByFormat, target)
			return err
		},
		"ImportModel": func() error { _, err := c.ImportModel(ended, whole); return err },
	} {
		if err := call(); !errors.Is(err, trafo.ErrCancelled) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 2 {
		t.Error(entries, err)
	}
}

// A pipe has no end: only the context ends the call.
func TestACorpusOfAnEndlessPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "endless.tsv")
	ok(t, syscall.Mkfifo(pipe, 0o600))
	written := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		file, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		for i := 0; err == nil; i++ {
			if i == 1000 {
				cancel()
			}
			_, err = file.WriteString(strings.Repeat("a b c\td e f\n", 100))
		}
		file.Close()
		written <- err
	}()
	_, err := trafo.LoadCorpusTSV(ctx, pipe)
	wantError(t, err, trafo.ErrCancelled, context.Canceled)
	if err := <-written; !errors.Is(err, syscall.EPIPE) {
		t.Error(err)
	}
}
