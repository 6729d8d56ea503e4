package trafo_test

import (
	"context"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func TestSamplesAreTheSameOfTheSameSeed(t *testing.T) {
	l := newLesson(t)
	source, _ := sentences()
	if err := l.model.PrepareInference(); err != nil {
		t.Fatal(err)
	}
	_, err := l.model.Parameters()
	wantError(t, err, trafo.ErrInvalidArgument)
	draw := func(lines []string, seed uint64, firstLine int) [][]trafo.Hypothesis {
		options := trafo.DefaultTranslateOptions()
		sampling := trafo.DefaultSampling()
		sampling.Temperature, sampling.TopK, sampling.TopP = 0.9, 20, 0.95
		sampling.Seed, sampling.FirstLine = trafo.Some(seed), firstLine
		options.Sampling, options.NBest, options.MinLength, options.MaxLength = &sampling, 3, 2, 6
		return must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, lines, &options)).Lines
	}
	both := draw(source[:2], 5, 0)
	if len(both[1]) != 3 || !reflect.DeepEqual(draw(source[1:2], 5, 1)[0], both[1]) {
		t.Error("a line is not drawn alone as with another", both)
	}
	if reflect.DeepEqual(draw(source[:1], 6, 0)[0], both[0]) {
		t.Error("another seed drew the same", both[0])
	}
}

func TestAShortlistRestrictsTranslations(t *testing.T) {
	l := newLesson(t)
	source, target := sentences()
	path := filepath.Join(t.TempDir(), "lex.s2t")
	learnt := must[*trafo.Shortlist](t)(trafo.LearnShortlist(t.Context(), l.tokenizer, source, target, 5))
	if err := learnt.Save(path); err != nil {
		t.Fatal(err)
	}
	options := trafo.DefaultTranslateOptions()
	options.Shortlist = must[*trafo.Shortlist](t)(trafo.LoadShortlist(l.tokenizer, path))
	options.ShortlistFirst = trafo.Some(0)
	loaded := must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, source[:3], &options))
	options.Shortlist = learnt
	again := must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, source[:3], &options))
	if !slices.Equal(loaded.Best(), again.Best()) {
		t.Error(loaded.Best(), again.Best())
	}
	if err := learnt.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := l.model.Translate(t.Context(), l.tokenizer, source[:1], &options)
	wantError(t, err, trafo.ErrClosed)
	_, err = trafo.LearnShortlist(t.Context(), l.tokenizer, source, nil, 0)
	wantError(t, err, trafo.ErrInvalidArgument)
}

func TestTranslationIsCancelled(t *testing.T) {
	l := newLesson(t)
	source, _ := sentences()
	lines := slices.Repeat(source, 40)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	options := trafo.DefaultTranslateOptions()
	options.BatchTokens = 32
	_, err := l.model.Translate(ctx, l.tokenizer, lines, &options)
	wantError(t, err, trafo.ErrCancelled, context.DeadlineExceeded)
	must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, lines[:1], &options))
}

func TestLlamaPreset(t *testing.T) {
	c := must[*trafo.Context](t)(trafo.NewContext(trafo.WithThreads(1)))
	defer c.Close()
	config := must[trafo.ModelConfig](t)(trafo.Preset("llama"))
	if config.Norm != trafo.NormRMS || config.Positions != trafo.RotaryPositions || config.FFN != trafo.SwiGLUFFN ||
		config.Biases != trafo.Some(false) || config.RopeTheta != 10000 {
		t.Fatalf("preset llama is %+v", config)
	}
	config.Vocabulary, config.DecoderLayers, config.KVHeads = 40, 1, 2
	model := must[*trafo.Model](t)(c.NewModel(config, 1))
	defer model.Close()
	if got := must[trafo.ModelConfig](t)(model.Config()); got != config {
		t.Errorf("made of %+v, is %+v", config, got)
	}
	config.KVHeads = 3
	_, err := c.NewModel(config, 1)
	wantError(t, err, trafo.ErrInvalidArgument)
}

