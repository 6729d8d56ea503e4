package trafo_test

import (
	"slices"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// A model with more tokens is trained and translates with them.
func TestTokensAreAddedToAModel(t *testing.T) {
	c := newContext(t)
	source, target := sentences()
	options := trafo.DefaultTokenizerOptions()
	options.Vocabulary, options.SoftLimit = 200, true
	tokenizer := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(t.Context(), source, &options))
	defer tokenizer.Close()
	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
	model := must[*trafo.Model](t)(c.NewModel(config, 3))
	defer model.Close()

	more, vocabulary, err := model.WithTokens(tokenizer, trafo.AddedTokens{Tokens: []string{"xyzzy", "<2de>"}})
	ok(t, err)
	defer more.Close()
	defer vocabulary.Close()
	if size := must[int](t)(vocabulary.Vocabulary()); size != config.Vocabulary+2 {
		t.Fatal(size)
	}
	ids := must[[]int32](t)(vocabulary.Encode("a xyzzy dog <2de>"))
	if !slices.Contains(ids, int32(config.Vocabulary)) || !slices.Contains(ids, int32(config.Vocabulary+1)) {
		t.Fatal(ids)
	}
	corpus := must[*trafo.Corpus](t)(trafo.NewCorpus(source, target))
	defer corpus.Close()
	training := trafo.DefaultTrainerOptions()
	training.BatchTokens, training.Warmup, training.AfterUpdates = 256, trafo.Some(1), 2
	trainer := must[*trafo.Trainer](t)(more.NewTrainer(t.Context(), vocabulary, corpus, nil, &training))
	_, err = trainer.Run(t.Context(), 0, nil)
	ok(t, err)
	trainer.Close()

	special, languages, err := model.WithTokens(tokenizer, trafo.AddedTokens{Tokens: []string{"mrj_Cyrl"}, Special: true, Like: "</s>"})
	ok(t, err)
	defer special.Close()
	defer languages.Close()
	chosen := must[*trafo.Tokenizer](t)(languages.WithLanguages("mrj_Cyrl", "mrj_Cyrl"))
	defer chosen.Close()
	if ids := must[[]int32](t)(chosen.Encode("a dog")); ids[0] != int32(config.Vocabulary) {
		t.Fatal(ids)
	}
	for _, added := range []trafo.AddedTokens{{}, {Tokens: []string{"</s>"}}, {Tokens: []string{"x y"}}, {Tokens: []string{"new"}, Like: "none"}} {
		_, _, err = model.WithTokens(tokenizer, added)
		wantError(t, err, trafo.ErrInvalidArgument)
	}
}
