package trafo_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func TestExportAndImport(t *testing.T) {
	c := newContext(t)
	source, _ := sentences()
	options := trafo.DefaultTokenizerOptions()
	options.Vocabulary, options.SoftLimit = 200, true
	tokenizer := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(t.Context(), source, &options))
	defer tokenizer.Close()
	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
	config.EncoderLayers, config.DecoderLayers = 1, 1
	pre := must[*trafo.Model](t)(c.NewModel(config, 3))
	defer pre.Close()
	directory := filepath.Join(t.TempDir(), "marian")
	_, err := pre.Export(t.Context(), tokenizer, trafo.HFMarian, trafo.WeightsByFormat, directory)
	wantError(t, err, trafo.ErrUnsupported)
	pegasus := filepath.Join(t.TempDir(), "pegasus")
	if difference := must[float64](t)(pre.Export(t.Context(), tokenizer, trafo.HFPegasus, trafo.WeightsByFormat, pegasus)); difference != 0 {
		t.Error(difference)
	}
	again := must[trafo.Imported](t)(c.ImportModel(t.Context(), pegasus))
	defer again.Model.Close()
	defer again.Tokenizer.Close()
	if must[trafo.ModelConfig](t)(again.Model.Config()).PreNorm != trafo.Some(true) || again.Note != "" {
		t.Error(again.Note)
	}

	config.PreNorm = trafo.Some(false)
	post := must[*trafo.Model](t)(c.NewModel(config, 3))
	defer post.Close()
	if difference := must[float64](t)(post.Export(t.Context(), tokenizer, trafo.HFMarian, trafo.WeightsByFormat, directory)); difference != 0 {
		t.Error(difference)
	}
	_, err = post.Export(t.Context(), tokenizer, trafo.CTranslate2, trafo.WeightsInt8, directory)
	wantError(t, err, trafo.ErrInvalidArgument) // not empty

	imported := must[trafo.Imported](t)(c.ImportModel(t.Context(), directory))
	defer imported.Model.Close()
	defer imported.Tokenizer.Close()
	beam := trafo.DefaultTranslateOptions()
	beam.Beam, beam.MaxLength = 2, 8
	ours := must[*trafo.Translations](t)(post.Translate(t.Context(), tokenizer, source[:3], &beam))
	theirs := must[*trafo.Translations](t)(imported.Model.Translate(t.Context(), imported.Tokenizer, source[:3], &beam))
	if !slices.Equal(ours.Best(), theirs.Best()) || imported.Note != "" {
		t.Error(ours.Best(), theirs.Best(), imported.Note)
	}
	_, err = c.ImportModel(t.Context(), t.TempDir())
	wantError(t, err, trafo.ErrNotFound)
}

func TestTeacher(t *testing.T) {
	c := newContext(t)
	source, target := sentences()
	tokenizerOptions := trafo.DefaultTokenizerOptions()
	tokenizerOptions.Vocabulary, tokenizerOptions.SoftLimit = 200, true
	tokenizer := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(t.Context(), source, &tokenizerOptions))
	defer tokenizer.Close()
	corpus := must[*trafo.Corpus](t)(trafo.NewCorpus(source, target))
	defer corpus.Close()
	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
	config.EncoderLayers, config.DecoderLayers = 1, 1
	newModel := func(config trafo.ModelConfig) *trafo.Model {
		model := must[*trafo.Model](t)(c.NewModel(config, 3))
		t.Cleanup(func() { model.Close() })
		return model
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	wide, strange := config, config
	wide.Width *= 2
	strange.Vocabulary++
	folder := t.TempDir()
	path := filepath.Join(folder, "model.safetensors")
	check(newModel(wide).Save(path))
	other := filepath.Join(t.TempDir(), "other.safetensors")
	check(newModel(strange).Save(other))

	training := trafo.DefaultTrainerOptions()
	training.BatchTokens, training.Warmup = 256, trafo.Some(1)
	losses := func(model *trafo.Model) (loss float64) {
		trainer := must[*trafo.Trainer](t)(model.NewTrainer(t.Context(), tokenizer, corpus, nil, &training))
		defer trainer.Close()
		for range 3 {
			loss = must[trafo.StepResult](t)(trainer.Step(t.Context())).Loss
		}
		return loss
	}
	alone, taught, removed := newModel(config), newModel(config), newModel(config)
	check(taught.LoadTeacher(folder))
	wantError(t, taught.LoadTeacher(other), trafo.ErrInvalidArgument)
	wantError(t, taught.LoadTeacher(filepath.Join(folder, "missing")), trafo.ErrNotFound)
	check(removed.LoadTeacher(path))
	check(removed.RemoveTeacher())
	wantError(t, removed.RemoveTeacher(), trafo.ErrInvalidArgument)
	without := losses(alone)
	if with := losses(taught); with == without {
		t.Error("the teacher changed nothing")
	}
	if losses(removed) != without {
		t.Error("a teacher that was removed changed the loss")
	}
}