func TestDecoderLM(t *testing.T) {
	l := newLesson(t)
	config := must[trafo.ModelConfig](t)(trafo.Preset("lm"))
	config.Vocabulary = must[int](t)(l.tokenizer.Vocabulary())
	config.DecoderLayers, config.Width, config.FFNWidth, config.Heads, config.MaxPositions = 1, 32, 64, 2, 64
	if config.Architecture != trafo.DecoderLM || config.Activation != trafo.GELU {
		t.Errorf("%+v", config)
	}
	l.model = must[*trafo.Model](t)(l.context.NewModel(config, 2))
	l.options.MaxLength = 31
	l.options.LogFreq = trafo.Every(10, trafo.Updates)
	var losses []float64
	_, err := l.trainer(t).Run(t.Context(), 60, func(e trafo.Event) error {
		if e.Kind == trafo.EventLog {
			losses = append(losses, e.Loss)
		}
		return nil
	})
	ok(t, err)
	if len(losses) != 6 || !(losses[5] < 0.8*losses[0]) {
		t.Error(losses)
	}
	must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, []string{"eins zwei"}, nil))
}

func TestModelParameters(t *testing.T) {
	l := newLesson(t)
	elements := 0
	parameters := must[[]trafo.Parameter](t)(l.model.Parameters())
	for _, p := range parameters {
		if p.Name == "" {
			t.Error("a parameter has no name")
		}
		elements += p.Tensor.Len()
	}
	if size := must[int64](t)(l.model.Size()); size != int64(elements) || size == 0 {
		t.Errorf("%d elements in tensors, %d in all", elements, size)
	}
	// They are the model's own memory.
	before := l.weights(t)
	ok(t, trafo.Write(parameters[0].Tensor, make([]float32, parameters[0].Tensor.Len())))
	if l.weights(t) == before {
		t.Error("writing to a parameter changed nothing")
	}
	want := trafo.DefaultModelConfig()
	want.Activation, want.Vocabulary, want.EncoderLayers, want.DecoderLayers = trafo.SiLU, 11, 2, 1
	want.Width, want.FFNWidth, want.Heads, want.MaxPositions = 12, 20, 3, 33
	want.PreNorm, want.TiedEmbeddings = trafo.Some(false), trafo.Some(false)
	want.Dropout, want.AttentionDropout, want.FFNDropout, want.NormEpsilon = trafo.Some(0.11), 0.12, 0.13, 1e-4
	if got := must[trafo.ModelConfig](t)(must[*trafo.Model](t)(l.context.NewModel(want, 1)).Config()); got != want {
		t.Errorf("%+v became %+v", want, got)
	}
	want.DecoderLayers, want.EncoderTiedLayers = 3, [trafo.TiedLayers]uint8{1, 1}
	want.DecoderTiedLayers = [trafo.TiedLayers]uint8{1, 2, 1}
	if got := must[trafo.ModelConfig](t)(must[*trafo.Model](t)(l.context.NewModel(want, 1)).Config()); got != want {
		t.Errorf("%+v became %+v", want, got)
	}
	want.DecoderTiedLayers[2] = 4
	_, err := l.context.NewModel(want, 1)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = trafo.Preset("enormous")
	wantError(t, err, trafo.ErrNotFound)
	config := trafo.DefaultModelConfig()
	_, err = l.context.NewModel(config, 1)
	wantError(t, err, trafo.ErrInvalidArgument)
	config.Vocabulary, config.Heads = 100, 7
	_, err = l.context.NewModel(config, 1)
	wantError(t, err)
	other := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(t.Context(), []string{"a b c", "c b a", "abc cab"}, &trafo.TokenizerOptions{Vocabulary: 12, CharacterCoverage: 1, SoftLimit: true}))
	_, err = l.model.Translate(t.Context(), other, []string{"a"}, nil)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = l.model.Score(t.Context(), l.tokenizer, []string{"eins"}, nil)
	wantError(t, err, trafo.ErrInvalidArgument)
	if trafo.DefaultTranslateOptions().LengthPenalty != trafo.Some(1.0) || trafo.DefaultTranslateOptions().Beam != 5 {
		t.Error("translation defaults")
	}
}

