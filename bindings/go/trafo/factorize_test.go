package trafo_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func TestFactorize(t *testing.T) {
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
	ctx := context.Background()

	given := trafo.FactorizeOptions{Rank: 8, Calibration: corpus, Tokenizer: tokenizer}
	for _, wrong := range []trafo.FactorizeOptions{
		{Calibration: corpus, Tokenizer: tokenizer},
		{Ratio: 1, Calibration: corpus, Tokenizer: tokenizer},
		{Rank: -1, Calibration: corpus, Tokenizer: tokenizer},
		{Rank: 8, Ratio: 0.5, Calibration: corpus, Tokenizer: tokenizer},
		{Rank: 1 << 40, Calibration: corpus, Tokenizer: tokenizer},
		{Rank: 8, Calibration: corpus},
		{Rank: 8, Tokenizer: tokenizer},
	} {
		_, err := model.Factorize(ctx, wrong)
		wantError(t, err, trafo.ErrInvalidArgument)
	}
	given.Layers = []string{"no.such.*"}
	_, err := model.Factorize(ctx, given)
	wantError(t, err, trafo.ErrNotFound)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	given.Layers = []string{"*.ffn.*"}
	_, err = model.Factorize(ended, given)
	wantError(t, err, trafo.ErrCancelled, context.Canceled)

	small := must[*trafo.Model](t)(model.Factorize(ctx, given))
	defer small.Close()
	factors := 0
	for _, info := range must[[]trafo.ParameterInfo](t)(small.ParameterInfos()) {
		switch info.Name {
		case "encoder.0.ffn.up.weight":
			t.Error("it is whole")
		case "encoder.0.ffn.up.weight.u":
			if info.Columns != 8 || !(info.SignalToNoise > 0) {
				t.Errorf("%+v", info)
			}
			factors++
		case "encoder.0.ffn.up.weight.v":
			if info.Rows != 8 {
				t.Errorf("%+v", info)
			}
			factors++
		}
	}
	if factors != 2 {
		t.Error(factors)
	}
	_, err = small.Factorize(ctx, given)
	wantError(t, err, trafo.ErrInvalidArgument)

	path := filepath.Join(t.TempDir(), "model.safetensors")
	ok(t, small.Save(path))
	whole := must[*trafo.Model](t)(c.NewModel(config, 3))
	defer whole.Close()
	wantError(t, whole.LoadWeights(tokenizer, path), trafo.ErrInvalidArgument)
	like := must[*trafo.Model](t)(c.NewModelLike(config, 3, path))
	defer like.Close()
	ok(t, like.LoadWeights(tokenizer, path))
	training := trafo.DefaultTrainerOptions()
	trainer := must[*trafo.Trainer](t)(like.NewTrainer(tokenizer, corpus, nil, &training))
	defer trainer.Close()
	must[trafo.StepResult](t)(trainer.Step())
}
