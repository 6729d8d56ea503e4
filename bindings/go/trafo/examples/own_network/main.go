// Command own_network builds a network that the engine has no name for, from tensors and ops, and
// trains it with AdamW: one layer of causal attention that reads letters and predicts the next one.
//
//	go run ./examples/own_network [-device auto|cpu|cuda|cuda:N]
package main

import (
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

const (
	text = "a model that reads letters has to learn which letter comes next and what came before tells it " +
		"so the network looks back at all letters read so far and weighs them by what it has learnt "
	width   = 32
	heads   = 4
	symbols = 27 // a to z and the space
)

type network struct {
	device                                         *trafo.Context
	embedding, gamma, beta                         *trafo.Tensor
	attentionIn, attentionOut, ffnIn, ffnInBias    *trafo.Tensor
	ffnOut, ffnOutBias, outputGamma, outputBeta    *trafo.Tensor
	cuSeqlens, ids, indices, labels, sinePositions *trafo.Tensor
	parameters                                     []*trafo.Tensor
}

// chain runs one op after another; the first error ends it.
type chain struct{ err error }

func (c *chain) do(op func() (*trafo.Tensor, error)) *trafo.Tensor {
	if c.err != nil {
		return nil
	}
	t, err := op()
	c.err = err
	return t
}

func letter(c byte) int32 {
	if c == ' ' {
		return symbols - 1
	}
	return int32(c - 'a')
}

func newNetwork(device *trafo.Context) (*network, error) {
	n := &network{device: device}
	random := rand.New(rand.NewPCG(1, 2))
	var build chain
	// A parameter with normal numbers of the given deviation around a mean.
	parameter := func(mean, deviation float64, shape ...int) *trafo.Tensor {
		return build.do(func() (*trafo.Tensor, error) {
			count := 1
			for _, dim := range shape {
				count *= dim
			}
			data := make([]float32, count)
			for i := range data {
				data[i] = float32(mean + deviation*random.NormFloat64())
			}
			t, err := trafo.NewTensor(device, data, shape...)
			if err != nil {
				return nil, err
			}
			n.parameters = append(n.parameters, t)
			return t, t.SetRequiresGrad(true)
		})
	}
	n.embedding = parameter(0, 0.1, symbols, width)
	n.gamma, n.beta = parameter(1, 0, width), parameter(0, 0, width)
	n.attentionIn = parameter(0, 1/math.Sqrt(width), 3*width, width)
	n.attentionOut = parameter(0, 1/math.Sqrt(width), width, width)
	n.outputGamma, n.outputBeta = parameter(1, 0, width), parameter(0, 0, width)
	n.ffnIn, n.ffnInBias = parameter(0, 1/math.Sqrt(width), 2*width, width), parameter(0, 0, 2*width)
	n.ffnOut, n.ffnOutBias = parameter(0, 1/math.Sqrt(2*width), width, 2*width), parameter(0, 0, width)

	// The text is one sequence: letters but the last are read, letters but the first are predicted.
	count := len(text) - 1
	ids, labels, indices := make([]int32, count), make([]int32, count), make([]int32, count)
	for i := range count {
		ids[i], labels[i], indices[i] = letter(text[i]), letter(text[i+1]), int32(i)
	}
	constant := func(data []int32) *trafo.Tensor {
		return build.do(func() (*trafo.Tensor, error) { return trafo.NewTensor(device, data, len(data)) })
	}
	n.ids, n.labels, n.indices = constant(ids), constant(labels), constant(indices)
	n.cuSeqlens = constant([]int32{0, int32(count)})
	n.sinePositions = build.do(func() (*trafo.Tensor, error) {
		return device.SinusoidalPositions(count, width, trafo.Float32)
	})
	return n, build.err
}

// loss is the mean cross-entropy of the next letter.
func (n *network) loss() (*trafo.Tensor, error) {
	d := n.device
	var step chain
	x := step.do(func() (*trafo.Tensor, error) {
		return d.Embedding(n.ids, n.embedding, &trafo.EmbeddingOptions{Scale: math.Sqrt(width),
			Positions: n.indices, PositionTable: n.sinePositions})
	})
	normed := step.do(func() (*trafo.Tensor, error) { return d.LayerNorm(x, n.gamma, n.beta, 1e-5) })
	// Queries, keys and values of all heads come from one GEMM.
	qkv := step.do(func() (*trafo.Tensor, error) { return d.Linear(normed, n.attentionIn, nil) })
	attended := step.do(func() (*trafo.Tensor, error) {
		return d.Attention(qkv, qkv, qkv, n.cuSeqlens, n.cuSeqlens, trafo.AttentionOptions{
			Heads: heads, HeadDim: width / heads, KColumn: width, VColumn: 2 * width, Causal: true})
	})
	mixed := step.do(func() (*trafo.Tensor, error) { return d.Linear(attended, n.attentionOut, nil) })
	sum := step.do(func() (*trafo.Tensor, error) { return d.Add(x, mixed) })
	normed2 := step.do(func() (*trafo.Tensor, error) { return d.LayerNorm(sum, n.outputGamma, n.outputBeta, 1e-5) })
	hidden := step.do(func() (*trafo.Tensor, error) { return d.Linear(normed2, n.ffnIn, nil) })
	active := step.do(func() (*trafo.Tensor, error) { return d.BiasActDropout(hidden, n.ffnInBias, trafo.GELU, nil) })
	out := step.do(func() (*trafo.Tensor, error) { return d.Linear(active, n.ffnOut, nil) })
	y := step.do(func() (*trafo.Tensor, error) { return d.BiasDropoutResidual(out, n.ffnOutBias, sum, nil) })
	// The output layer shares the embedding.
	logits := step.do(func() (*trafo.Tensor, error) { return d.Linear(y, n.embedding, nil) })
	return step.do(func() (*trafo.Tensor, error) {
		loss, _, err := d.CrossEntropy(logits, n.labels, nil)
		return loss, err
	}), step.err
}

// run gives the loss of the first and of the last update.
func run(where string) (first, last float64, err error) {
	kind, index, err := trafo.ParseDevice(where)
	if err != nil {
		return 0, 0, err
	}
	device, err := trafo.NewContext(trafo.WithDevice(kind, index))
	if err != nil {
		return 0, 0, err
	}
	defer device.Close()
	if kind, index, err = device.Device(); err != nil {
		return 0, 0, err
	}
	fmt.Printf("computing on %v:%d\n", kind, index)
	net, err := newNetwork(device)
	if err != nil {
		return 0, 0, err
	}
	options := trafo.DefaultAdamWOptions()
	options.ClipNorm = 1
	optimizer, err := device.NewAdamW(&options, net.parameters...)
	if err != nil {
		return 0, 0, err
	}
	defer optimizer.Close()

	for update := 1; update <= 200; update++ {
		// The scope closes the tensors of the update.
		err := device.Scope(func() error {
			loss, err := net.loss()
			if err != nil {
				return err
			}
			if err := loss.Backward(); err != nil {
				return err
			}
			norm, err := optimizer.Step(2e-3)
			if err != nil {
				return err
			}
			if last, err = loss.Item(); err != nil {
				return err
			}
			if update == 1 {
				first = last
			}
			if update == 1 || update%50 == 0 {
				fmt.Printf("update %3d  loss %.4f  gradient norm %.3f\n", update, last, norm)
			}
			return nil
		})
		if err != nil {
			return 0, 0, err
		}
	}
	return first, last, nil
}

func main() {
	device := flag.String("device", "auto", "auto (CUDA where there is one), cpu, cuda or cuda:N")
	flag.Parse()
	if _, _, err := run(*device); err != nil {
		log.Fatal(err)
	}
}
