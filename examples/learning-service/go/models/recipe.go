package models

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/trafo-engine/trafo/bindings/go/trafo"

	"github.com/trafo-engine/trafo/examples/learning-service/go/demo"
	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/store"
)

// Recipe says how a base is trained.
type Recipe struct {
	Device                    string // cpu, cuda, cuda:N or auto
	Vocabulary, Layers, Width int
	LearningRate              float64
	Warmup, Updates           int
	BatchTokens               int
	Replay                    int // pairs of the training text that become the replay set
}

// Demo has the settings of scripts/demo.sh.
func Demo(device string) Recipe {
	return Recipe{Device: device, Vocabulary: 1000, Layers: 2, Width: 128, LearningRate: 3e-3, Warmup: 150, Updates: 1200,
		BatchTokens: 1024, Replay: 12000}
}

// TrainDemo trains a base on the demo corpus into folder, which is there as a whole or not at all. An interrupted call
// is resumed by the next one. progress gets the update. On one kind of device, the service in Rust makes the same bytes.
func (r *Recipe) TrainDemo(folder string, progress func(update int64)) error {
	corpus := filepath.Join(training(folder), "corpus")
	if err := demo.Write(corpus); err != nil {
		return err
	}
	pairs, err := readPairs(filepath.Join(corpus, "train.de"), filepath.Join(corpus, "train.en"))
	if err != nil {
		return err
	}
	test, err := readPairs(filepath.Join(corpus, "test.de"), filepath.Join(corpus, "test.en"))
	if err != nil {
		return err
	}
	return r.train(folder, pairs, test[:min(len(test), mostRegression)], progress)
}

// training is where a base is trained.
func training(folder string) string {
	return strings.TrimSuffix(folder, filepath.Ext(folder)) + ".training"
}

func (r *Recipe) train(folder string, pairs, regression []store.Pair, progress func(update int64)) error {
	work := training(folder)
	made := filepath.Join(work, "made")
	if err := os.MkdirAll(made, 0o777); err != nil {
		return fault.IO(err)
	}
	if err := r.trainModel(filepath.Join(work, "run"), made, pairs, progress); err != nil {
		return err
	}
	if err := writePairs(made, "replay", pairs[:min(len(pairs), r.Replay)]); err != nil {
		return err
	}
	if err := writePairs(made, "regression", regression); err != nil {
		return err
	}
	if err := syncFolder(made); err != nil {
		return err
	}
	if err := os.Rename(made, folder); err != nil {
		return fault.IO(err)
	}
	if err := syncFolder(filepath.Dir(folder)); err != nil {
		return err
	}
	return Remove(work)
}

// trainModel writes the model and its vocabulary into the folder made. Its checkpoints are in run.
func (r *Recipe) trainModel(run, made string, pairs []store.Pair, progress func(update int64)) error {
	ctx := context.Background()
	sources, targets := make([]string, len(pairs)), make([]string, len(pairs))
	for i, pair := range pairs {
		sources[i], targets[i] = pair.Source, pair.Target
	}
	corpus, err := trafo.NewCorpus(sources, targets)
	if err != nil {
		return err
	}
	defer corpus.Close()
	tokenizer, err := corpus.TrainTokenizer(ctx, &trafo.TokenizerOptions{Vocabulary: r.Vocabulary, SoftLimit: true})
	if err != nil {
		return err
	}
	defer tokenizer.Close()
	device, err := Engine{Device: r.Device, Share: 1}.newContext()
	if err != nil {
		return err
	}
	defer device.Close()
	model, err := r.newModel(device, tokenizer)
	if err != nil {
		return err
	}
	defer model.Close()
	options := r.options()
	options.RunDirectory = run
	trainer, err := model.NewTrainer(ctx, tokenizer, corpus, nil, &options)
	if err != nil {
		return err
	}
	defer trainer.Close()
	if _, err := trainer.Run(ctx, 0, func(event trafo.Event) error {
		if event.Kind == trafo.EventLog {
			progress(event.Update)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := model.Save(filepath.Join(made, "model.safetensors")); err != nil {
		return err
	}
	return tokenizer.Save(made)
}

func (r *Recipe) newModel(device *trafo.Context, tokenizer *trafo.Tokenizer) (*trafo.Model, error) {
	config, err := trafo.Preset("tiny")
	if err != nil {
		return nil, err
	}
	if config.Vocabulary, err = tokenizer.Vocabulary(); err != nil {
		return nil, err
	}
	config.EncoderLayers, config.DecoderLayers = r.Layers, r.Layers
	config.Width, config.FFNWidth, config.Heads = r.Width, 2*r.Width, 4
	config.Dropout = trafo.Some(0.05)
	return device.NewModel(config, 1)
}

func (r *Recipe) options() trafo.TrainerOptions {
	o := trafo.DefaultTrainerOptions()
	o.LearningRate = r.LearningRate
	o.Schedule, o.ScheduleUpdates = trafo.ScheduleLinear, r.Updates
	o.Warmup = trafo.Some(r.Warmup)
	o.BatchTokens, o.AfterUpdates = r.BatchTokens, r.Updates
	o.SaveFreq, o.KeepLast = trafo.Every(200, trafo.Updates), 1
	return o
}

// writePairs writes the files of a set, which are on disk when it returns.
func writePairs(folder, name string, pairs []store.Pair) error {
	for side, text := range map[string]func(store.Pair) string{
		"source": func(pair store.Pair) string { return pair.Source },
		"target": func(pair store.Pair) string { return pair.Target },
	} {
		file, err := os.Create(filepath.Join(folder, name+"."+side))
		if err != nil {
			return fault.IO(err)
		}
		var lines strings.Builder
		for _, pair := range pairs {
			lines.WriteString(text(pair) + "\n")
		}
		_, err = io.WriteString(file, lines.String())
		if err == nil {
			err = file.Sync()
		}
		if closed := file.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return fault.IO(err)
		}
	}
	return nil
}

// syncFolder has the names of a folder's files on disk.
func syncFolder(folder string) error {
	file, err := os.Open(folder)
	if err != nil {
		return fault.IO(err)
	}
	defer file.Close()
	return fault.IO(file.Sync())
}
