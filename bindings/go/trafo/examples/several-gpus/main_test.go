package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// places are two GPUs if TRAFO_TEST_DEVICE is cuda, else the CPU twice.
func places() []place {
	if os.Getenv("TRAFO_TEST_DEVICE") == "cuda" {
		return []place{{trafo.CUDA, 0}, {trafo.CUDA, 1}}
	}
	return []place{{trafo.CPU, 0}, {trafo.CPU, 0}}
}

func TestARunOfTwoRanksHasTheFilesOfOne(t *testing.T) {
	if gpus, _ := trafo.CUDADevices(); places()[0].device == trafo.CUDA && len(gpus) < 2 {
		t.Skip("there are fewer than two GPUs")
	}
	var source, target []string
	for i := range 60 {
		source = append(source, fmt.Sprintf("der Hund %d sieht den Baum", i))
		target = append(target, fmt.Sprintf("the dog %d sees the tree", i))
	}
	corpus := must(trafo.NewCorpus(source, target))
	config := must(trafo.Preset("tiny"))
	config.EncoderLayers, config.DecoderLayers, config.Width, config.FFNWidth, config.Heads = 1, 1, 32, 64, 2
	options := trafo.DefaultTrainerOptions()
	options.Lanes, options.AfterUpdates, options.BatchTokens = 2, 6, 128
	var files []string
	for _, ranks := range [][]place{places(), places()[:1]} {
		options.RunDirectory = t.TempDir()
		if err := run(t.Context(), ranks, corpus, config, options); err != nil {
			t.Fatal(err)
		}
		files = append(files, string(must(os.ReadFile(filepath.Join(options.RunDirectory, "ckpt", "6", "model.safetensors")))))
	}
	if files[0] != files[1] {
		t.Error("two ranks have written another model than one")
	}
}
