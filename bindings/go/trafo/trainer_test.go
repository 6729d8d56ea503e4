package trafo_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func TestTrainingTranslates(t *testing.T) {
	l := newLesson(t)
	l.options.Warmup = trafo.Some(100)
	l.options.AfterUpdates, l.options.ValidFreq, l.options.LogFreq = 500, trafo.Every(100, trafo.Updates), trafo.Every(10, trafo.Updates)
	trainer := l.trainer(t)
	var logs []trafo.Event
	var validated trafo.Event
	var kinds []trafo.EventKind
	reason, err := trainer.Run(t.Context(), 0, func(e trafo.Event) error {
		kinds = append(kinds, e.Kind)
		switch e.Kind {
		case trafo.EventLog:
			logs = append(logs, e)
		case trafo.EventValidated:
			validated = e
		}
		return nil
	})
	ok(t, err)
	if reason != trafo.StopLimit {
		t.Error(reason)
	}
	if kinds[0] != trafo.EventStarted || kinds[len(kinds)-1] != trafo.EventFinished {
		t.Error(kinds)
	}
	first, last := logs[0], logs[len(logs)-1]
	if len(logs) != 50 || first.Update != 10 || last.Update != 500 || !(last.Loss < first.Loss/2) || last.NLL > last.Loss ||
		last.TargetTokens <= first.TargetTokens || last.Elapsed <= 0 || last.LearningRate <= 0 || last.Memory <= 0 {
		t.Errorf("%d logs, %+v\n%+v", len(logs), first, last)
	}
	if !(validated.Metrics[trafo.MetricBLEU] > 50) || !(validated.Metrics[trafo.MetricChrF] > 50) ||
		!(validated.Metrics[trafo.MetricCE] > 0) || len(validated.Metrics) != 3 || validated.BestUpdate == 0 {
		t.Errorf("%+v", validated)
	}
	now := must[trafo.Metrics](t)(trainer.Validate(t.Context()))
	if !maps.Equal(now, validated.Metrics) {
		t.Errorf("%+v, the last event had %v", now, validated.Metrics)
	}

	source, target := sentences()
	lines := []string{source[38], "", source[59]}
	options := trafo.DefaultTranslateOptions()
	options.Beam, options.NBest = 4, 3
	translations := must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, lines, &options))
	best := translations.Best()
	if sources := translations.Sources; len(sources) != 3 || sources[0].Tokens < 2 || sources[1].Tokens > 1 || sources[0].Used != sources[0].Tokens {
		t.Errorf("sources %v", sources)
	}
	if len(best) != 3 || best[0] == "" || best[1] != "" || translations.Truncated != 0 {
		t.Errorf("%q", best)
	}
	all := must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, source, nil))
	score, _, err := trafo.BLEU(all.Best(), target, false)
	ok(t, err)
	if score < 60 {
		t.Errorf("BLEU %.1f", score)
	}
	t.Logf("BLEU %.1f", score)
	if n := translations.Lines[0]; len(n) != 3 || n[0].Score < n[1].Score || n[0].Score > 0 {
		t.Errorf("%+v", n)
	}
	scores := must[[]trafo.Score](t)(l.model.Score(t.Context(), l.tokenizer, []string{source[38], source[38]}, []string{target[38], target[99]}))
	if len(scores) != 2 || scores[0].LogProbability < scores[1].LogProbability+1 || scores[0].Tokens < 2 {
		t.Errorf("%+v", scores)
	}

	// Saved and loaded, it translates the same.
	path := filepath.Join(t.TempDir(), "model.safetensors")
	ok(t, l.model.Save(path))
	loaded := must[*trafo.Model](t)(l.context.LoadModel(path))
	defer loaded.Close()
	if must[trafo.ModelConfig](t)(loaded.Config()) != must[trafo.ModelConfig](t)(l.model.Config()) {
		t.Error("another configuration")
	}
	as := must[*trafo.Model](t)(l.context.LoadModelAs(path, trafo.Float32))
	defer as.Close()
	if config := must[trafo.ModelConfig](t)(as.Config()); config.Precision != trafo.Float32 {
		t.Errorf("%+v", config)
	}
	int8Path := filepath.Join(t.TempDir(), "int8.safetensors")
	quantized := must[*trafo.Model](t)(l.context.LoadModelInt8(path))
	defer quantized.Close()
	ok(t, quantized.Save(int8Path))
	stored := must[*trafo.Model](t)(l.context.LoadModel(int8Path))
	defer stored.Close()
	ofQuantized := must[*trafo.Translations](t)(quantized.Translate(t.Context(), l.tokenizer, lines, &options))
	ofStored := must[*trafo.Translations](t)(stored.Translate(t.Context(), l.tokenizer, lines, &options))
	if !slices.Equal(ofQuantized.Best(), ofStored.Best()) || ofQuantized.Lines[0][0].Score != ofStored.Lines[0][0].Score {
		t.Errorf("%+v and %+v", ofQuantized, ofStored)
	}
	for _, info := range must[[]trafo.ParameterInfo](t)(stored.ParameterInfos()) {
		if (info.DType == trafo.Int8) != (info.Rows > 1) || info.Rows*info.Columns != info.Elements || !info.Frozen {
			t.Errorf("%+v", info)
		}
	}
	int4Path := filepath.Join(t.TempDir(), "int4.safetensors")
	int4 := must[*trafo.Model](t)(loaded.Quantize(t.Context(), trafo.QuantizeOptions{
		Int4: true, GPTQ: true, KeepFloat: []string{"encoder.0.*"}, Calibration: l.train, Tokenizer: l.tokenizer,
	}))
	defer int4.Close()
	ok(t, int4.Save(int4Path))
	storedInt4 := must[*trafo.Model](t)(l.context.LoadModel(int4Path))
	defer storedInt4.Close()
	for _, info := range must[[]trafo.ParameterInfo](t)(storedInt4.ParameterInfos()) {
		if coded := info.Rows > 1 && !strings.HasPrefix(info.Name, "encoder.0."); (info.Bits == 4) != coded {
			t.Errorf("%+v", info)
		}
	}
	_, err = loaded.Quantize(t.Context(), trafo.QuantizeOptions{GPTQ: true, Int4: true})
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = l.context.LoadModelAs(path, trafo.BFloat16) // on the CPU
	wantError(t, err, trafo.ErrUnsupported)
	again := must[*trafo.Translations](t)(loaded.Translate(t.Context(), l.tokenizer, lines, &options))
	if !slices.Equal(again.Best(), best) || again.Lines[0][0].Score != translations.Lines[0][0].Score {
		t.Errorf("%+v", again)
	}
}

