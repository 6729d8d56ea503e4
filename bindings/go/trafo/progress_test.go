package trafo_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// expectProgress: the call tells of the work from its beginning to its end, and of so much (-1: of any); it ends with
// the function's error, and continues the function's panic.
func expectProgress(t *testing.T, work trafo.Work, total int64, call func(ctx context.Context) error) {
	t.Helper()
	var told []trafo.Progress
	ok(t, call(trafo.WithProgress(t.Context(), func(p trafo.Progress) error {
		if p.Work == work {
			told = append(told, p)
		}
		return nil
	})))
	if len(told) == 0 {
		t.Fatal(work, ": nothing was told")
	}
	if first, last := told[0], told[len(told)-1]; first.Done != 0 || last.Done != last.Total || (total >= 0 && last.Total != total) {
		t.Error(work, total, told)
	}
	enough := errors.New("enough")
	err := call(trafo.WithProgress(context.Background(), func(p trafo.Progress) error {
		if p.Work == work {
			return enough
		}
		return nil
	}))
	if !errors.Is(err, trafo.ErrCancelled) || !errors.Is(err, enough) || !strings.Contains(err.Error(), "enough") {
		t.Errorf("%v: %v", work, err)
	}
	func() {
		defer func() {
			if value := recover(); value != enough {
				t.Error(work, value)
			}
		}()
		_ = call(trafo.WithProgress(t.Context(), func(p trafo.Progress) error {
			if p.Work == work {
				panic(enough)
			}
			return nil
		}))
	}()
}

func TestProgress(t *testing.T) {
	lines := randomLines(300)
	corpus := must[*trafo.Corpus](t)(trafo.NewCorpus(lines, lines))
	defer corpus.Close()
	folder := t.TempDir()
	file := filepath.Join(folder, "pairs.tsv")
	ok(t, os.WriteFile(file, []byte(strings.Repeat("a\tb\n", 100)), 0o600))
	expectProgress(t, trafo.WorkReadText, 400, func(ctx context.Context) error {
		read, err := trafo.LoadCorpusTSV(ctx, file)
		if err == nil {
			err = read.Close()
		}
		return err
	})
	bpe := trafo.TokenizerOptions{Kind: "byte-bpe", Vocabulary: 300, CharacterCoverage: 1, SoftLimit: true}
	expectProgress(t, trafo.WorkLearnVocabulary, 300, func(ctx context.Context) error {
		tokenizer, err := trafo.TrainTokenizer(ctx, lines, &bpe)
		if err == nil {
			err = tokenizer.Close()
		}
		return err
	})
	evaluation := trafo.DefaultEvaluationOptions()
	expectProgress(t, trafo.WorkEvaluate, 300, func(ctx context.Context) error {
		_, err := trafo.Evaluate(ctx, lines, [][]string{lines}, &evaluation)
		return err
	})
	small := trafo.TokenizerOptions{Vocabulary: 60, CharacterCoverage: 1, SoftLimit: true}
	tokenizer := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(t.Context(), lines, &small))
	defer tokenizer.Close()
	c := newContext(t)
	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
	config.EncoderLayers, config.DecoderLayers = 1, 1
	model := must[*trafo.Model](t)(c.NewModel(config, 1))
	defer model.Close()
	expectProgress(t, trafo.WorkScore, 300, func(ctx context.Context) error {
		_, err := model.Score(ctx, tokenizer, lines, lines)
		return err
	})
	expectProgress(t, trafo.WorkCompress, -1, func(ctx context.Context) error {
		quantized, err := model.Quantize(ctx, trafo.QuantizeOptions{})
		if err == nil {
			err = quantized.Close()
		}
		return err
	})
	number := 0
	expectProgress(t, trafo.WorkConvertWeights, -1, func(ctx context.Context) error {
		number++
		directory := filepath.Join(folder, "exported"+string(rune('0'+number)))
		_, err := model.Export(ctx, tokenizer, trafo.HFPegasus, trafo.WeightsByFormat, directory)
		return err
	})
	expectProgress(t, trafo.WorkConvertWeights, -1, func(ctx context.Context) error {
		imported, err := c.ImportModel(ctx, filepath.Join(folder, "exported1"))
		if err == nil {
			err = imported.Model.Close()
		}
		return err
	})
	training := trafo.DefaultTrainerOptions()
	training.BatchTokens, training.ValidMetrics = 512, trafo.MetricCE
	training.ValidFreq = trafo.Every(1, trafo.Updates)
	expectProgress(t, trafo.WorkEncodeText, 300, func(ctx context.Context) error {
		trainer, err := model.NewTrainer(ctx, tokenizer, corpus, corpus, &training)
		if err == nil {
			err = trainer.Close()
		}
		return err
	})
	trainer := must[*trafo.Trainer](t)(model.NewTrainer(t.Context(), tokenizer, corpus, corpus, &training))
	defer trainer.Close()
	expectProgress(t, trafo.WorkValidate, 300, func(ctx context.Context) error {
		_, err := trainer.Validate(ctx)
		return err
	})
	expectProgress(t, trafo.WorkValidate, 300, func(ctx context.Context) error {
		_, err := trainer.Run(ctx, 1, nil)
		return err
	})
	expectProgress(t, trafo.WorkValidate, 300, func(ctx context.Context) error {
		_, err := trainer.Step(ctx)
		return err
	})
}

