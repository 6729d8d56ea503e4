package trafo_test

import (
	"context"
	"errors"
	"math"
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
	l.options.Warmup = 100
	l.options.AfterUpdates, l.options.ValidFreq, l.options.DispFreq = 500, trafo.Every(100, trafo.Updates), trafo.Every(10, trafo.Updates)
	trainer := l.trainer(t)
	var displays []trafo.Event
	var validated trafo.Event
	var kinds []trafo.EventKind
	reason, err := trainer.Run(t.Context(), 0, func(e trafo.Event) error {
		kinds = append(kinds, e.Kind)
		switch e.Kind {
		case trafo.EventDisplay:
			displays = append(displays, e)
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
	first, last := displays[0], displays[len(displays)-1]
	if len(displays) != 50 || first.Update != 10 || last.Update != 500 || !(last.Loss < first.Loss/2) || last.NLL > last.Loss ||
		last.TargetTokens <= first.TargetTokens || last.Elapsed <= 0 || last.LearningRate <= 0 || last.Memory <= 0 {
		t.Errorf("%d displays, %+v\n%+v", len(displays), first, last)
	}
	if !(validated.ValidBLEU > 50) || !(validated.ValidChrF > 50) || !(validated.ValidCE > 0) || validated.BestUpdate == 0 {
		t.Errorf("%+v", validated)
	}
	now := must[trafo.Validation](t)(trainer.Validate())
	if now.BLEU != validated.ValidBLEU || now.ChrF != validated.ValidChrF || now.CE != validated.ValidCE {
		t.Errorf("%+v, the last event had %v %v %v", now, validated.ValidBLEU, validated.ValidChrF, validated.ValidCE)
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
	scores := must[[]trafo.Score](t)(l.model.Score(l.tokenizer, []string{source[38], source[38]}, []string{target[38], target[99]}))
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
	step := must[trafo.StepResult](t)(trainer.Step())
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

func TestTuningProductsChangesNothingOnTheCPU(t *testing.T) {
	var models [2][]byte
	for i, tune := range []bool{false, true} {
		l := newLesson(t)
		l.options.AfterUpdates, l.options.TuneProducts, l.options.RunDirectory = 6, tune, t.TempDir()
		reason, err := l.trainer(t).Run(t.Context(), 0, nil)
		ok(t, err)
		if reason != trafo.StopLimit {
			t.Error(reason)
		}
		if _, err := os.Stat(filepath.Join(l.options.RunDirectory, "product-plans")); !errors.Is(err, os.ErrNotExist) {
			t.Error("products were measured", err)
		}
		models[i] = must[[]byte](t)(os.ReadFile(filepath.Join(l.options.RunDirectory, "ckpt", "6", "model.safetensors")))
	}
	if !slices.Equal(models[0], models[1]) {
		t.Error("other weights")
	}
}

func TestSmoothingKeepsTheMeanBesideTheWeights(t *testing.T) {
	l := newLesson(t)
	l.options.AfterUpdates, l.options.ExponentialSmoothing, l.options.RunDirectory = 12, 0.05, t.TempDir()
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
	if averaged.Path != file("averaged") || averaged.Message != "3, 6" || !(averaged.ValidCE > 0) {
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

func TestSamplesAreTheSameOfTheSameSeed(t *testing.T) {
	l := newLesson(t)
	source, _ := sentences()
	if err := l.model.Freeze(); err != nil {
		t.Fatal(err)
	}
	_, err := l.model.Parameters()
	wantError(t, err, trafo.ErrInvalidArgument)
	draw := func(lines []string, seed uint64, firstLine int64) [][]trafo.Hypothesis {
		options := trafo.DefaultTranslateOptions()
		sampling := trafo.DefaultSampling()
		sampling.Temperature, sampling.TopK, sampling.TopP = 0.9, 20, 0.95
		sampling.Seed, sampling.FirstLine = seed, firstLine
		options.Sampling, options.NBest, options.MinLength, options.MaxLength = &sampling, 3, 2, 6
		return must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, lines, &options)).Lines
	}
	both := draw(source[:2], 5, 0)
	if len(both[1]) != 3 || !slices.Equal(draw(source[1:2], 5, 1)[0], both[1]) {
		t.Error("a line is not drawn alone as with another", both)
	}
	if slices.Equal(draw(source[:1], 6, 0)[0], both[0]) {
		t.Error("another seed drew the same", both[0])
	}
}

func TestAShortlistRestrictsTranslations(t *testing.T) {
	l := newLesson(t)
	source, target := sentences()
	path := filepath.Join(t.TempDir(), "lex.s2t")
	learnt := must[*trafo.Shortlist](t)(trafo.LearnShortlist(l.tokenizer, source, target, 5))
	if err := learnt.Save(path); err != nil {
		t.Fatal(err)
	}
	options := trafo.DefaultTranslateOptions()
	options.Shortlist = must[*trafo.Shortlist](t)(trafo.LoadShortlist(l.tokenizer, path))
	options.ShortlistFirst = 0
	loaded := must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, source[:3], &options))
	options.Shortlist = learnt
	again := must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, source[:3], &options))
	if !slices.Equal(loaded.Best(), again.Best()) {
		t.Error(loaded.Best(), again.Best())
	}
	if err := learnt.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := l.model.Translate(t.Context(), l.tokenizer, source[:1], &options)
	wantError(t, err, trafo.ErrClosed)
	_, err = trafo.LearnShortlist(l.tokenizer, source, nil, 0)
	wantError(t, err, trafo.ErrInvalidArgument)
}

func TestTranslationIsCancelled(t *testing.T) {
	l := newLesson(t)
	source, _ := sentences()
	lines := slices.Repeat(source, 40)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	options := trafo.DefaultTranslateOptions()
	options.BatchTokens = 32
	_, err := l.model.Translate(ctx, l.tokenizer, lines, &options)
	wantError(t, err, trafo.ErrCancelled, context.DeadlineExceeded)
	must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, lines[:1], &options))
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
	l.options.DispFreq, l.options.RunDirectory = trafo.Every(1, trafo.Updates), t.TempDir()
	trainer := l.trainer(t)
	enough := errors.New("enough")
	calls := 0
	reason, err := trainer.Run(t.Context(), 0, func(e trafo.Event) error {
		if e.Kind != trafo.EventDisplay {
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
			if e.Kind == trafo.EventDisplay {
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
	l.options.DispFreq = trafo.Every(3, trafo.Updates)
	trainer := l.trainer(t)
	translated := 0
	_, err = trainer.Run(t.Context(), 10, func(e trafo.Event) error {
		if e.Kind != trafo.EventDisplay {
			return nil
		}
		_, err := trainer.Run(t.Context(), 1, nil)
		wantError(t, err, trafo.ErrInvalidArgument)
		_, err = trainer.Step()
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

func TestLlamaPreset(t *testing.T) {
	c := must[*trafo.Context](t)(trafo.NewContext(trafo.WithThreads(1)))
	defer c.Close()
	config := must[trafo.ModelConfig](t)(trafo.Preset("llama"))
	if config.Norm != trafo.NormRMS || config.Positions != trafo.RotaryPositions || config.FFN != trafo.SwiGLUFFN ||
		!config.NoBiases || config.RopeTheta != 10000 {
		t.Fatalf("preset llama is %+v", config)
	}
	config.Vocabulary, config.DecoderLayers, config.KVHeads = 40, 1, 2
	model := must[*trafo.Model](t)(c.NewModel(config, 1))
	defer model.Close()
	if got := must[trafo.ModelConfig](t)(model.Config()); got != config {
		t.Errorf("made of %+v, is %+v", config, got)
	}
	config.KVHeads = 3
	_, err := c.NewModel(config, 1)
	wantError(t, err, trafo.ErrInvalidArgument)
}

func TestRefusedTraining(t *testing.T) {
	l := newLesson(t)
	l.options.LearningRate = -1
	_, err := l.model.NewTrainer(l.tokenizer, l.train, nil, &l.options)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = l.model.NewTrainer(nil, l.train, nil, nil)
	wantError(t, err, trafo.ErrClosed)
	_, err = l.model.NewTrainer(l.tokenizer, nil, nil, nil)
	wantError(t, err, trafo.ErrClosed)
	trainer := must[*trafo.Trainer](t)(l.model.NewTrainer(l.tokenizer, l.train, nil, nil))
	_, err = trainer.Validate()
	wantError(t, err, trafo.ErrInvalidArgument)
	wantError(t, trainer.Save())
	_, err = trainer.Run(t.Context(), -1, nil)
	wantError(t, err, trafo.ErrInvalidArgument)

	// A run directory of another architecture, and one whose only checkpoint is damaged.
	l.options = trafo.DefaultTrainerOptions()
	l.options.RunDirectory, l.options.BatchTokens = t.TempDir(), 256
	trainer = l.trainer(t)
	must[trafo.StepResult](t)(trainer.Step())
	ok(t, trainer.Save())
	ok(t, trainer.Close())
	config := must[trafo.ModelConfig](t)(l.model.Config())
	config.Width *= 2
	other := must[*trafo.Model](t)(l.context.NewModel(config, 1))
	_, err = other.NewTrainer(l.tokenizer, l.train, l.valid, &l.options)
	wantError(t, err)
	files := must[[]string](t)(filepath.Glob(filepath.Join(l.options.RunDirectory, "*", "model.safetensors")))
	nested := must[[]string](t)(filepath.Glob(filepath.Join(l.options.RunDirectory, "*", "*", "model.safetensors")))
	if files = append(files, nested...); len(files) == 0 {
		t.Fatal("no checkpoint was written")
	}
	for _, file := range files {
		ok(t, os.Truncate(file, 100))
	}
	_, err = l.model.NewTrainer(l.tokenizer, l.train, l.valid, &l.options)
	wantError(t, err)
	_, err = l.context.LoadModel(files[0])
	wantError(t, err, trafo.ErrCorruptFile)
}

func TestDecoderLM(t *testing.T) {
	l := newLesson(t)
	config := must[trafo.ModelConfig](t)(trafo.Preset("lm"))
	config.Vocabulary = must[int](t)(l.tokenizer.Vocabulary())
	config.DecoderLayers, config.Width, config.FFNWidth, config.Heads, config.MaxPositions = 1, 32, 64, 2, 64
	if config.Architecture != trafo.DecoderLM || config.Activation != trafo.GELU {
		t.Errorf("%+v", config)
	}
	l.model = must[*trafo.Model](t)(l.context.NewModel(config, 2))
	l.options.MaxLength = 31
	l.options.DispFreq = trafo.Every(10, trafo.Updates)
	var losses []float64
	_, err := l.trainer(t).Run(t.Context(), 60, func(e trafo.Event) error {
		if e.Kind == trafo.EventDisplay {
			losses = append(losses, e.Loss)
		}
		return nil
	})
	ok(t, err)
	if len(losses) != 6 || !(losses[5] < 0.8*losses[0]) {
		t.Error(losses)
	}
	must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, []string{"eins zwei"}, nil))
}

func TestModelParameters(t *testing.T) {
	l := newLesson(t)
	elements := 0
	parameters := must[[]trafo.Parameter](t)(l.model.Parameters())
	for _, p := range parameters {
		if p.Name == "" {
			t.Error("a parameter has no name")
		}
		elements += p.Tensor.Len()
	}
	if size := must[int64](t)(l.model.Size()); size != int64(elements) || size == 0 {
		t.Errorf("%d elements in tensors, %d in all", elements, size)
	}
	// They are the model's own memory.
	before := l.weights(t)
	ok(t, trafo.Write(parameters[0].Tensor, make([]float32, parameters[0].Tensor.Len())))
	if l.weights(t) == before {
		t.Error("writing to a parameter changed nothing")
	}
	want := trafo.ModelConfig{Architecture: trafo.EncoderDecoder, Activation: trafo.SiLU, Vocabulary: 11, EncoderLayers: 2,
		DecoderLayers: 1, Width: 12, FFNWidth: 20, Heads: 3, MaxPositions: 33, PreNorm: false, TiedEmbeddings: false,
		Dropout: 0.11, AttentionDropout: 0.12, FFNDropout: 0.13, NormEpsilon: 1e-4}
	if got := must[trafo.ModelConfig](t)(must[*trafo.Model](t)(l.context.NewModel(want, 1)).Config()); got != want {
		t.Errorf("%+v became %+v", want, got)
	}
	_, err := trafo.Preset("enormous")
	wantError(t, err, trafo.ErrNotFound)
	config := trafo.DefaultModelConfig()
	_, err = l.context.NewModel(config, 1)
	wantError(t, err, trafo.ErrInvalidArgument)
	config.Vocabulary, config.Heads = 100, 7
	_, err = l.context.NewModel(config, 1)
	wantError(t, err)
	other := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer([]string{"a b c", "c b a", "abc cab"}, &trafo.TokenizerOptions{Vocabulary: 12, CharacterCoverage: 1, SoftLimit: true}))
	_, err = l.model.Translate(t.Context(), other, []string{"a"}, nil)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = l.model.Score(l.tokenizer, []string{"eins"}, nil)
	wantError(t, err, trafo.ErrInvalidArgument)
	if math.IsNaN(trafo.DefaultTranslateOptions().LengthPenalty) || trafo.DefaultTranslateOptions().Beam != 5 {
		t.Error("translation defaults")
	}
}