func TestRunsContinueBitForBit(t *testing.T) {
	whole := newLesson(t)
	whole.options.AfterUpdates = 24
	reason, err := whole.trainer(t).Run(t.Context(), 0, nil)
	ok(t, err)
	if reason != trafo.StopLimit {
		t.Error(reason)
	}

	paused := newLesson(t, trafo.WithThreads(3))
	paused.options.AfterUpdates, paused.options.RunDirectory = 24, t.TempDir()
	trainer := paused.trainer(t)
	reason, err = trainer.Run(t.Context(), 7, nil)
	ok(t, err)
	if reason != trafo.StopPaused {
		t.Error(reason)
	}
	ctx, cancel := context.WithCancel(t.Context())
	reason, err = trainer.Run(ctx, 0, func(e trafo.Event) error { cancel(); return nil })
	wantError(t, err, trafo.ErrCancelled, context.Canceled)
	if reason != trafo.StopCancelled {
		t.Error(reason)
	}
	step := must[trafo.StepResult](t)(trainer.Step(t.Context()))
	if step.Update < 8 || step.Labels == 0 || step.Skipped || !(step.Loss > 0) {
		t.Errorf("%+v", step)
	}
	ok(t, trainer.Save())
	ok(t, trainer.Close())

	resumed := newLesson(t, trafo.WithThreads(1))
	resumed.options = paused.options
	var from string
	_, err = resumed.trainer(t).Run(t.Context(), 0, func(e trafo.Event) error {
		if e.Kind == trafo.EventResumed {
			from = e.Path
		}
		return nil
	})
	ok(t, err)
	if !strings.HasPrefix(from, paused.options.RunDirectory) {
		t.Errorf("resumed from %q", from)
	}
	if whole.weights(t) != resumed.weights(t) {
		t.Error("the weights differ from those of an uninterrupted run")
	}
}

