package learn

import (
	"cmp"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
	"github.com/trafo-engine/trafo/examples/learning-service/go/hash"
	"github.com/trafo-engine/trafo/examples/learning-service/go/models"
	"github.com/trafo-engine/trafo/examples/learning-service/go/settings"
	"github.com/trafo-engine/trafo/examples/learning-service/go/store"
)

// errEnd is what an observer returns to end a training, which a later call resumes.
var errEnd = errors.New("the round ends here")

// observer is told while a round trains.
type observer interface {
	// updated: after an update, which took so long since the last call. errEnd ends the training.
	updated(update int64, took time.Duration) error
	// writing: training has ended; its adapter is written next.
	writing()
	// validated: after a validation, before the checkpoint of its update is written.
	validated(store.Point) error
}

// train trains the adapter of a round from the base and writes it to adapter. Checkpoints are in work: an interrupted
// round is resumed there, and ends with the same bytes. False: the observer has ended it.
func train(base *models.Base, round *store.Round, engine models.Engine, work, adapter string, o observer) (bool, error) {
	if err := os.MkdirAll(work, 0o777); err != nil {
		return false, fault.IO(err)
	}
	model, err := base.Load(engine)
	if err != nil {
		return false, err
	}
	defer model.Close()
	if err := model.AddAdapter(trafo.AdapterOptions{Rank: round.Learning.Rank, Seed: round.Seed}); err != nil {
		return false, err
	}
	corpus, held, err := corpora(base, round)
	if err != nil {
		return false, err
	}
	defer corpus.Close()
	defer held.Close()
	options := optionsOf(round)
	options.RunDirectory, options.MaxLength = work, base.Longest()
	trainer, err := model.NewTrainer(context.Background(), base.Tokenizer, corpus, held, &options)
	if err != nil {
		return false, err
	}
	defer trainer.Close()
	stop, err := run(trainer, o)
	if errors.Is(err, errEnd) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if stop != trafo.StopLimit && stop != trafo.StopEarly {
		return false, nil
	}
	o.writing()
	best, err := trainer.BestModel()
	if err != nil {
		return false, err
	}
	defer best.Close()
	return true, save(best, adapter)
}

func run(trainer *trafo.Trainer, o observer) (trafo.StopReason, error) {
	last, loss := time.Now(), 0.0
	return trainer.Run(context.Background(), 0, func(event trafo.Event) (err error) {
		switch {
		case event.Kind == trafo.EventLog:
			loss = event.NLL
			err = o.updated(event.Update, time.Since(last))
		case event.Kind == trafo.EventValidated && event.Message == "": // a message: of the model that the run starts from
			ce, there := event.Metrics[trafo.MetricCE]
			if !there {
				ce = math.MaxFloat64
			}
			err = o.validated(store.Point{Update: event.Update, Loss: settings.Decimal(loss), HeldLoss: settings.Decimal(ce)})
		default:
			return nil
		}
		last = time.Now()
		return err
	})
}

func save(model *trafo.Model, adapter string) error {
	if err := os.MkdirAll(filepath.Dir(adapter), 0o777); err != nil {
		return fault.IO(err)
	}
	if err := models.Remove(adapter); err != nil { // an interrupted round may have left temporary files in it
		return err
	}
	return model.SaveAdapter(adapter)
}

// corpora gives the corrections with a sample of the base's text, weighted so that the corrections have their share of
// an epoch, and the held-out corrections.
func corpora(base *models.Base, round *store.Round) (training, held *trafo.Corpus, err error) {
	corrections, err := base.Corpus(round.Train)
	if err != nil {
		return nil, nil, err
	}
	defer corrections.Close()
	parts := []trafo.WeightedCorpus{{Corpus: corrections, Weight: 1}}
	if chosen := sample(base.Replay, round.Learning.Replay, round.Seed); len(chosen) > 0 {
		replay, err := base.Corpus(chosen)
		if err != nil {
			return nil, nil, err
		}
		defer replay.Close()
		share := float64(round.Learning.Share)
		wanted := float64(len(chosen)) * share / (1 - share)
		parts[0].Weight = max(wanted/float64(len(round.Train)), 1)
		parts = append(parts, trafo.WeightedCorpus{Corpus: replay, Weight: 1})
	}
	if training, err = trafo.MixCorpora(parts); err != nil {
		return nil, nil, err
	}
	if held, err = base.Corpus(round.Held); err != nil {
		training.Close()
		return nil, nil, err
	}
	return training, held, nil
}

// sample gives count pairs in the order of a hash of their text and the seed.
func sample(pairs []store.Pair, count int, seed uint64) []store.Pair {
	type keyed struct {
		key uint64
		store.Pair
	}
	all := make([]keyed, len(pairs))
	for i, pair := range pairs {
		all[i] = keyed{hash.Seed(strconv.FormatUint(seed, 10), pair.Source, pair.Target), pair}
	}
	slices.SortFunc(all, func(a, b keyed) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Target, b.Target))
	})
	var chosen []store.Pair
	for _, each := range all[:min(count, len(all))] {
		chosen = append(chosen, each.Pair)
	}
	return chosen
}

func optionsOf(round *store.Round) trafo.TrainerOptions {
	l := &round.Learning
	every := trafo.Every(int64(l.Every), trafo.Updates)
	o := trafo.DefaultTrainerOptions()
	o.LearningRate = float64(l.LearningRate)
	o.Schedule, o.ScheduleUpdates = trafo.ScheduleLinear, l.Updates
	o.Warmup = trafo.Some(l.Warmup)
	o.AfterUpdates = l.Updates
	o.BatchTokens = l.BatchTokens
	o.Seed = trafo.Some(round.Seed)
	o.ValidFreq, o.SaveFreq = every, every
	o.ValidMetrics, o.EarlyStopping = trafo.MetricCE, l.Patience
	o.KeepLast = 1
	o.LogFreq = trafo.Every(1, trafo.Updates)
	return o
}
