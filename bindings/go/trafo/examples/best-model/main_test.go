package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func TestTheBestModelKnowsTheNewTexts(t *testing.T) {
	nouns := [][2]string{{"Hund", "dog"}, {"Baum", "tree"}, {"Tisch", "table"}, {"Vogel", "bird"}, {"Stein", "stone"}}
	var source, target, others []string
	for _, a := range nouns {
		for _, b := range nouns {
			for _, verb := range [][2]string{{"sieht", "sees"}, {"hört", "hears"}, {"sucht", "seeks"}} {
				source = append(source, fmt.Sprintf("der %s %s den %s", a[0], verb[0], b[0]))
				target = append(target, fmt.Sprintf("the %s %s the %s", a[1], verb[1], b[1]))
				others = append(others, fmt.Sprintf("an old %s %s the %s", a[1], verb[1], b[1]))
			}
		}
	}
	c := must(trafo.NewContext())
	defer c.Close()
	corpus, texts := must(trafo.NewCorpus(source, target)), must(trafo.NewCorpus(source, others))
	tokenizerOptions := trafo.DefaultTokenizerOptions()
	tokenizerOptions.Vocabulary, tokenizerOptions.SoftLimit = 100, true
	both := must(trafo.NewCorpus(append(source, source...), append(target, others...)))
	tokenizer := must(both.TrainTokenizer(t.Context(), &tokenizerOptions))
	config := must(trafo.Preset("tiny"))
	config.Vocabulary = must(tokenizer.Vocabulary())
	config.EncoderLayers, config.DecoderLayers, config.Width, config.FFNWidth, config.Heads = 1, 1, 32, 64, 2
	model := must(c.NewModel(config, 1))
	options := trafo.DefaultTrainerOptions()
	options.LearningRate, options.Warmup, options.BatchTokens = 5e-3, trafo.Some(20), 256
	options.AfterUpdates, options.ValidFreq = 200, trafo.Every(50, trafo.Updates)
	base := t.TempDir()
	options.RunDirectory = base
	trainer := must(model.NewTrainer(t.Context(), tokenizer, corpus, corpus, &options))
	must(trainer.Run(t.Context(), 0, nil))
	must(trainer, trainer.Close())
	must(tokenizer, tokenizer.Save(filepath.Join(base, "vocab.spm")))

	best, _ := run(t.Context(), c, base, t.TempDir(), texts, 5e-3, 300)
	found := must(best.Translate(t.Context(), tokenizer, []string{"der Hund sieht den Baum"}, nil))
	if text := found.Best()[0]; text != "an old dog sees the tree" {
		t.Error(text)
	}
}