func TestCancellingFromAnotherGoroutine(t *testing.T) {
	l := newLesson(t)
	trainer := l.trainer(t) // without a limit
	cause := errors.New("the user closed the window")
	ctx, cancel := context.WithCancelCause(t.Context())
	started := make(chan struct{})
	go func() {
		<-started
		cancel(cause)
	}()
	once := false
	reason, err := trainer.Run(ctx, 0, func(e trafo.Event) error {
		if !once {
			once = true
			close(started)
		}
		return nil
	})
	wantError(t, err, trafo.ErrCancelled, context.Canceled, cause)
	if reason != trafo.StopCancelled {
		t.Error(reason)
	}
	var e *trafo.Error
	if !errors.As(err, &e) || e.Code != trafo.ErrCancelled || e.Origin == "" || e.Message == "" {
		t.Errorf("%+v", e)
	}

	ctx, stop := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer stop()
	_, err = trainer.Run(ctx, 0, nil)
	wantError(t, err, trafo.ErrCancelled, context.DeadlineExceeded)
	_, err = trainer.Run(ctx, 0, nil)
	wantError(t, err, trafo.ErrCancelled, context.DeadlineExceeded)
	source, _ := sentences()
	_, err = l.model.Translate(ctx, l.tokenizer, source, nil)
	wantError(t, err, trafo.ErrCancelled, context.DeadlineExceeded)

	reason, err = trainer.Run(t.Context(), 2, nil)
	ok(t, err)
	if reason != trafo.StopPaused {
		t.Error(reason)
	}
	must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, source[:2], nil))
	stillWorks(t, l.context)
}

func TestAutotuneGEMMChangesNothingOnTheCPU(t *testing.T) {
	var models [2][]byte
	for i, tune := range []bool{false, true} {
		l := newLesson(t)
		l.options.AfterUpdates, l.options.AutotuneGEMM, l.options.RunDirectory = 6, trafo.Some(tune), t.TempDir()
		reason, err := l.trainer(t).Run(t.Context(), 0, nil)
		ok(t, err)
		if reason != trafo.StopLimit {
			t.Error(reason)
		}
		if _, err := os.Stat(filepath.Join(l.options.RunDirectory, "gemm-cache")); !errors.Is(err, os.ErrNotExist) {
			t.Error("GEMMs were measured", err)
		}
		models[i] = must[[]byte](t)(os.ReadFile(filepath.Join(l.options.RunDirectory, "ckpt", "6", "model.safetensors")))
	}
	if !slices.Equal(models[0], models[1]) {
		t.Error("other weights")
	}
}

