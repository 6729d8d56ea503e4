package trafo_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t testing.TB, err error, targets ...error) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want %v", targets)
	}
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("error %q is not %q", err, target)
		}
	}
}

func newContext(t testing.TB, options ...trafo.Option) *trafo.Context {
	c := must[*trafo.Context](t)(trafo.NewContext(options...))
	t.Cleanup(func() { c.Close() })
	return c
}

func tensor[T trafo.Element](t testing.TB, c *trafo.Context, data []T, shape ...int) *trafo.Tensor {
	t.Helper()
	x := must[*trafo.Tensor](t)(trafo.NewTensor(c, data, shape...))
	t.Cleanup(func() { x.Close() })
	return x
}

// leaf is a tensor that wants a gradient.
func leaf[T trafo.Element](t testing.TB, c *trafo.Context, data []T, shape ...int) *trafo.Tensor {
	t.Helper()
	x := tensor(t, c, data, shape...)
	ok(t, x.SetRequiresGrad(true))
	return x
}

func values(t testing.TB, x *trafo.Tensor) []float64 {
	t.Helper()
	if x == nil {
		t.Fatal("there is no tensor")
	}
	if x.DType() == trafo.Float64 {
		return must[[]float64](t)(x.Float64s())
	}
	single := must[[]float32](t)(x.Float32s())
	double := make([]float64, len(single))
	for i, v := range single {
		double[i] = float64(v)
	}
	return double
}

func grad(t testing.TB, x *trafo.Tensor) []float64 {
	t.Helper()
	return values(t, must[*trafo.Tensor](t)(x.Grad()))
}

func wantValues(t testing.TB, what string, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= 1e-5*(1+math.Abs(want[i]))) {
			t.Fatalf("%s: got %v, want %v", what, got, want)
		}
	}
}

// ramp is n numbers without pattern, from -1 to 1.
func ramp(n int) []float64 {
	data := make([]float64, n)
	for i := range data {
		data[i] = math.Sin(float64(i)*1.7 + 0.3)
	}
	return data
}

// sentences is a language whose words are reversed and translated one by one.
func sentences() (source, target []string) {
	words := [][2]string{{"eins", "one"}, {"zwei", "two"}, {"drei", "three"}, {"vier", "four"}, {"fünf", "five"}}
	for i := range words {
		for j := range words {
			for k := range words {
				source = append(source, fmt.Sprint(words[i][0], " ", words[j][0], " ", words[k][0], " ."))
				target = append(target, fmt.Sprint(words[k][1], " ", words[j][1], " ", words[i][1], " ."))
			}
		}
	}
	return source, target
}

// untrained is a tiny translation model with its vocabulary and a corpus that it could be trained on.
type untrained struct {
	config    trafo.ModelConfig
	model     *trafo.Model
	tokenizer *trafo.Tokenizer
	corpus    *trafo.Corpus
	source    []string
}

func newUntrained(t testing.TB, c *trafo.Context, encoderLayers, decoderLayers int) untrained {
	t.Helper()
	source, target := sentences()
	corpus := must[*trafo.Corpus](t)(trafo.NewCorpus(source, target))
	t.Cleanup(func() { corpus.Close() })
	options := trafo.DefaultTokenizerOptions()
	options.Vocabulary, options.SoftLimit = 200, true
	tokenizer := must[*trafo.Tokenizer](t)(trafo.TrainTokenizer(t.Context(), source, &options))
	t.Cleanup(func() { tokenizer.Close() })
	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Vocabulary = must[int](t)(tokenizer.Vocabulary())
	config.EncoderLayers, config.DecoderLayers = encoderLayers, decoderLayers
	model := must[*trafo.Model](t)(c.NewModel(config, 3))
	t.Cleanup(func() { model.Close() })
	return untrained{config, model, tokenizer, corpus, source}
}

// lesson is all that a training run needs.
type lesson struct {
	context      *trafo.Context
	tokenizer    *trafo.Tokenizer
	train, valid *trafo.Corpus
	model        *trafo.Model
	options      trafo.TrainerOptions
}

func newLesson(t testing.TB, options ...trafo.Option) *lesson {
	t.Helper()
	source, target := sentences()
	l := &lesson{
		context: newContext(t, options...),
		train:   must[*trafo.Corpus](t)(trafo.NewCorpus(source, target)),
		valid:   must[*trafo.Corpus](t)(trafo.NewCorpus(source[:10], target[:10])),
		options: trafo.DefaultTrainerOptions(),
	}
	tokenizerOptions := trafo.DefaultTokenizerOptions()
	tokenizerOptions.Vocabulary, tokenizerOptions.SoftLimit = 60, true
	l.tokenizer = must[*trafo.Tokenizer](t)(l.train.TrainTokenizer(t.Context(), &tokenizerOptions))
	l.newModel(t)
	l.options.LearningRate, l.options.Warmup, l.options.BatchTokens = 5e-3, trafo.Some(20), 256
	l.options.ValidFreq, l.options.SaveFreq = trafo.Period{}, trafo.Period{}
	t.Cleanup(func() { l.model.Close(); l.train.Close(); l.valid.Close(); l.tokenizer.Close() })
	return l
}

func (l *lesson) newModel(t testing.TB) {
	t.Helper()
	config := must[trafo.ModelConfig](t)(trafo.Preset("tiny"))
	config.Vocabulary = must[int](t)(l.tokenizer.Vocabulary())
	config.EncoderLayers, config.DecoderLayers, config.Width, config.FFNWidth, config.Heads = 1, 1, 32, 64, 2
	l.model = must[*trafo.Model](t)(l.context.NewModel(config, 1))
}

func (l *lesson) trainer(t testing.TB) *trafo.Trainer {
	t.Helper()
	trainer := must[*trafo.Trainer](t)(l.model.NewTrainer(t.Context(), l.tokenizer, l.train, l.valid, &l.options))
	t.Cleanup(func() { trainer.Close() })
	return trainer
}

// weights are the bytes of the model's file.
func (l *lesson) weights(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.safetensors")
	ok(t, l.model.Save(path))
	return string(must[[]byte](t)(os.ReadFile(path)))
}

// spawn is WaitGroup.Go of Go 1.25.
func spawn(group *sync.WaitGroup, f func()) {
	group.Add(1)
	go func() {
		defer group.Done()
		f()
	}()
}