func TestPreferences(t *testing.T) {
	c := newContext(t)
	source, target := sentences()
	options := trafo.DefaultTokenizerOptions()
	options.Vocabulary, options.SoftLimit = 200, true
	tokenizer := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(t.Context(), source, &options))
	defer tokenizer.Close()
	rejected := append(append([]string{}, target[1:]...), target[0])
	pairs := must[*trafo.Corpus](t)(trafo.NewPreferenceCorpus(source, target, rejected))
	defer pairs.Close()
	if answer := must[string](t)(pairs.Rejected(0)); answer != target[1] {
		t.Error(answer)
	}
	_, err := trafo.NewPreferenceCorpus(source, target, rejected[1:])
	wantError(t, err, trafo.ErrInvalidArgument)
	ordinary := must[*trafo.Corpus](t)(trafo.NewCorpus(source, target))
	defer ordinary.Close()
	_, err = ordinary.Rejected(0)
	wantError(t, err, trafo.ErrInvalidArgument)
	folder := t.TempDir()
	file := filepath.Join(folder, "pairs.tsv")
	ok(t, os.WriteFile(file, []byte(source[0]+"\t"+target[0]+"\t"+rejected[0]+"\n"), 0o600))
	read := must[*trafo.Corpus](t)(trafo.OpenCorpus(t.Context(), []string{file}, &trafo.CorpusOptions{Preferences: true}))
	defer read.Close()
	if answer := must[string](t)(read.Rejected(0)); answer != rejected[0] {
		t.Error(answer)
	}

	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
	config.EncoderLayers, config.DecoderLayers = 1, 1
	model := must[*trafo.Model](t)(c.NewModel(config, 3))
	defer model.Close()
	training := trafo.DefaultTrainerOptions()
	training.Objective, training.BatchTokens, training.Warmup = trafo.ObjectiveDPO, 256, trafo.Some(1)
	training.AfterUpdates, training.LogFreq = 60, trafo.Every(20, trafo.Updates)
	_, err = model.NewTrainer(t.Context(), tokenizer, pairs, nil, &training)
	wantError(t, err, trafo.ErrInvalidArgument)
	base := filepath.Join(folder, "base.safetensors")
	ok(t, model.Save(base))
	ok(t, model.LoadReference(base))
	trainer := must[*trafo.Trainer](t)(model.NewTrainer(t.Context(), tokenizer, pairs, nil, &training))
	defer trainer.Close()
	var last trafo.Event
	_, err = trainer.Run(t.Context(), 0, func(event trafo.Event) error {
		if event.Kind == trafo.EventLog {
			last = event
		}
		return nil
	})
	ok(t, err)
	if len(last.ObjectiveMetrics) != 4 || !(last.ObjectiveMetrics["reward-margin"] > 0) {
		t.Error(last.ObjectiveMetrics)
	}
	wantError(t, model.RemoveTeacher(), trafo.ErrInvalidArgument)
}

