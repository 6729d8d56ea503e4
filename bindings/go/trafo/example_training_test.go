package trafo_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// school is what the examples below train with; Close it.
type school struct {
	corpus    *trafo.Corpus
	tokenizer *trafo.Tokenizer
	device    *trafo.Context
	model     *trafo.Model
}

func (s *school) Close() {
	s.model.Close()
	s.device.Close()
	s.tokenizer.Close()
	s.corpus.Close()
}

func openSchool() (*school, error) {
	var s school
	var source, target []string
	for _, colour := range [][2]string{{"roter", "red"}, {"grüner", "green"}, {"kleiner", "small"}} {
		for _, thing := range [][2]string{{"Hut", "hat"}, {"Tisch", "table"}, {"Stein", "stone"}} {
			source = append(source, "ein "+colour[0]+" "+thing[0])
			target = append(target, "a "+colour[1]+" "+thing[1])
		}
	}
	var err error
	if s.corpus, err = trafo.NewCorpus(source, target); err != nil {
		return nil, err
	}
	tokenizerOptions := trafo.DefaultTokenizerOptions()
	tokenizerOptions.SoftLimit = true // so small a text has no 8000 subwords
	if s.tokenizer, err = s.corpus.TrainTokenizer(context.Background(), &tokenizerOptions); err != nil {
		return nil, err
	}
	if s.device, err = trafo.NewContext(); err != nil {
		return nil, err
	}
	config, err := trafo.Preset("tiny")
	if err != nil {
		return nil, err
	}
	config.EncoderLayers, config.DecoderLayers, config.Width, config.FFNWidth, config.Heads = 1, 1, 32, 64, 2
	if config.Vocabulary, err = s.tokenizer.Vocabulary(); err != nil {
		return nil, err
	}
	s.model, err = s.device.NewModel(config, 1)
	return &s, err
}

func schoolOptions() *trafo.TrainerOptions {
	options := trafo.DefaultTrainerOptions()
	options.LearningRate, options.Warmup, options.BatchTokens = 5e-3, trafo.Some(20), 128
	return &options
}

