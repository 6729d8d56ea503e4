package trafo_test

import (
	"context"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func TestSparsify(t *testing.T) {
	c := newContext(t)
	u := newUntrained(t, c, 1, 1)
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

	_, err := u.model.Sparsify(context.Background(), trafo.SparsifyOptions{Sparsity: trafo.Some(1.0)})
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = u.model.Sparsify(context.Background(), trafo.SparsifyOptions{Wanda: true})
	wantError(t, err, trafo.ErrInvalidArgument)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = u.model.Sparsify(ended, trafo.SparsifyOptions{Sparsity: trafo.Some(0.8)})
	wantError(t, err, trafo.ErrCancelled, context.Canceled)
	if _, err = u.model.Zeros(-1); err == nil {
		t.Error("there is no parameter -1")
	}

	plain := must[*trafo.Model](t)(u.model.Sparsify(context.Background(), trafo.SparsifyOptions{Sparsity: trafo.Some(0.75)}))
	defer plain.Close()
	wanda := must[*trafo.Model](t)(u.model.Sparsify(context.Background(), trafo.SparsifyOptions{
		Wanda: true, TwoOfFour: true, Calibration: u.corpus, Tokenizer: u.tokenizer}))
	defer wanda.Close()
	if before, of, half := zeros(u.model, matrix), zeros(plain, matrix), zeros(wanda, matrix); before != 0 || of != 0.75 || half != 0.5 {
		t.Error(before, of, half)
	}
	if embedding := zeros(plain, "embedding.weight"); embedding != 0 {
		t.Error(embedding)
	}

	// Gradually in training, and kept.
	training := trafo.DefaultTrainerOptions()
	training.PruneSparsity, training.PruneStart, training.PruneEnd, training.PruneEvery = 0.8, 1, 3, 1
	trainer := must[*trafo.Trainer](t)(wanda.NewTrainer(t.Context(), u.tokenizer, u.corpus, nil, &training))
	defer trainer.Close()
	for range 4 {
		must[trafo.StepResult](t)(trainer.Step(t.Context()))
	}
	if share := zeros(wanda, matrix); share < 0.79 || share > 0.81 {
		t.Error(share)
	}
}