func TestLabelledAnswers(t *testing.T) {
	c := newContext(t)
	source, target := sentences()
	options := trafo.DefaultTokenizerOptions()
	options.Vocabulary, options.SoftLimit = 200, true
	tokenizer := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(t.Context(), source, &options))
	defer tokenizer.Close()
	answers := append(append([]string{}, target[1:]...), target[0])
	desirable := make([]bool, len(answers))
	for i := range answers {
		if desirable[i] = i%2 == 0; desirable[i] {
			answers[i] = target[i]
		}
	}
	corpus := must[*trafo.Corpus](t)(trafo.NewLabelledCorpus(source, answers, desirable))
	defer corpus.Close()
	if info := must[trafo.CorpusInfo](t)(corpus.Info()); !info.Labelled || info.Texts != 3 || info.CSV {
		t.Error(info)
	}
	if answer := must[string](t)(corpus.Rejected(1)); answer != answers[1] {
		t.Error(answer)
	}
	_, err := trafo.NewLabelledCorpus(source, answers, desirable[1:])
	wantError(t, err, trafo.ErrInvalidArgument)
	file := filepath.Join(t.TempDir(), "answers.csv")
	ok(t, os.WriteFile(file, []byte("prompt,completion,label\n\"a, b\",c,true\n"), 0o600))
	read := must[*trafo.Corpus](t)(trafo.OpenCorpus(t.Context(), []string{file}, nil))
	defer read.Close()
	if info := must[trafo.CorpusInfo](t)(read.Info()); !info.Labelled || !info.CSV {
		t.Error(info)
	}

	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
	config.EncoderLayers, config.DecoderLayers = 1, 1
	model := must[*trafo.Model](t)(c.NewModel(config, 3))
	defer model.Close()
	base := filepath.Join(t.TempDir(), "base.safetensors")
	ok(t, model.Save(base))
	ok(t, model.LoadReference(base))
	training := trafo.DefaultTrainerOptions()
	training.Objective, training.BatchTokens, training.Warmup = trafo.ObjectiveKTO, 256, trafo.Some(1)
	training.AfterUpdates, training.LogFreq = 60, trafo.Every(20, trafo.Updates)
	trainer := must[*trafo.Trainer](t)(model.NewTrainer(t.Context(), tokenizer, corpus, nil, &training))
	defer trainer.Close()
	var last trafo.Event
	_, err = trainer.Run(t.Context(), 0, func(event trafo.Event) error {
		if event.Kind == trafo.EventLog {
			last = event
		}
		return nil
	})
	ok(t, err)
	if len(last.ObjectiveMetrics) != 6 || !(last.ObjectiveMetrics["reward-margin"] > 0) {
		t.Error(last.ObjectiveMetrics)
	}
}

func TestAdapters(t *testing.T) {
	c := newContext(t)
	source, target := sentences()
	options := trafo.DefaultTokenizerOptions()
	options.Vocabulary, options.SoftLimit = 200, true
	tokenizer := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(t.Context(), source, &options))
	defer tokenizer.Close()
	corpus := must[*trafo.Corpus](t)(trafo.NewCorpus(source, target))
	defer corpus.Close()
	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
	config.EncoderLayers, config.DecoderLayers = 1, 1
	newModel := func() *trafo.Model {
		model := must[*trafo.Model](t)(c.NewModel(config, 3))
		t.Cleanup(func() { model.Close() })
		return model
	}
	score := func(m *trafo.Model) float64 {
		return must[[]trafo.Score](t)(m.Score(t.Context(), tokenizer, source[:1], target[:1]))[0].LogProbability
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	model, other := newModel(), newModel()
	before := score(model)
	wantError(t, model.AddAdapter(trafo.AdapterOptions{Rank: 4, Targets: []string{"head"}}), trafo.ErrInvalidArgument)
	check(model.AddAdapter(trafo.AdapterOptions{Rank: 4, Alpha: 32, Targets: []string{"query", "down"}}))
	if score(model) != before {
		t.Error("an adapter that is new changed the model")
	}
	training := trafo.DefaultTrainerOptions()
	training.BatchTokens, training.Warmup = 256, trafo.Some(1)
	trainer := must[*trafo.Trainer](t)(model.NewTrainer(t.Context(), tokenizer, corpus, nil, &training))
	for range 4 {
		must[trafo.StepResult](t)(trainer.Step(t.Context()))
	}
	trainer.Close()
	trained := score(model)
	directory := filepath.Join(t.TempDir(), "adapter")
	check(model.SaveAdapter(directory))
	check(other.LoadAdapter(directory))
	if score(other) != trained || trained == before {
		t.Error(before, trained, score(other))
	}
	check(other.MergeAdapter())
	if math.Abs(score(other)-trained) > 1e-3 {
		t.Error(score(other), trained)
	}
	check(other.UnmergeAdapter())
	if score(other) != trained {
		t.Error(score(other), trained)
	}
	check(other.RemoveAdapter())
	if score(other) != before {
		t.Error(score(other), before)
	}
	wantError(t, other.LoadAdapter(t.TempDir()), trafo.ErrNotFound)

	_, err := other.WithAdapter(directory)
	wantError(t, err, trafo.ErrInvalidArgument)
	check(other.PrepareInference())
	_, err = other.WithAdapter(t.TempDir())
	wantError(t, err, trafo.ErrNotFound)
	var beside []*trafo.Model
	for range 3 {
		beside = append(beside, must[*trafo.Model](t)(other.WithAdapter(directory)))
	}
	if score(other) != before {
		t.Error(score(other), before)
	}
	check(other.Close()) // its weights stay
	var group sync.WaitGroup
	for _, m := range beside {
		group.Add(1)
		go func() {
			defer group.Done()
			found, err := m.Score(t.Context(), tokenizer, source[:1], target[:1])
			if err != nil || found[0].LogProbability != trained || m.Close() != nil {
				t.Error(found, err, trained)
			}
		}()
	}
	group.Wait()
}
