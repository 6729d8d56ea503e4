// Command train makes a small German-English corpus, trains a translation model on it and translates
// sentences that it has never seen.
//
//	go run ./examples/train [-device auto|cpu|cuda|cuda:N] [-preset tiny|lm]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// corpus combines who does what to whom, and when; every seventh sentence is held out.
func corpus() (source, target, heldOutSource, heldOutTarget []string) {
	type phrase struct{ de, en string }
	subjects := []phrase{{"der Mann", "the man"}, {"die Frau", "the woman"}, {"das Kind", "the child"},
		{"der Lehrer", "the teacher"}, {"die Ärztin", "the doctor"}, {"mein Bruder", "my brother"}}
	verbs := []phrase{{"sieht", "sees"}, {"kauft", "buys"}, {"sucht", "looks for"}, {"verkauft", "sells"}, {"findet", "finds"}}
	objects := []phrase{{"den Hund", "the dog"}, {"die Katze", "the cat"}, {"das Haus", "the house"},
		{"ein Buch", "a book"}, {"einen Apfel", "an apple"}, {"das alte Auto", "the old car"}}
	times := []phrase{{"heute", "today"}, {"jetzt", "now"}, {"oft", "often"}, {"am Montag", "on Monday"}}
	i := 0
	for _, s := range subjects {
		for _, v := range verbs {
			for _, o := range objects {
				for _, t := range times {
					// German puts the verb second, whatever comes first.
					de := fmt.Sprintf("%s %s %s %s .", t.de, v.de, s.de, o.de)
					en := fmt.Sprintf("%s %s %s %s .", s.en, v.en, o.en, t.en)
					if i++; i%7 == 0 {
						heldOutSource, heldOutTarget = append(heldOutSource, de), append(heldOutTarget, en)
					} else {
						source, target = append(source, de), append(target, en)
					}
				}
			}
		}
	}
	return
}

// run gives the BLEU of the held-out sentences. The preset tiny is an encoder-decoder, lm a
// decoder-only model.
func run(ctx context.Context, where, preset string) (bleu float64, err error) {
	source, target, heldOutSource, heldOutTarget := corpus()
	train, err := trafo.NewCorpus(source, target)
	if err != nil {
		return 0, err
	}
	defer train.Close()
	valid, err := trafo.NewCorpus(heldOutSource, heldOutTarget)
	if err != nil {
		return 0, err
	}
	defer valid.Close()

	tokenizerOptions := trafo.DefaultTokenizerOptions()
	tokenizerOptions.Vocabulary = 90
	tokenizer, err := train.TrainTokenizer(ctx, &tokenizerOptions)
	if err != nil {
		return 0, err
	}
	defer tokenizer.Close()

	kind, index, err := trafo.ParseDevice(where)
	if err != nil {
		return 0, err
	}
	device, err := trafo.NewContext(trafo.WithDevice(kind, index))
	if err != nil {
		return 0, err
	}
	defer device.Close()
	config, err := trafo.Preset(preset)
	if err != nil {
		return 0, err
	}
	if config.Vocabulary, err = tokenizer.Vocabulary(); err != nil {
		return 0, err
	}
	config.EncoderLayers, config.DecoderLayers, config.Width, config.FFNWidth = 2, 2, 64, 128
	if kind, index, err = device.Device(); err != nil {
		return 0, err
	}
	if kind == trafo.CUDA {
		config.Precision = trafo.BFloat16
	}
	fmt.Printf("training %s on %v:%d in %v\n", preset, kind, index, config.Precision)
	model, err := device.NewModel(config, 1)
	if err != nil {
		return 0, err
	}
	defer model.Close()

	options := trafo.DefaultTrainerOptions()
	options.LearningRate, options.Warmup, options.BatchTokens = 3e-3, trafo.Some(100), 1024
	options.AfterUpdates = 300
	options.ValidFreq = trafo.Every(100, trafo.Updates)
	options.LogFreq = trafo.Every(50, trafo.Updates)
	trainer, err := model.NewTrainer(ctx, tokenizer, train, valid, &options)
	if err != nil {
		return 0, err
	}
	defer trainer.Close()

	reason, err := trainer.Run(ctx, 0, func(e trafo.Event) error {
		switch e.Kind {
		case trafo.EventLog:
			fmt.Printf("update %4d  loss %.3f  %.0f tokens/s\n", e.Update, e.Loss, e.TargetTokensPerSecond)
		case trafo.EventValidated:
			fmt.Printf("update %4d  BLEU %.1f\n", e.Update, e.Metrics[trafo.MetricBLEU])
		}
		return nil
	})
	if errors.Is(err, context.Canceled) {
		fmt.Println("interrupted; this is what it has learnt:")
		ctx = context.Background()
	} else if err != nil {
		return 0, err
	} else {
		fmt.Println("done:", reason)
	}

	translations, err := model.Translate(ctx, tokenizer, heldOutSource, nil)
	if err != nil {
		return 0, err
	}
	for i, text := range translations.Best()[:5] {
		fmt.Printf("%s -> %s\n", heldOutSource[i], text)
	}
	score, _, err := trafo.BLEU(translations.Best(), heldOutTarget, false)
	if err != nil {
		return 0, err
	}
	fmt.Printf("BLEU on %d held-out sentences: %.1f\n", len(heldOutTarget), score)
	return score, nil
}

func main() {
	device := flag.String("device", "auto", "auto (CUDA where there is one), cpu, cuda or cuda:N")
	preset := flag.String("preset", "tiny", "tiny: an encoder-decoder; lm: a decoder-only model")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if _, err := run(ctx, *device, *preset); err != nil {
		log.Fatal(err)
	}
}
