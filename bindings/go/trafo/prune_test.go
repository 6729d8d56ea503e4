package trafo_test

import (
	"context"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func TestPrune(t *testing.T) {
	c := newContext(t)
	u := newUntrained(t, c, 2, 1)

	_, err := u.model.Prune(context.Background(), u.tokenizer, u.corpus, trafo.PruneOptions{EncoderLayers: 3})
	wantError(t, err, trafo.ErrInvalidArgument)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = u.model.Prune(ended, u.tokenizer, u.corpus, trafo.PruneOptions{DecoderFFNShare: 0.5})
	wantError(t, err, trafo.ErrCancelled, context.Canceled)

	smaller := must[*trafo.Model](t)(u.model.Prune(context.Background(), u.tokenizer, u.corpus,
		trafo.PruneOptions{EncoderFFNShare: 0.25, DecoderFFNShare: 0.5, EncoderHeadShare: 0.5, DecoderHeadShare: 0.5, EncoderLayers: 1}))
	defer smaller.Close()
	pruned := must[trafo.ModelConfig](t)(smaller.Config())
	if pruned.FFNWidth != u.config.FFNWidth/2 || pruned.EncoderFFNWidth != u.config.FFNWidth/4 || pruned.EncoderLayers != 1 ||
		pruned.Heads != u.config.Heads/2 || pruned.HeadWidth != u.config.Width/u.config.Heads {
		t.Errorf("%+v of %+v", pruned, u.config)
	}
	if whole := must[trafo.ModelConfig](t)(u.model.Config()); whole.EncoderLayers != 2 {
		t.Errorf("%+v", whole)
	}
	_, err = smaller.Translate(context.Background(), u.tokenizer, u.source[:1], nil)
	ok(t, err)
}