func TestARunDirectoryGivesItsModels(t *testing.T) {
	l := newLesson(t)
	l.options.AfterUpdates, l.options.AverageLast, l.options.RunDirectory = 12, 2, t.TempDir()
	l.options.ValidFreq = trafo.Every(6, trafo.Updates)
	load := func(which trafo.RunModel) (*trafo.Model, error) {
		return l.context.LoadRun(l.options.RunDirectory, which, trafo.Float32)
	}
	weights := func(m *trafo.Model, err error) string {
		t.Helper()
		ok(t, err)
		defer m.Close()
		return (&lesson{model: m}).weights(t)
	}
	_, err := load(trafo.RunModelBest)
	wantError(t, err, trafo.ErrNotFound)
	trainer := l.trainer(t)
	_, err = trainer.Run(t.Context(), 0, nil)
	ok(t, err)
	if weights(load(trafo.RunModelLast)) != l.weights(t) {
		t.Error("the last model is another one")
	}
	if weights(load(trafo.RunModelAveraged)) == l.weights(t) {
		t.Error("nothing was averaged")
	}
	if weights(load(trafo.RunModelBest)) != weights(trainer.BestModel()) {
		t.Error("the trainer's best model is another one than the run's")
	}
	_, err = load(9)
	wantError(t, err, trafo.ErrInvalidArgument)

	updates := must[[]int64](t)(trafo.ListCheckpoints(l.options.RunDirectory))
	if !slices.IsSorted(updates) || updates[len(updates)-1] != 12 {
		t.Error(updates)
	}
	if none := must[[]int64](t)(trafo.ListCheckpoints(filepath.Join(l.options.RunDirectory, "nowhere"))); len(none) != 0 {
		t.Error(none)
	}
	latest := must[string](t)(trafo.FindCheckpoint(l.options.RunDirectory, "latest"))
	if latest != must[string](t)(trafo.FindCheckpoint(l.options.RunDirectory, "12")) {
		t.Error(latest)
	}
	_, err = trafo.FindCheckpoint(l.options.RunDirectory, "7")
	wantError(t, err, trafo.ErrNotFound)
	last := must[*trafo.Model](t)(load(trafo.RunModelLast))
	defer last.Close()
	if config := must[trafo.ModelConfig](t)(trafo.ReadModelConfig(latest)); config != must[trafo.ModelConfig](t)(last.Config()) {
		t.Error(config)
	}
	ok(t, last.CheckTokenizer(l.tokenizer))
	tokenizerOptions := trafo.DefaultTokenizerOptions()
	tokenizerOptions.Vocabulary, tokenizerOptions.SoftLimit = 60, true
	other := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(t.Context(), []string{"another text", "7 other words"}, &tokenizerOptions))
	defer other.Close()
	wantError(t, last.CheckTokenizer(other), trafo.ErrInvalidArgument)

	l.options.RunDirectory, l.options.AverageLast = "", 0
	_, err = l.trainer(t).BestModel()
	wantError(t, err, trafo.ErrInvalidArgument)
}

func TestEMAIsKeptBesideTheWeights(t *testing.T) {
	l := newLesson(t)
	l.options.AfterUpdates, l.options.EMAAlpha, l.options.RunDirectory = 12, 0.05, t.TempDir()
	reason, err := l.trainer(t).Run(t.Context(), 0, nil)
	ok(t, err)
	if reason != trafo.StopLimit {
		t.Error(reason)
	}
	file := func(name string) string {
		model := must[*trafo.Model](t)(l.context.LoadModel(filepath.Join(l.options.RunDirectory, "ckpt", "12", name)))
		defer model.Close()
		return (&lesson{model: model}).weights(t)
	}
	if file("unsmoothed.safetensors") != l.weights(t) {
		t.Error("the model has other weights than training goes on with")
	}
	if file("model.safetensors") == l.weights(t) {
		t.Error("nothing was smoothed")
	}
}

func TestLayersAreDroppedInTrainingAlone(t *testing.T) {
	trained := func(layerDrop float64) string {
		l := newLesson(t)
		l.options.AfterUpdates, l.options.LayerDrop = 6, layerDrop
		_, err := l.trainer(t).Run(t.Context(), 0, nil)
		ok(t, err)
		return l.weights(t)
	}
	dropped := trained(0.5)
	if dropped != trained(0.5) {
		t.Error("two runs with the same seed skip different layers")
	}
	if dropped == trained(0) {
		t.Error("no layer was skipped")
	}
}

