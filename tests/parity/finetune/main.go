// Fine-tunes a directory of transformers on pairs of texts, exports it, and answers the lines of standard input.
//
// Arguments: directory, file of source, tab, target, updates, directory of the export, and the languages of a multilingual model.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func check[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	if len(os.Args) != 5 && len(os.Args) != 7 {
		log.Fatal("finetune DIRECTORY PAIRS UPDATES EXPORTED [SOURCE TARGET]")
	}
	ctx := context.Background()
	imported := check(check(trafo.NewContext(trafo.WithThreads(1))).ImportModel(ctx, os.Args[1]))
	model, tokenizer, format := imported.Model, imported.Tokenizer, trafo.HFLlama
	if tokenizer == nil {
		log.Fatal("the directory has no tokenizer")
	}
	if len(os.Args) == 7 {
		tokenizer, format = check(tokenizer.WithLanguages(os.Args[5], os.Args[6])), trafo.HFM2M100
	}
	options := trafo.DefaultTrainerOptions()
	options.LearningRate, options.Warmup, options.BatchTokens = 3e-3, trafo.Some(20), 600
	options.AfterUpdates = check(strconv.Atoi(os.Args[3]))
	corpus := check(trafo.LoadCorpusTSV(ctx, os.Args[2]))
	trainer := check(model.NewTrainer(ctx, tokenizer, corpus, nil, &options))
	check(trainer.Run(ctx, 0, nil))
	check(0, trainer.Close())
	check(model.Export(ctx, tokenizer, format, trafo.WeightsByFormat, os.Args[4]))
	var lines []string
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		lines = append(lines, input.Text())
	}
	greedy := trafo.DefaultTranslateOptions()
	greedy.Beam = 1
	for _, answer := range check(model.Translate(ctx, tokenizer, lines, &greedy)).Best() {
		fmt.Println(answer)
	}
}