func TestFrozenParametersDoNotChange(t *testing.T) {
	l := newLesson(t)
	_, err := l.model.Freeze("nothing.*")
	wantError(t, err, trafo.ErrNotFound)
	ofEncoder := must[int64](t)(l.model.Freeze("encoder.*"))
	if ofEncoder < 5 || must[int64](t)(l.model.Freeze("*embedding.weight")) < 1 {
		t.Error("too few parameters are frozen", ofEncoder)
	}
	if n := must[int64](t)(l.model.SetUpdateFactors("decoder.0.ffn.*", 0.5, 0)); n != 4 {
		t.Error("factors of", n, "parameters")
	}
	_, err = l.model.SetUpdateFactors("*", math.NaN(), 1)
	wantError(t, err, trafo.ErrInvalidArgument)
	values := func() [][]float32 {
		var all [][]float32
		for _, p := range must[[]trafo.Parameter](t)(l.model.Parameters()) {
			all = append(all, must[[]float32](t)(p.Tensor.Float32s()))
			ok(t, p.Tensor.Close())
		}
		return all
	}
	before := values()
	trainer := l.trainer(t)
	_, err = l.model.Unfreeze("encoder.*")
	wantError(t, err, trafo.ErrInvalidArgument)
	for range 3 {
		must[trafo.StepResult](t)(trainer.Step(t.Context()))
	}
	ok(t, trainer.Close())
	after := values()
	for i, info := range must[[]trafo.ParameterInfo](t)(l.model.ParameterInfos()) {
		frozen := strings.HasPrefix(info.Name, "encoder.") || strings.HasSuffix(info.Name, "embedding.weight")
		if info.Frozen != frozen || slices.Equal(before[i], after[i]) != frozen {
			t.Error(info, "frozen:", frozen)
		}
		if slow := strings.HasPrefix(info.Name, "decoder.0.ffn."); slow != (info.LearningRateFactor == 0.5) {
			t.Error(info)
		}
	}
	if n := must[int64](t)(l.model.Unfreeze("encoder.*")); n != ofEncoder {
		t.Error(n, "parameters are trained again, not", ofEncoder)
	}
}

func TestWordScoresAndAlignments(t *testing.T) {
	l := newLesson(t)
	source, target := sentences()
	source, target = source[:3], target[:3]
	options := trafo.TranslateOptions{NBest: 2, MaxLength: 9, WordScores: true, Alignment: true}
	found := must[*trafo.Translations](t)(l.model.Translate(t.Context(), l.tokenizer, source, &options))
	for i, line := range found.Lines {
		for _, h := range line {
			ends := map[trafo.FinishReason]int{trafo.FinishEnd: 1, trafo.FinishLength: 0}
			if n, known := ends[h.Finish]; !known || len(h.WordScores) != len(h.Tokens)+n || (n == 0 && len(h.Tokens) != 9) {
				t.Errorf("%d tokens have %d scores and finish by %v", len(h.Tokens), len(h.WordScores), h.Finish)
			}
			sum := 0.
			for _, score := range h.WordScores {
				sum += score
			}
			if math.Abs(sum/float64(len(h.WordScores))-h.Score) > 1e-9 {
				t.Errorf("the scores of %q sum to %v, its score is %v", h.Text, sum, h.Score)
			}
			if len(h.Alignment) != len(h.WordScores) || len(h.HardAlignment()) != len(h.WordScores) {
				t.Errorf("%d rows for %d scores", len(h.Alignment), len(h.WordScores))
			}
			for row, best := range h.HardAlignment() {
				sum := 0.
				for _, weight := range h.Alignment[row] {
					sum += float64(weight)
					if weight > h.Alignment[row][best] {
						t.Error(best, "is not the best of", h.Alignment[row])
					}
				}
				if math.Abs(sum-1) > 1e-5 || len(h.Alignment[row]) != int(found.Sources[i].Used) {
					t.Error(h.Alignment[row])
				}
			}
		}
	}
	scores := must[[]trafo.Score](t)(l.model.Score(t.Context(), l.tokenizer, source, target))
	given := must[*trafo.Translations](t)(l.model.ForceDecode(t.Context(), l.tokenizer, source, target, &options))
	for i, line := range given.Lines {
		h := line[0]
		if h.Text != target[i] || int64(len(h.WordScores)) != scores[i].Tokens || len(h.Alignment) != len(h.WordScores) ||
			math.Abs(h.Score*float64(scores[i].Tokens)-scores[i].LogProbability) > 1e-9 {
			t.Errorf("%+v, scored %+v", h, scores[i])
		}
	}
	_, err := l.model.ForceDecode(t.Context(), l.tokenizer, source, target[:1], nil)
	wantError(t, err, trafo.ErrInvalidArgument)
	rules := trafo.TranslateOptions{MaxLength: 9, RepetitionPenalty: 1.5, NoRepeatNgramSize: 2, Distinct: true}
	begun := must[*trafo.Translations](t)(l.model.TranslateWithPrefixes(t.Context(), l.tokenizer, source, target, &rules))
	for i, text := range begun.Best() {
		if !strings.HasPrefix(text, target[i]) {
			t.Errorf("%q does not begin with %q", text, target[i])
		}
	}
	_, err = l.model.TranslateWithPrefixes(t.Context(), l.tokenizer, source, target[:1], nil)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = l.model.ScoreText(t.Context(), l.tokenizer, target, nil)
	wantError(t, err, trafo.ErrUnsupported)
}
