package trafo_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func TestFactorize(t *testing.T) {
	c := newContext(t)
	u := newUntrained(t, c, 1, 1)
	ctx := context.Background()

	given := trafo.FactorizeOptions{Rank: 8, Calibration: u.corpus, Tokenizer: u.tokenizer}
	for _, wrong := range []trafo.FactorizeOptions{
		{Calibration: u.corpus, Tokenizer: u.tokenizer},
		{Ratio: 1, Calibration: u.corpus, Tokenizer: u.tokenizer},
		{Rank: -1, Calibration: u.corpus, Tokenizer: u.tokenizer},
		{Rank: 8, Ratio: 0.5, Calibration: u.corpus, Tokenizer: u.tokenizer},
		{Rank: 1 << 40, Calibration: u.corpus, Tokenizer: u.tokenizer},
		{Rank: 8, Calibration: u.corpus},
		{Rank: 8, Tokenizer: u.tokenizer},
	} {
		_, err := u.model.Factorize(ctx, wrong)
		wantError(t, err, trafo.ErrInvalidArgument)
	}
	given.Layers = []string{"no.such.*"}
	_, err := u.model.Factorize(ctx, given)
	wantError(t, err, trafo.ErrNotFound)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	given.Layers = []string{"*.ffn.*"}
	_, err = u.model.Factorize(ended, given)
	wantError(t, err, trafo.ErrCancelled, context.Canceled)

	small := must[*trafo.Model](t)(u.model.Factorize(ctx, given))
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
	whole := must[*trafo.Model](t)(c.NewModel(u.config, 3))
	defer whole.Close()
	wantError(t, whole.LoadWeights(u.tokenizer, path), trafo.ErrInvalidArgument)
	like := must[*trafo.Model](t)(c.NewModelLike(u.config, 3, path))
	defer like.Close()
	ok(t, like.LoadWeights(u.tokenizer, path))
	training := trafo.DefaultTrainerOptions()
	trainer := must[*trafo.Trainer](t)(like.NewTrainer(t.Context(), u.tokenizer, u.corpus, nil, &training))
	defer trainer.Close()
	must[trafo.StepResult](t)(trainer.Step(t.Context()))
}
