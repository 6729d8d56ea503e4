// Trains an imported model on pairs of sentences. Meanwhile the best model so far translates the lines of standard input.
//
//	go run ./examples/serve-while-training opus-mt-de-en customer.de customer.en
//
// The first argument is a directory of a MarianMT model. A second start resumes the run in the directory run.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"sync/atomic"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func check[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("serve-while-training DIRECTORY SOURCE TARGET")
	}
	ctx := context.Background()
	trained, served := check(trafo.NewContext()), check(trafo.NewContext())
	imported := check(trained.ImportModel(ctx, os.Args[1]))
	if imported.Tokenizer == nil {
		log.Fatal("the directory has no tokenizer")
	}
	check(0, imported.Model.Save("start.safetensors"))
	var current atomic.Pointer[trafo.Model] // a replaced model is freed by the garbage collector
	current.Store(check(served.LoadModel("start.safetensors")))

	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			line := []string{lines.Text()}
			found, err := current.Load().Translate(ctx, imported.Tokenizer, line, nil)
			if err != nil {
				log.Print(err)
				continue
			}
			fmt.Println(found.Best()[0])
		}
	}()

	train, valid, err := check(trafo.LoadCorpus(ctx, os.Args[2], os.Args[3])).HoldOut(200)
	check(0, err)
	options := trafo.DefaultTrainerOptions()
	options.LearningRate, options.Warmup, options.AfterUpdates = 2e-5, trafo.Some(100), 2000
	options.ValidFreq, options.SaveFreq = trafo.Every(250, trafo.Updates), trafo.Every(250, trafo.Updates)
	options.RunDirectory = "run"
	trainer := check(imported.Model.NewTrainer(ctx, imported.Tokenizer, train, valid, &options))
	check(trainer.Run(ctx, 0, func(e trafo.Event) error {
		if e.Kind != trafo.EventSaved {
			return nil
		}
		model, err := served.LoadRun("run", trafo.RunModelBest, trafo.Float32)
		if err == nil {
			current.Store(model)
		}
		return err
	}))
}
