// Command classifier sorts texts into classes: one linear layer on the encoder of a trained model.
//
//	go run ./examples/classifier RUN TRAIN.tsv TEST.tsv    (a line of a file: text, tab, class 0, 1, ..)
package main

import (
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// run learns classes of texts; it gives the share of other texts that it sorts rightly.
func run(directory string, train []string, classes []int32, test []string, wanted []int32) float64 {
	c := must(trafo.NewContext())
	defer c.Close()
	tokenizer := must(trafo.LoadTokenizer(directory))
	model := must(c.LoadRun(directory, trafo.RunModelBest, trafo.Float32))
	means := func(texts []string) *trafo.Tensor { // of the encoder states of each text; the encoder stays as it is
		states, bounds, err := model.HiddenStates(tokenizer, texts)
		return must(must(c.SegmentMean(must(states, err), bounds)).Detach())
	}
	x, labels := means(train), must(trafo.NewTensor(c, classes, len(classes)))
	weight := must(c.Zeros(trafo.Float32, int(slices.Max(classes))+1, x.Shape()[1]))
	must(weight, weight.SetRequiresGrad(true))
	optimizer := must(c.NewAdamW(nil, weight))
	for range 300 {
		loss, _, err := c.CrossEntropy(must(c.Linear(x, weight, nil)), labels, nil)
		must(loss, must(loss, err).Backward())
		must(optimizer.Step(0.05))
	}
	found, labels := must(c.ArgMax(must(c.Linear(means(test), weight, nil)), 1, false)), must(trafo.NewTensor(c, wanted, len(wanted)))
	return must(must(c.Mean(must(c.Cast(must(c.Compare(found, labels, trafo.Equal)), trafo.Float32)))).Item())
}

func read(file string) (texts []string, classes []int32) {
	for line := range strings.Lines(string(must(os.ReadFile(file)))) {
		text, class, _ := strings.Cut(strings.TrimSpace(line), "\t")
		texts, classes = append(texts, text), append(classes, int32(must(strconv.Atoi(class))))
	}
	return
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: classifier RUN TRAIN.tsv TEST.tsv")
	}
	train, classes := read(os.Args[2])
	test, wanted := read(os.Args[3])
	fmt.Printf("%.1f %% right\n", 100*run(os.Args[1], train, classes, test, wanted))
}
