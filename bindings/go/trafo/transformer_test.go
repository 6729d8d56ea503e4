package trafo_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// ownTransformer is an encoder-decoder from ops alone, with weights that have the names of the
// built-in model's. Rows of tokens lie one after another, without padding.
type ownTransformer struct {
	c       *trafo.Context
	config  trafo.ModelConfig
	weights map[string]*trafo.Tensor
	err     error // the first; what follows it is not computed
}

// ownRows are the rows between two blocks: the residual stream, and what the next block reads.
type ownRows struct{ hidden, input *trafo.Tensor }

// ownSide is one side of a batch.
type ownSide struct{ ids, positions, ends *trafo.Tensor }

// try notes the first error.
func (m *ownTransformer) try(f func() (*trafo.Tensor, error)) (result *trafo.Tensor) {
	if m.err == nil {
		result, m.err = f()
	}
	return result
}

func (m *ownTransformer) linear(x *trafo.Tensor, name string) *trafo.Tensor {
	return m.try(func() (*trafo.Tensor, error) {
		return m.c.Linear(x, m.weights[name+".weight"], m.weights[name+".bias"])
	})
}

func (m *ownTransformer) norm(x *trafo.Tensor, name string) *trafo.Tensor {
	return m.try(func() (*trafo.Tensor, error) {
		return m.c.LayerNorm(x, m.weights[name+".weight"], m.weights[name+".bias"], m.config.NormEpsilon)
	})
}

func (m *ownTransformer) start(side ownSide, first string) ownRows {
	x := m.try(func() (*trafo.Tensor, error) {
		table, err := m.c.SinusoidalPositions(m.config.MaxPositions, m.config.Width, trafo.Float32)
		if err != nil {
			return nil, err
		}
		return m.c.Embedding(side.ids, m.weights["embedding.weight"], &trafo.EmbeddingOptions{
			Scale: math.Sqrt(float64(m.config.Width)), Positions: side.positions, PositionTable: table})
	})
	if m.config.PreNorm.Or(true) {
		return ownRows{x, m.norm(x, first)}
	}
	return ownRows{x, x}
}

// addNorm ends a block: the residual, and the norm of the block that follows (pre-norm) or of this one.
func (m *ownTransformer) addNorm(output *trafo.Tensor, rows ownRows, following, own string) ownRows {
	sum := m.try(func() (*trafo.Tensor, error) {
		return m.c.Add(rows.hidden, output)
	})
	if m.config.PreNorm.Or(true) {
		return ownRows{sum, m.norm(sum, following)}
	}
	normed := m.norm(sum, own)
	return ownRows{normed, normed}
}

func (m *ownTransformer) attention(q, kv *trafo.Tensor, columns [3]int, queries, keys ownSide, causal bool, name string) *trafo.Tensor {
	mixed := m.try(func() (*trafo.Tensor, error) {
		return m.c.Attention(q, kv, kv, queries.ends, keys.ends, trafo.AttentionOptions{
			Heads: m.config.Heads, HeadDim: m.config.Width / m.config.Heads,
			QColumn: columns[0], KColumn: columns[1], VColumn: columns[2], Causal: causal})
	})
	return m.linear(mixed, name+".output")
}

func (m *ownTransformer) selfAttention(x *trafo.Tensor, side ownSide, causal bool, name string) *trafo.Tensor {
	qkv := m.linear(x, name+".qkv")
	return m.attention(qkv, qkv, [3]int{0, m.config.Width, 2 * m.config.Width}, side, side, causal, name)
}

func (m *ownTransformer) feedForward(x *trafo.Tensor, name string) *trafo.Tensor {
	up := m.linear(x, name+".up")
	activated := m.try(func() (*trafo.Tensor, error) { return m.c.Activate(up, m.config.Activation) })
	return m.linear(activated, name+".down")
}

// loss is the mean for each label.
func (m *ownTransformer) loss(source, target ownSide, labels *trafo.Tensor, smoothing float64) (*trafo.Tensor, error) {
	rows := m.start(source, "encoder.0.attention_norm")
	for i := range m.config.EncoderLayers {
		block := fmt.Sprint("encoder.", i)
		following := fmt.Sprint("encoder.", i+1, ".attention_norm")
		if i+1 == m.config.EncoderLayers {
			following = "encoder.norm"
		}
		x := m.selfAttention(rows.input, source, false, block+".attention")
		rows = m.addNorm(x, rows, block+".ffn_norm", block+".attention_norm")
		rows = m.addNorm(m.feedForward(rows.input, block+".ffn"), rows, following, block+".ffn_norm")
	}
	// Keys and values of every layer's cross-attention come from one GEMM.
	kv := m.linear(rows.input, "decoder.cross_kv")
	rows = m.start(target, "decoder.0.attention_norm")
	for i := range m.config.DecoderLayers {
		block := fmt.Sprint("decoder.", i)
		following := fmt.Sprint("decoder.", i+1, ".attention_norm")
		if i+1 == m.config.DecoderLayers {
			following = "decoder.norm"
		}
		x := m.selfAttention(rows.input, target, true, block+".attention")
		rows = m.addNorm(x, rows, block+".cross_norm", block+".attention_norm")
		query := m.linear(rows.input, block+".cross.query")
		column := 2 * i * m.config.Width
		x = m.attention(query, kv, [3]int{0, column, column + m.config.Width}, target, source, false, block+".cross")
		rows = m.addNorm(x, rows, block+".ffn_norm", block+".cross_norm")
		rows = m.addNorm(m.feedForward(rows.input, block+".ffn"), rows, following, block+".ffn_norm")
	}
	return m.try(func() (*trafo.Tensor, error) {
		logits, err := m.c.Linear(rows.input, m.weights["embedding.weight"], m.weights["output.bias"])
		if err != nil {
			return nil, err
		}
		options := trafo.DefaultCrossEntropyOptions()
		options.LabelSmoothing = smoothing
		loss, _, err := m.c.CrossEntropy(logits, labels, &options)
		return loss, err
	}), m.err
}

