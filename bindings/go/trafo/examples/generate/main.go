// Continues a text with an imported language model, and prints the continuation as it comes.
//
//	go run ./examples/generate MODEL TEXT
//
// MODEL: a directory that translate-train import has written.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func check[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("generate MODEL TEXT")
	}
	device := check(trafo.NewContext())
	model := check(device.LoadModel(filepath.Join(os.Args[1], "model.safetensors")))
	tokenizer := check(trafo.LoadTokenizer(os.Args[1]))
	check(0, model.PrepareInference())
	generator := check(model.NewGenerator(tokenizer, 1))
	options := trafo.GenerationOptions{Stop: []string{"\n\n"}}
	options.MaxLength, options.Sampling = 200, &trafo.Sampling{Temperature: 0.7, TopP: 0.9}
	for piece, err := range generator.Generate(context.Background(), []string{os.Args[2]}, &options) {
		fmt.Print(check(piece, err).Text)
	}
	fmt.Println()
}