// From pairs of sentences to a translation.
func Example_trainAndTranslate() {
	s, err := openSchool() // a corpus, its tokenizer, and a model
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	options := schoolOptions()
	options.AfterUpdates, options.LogFreq = 150, trafo.Every(75, trafo.Updates)
	trainer, err := s.model.NewTrainer(context.Background(), s.tokenizer, s.corpus, nil, options)
	if err != nil {
		log.Fatal(err)
	}
	defer trainer.Close()
	reason, err := trainer.Run(context.Background(), 0, func(e trafo.Event) error {
		if e.Kind == trafo.EventLog {
			fmt.Println("update", e.Update)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("stopped:", reason)

	search := trafo.DefaultTranslateOptions()
	search.Beam = 3
	translations, err := s.model.Translate(context.Background(), s.tokenizer,
		[]string{"ein roter Tisch", "ein grüner Hut"}, &search)
	if err != nil {
		log.Fatal(err)
	}
	for _, text := range translations.Best() {
		fmt.Println(text)
	}
	// Output:
	// update 75
	// update 150
	// stopped: limit
	// a red table
	// a green hat
}

// Several translations of a line, the best first, with their scores.
func ExampleModel_Translate() {
	s, err := openSchool()
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	search := trafo.DefaultTranslateOptions()
	search.Beam, search.NBest, search.MaxLength = 4, 3, 8
	translations, err := s.model.Translate(context.Background(), s.tokenizer, []string{"ein Hut", ""}, &search)
	if err != nil {
		log.Fatal(err)
	}
	first := translations.Lines[0]
	fmt.Println(len(first), first[0].Score >= first[1].Score, first[1].Score >= first[2].Score)
	fmt.Printf("%q\n", translations.Best()[1])
	// Output:
	// 3 true true
	// ""
}

// A network of one's own: a line through points, from a product, a loss and an optimizer.
func Example_ownNetwork() {
	c, err := trafo.NewContext()
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	x, err := trafo.NewTensor(c, []float32{0, 1, 2, 3}, 4, 1)
	if err != nil {
		log.Fatal(err)
	}
	y, err := trafo.NewTensor(c, []float32{1, 3, 5, 7}, 4, 1)
	if err != nil {
		log.Fatal(err)
	}
	slope, err := trafo.NewTensor(c, []float32{0}, 1, 1)
	if err != nil {
		log.Fatal(err)
	}
	offset, err := trafo.NewTensor(c, []float32{0}, 1)
	if err != nil {
		log.Fatal(err)
	}
	for _, parameter := range []*trafo.Tensor{slope, offset} {
		if err := parameter.SetRequiresGrad(true); err != nil {
			log.Fatal(err)
		}
	}
	optimizer, err := c.NewAdamW(nil, slope, offset)
	if err != nil {
		log.Fatal(err)
	}
	defer optimizer.Close()
	for range 400 {
		// A scope closes what an update has made: the garbage collector does not see its memory.
		err := c.Scope(func() error {
			predicted, err := c.Linear(x, slope, offset)
			if err != nil {
				return err
			}
			difference, err := c.Subtract(predicted, y)
			if err != nil {
				return err
			}
			square, err := c.Multiply(difference, difference)
			if err != nil {
				return err
			}
			loss, err := c.Sum(square)
			if err != nil {
				return err
			}
			if err := loss.Backward(); err != nil {
				return err
			}
			_, err = optimizer.Step(0.05)
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	a, err := slope.Item()
	if err != nil {
		log.Fatal(err)
	}
	b, err := offset.Item()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("y = %.1f x + %.1f\n", a, b)
	// Output: y = 2.0 x + 1.0
}

// A run directory lets training go on where it stopped, in another process too, bit for bit.
func ExampleTrainerOptions_resume() {
	run, err := os.MkdirTemp("", "run")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(run)
	for _, updates := range []int{20, 30} { // the second is another day
		s, err := openSchool()
		if err != nil {
			log.Fatal(err)
		}
		options := schoolOptions()
		options.RunDirectory, options.AfterUpdates = run, updates
		trainer, err := s.model.NewTrainer(context.Background(), s.tokenizer, s.corpus, nil, options)
		if err != nil {
			log.Fatal(err)
		}
		_, err = trainer.Run(context.Background(), 0, func(e trafo.Event) error {
			switch e.Kind {
			case trafo.EventResumed:
				fmt.Println("going on after update", filepath.Base(e.Path))
			case trafo.EventFinished:
				fmt.Println("finished at update", e.Update)
			}
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
		trainer.Close()
		s.Close()
	}
	// Output:
	// finished at update 20
	// going on after update 20
	// finished at update 30
}

// A context ends training from any goroutine, between two updates. The trainer can go on.
func ExampleTrainer_Run_cancel() {
	s, err := openSchool()
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	options := schoolOptions()
	options.LogFreq = trafo.Every(1, trafo.Updates)
	trainer, err := s.model.NewTrainer(context.Background(), s.tokenizer, s.corpus, nil, options) // has no limit
	if err != nil {
		log.Fatal(err)
	}
	defer trainer.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	progress := make(chan int64, 1000)
	go func() {
		for update := range progress {
			if update == 5 {
				cancel() // the user has pressed a button
			}
		}
	}()
	reason, err := trainer.Run(ctx, 0, func(e trafo.Event) error {
		select {
		case progress <- e.Update:
		default: // never wait for a display
		}
		return nil
	})
	close(progress)
	fmt.Println(reason, errors.Is(err, context.Canceled))
	reason, err = trainer.Run(context.Background(), 3, nil) // three updates more
	fmt.Println(reason, err)
	// Output:
	// cancelled true
	// paused <nil>
}
