package trafo_test

import (
	"context"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func TestPrune(t *testing.T) {
	c := newContext(t)
	source, target := sentences()
	corpus := must[*trafo.Corpus](t)(trafo.NewCorpus(source, target))
	defer corpus.Close()
	options := trafo.DefaultTokenizerOptions()
	options.Vocabulary, options.SoftLimit = 200, true
	tokenizer := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(source, &options))
	defer tokenizer.Close()
	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
	config.EncoderLayers, config.DecoderLayers = 2, 1
	model := must[*trafo.Model](t)(c.NewModel(config, 3))
	defer model.Close()

	_, err := model.Prune(context.Background(), tokenizer, corpus, trafo.PruneOptions{EncoderLayers: 3})
	wantError(t, err, trafo.ErrInvalidArgument)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = model.Prune(ended, tokenizer, corpus, trafo.PruneOptions{DecoderFFNShare: 0.5})
	wantError(t, err, trafo.ErrCancelled, context.Canceled)

	smaller := must[*trafo.Model](t)(model.Prune(context.Background(), tokenizer, corpus,
		trafo.PruneOptions{EncoderFFNShare: 0.25, DecoderFFNShare: 0.5, EncoderHeadShare: 0.5, DecoderHeadShare: 0.5, EncoderLayers: 1}))
	defer smaller.Close()
	pruned := must[trafo.ModelConfig](t)(smaller.Config())
	if pruned.FFNWidth != config.FFNWidth/2 || pruned.EncoderFFNWidth != config.FFNWidth/4 || pruned.EncoderLayers != 1 ||
		pruned.Heads != config.Heads/2 || pruned.HeadWidth != config.Width/config.Heads {
		t.Errorf("%+v of %+v", pruned, config)
	}
	if whole := must[trafo.ModelConfig](t)(model.Config()); whole.EncoderLayers != 2 {
		t.Errorf("%+v", whole)
	}
	_, err = smaller.Translate(context.Background(), tokenizer, source[:1], nil)
	ok(t, err)
}
