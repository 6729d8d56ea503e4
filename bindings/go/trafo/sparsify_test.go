package trafo_test

import (
	"context"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func TestSparsify(t *testing.T) {
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
	config.EncoderLayers, config.DecoderLayers = 1, 1
	model := must[*trafo.Model](t)(c.NewModel(config, 3))
	defer model.Close()
	zeros := func(m *trafo.Model, name string) float64 {
		for i, info := range must[[]trafo.ParameterInfo](t)(m.ParameterInfos()) {
			if info.Name == name {
				return float64(must[int64](t)(m.Zeros(i))) / float64(info.Elements)
			}
		}
		t.Fatalf("no parameter %s", name)
		return 0
	}
	const matrix = "encoder.0.ffn.up.weight"

	_, err := model.Sparsify(context.Background(), trafo.SparsifyOptions{Sparsity: 1})
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = model.Sparsify(context.Background(), trafo.SparsifyOptions{Wanda: true})
	wantError(t, err, trafo.ErrInvalidArgument)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = model.Sparsify(ended, trafo.SparsifyOptions{Sparsity: 0.8})
	wantError(t, err, trafo.ErrCancelled, context.Canceled)
	if _, err = model.Zeros(-1); err == nil {
		t.Error("there is no parameter -1")
	}

	plain := must[*trafo.Model](t)(model.Sparsify(context.Background(), trafo.SparsifyOptions{Sparsity: 0.75}))
	defer plain.Close()
	wanda := must[*trafo.Model](t)(model.Sparsify(context.Background(), trafo.SparsifyOptions{
		Wanda: true, TwoOfFour: true, Calibration: corpus, Tokenizer: tokenizer}))
	defer wanda.Close()
	if before, of, half := zeros(model, matrix), zeros(plain, matrix), zeros(wanda, matrix); before != 0 || of != 0.75 || half != 0.5 {
		t.Error(before, of, half)
	}
	if embedding := zeros(plain, "embedding.weight"); embedding != 0 {
		t.Error(embedding)
	}

	// Gradually in training, and kept.
	training := trafo.DefaultTrainerOptions()
	training.PruneSparsity, training.PruneStart, training.PruneEnd, training.PruneEvery = 0.8, 1, 3, 1
	trainer := must[*trafo.Trainer](t)(wanda.NewTrainer(tokenizer, corpus, nil, &training))
	defer trainer.Close()
	for range 4 {
		must[trafo.StepResult](t)(trainer.Step())
	}
	if share := zeros(wanda, matrix); share < 0.79 || share > 0.81 {
		t.Error(share)
	}
}