// A function that uses its Context gets an error and does not hang; neither does a translation in a callback of a run.
func TestProgressFunctionsCannotUseTheirContext(t *testing.T) {
	c := newContext(t)
	tokenizer := newTokenizer(t, nil)
	defer tokenizer.Close()
	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
	config.EncoderLayers, config.DecoderLayers = 1, 1
	model := must[*trafo.Model](t)(c.NewModel(config, 1))
	defer model.Close()
	calls := 0
	refusing := trafo.WithProgress(t.Context(), func(trafo.Progress) error {
		calls++
		_, err := c.MemoryStats()
		wantError(t, err, trafo.ErrInvalidArgument)
		c.Keep() // which cannot fail
		return nil
	})
	lines := []string{"a b", "b a"}
	must[[]trafo.Score](t)(model.Score(refusing, tokenizer, lines, lines))
	if calls < 2 {
		t.Error(calls, "calls")
	}
	calls = 0
	corpus := must[*trafo.Corpus](t)(trafo.NewCorpus(lines, lines))
	defer corpus.Close()
	trainer := must[*trafo.Trainer](t)(model.NewTrainer(t.Context(), tokenizer, corpus, nil, nil))
	defer trainer.Close()
	must[trafo.StopReason](t)(trainer.Run(t.Context(), 1, func(trafo.Event) error {
		_, err := model.Score(refusing, tokenizer, lines, lines)
		return err
	}))
	if calls < 2 {
		t.Error(calls, "calls in a run")
	}
	must[trafo.MemoryStats](t)(c.MemoryStats())
}

// A run that its onEvent and its progress function end: its error tells both failures, and the next call none.
func TestProgressFailuresWithThoseOfOnEvent(t *testing.T) {
	lines := randomLines(50)
	c := newContext(t)
	tokenizer := newTokenizer(t, nil)
	defer tokenizer.Close()
	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
	config.EncoderLayers, config.DecoderLayers = 1, 1
	model := must[*trafo.Model](t)(c.NewModel(config, 1))
	defer model.Close()
	corpus := must[*trafo.Corpus](t)(trafo.NewCorpus(lines, lines))
	defer corpus.Close()
	options := trafo.DefaultTrainerOptions()
	options.BatchTokens, options.ValidMetrics = 512, trafo.MetricCE
	options.ValidFreq = trafo.Every(1, trafo.Updates)
	trainer := must[*trafo.Trainer](t)(model.NewTrainer(t.Context(), tokenizer, corpus, corpus, &options))
	defer trainer.Close()
	ofEvent, ofProgress := errors.New("of the event"), errors.New("of the progress")
	run := func(fail func(error) error) (trafo.StopReason, error) {
		ctx := trafo.WithProgress(t.Context(), func(trafo.Progress) error { return ofProgress })
		return trainer.Run(ctx, 2, func(e trafo.Event) error {
			if e.Kind == trafo.EventValidating {
				return fail(ofEvent)
			}
			return nil
		})
	}
	stop, err := run(func(err error) error { return err })
	if stop != trafo.StopCallback || !errors.Is(err, trafo.ErrCancelled) || !errors.Is(err, ofEvent) || !errors.Is(err, ofProgress) {
		t.Error(stop, err)
	}
	config.Width = -1
	_, err = c.NewModel(config, 1)
	wantError(t, err, trafo.ErrInvalidArgument)
	if errors.Is(err, ofEvent) {
		t.Error(err)
	}
	func() {
		defer func() {
			if value := recover(); value != ofEvent {
				t.Error(value)
			}
		}()
		_, _ = run(func(err error) error { panic(err) })
	}()
	must[trafo.MemoryStats](t)(c.MemoryStats())
}

func TestProgressAsJSON(t *testing.T) {
	text := string(must[[]byte](t)(json.Marshal(trafo.Progress{Work: trafo.WorkReadText, Done: 3})))
	if text != `{"Work":"read_text","Done":3,"Total":0}` {
		t.Error(text)
	}
}