func TestARunEndsWithTheMeanOfItsCheckpointsAndAnotherBeginsWithIt(t *testing.T) {
	l := newLesson(t)
	l.options.AfterUpdates, l.options.AverageLast, l.options.RunDirectory = 6, 2, t.TempDir()
	l.options.SaveFreq, l.options.EarlyStopping = trafo.Every(3, trafo.Updates), 100
	l.options.EarlyStoppingOn = trafo.StoppingAll
	var averaged trafo.Event
	_, err := l.trainer(t).Run(t.Context(), 0, func(e trafo.Event) error {
		if e.Kind == trafo.EventAveraged {
			averaged = e
		}
		return nil
	})
	ok(t, err)
	file := func(name string) string {
		return filepath.Join(l.options.RunDirectory, "ckpt", name, "model.safetensors")
	}
	if averaged.Path != file("averaged") || averaged.Message != "3, 6" || !(averaged.Metrics[trafo.MetricCE] > 0) {
		t.Errorf("%+v", averaged)
	}
	mine := filepath.Join(t.TempDir(), "mine.safetensors")
	ok(t, trafo.AverageModels([]string{file("3"), file("6")}, mine))
	if !slices.Equal(must[[]byte](t)(os.ReadFile(mine)), must[[]byte](t)(os.ReadFile(file("averaged")))) {
		t.Error("another mean")
	}
	wantError(t, trafo.AverageModels(nil, mine), trafo.ErrInvalidArgument)

	deep := must[trafo.ModelConfig](t)(l.model.Config())
	deep.DepthScaledInit, deep.DecoderLayers = true, 2
	scaled := must[*trafo.Model](t)(l.context.NewModel(deep, 7))
	defer scaled.Close()
	if !must[trafo.ModelConfig](t)(scaled.Config()).DepthScaledInit {
		t.Error("the setting is lost")
	}

	tuned := must[*trafo.Model](t)(l.context.NewModel(must[trafo.ModelConfig](t)(l.model.Config()), 7))
	defer tuned.Close()
	ok(t, tuned.LoadWeights(l.tokenizer, mine))
	mean := must[*trafo.Model](t)(l.context.LoadModel(mine))
	defer mean.Close()
	if (&lesson{model: tuned}).weights(t) != (&lesson{model: mean}).weights(t) {
		t.Error("other weights than those of the file")
	}
	config := must[trafo.ModelConfig](t)(l.model.Config())
	config.Width = 64
	other := must[*trafo.Model](t)(l.context.NewModel(config, 7))
	defer other.Close()
	wantError(t, other.LoadWeights(nil, mine), trafo.ErrInvalidArgument)
}

func TestAGoroutineThatWaitsForTheEngineCanBeCancelled(t *testing.T) {
	l := newLesson(t)
	trainer := l.trainer(t)
	ctx, cancel := context.WithCancel(t.Context())
	started, done := make(chan struct{}), make(chan error)
	go func() {
		once := false
		_, err := trainer.Run(ctx, 0, func(trafo.Event) error {
			if !once {
				once = true
				close(started)
			}
			return nil
		})
		done <- err
	}()
	<-started
	short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	_, err := l.model.Translate(short, l.tokenizer, []string{"eins"}, nil)
	wantError(t, err, trafo.ErrCancelled, context.DeadlineExceeded)
	cancel()
	wantError(t, <-done, context.Canceled)
}

func TestErrorsAndPanicsOfOnEvent(t *testing.T) {
	l := newLesson(t)
	l.options.LogFreq, l.options.RunDirectory = trafo.Every(1, trafo.Updates), t.TempDir()
	trainer := l.trainer(t)
	enough := errors.New("enough")
	calls := 0
	reason, err := trainer.Run(t.Context(), 0, func(e trafo.Event) error {
		if e.Kind != trafo.EventLog {
			return nil
		}
		calls++
		return enough
	})
	wantError(t, err, enough, trafo.ErrCancelled)
	if errors.Is(err, context.Canceled) {
		t.Error("no context was cancelled")
	}
	if reason != trafo.StopCallback || calls != 1 {
		t.Error(reason, calls)
	}
	wantPanic(t, func() {
		trainer.Run(t.Context(), 0, func(e trafo.Event) error {
			if e.Kind == trafo.EventLog {
				panic("ouch")
			}
			return nil
		})
	})
	reason, err = trainer.Run(t.Context(), 1, nil)
	ok(t, err)
	if reason != trafo.StopPaused {
		t.Error(reason)
	}
	stillWorks(t, l.context)
}

