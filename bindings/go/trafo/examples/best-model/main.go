// Command best-model trains the model of a run on with other texts, and loads the best model that came out.
//
//	go run ./examples/best-model RUN NEW-RUN SOURCE.de TARGET.en
//
// RUN is a run directory of translate-train, NEW-RUN where the training goes. A tenth of the texts is
// kept for validation, which decides what is best.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// run gives the model of the best checkpoint and its tokenizer.
func run(ctx context.Context, c *trafo.Context, base, directory string, texts *trafo.Corpus, learningRate float64, updates int) (*trafo.Model, *trafo.Tokenizer) {
	tokenizer := must(trafo.LoadTokenizer(base))
	model := must(c.LoadRun(base, trafo.RunModelBest, trafo.Float32))
	train, valid, err := texts.HoldOut(must(texts.Info()).Pairs / 10)
	must(train, err)
	options := trafo.DefaultTrainerOptions()
	options.LearningRate, options.Warmup, options.AfterUpdates = learningRate, trafo.Some(updates/10), updates
	options.ValidFreq = trafo.Every(int64(updates/4), trafo.Updates)
	options.RunDirectory = directory
	trainer := must(model.NewTrainer(ctx, tokenizer, train, valid, &options))
	must(trainer.Run(ctx, 0, nil))
	must(model, trainer.Close())
	must(model, model.Close())
	// Another program, later, does the same: all that it needs is the directory.
	return must(c.LoadRun(directory, trafo.RunModelBest, trafo.Float32)), tokenizer
}

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: best-model RUN NEW-RUN SOURCE.de TARGET.en")
	}
	ctx, c := context.Background(), must(trafo.NewContext())
	defer c.Close()
	texts := must(trafo.LoadCorpus(ctx, os.Args[3], os.Args[4]))
	model, tokenizer := run(ctx, c, os.Args[1], os.Args[2], texts, 5e-4, 1000)
	line, _, err := texts.Pair(0)
	translations := must(model.Translate(ctx, tokenizer, []string{must(line, err)}, nil))
	fmt.Println(line, "->", translations.Best()[0])
}
