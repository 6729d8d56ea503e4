package trafo_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// An encoder that tells the sentences about a dog from the others.
func TestAnEncoderLearnsLabels(t *testing.T) {
	c := newContext(t)
	source, _ := sentences()
	options := trafo.DefaultTokenizerOptions()
	options.Vocabulary, options.SoftLimit = 200, true
	tokenizer := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(t.Context(), source, &options))
	defer tokenizer.Close()
	texts := source[:4]
	labels := []string{"even", "odd"}
	wanted := []string{labels[0], labels[1], labels[0], labels[1]}

	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
	config.Architecture, config.DecoderLayers, config.PreNorm, config.TokenTypes = trafo.Encoder, 1, trafo.Some(false), 2
	body := must[*trafo.Model](t)(c.NewModel(config, 3))
	defer body.Close()
	_, _, err := body.Classify(tokenizer, texts)
	wantError(t, err, trafo.ErrUnsupported)
	model := must[*trafo.Model](t)(body.WithHead(trafo.EncoderHeadSequence, labels, 1))
	defer model.Close()
	if names := must[[]string](t)(model.Labels()); !slices.Equal(names, labels) {
		t.Fatal(names)
	}

	corpus := must[*trafo.Corpus](t)(trafo.NewCorpus(texts, wanted))
	defer corpus.Close()
	training := trafo.DefaultTrainerOptions()
	training.Objective, training.BatchTokens, training.Warmup = trafo.ObjectiveClassification, 256, trafo.Some(1)
	training.LearningRate, training.AfterUpdates = 1e-2, 60
	trainer := must[*trafo.Trainer](t)(model.NewTrainer(t.Context(), tokenizer, corpus, nil, &training))
	_, err = trainer.Run(t.Context(), 0, nil)
	ok(t, err)
	trainer.Close()
	read := func(m *trafo.Model, from *trafo.Tokenizer) []float32 {
		logits, bounds, err := m.Classify(from, texts)
		ok(t, err)
		defer logits.Close()
		defer bounds.Close()
		return must[[]float32](t)(logits.Float32s())
	}
	found := read(model, tokenizer)
	for i, label := range wanted {
		if best := labels[map[bool]int{true: 1}[found[2*i+1] > found[2*i]]]; best != label {
			t.Errorf("text %d is %s, not %s", i, best, label)
		}
	}
	pairs, bounds, err := model.ClassifyPairs(tokenizer, texts, texts)
	ok(t, err)
	defer pairs.Close()
	defer bounds.Close()
	if slices.Equal(must[[]float32](t)(pairs.Float32s()), found) {
		t.Error("the second texts change nothing")
	}
	_, _, err = model.ClassifyPairs(tokenizer, texts, texts[1:])
	wantError(t, err, trafo.ErrInvalidArgument)
	ofIDs, rows, err := model.ClassifyIDs([][]int32{{4, 5, 2}}, [][]int32{{0, 0, 1}})
	ok(t, err)
	defer ofIDs.Close()
	defer rows.Close()

	directory := filepath.Join(t.TempDir(), "bert")
	_, err = model.Export(t.Context(), tokenizer, trafo.HFBert, trafo.WeightsByFormat, directory)
	ok(t, err)
	imported := must[trafo.Imported](t)(c.ImportModel(t.Context(), directory))
	defer imported.Model.Close()
	defer imported.Tokenizer.Close()
	if again := read(imported.Model, imported.Tokenizer); !slices.Equal(again, found) {
		t.Errorf("the exported model gives %v, not %v", again, found)
	}
}

func TestTextsHaveVectors(t *testing.T) {
	l := newLesson(t)
	source, _ := sentences()
	units := must[*trafo.Tensor](t)(l.model.Embed(l.tokenizer, source[:3], trafo.PoolingMean, true))
	defer units.Close()
	values := must[[]float32](t)(units.Float32s())
	width := len(values) / 3
	for text := range 3 {
		length := 0.0
		for _, x := range values[text*width : (text+1)*width] {
			length += float64(x) * float64(x)
		}
		if math.Abs(length-1) > 1e-5 {
			t.Errorf("vector %d has the length %v", text, math.Sqrt(length))
		}
	}
	firsts := must[*trafo.Tensor](t)(l.model.EmbedIDs([][]int32{{4, 5, 2}}, trafo.PoolingFirst, false))
	defer firsts.Close()
	of := func(pooling trafo.Pooling) []float32 {
		vectors := must[*trafo.Tensor](t)(l.model.EmbedIDs([][]int32{{4, 5, 2}}, pooling, false))
		defer vectors.Close()
		return must[[]float32](t)(vectors.Float32s())
	}
	if mean := of(trafo.PoolingMean); !slices.Equal(mean, of(0)) || slices.Equal(mean, of(trafo.PoolingFirst)) {
		t.Error("the mean is not the pooling of the zero value, or it is the first vector")
	}
	if len(must[[]float32](t)(firsts.Float32s())) != width {
		t.Error("a vector has another width")
	}
}
