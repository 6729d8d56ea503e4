package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// trainBase makes a run like translate-train's: a model of a small corpus, and its tokenizer.
func trainBase(t *testing.T, directory string, source, target []string) {
	t.Helper()
	c := must(trafo.NewContext())
	defer c.Close()
	corpus := must(trafo.NewCorpus(source, target))
	tokenizerOptions := trafo.DefaultTokenizerOptions()
	tokenizerOptions.Vocabulary, tokenizerOptions.SoftLimit = 100, true
	tokenizer := must(corpus.TrainTokenizer(t.Context(), &tokenizerOptions))
	config := must(trafo.Preset("tiny"))
	config.Vocabulary = must(tokenizer.Vocabulary())
	config.EncoderLayers, config.DecoderLayers, config.Width, config.FFNWidth, config.Heads = 1, 1, 32, 64, 2
	model := must(c.NewModel(config, 1))
	options := trafo.DefaultTrainerOptions()
	options.LearningRate, options.Warmup, options.BatchTokens = 5e-3, trafo.Some(20), 256
	options.AfterUpdates, options.ValidFreq = 60, trafo.Every(30, trafo.Updates)
	options.RunDirectory = directory
	trainer := must(model.NewTrainer(t.Context(), tokenizer, corpus, corpus, &options))
	must(trainer.Run(t.Context(), 0, nil))
	must(trainer, trainer.Close())
	must(tokenizer, tokenizer.Save(filepath.Join(directory, "vocab.spm")))
}

func TestTextsThatItHasNotSeenAreSorted(t *testing.T) {
	adjectives := [][2]string{{"kleine", "small"}, {"alte", "old"}, {"rote", "red"}, {"schwere", "heavy"}}
	nouns := [][2]string{{"Hund", "dog"}, {"Baum", "tree"}, {"Tisch", "table"}, {"Vogel", "bird"}}
	var source, target []string
	var texts [2][]string
	var classes [2][]int32
	for class, adjective := range adjectives {
		for _, noun := range nouns {
			for _, object := range nouns {
				text := fmt.Sprintf("der %s %s sieht den %s", adjective[0], noun[0], object[0])
				half := len(source) % 2
				texts[half], classes[half] = append(texts[half], text), append(classes[half], int32(class))
				source = append(source, text)
				target = append(target, fmt.Sprintf("the %s %s sees the %s", adjective[1], noun[1], object[1]))
			}
		}
	}
	directory := t.TempDir()
	trainBase(t, directory, source, target)
	if right := run(directory, texts[0], classes[0], texts[1], classes[1]); right < 0.9 {
		t.Errorf("%.2f of the texts are sorted rightly", right)
	}
}