// The gradients of a network from ops equal the built-in model's with the same weights. A step of
// AdamW tells the model's: from moments of zero it changes a weight by rate * g / (|g| + epsilon).
func TestAnOwnTransformerHasTheGradientsOfTheModel(t *testing.T) {
	for _, preNorm := range []bool{true, false} {
		t.Run(fmt.Sprint("preNorm=", preNorm), func(t *testing.T) {
			l := newLesson(t)
			config := must[trafo.ModelConfig](t)(l.model.Config())
			config.EncoderLayers, config.DecoderLayers, config.PreNorm = 2, 2, trafo.Some(preNorm)
			config.Dropout, config.AttentionDropout, config.FFNDropout = trafo.Some(0.0), 0, 0
			model := must[*trafo.Model](t)(l.context.NewModel(config, 5))
			defer model.Close()

			const rate, epsilon = 1000, 0.5
			options := trafo.DefaultTrainerOptions()
			options.LearningRate, options.Warmup, options.Schedule = rate, trafo.Some(0), trafo.ScheduleConstant
			options.Epsilon, options.ClipNorm, options.BatchTokens = epsilon, trafo.Some(0.0), 100_000 // all in one batch
			c := newContext(t)
			own := &ownTransformer{c: c, config: config, weights: map[string]*trafo.Tensor{}}
			parameters := must[[]trafo.Parameter](t)(model.Parameters())
			before := map[string][]float32{}
			for _, p := range parameters {
				before[p.Name] = must[[]float32](t)(p.Tensor.Float32s())
				own.weights[p.Name] = leaf(t, c, before[p.Name], p.Tensor.Shape()...)
			}
			trainer := must[*trafo.Trainer](t)(model.NewTrainer(t.Context(), l.tokenizer, l.train, nil, &options))
			defer trainer.Close()
			step := must[trafo.StepResult](t)(trainer.Step(t.Context()))

			var source, target, out []int32
			var sourcePositions, targetPositions []int32
			sourceEnds, targetEnds := []int32{0}, []int32{0}
			german, english := sentences()
			for i := range german {
				ids := append(must[[]int32](t)(l.tokenizer.Encode(german[i])), trafo.TokenEOS)
				for position := range ids {
					sourcePositions = append(sourcePositions, int32(position))
				}
				source = append(source, ids...)
				sourceEnds = append(sourceEnds, int32(len(source)))
				ids = must[[]int32](t)(l.tokenizer.Encode(english[i]))
				for position := range len(ids) + 1 {
					targetPositions = append(targetPositions, int32(position))
				}
				target = append(append(target, trafo.TokenBOS), ids...)
				out = append(append(out, ids...), trafo.TokenEOS)
				targetEnds = append(targetEnds, int32(len(target)))
			}
			if step.Labels != int64(len(out)) {
				t.Fatalf("the model trained on %d labels of %d", step.Labels, len(out))
			}
			column := func(values []int32) *trafo.Tensor { return tensor(t, c, values, len(values)) }
			loss := must[*trafo.Tensor](t)(own.loss(
				ownSide{column(source), column(sourcePositions), column(sourceEnds)},
				ownSide{column(target), column(targetPositions), column(targetEnds)},
				column(out), options.LabelSmoothing.Or(0.1)))
			if got := must[float64](t)(loss.Item()); math.Abs(got-step.Loss) > 1e-5*step.Loss {
				t.Errorf("loss %v, of the model %v", got, step.Loss)
			}
			ok(t, loss.Backward())

			var squares, worst float64
			for _, p := range parameters {
				after := must[[]float32](t)(p.Tensor.Float32s())
				mine := grad(t, own.weights[p.Name])
				var largest, difference float64
				for i, g := range mine {
					d := (float64(before[p.Name][i]) - float64(after[i])) / step.LearningRate
					theirs := d * epsilon / (1 - math.Abs(d))
					largest = max(largest, math.Abs(theirs))
					difference = max(difference, math.Abs(g-theirs))
					squares += g * g
				}
				// float32: sums of a few hundred terms, in another order.
				if difference > 1e-5*largest+1e-9 {
					t.Errorf("%s: off by %.2g, the largest gradient is %.2g", p.Name, difference, largest)
				}
				if largest > 0 {
					worst = max(worst, difference/largest)
				}
			}
			if math.Abs(math.Sqrt(squares)-step.GradNorm) > 1e-5*step.GradNorm {
				t.Errorf("norm %v, of the model %v", math.Sqrt(squares), step.GradNorm)
			}
			t.Logf("%d tensors, off by at most %.1e of their largest gradient", len(parameters), worst)
		})
	}
}