func TestOnEventMayUseTheContextButNotItsTrainer(t *testing.T) {
	quiet := newLesson(t)
	_, err := quiet.trainer(t).Run(t.Context(), 10, nil)
	ok(t, err)

	l := newLesson(t)
	l.options.LogFreq = trafo.Every(3, trafo.Updates)
	trainer := l.trainer(t)
	translated := 0
	_, err = trainer.Run(t.Context(), 10, func(e trafo.Event) error {
		if e.Kind != trafo.EventLog {
			return nil
		}
		_, err := trainer.Run(t.Context(), 1, nil)
		wantError(t, err, trafo.ErrInvalidArgument)
		_, err = trainer.Step(t.Context())
		wantError(t, err, trafo.ErrInvalidArgument)
		wantError(t, trainer.Close(), trafo.ErrInvalidArgument)
		wantError(t, l.context.Close(), trafo.ErrInvalidArgument)
		stillWorks(t, l.context)
		translated++
		_, err = l.model.Translate(t.Context(), l.tokenizer, []string{"eins zwei"}, nil)
		return err
	})
	ok(t, err)
	if translated != 3 {
		t.Error(translated)
	}
	if l.weights(t) != quiet.weights(t) {
		t.Error("translating between updates changed training")
	}
}

func TestTrainersOutliveWhatTheyWereMadeFrom(t *testing.T) {
	l := newLesson(t)
	trainer := l.trainer(t)
	ok(t, l.tokenizer.Close())
	ok(t, l.train.Close())
	ok(t, l.valid.Close())
	ok(t, l.model.Close())
	ok(t, l.context.Close())
	_, err := trainer.Run(t.Context(), 2, nil)
	ok(t, err)
}

func TestRefusedTraining(t *testing.T) {
	l := newLesson(t)
	l.options.LearningRate = -1
	_, err := l.model.NewTrainer(t.Context(), l.tokenizer, l.train, nil, &l.options)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = l.model.NewTrainer(t.Context(), nil, l.train, nil, nil)
	wantError(t, err, trafo.ErrInvalidArgument)
	idle := must[*trafo.Trainer](t)(l.model.NewTrainer(t.Context(), l.tokenizer, nil, nil, nil))
	_, err = idle.Run(t.Context(), 1, nil) // neither a corpus nor batches of the program
	wantError(t, err, trafo.ErrInvalidArgument)
	ok(t, idle.Close())
	trainer := must[*trafo.Trainer](t)(l.model.NewTrainer(t.Context(), l.tokenizer, l.train, nil, nil))
	_, err = trainer.Validate(t.Context())
	wantError(t, err, trafo.ErrInvalidArgument)
	wantError(t, trainer.Save())
	_, err = trainer.Run(t.Context(), -1, nil)
	wantError(t, err, trafo.ErrInvalidArgument)

	// A run directory of another architecture, and one whose only checkpoint is damaged.
	l.options = trafo.DefaultTrainerOptions()
	l.options.RunDirectory, l.options.BatchTokens = t.TempDir(), 256
	trainer = l.trainer(t)
	must[trafo.StepResult](t)(trainer.Step(t.Context()))
	ok(t, trainer.Save())
	ok(t, trainer.Close())
	config := must[trafo.ModelConfig](t)(l.model.Config())
	config.Width *= 2
	other := must[*trafo.Model](t)(l.context.NewModel(config, 1))
	_, err = other.NewTrainer(t.Context(), l.tokenizer, l.train, l.valid, &l.options)
	wantError(t, err)
	files := must[[]string](t)(filepath.Glob(filepath.Join(l.options.RunDirectory, "*", "model.safetensors")))
	nested := must[[]string](t)(filepath.Glob(filepath.Join(l.options.RunDirectory, "*", "*", "model.safetensors")))
	if files = append(files, nested...); len(files) == 0 {
		t.Fatal("no checkpoint was written")
	}
	for _, file := range files {
		ok(t, os.Truncate(file, 100))
	}
	_, err = l.model.NewTrainer(t.Context(), l.tokenizer, l.train, l.valid, &l.options)
	wantError(t, err)
	_, err = l.context.LoadModel(files[0])
	wantError(t, err, trafo.ErrCorruptFile)
}
