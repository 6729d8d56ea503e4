package trafo_test

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// Tensors that Backward needs must not change before it runs; the error names the op.
func TestAWriteBeforeBackwardIsAnError(t *testing.T) {
	c := newContext(t)
	x, w := tensor(t, c, []float32{1, 2}, 2), leaf(t, c, []float32{3, 4}, 2)
	loss := func() *trafo.Tensor {
		t.Helper()
		product := must[*trafo.Tensor](t)(c.Multiply(w, x))
		defer product.Close()
		return must[*trafo.Tensor](t)(c.Sum(product))
	}
	refused := func(loss *trafo.Tensor) {
		t.Helper()
		defer loss.Close()
		err := loss.Backward()
		wantError(t, err, trafo.ErrInvalidArgument)
		if !strings.Contains(err.Error(), "multiply needs ") {
			t.Error(err)
		}
	}
	last := loss()
	ok(t, trafo.Write(x, []float32{5, 6}))
	refused(last)
	last = loss()
	alias := must[*trafo.Tensor](t)(x.Detach())
	defer alias.Close()
	ok(t, trafo.Write(alias, []float32{5, 6}))
	refused(last)
	last = loss()
	ok(t, x.MarkWritten())
	refused(last)
	last = loss()
	ok(t, trafo.Write(w, []float32{7, 8})) // x is a constant: the values of w are not needed
	ok(t, last.Backward())
	wantValues(t, "gradient", grad(t, w), []float64{5, 6})

	ok(t, x.SetRequiresGrad(true))
	optimizer := must[*trafo.AdamW](t)(c.NewAdamW(nil, w))
	defer optimizer.Close()
	ok(t, loss().Backward())
	last = loss()
	must[float64](t)(optimizer.Step(0.1))
	refused(last)
	ok(t, loss().Backward())
}

func TestTensorsKeepTheirElements(t *testing.T) {
	c := newContext(t)
	x := tensor(t, c, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	if !slices.Equal(x.Shape(), []int{2, 3}) || x.DType() != trafo.Float32 || x.Len() != 6 {
		t.Errorf("got %v %v %v", x.Shape(), x.DType(), x.Len())
	}
	if got := must[[]float32](t)(x.Float32s()); !slices.Equal(got, []float32{1, 2, 3, 4, 5, 6}) {
		t.Error(got)
	}
	if got := must[[]int32](t)(tensor(t, c, []int32{7, -8}, 2).Int32s()); !slices.Equal(got, []int32{7, -8}) {
		t.Error(got)
	}
	if got := must[float64](t)(tensor(t, c, []float64{math.Pi}).Item()); got != math.Pi {
		t.Error(got)
	}
	if got := must[float64](t)(tensor(t, c, []int32{5}, 1).Item()); got != 5 {
		t.Error(got)
	}
	if got := must[[]float32](t)(tensor(t, c, []float32{}, 0, 3).Float32s()); len(got) != 0 {
		t.Error(got)
	}
	wantValues(t, "zeros", values(t, must[*trafo.Tensor](t)(c.Zeros(trafo.Float64, 2))), []float64{0, 0})

	ok(t, trafo.Write(x, []float32{6, 5, 4, 3, 2, 1}))
	wantValues(t, "written", values(t, x), []float64{6, 5, 4, 3, 2, 1})
	clone := must[*trafo.Tensor](t)(x.Clone())
	detached := must[*trafo.Tensor](t)(x.Detach())
	ok(t, trafo.Write(x, make([]float32, 6)))
	wantValues(t, "a clone is a copy", values(t, clone), []float64{6, 5, 4, 3, 2, 1})
	wantValues(t, "a detached tensor is the same memory", values(t, detached), make([]float64, 6))
}

func TestTensorsRefuseWhatDoesNotFit(t *testing.T) {
	c := newContext(t)
	_, err := trafo.NewTensor(c, []float32{1, 2, 3}, 2, 2)
	wantError(t, err, trafo.ErrShapeMismatch)
	_, err = trafo.NewTensor(c, []float32{1}, -1)
	wantError(t, err, trafo.ErrShapeMismatch)
	_, err = trafo.NewTensor(c, []float32{}, 1<<40, 1<<40)
	wantError(t, err, trafo.ErrShapeMismatch)
	_, err = trafo.NewTensor(c, []float32{1}, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = c.Zeros(trafo.Float32, 1<<40, 1<<40)
	wantError(t, err)
	_, err = c.Zeros(trafo.DType(77), 1)
	wantError(t, err)
	x := tensor(t, c, []float32{1, 2}, 2)
	_, err = x.Float64s()
	wantError(t, err, trafo.ErrDTypeMismatch)
	_, err = x.Item()
	wantError(t, err, trafo.ErrShapeMismatch)
	wantError(t, trafo.Write(x, []float32{1}), trafo.ErrShapeMismatch)
	wantError(t, trafo.Write(x, []int32{1, 2}), trafo.ErrDTypeMismatch)
	wantError(t, tensor(t, c, []int32{1}, 1).SetRequiresGrad(true))
	_, err = c.SumDim(x, 1<<32, false)
	wantError(t, err)
}

func TestOps(t *testing.T) {
	c := newContext(t)
	a := tensor(t, c, []float32{1, 2, 3, 4}, 2, 2)
	b := tensor(t, c, []float32{10, 20}, 2)
	elementwise := func(f func(float64) float64) []float64 { return []float64{f(1), f(2), f(3), f(4)} }
	for _, test := range []struct {
		name  string
		op    func() (*trafo.Tensor, error)
		shape []int
		want  []float64
	}{
		{"add", func() (*trafo.Tensor, error) { return c.Add(a, b) }, []int{2, 2}, []float64{11, 22, 13, 24}},
		{"subtract", func() (*trafo.Tensor, error) { return c.Subtract(a, b) }, []int{2, 2}, []float64{-9, -18, -7, -16}},
		{"multiply", func() (*trafo.Tensor, error) { return c.Multiply(a, b) }, []int{2, 2}, []float64{10, 40, 30, 80}},
		{"divide", func() (*trafo.Tensor, error) { return c.Divide(b, a) }, []int{2, 2}, []float64{10, 10, 10. / 3, 5}},
		{"scale", func() (*trafo.Tensor, error) { return c.Scale(a, -2) }, []int{2, 2}, []float64{-2, -4, -6, -8}},
		{"exp", func() (*trafo.Tensor, error) { return c.Exp(a) }, []int{2, 2}, elementwise(math.Exp)},
		{"log", func() (*trafo.Tensor, error) { return c.Log(a) }, []int{2, 2}, elementwise(math.Log)},
		{"sqrt", func() (*trafo.Tensor, error) { return c.Sqrt(a) }, []int{2, 2}, elementwise(math.Sqrt)},
		{"tanh", func() (*trafo.Tensor, error) { return c.Tanh(a) }, []int{2, 2}, elementwise(math.Tanh)},
		{"sigmoid", func() (*trafo.Tensor, error) { return c.Sigmoid(a) }, []int{2, 2},
			elementwise(func(x float64) float64 { return 1 / (1 + math.Exp(-x)) })},
		{"silu", func() (*trafo.Tensor, error) { return c.Activate(a, trafo.SiLU) }, []int{2, 2},
			elementwise(func(x float64) float64 { return x / (1 + math.Exp(-x)) })},
		{"sum", func() (*trafo.Tensor, error) { return c.Sum(a) }, []int{1}, []float64{10}},
		{"mean", func() (*trafo.Tensor, error) { return c.Mean(a) }, []int{1}, []float64{2.5}},
		{"sum_dim", func() (*trafo.Tensor, error) { return c.SumDim(a, 0, false) }, []int{2}, []float64{4, 6}},
		{"mean_dim", func() (*trafo.Tensor, error) { return c.MeanDim(a, -1, true) }, []int{2, 1}, []float64{1.5, 3.5}},
		{"max_dim", func() (*trafo.Tensor, error) { return c.MaxDim(a, 1, false) }, []int{2}, []float64{2, 4}},
		{"reshape", func() (*trafo.Tensor, error) { return c.Reshape(a, -1) }, []int{4}, []float64{1, 2, 3, 4}},
		{"transpose", func() (*trafo.Tensor, error) { return c.Transpose(a, 0, 1) }, []int{2, 2}, []float64{1, 3, 2, 4}},
		{"slice", func() (*trafo.Tensor, error) { return c.Slice(a, 1, 1, 2) }, []int{2, 1}, []float64{2, 4}},
		{"concat", func() (*trafo.Tensor, error) { return c.Concat(1, a, a) }, []int{2, 4}, []float64{1, 2, 1, 2, 3, 4, 3, 4}},
		{"cast", func() (*trafo.Tensor, error) { return c.Cast(a, trafo.Float64) }, []int{2, 2}, []float64{1, 2, 3, 4}},
		{"matmul", func() (*trafo.Tensor, error) { return c.MatMul(a, a) }, []int{2, 2}, []float64{7, 10, 15, 22}},
		{"matmul, transposed", func() (*trafo.Tensor, error) { return c.MatMulTransposed(a, a, true, false) }, []int{2, 2}, []float64{10, 14, 14, 20}},
		{"linear", func() (*trafo.Tensor, error) { return c.Linear(a, a, b) }, []int{2, 2}, []float64{15, 31, 21, 45}},
		{"linear, no bias", func() (*trafo.Tensor, error) { return c.Linear(a, a, nil) }, []int{2, 2}, []float64{5, 11, 11, 25}},
		{"layer norm", func() (*trafo.Tensor, error) { return c.LayerNorm(a, b, b, 1e-9) }, []int{2, 2}, []float64{0, 40, 0, 40}},
		{"rms norm", func() (*trafo.Tensor, error) {
			return c.RMSNorm(tensor(t, c, []float32{3, -3}, 1, 2), tensor(t, c, []float32{1, 2}, 2), 1e-12)
		}, []int{1, 2}, []float64{1, -2}},
		{"residual rms norm", func() (*trafo.Tensor, error) {
			sum, normed, err := c.ResidualRMSNorm(a, a, tensor(t, c, []float32{1, 1}, 2), 1e-12, nil)
			if err == nil {
				normed.Close()
			}
			return sum, err
		}, []int{2, 2}, []float64{2, 4, 6, 8}},
		{"rotary", func() (*trafo.Tensor, error) {
			return c.Rotary(tensor(t, c, []float32{1, 0}, 1, 2), tensor(t, c, []int32{2}, 1), 1, 0, 2, 10000)
		}, []int{1, 2}, []float64{math.Cos(2), math.Sin(2)}},
		{"swiglu", func() (*trafo.Tensor, error) { return c.SwiGLU(tensor(t, c, []float32{1, 3}, 1, 2)) },
			[]int{1, 1}, []float64{3 / (1 + 1/math.E)}},
		{"bias, activation", func() (*trafo.Tensor, error) {
			return c.BiasActDropout(a, tensor(t, c, []float32{-2, -2}, 2), trafo.ReLU, nil)
		}, []int{2, 2}, []float64{0, 0, 1, 2}},
		{"bias, residual", func() (*trafo.Tensor, error) { return c.BiasDropoutResidual(a, b, a, nil) }, []int{2, 2}, []float64{12, 24, 16, 28}},
		{"bias, residual, norm", func() (*trafo.Tensor, error) {
			one, three := tensor(t, c, []float32{1, 1}, 2), tensor(t, c, []float32{3, 3}, 2)
			sum, normed, err := c.BiasDropoutResidualNorm(a, b, a, one, three, 1e-12, nil)
			wantValues(t, "its sum", values(t, sum), []float64{12, 24, 16, 28})
			return normed, err
		}, []int{2, 2}, []float64{2, 4, 2, 4}},
		{"softmax, causal", func() (*trafo.Tensor, error) { return c.Softmax(a, &trafo.SoftmaxOptions{Causal: true}) },
			[]int{2, 2}, []float64{1, 0, 1 / (1 + math.E), math.E / (1 + math.E)}},
		{"embedding", func() (*trafo.Tensor, error) {
			return c.Embedding(tensor(t, c, []int32{1, 0, 1}, 3), a, &trafo.EmbeddingOptions{Scale: 10})
		}, []int{3, 2}, []float64{30, 40, 10, 20, 30, 40}},
		{"embedding, defaults", func() (*trafo.Tensor, error) { return c.Embedding(tensor(t, c, []int32{1}, 1), a, nil) }, []int{1, 2}, []float64{3, 4}},
		{"positions", func() (*trafo.Tensor, error) { return c.SinusoidalPositions(2, 2, trafo.Float64) }, []int{2, 2}, []float64{0, 1, math.Sin(1), math.Cos(1)}},
	} {
		x, err := test.op()
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if !slices.Equal(x.Shape(), test.shape) {
			t.Errorf("%s: shape %v, want %v", test.name, x.Shape(), test.shape)
		}
		wantValues(t, test.name, values(t, x), test.want)
		ok(t, x.Close())
	}
}

func TestSoftmaxHidesPaddingAndEmptyRowsAreZeros(t *testing.T) {
	c := newContext(t)
	x := tensor(t, c, []float32{1, 2, 3, 4}, 2, 1, 1, 2)
	y := must[*trafo.Tensor](t)(c.Softmax(x, &trafo.SoftmaxOptions{PaddingMask: tensor(t, c, []int32{0, 1, 1, 1}, 2, 2)}))
	wantValues(t, "softmax", values(t, y), []float64{1, 0, 0, 0})
}

func TestAttentionStaysInItsSequence(t *testing.T) {
	c := newContext(t)
	// Two sequences of one row and of two rows; every key is alike, so that values are averaged.
	q := tensor(t, c, []float32{1, 1, 1}, 3, 1)
	v := tensor(t, c, []float32{5, 1, 3}, 3, 1)
	rows := tensor(t, c, []int32{0, 1, 3}, 3)
	y := must[*trafo.Tensor](t)(c.Attention(q, q, v, rows, rows, trafo.AttentionOptions{HeadDim: 1}))
	wantValues(t, "full", values(t, y), []float64{5, 2, 2})
	y = must[*trafo.Tensor](t)(c.Attention(q, q, v, rows, rows, trafo.AttentionOptions{HeadDim: 1, Causal: true}))
	wantValues(t, "causal", values(t, y), []float64{5, 1, 2})
	y = must[*trafo.Tensor](t)(c.Attention(q, q, v, rows, rows, trafo.AttentionOptions{HeadDim: 1, Causal: true, Window: 1}))
	wantValues(t, "window", values(t, y), []float64{5, 1, 3})
	both := tensor(t, c, []float32{1, 1, 1, 1, 1, 1}, 3, 2)
	y = must[*trafo.Tensor](t)(c.Attention(both, q, v, rows, rows, trafo.AttentionOptions{Heads: 2, KVHeads: 1, HeadDim: 1}))
	wantValues(t, "grouped", values(t, y), []float64{5, 5, 2, 2, 2, 2})
	hidden := tensor(t, c, []int32{1, 0, 0, 1}, 2, 1, 1, 2)
	y = must[*trafo.Tensor](t)(c.Attention(q, q, v, rows, rows, trafo.AttentionOptions{HeadDim: 1, Mask: hidden}))
	wantValues(t, "masked", values(t, y), []float64{0, 1, 1})
	_, err := c.Attention(q, q, v, rows, rows, trafo.AttentionOptions{HeadDim: 1, Mask: v})
	wantError(t, err, trafo.ErrShapeMismatch)
	_, err = c.Attention(q, q, v, rows, rows, trafo.AttentionOptions{})
	wantError(t, err)
}

func TestDropoutBelongsToItsAddress(t *testing.T) {
	c := newContext(t)
	x := tensor(t, c, slices.Repeat([]float32{1}, 1000), 1000)
	mask := func(step uint32) []float64 {
		return values(t, must[*trafo.Tensor](t)(c.Dropout(x, trafo.Dropout{P: 0.25, Seed: 3, Step: step, ID: 1})))
	}
	first, kept := mask(1), 0
	for _, v := range first {
		if v != 0 {
			kept++
			wantValues(t, "a kept element", []float64{v}, []float64{1 / 0.75})
		}
	}
	if kept < 680 || kept > 820 {
		t.Errorf("kept %d of 1000", kept)
	}
	if !slices.Equal(first, mask(1)) || slices.Equal(first, mask(2)) {
		t.Error("the mask is not that of its address")
	}
	_, err := c.Dropout(x, trafo.Dropout{P: 1})
	wantError(t, err)
}

func TestCrossEntropy(t *testing.T) {
	c := newContext(t)
	// softmax is (1/4, 3/4) in every row
	logits := tensor(t, c, []float64{0, math.Log(3), 0, math.Log(3), 0, math.Log(3)}, 3, 2)
	labels := tensor(t, c, []int32{0, 1, -100}, 3)
	loss, nll, err := c.CrossEntropy(logits, labels, nil)
	ok(t, err)
	want := (math.Log(4) + math.Log(4./3)) / 2
	wantValues(t, "mean", values(t, loss), []float64{want})
	wantValues(t, "nll", values(t, nll), []float64{want})

	options := trafo.DefaultCrossEntropyOptions()
	options.Reduction, options.LabelSmoothing = trafo.ReduceNone, 0.2
	options.Weights = tensor(t, c, []float64{1, 2, 1}, 3)
	loss, nll, err = c.CrossEntropy(logits, labels, &options)
	ok(t, err)
	smoothed := func(right, wrong float64) float64 { return 0.9*right + 0.1*wrong }
	wantValues(t, "smoothed", values(t, loss), []float64{smoothed(math.Log(4), math.Log(4./3)), 2 * smoothed(math.Log(4./3), math.Log(4)), 0})

	identity := tensor(t, c, []float64{1, 0, 0, 1}, 2, 2)
	options.Reduction, options.LabelSmoothing, options.Weights = trafo.ReduceSum, 0, nil
	loss, _, err = c.LinearCrossEntropy(logits, identity, nil, labels, &options)
	ok(t, err)
	wantValues(t, "with its product", values(t, loss), []float64{2 * want})
	options.ChunkBytes = 16 // one row of logits
	loss, _, err = c.LinearCrossEntropy(logits, identity, nil, labels, &options)
	ok(t, err)
	wantValues(t, "in chunks", values(t, loss), []float64{2 * want})
	options.ChunkBytes = -1
	_, _, err = c.LinearCrossEntropy(logits, identity, nil, labels, &options)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, _, err = c.CrossEntropy(logits, tensor(t, c, []int32{0, 1, 2}, 3), nil)
	wantError(t, err)
}

func TestClassWeightsAndProbabilities(t *testing.T) {
	c := newContext(t)
	first, second := math.Log(4), math.Log(4./3) // losses of softmax (1/4, 3/4)
	logits := tensor(t, c, []float64{0, math.Log(3), 0, math.Log(3)}, 2, 2)
	options := trafo.CrossEntropyOptions{ClassWeights: tensor(t, c, []float64{3, 1}, 2)}
	loss, _, err := c.CrossEntropy(logits, tensor(t, c, []int32{0, 1}, 2), &options)
	ok(t, err)
	wantValues(t, "by class", values(t, loss), []float64{(3*first + second) / 4})
	options.Reduction = trafo.ReduceNone
	targets := tensor(t, c, []float64{0.5, 0.5, 1, 0}, 2, 2)
	loss, err = c.SoftCrossEntropy(logits, targets, &options)
	ok(t, err)
	wantValues(t, "of probabilities", values(t, loss), []float64{(3*first + second) / 2, 3 * first})
	_, err = c.SoftCrossEntropy(logits, options.ClassWeights, nil)
	wantError(t, err, trafo.ErrShapeMismatch)
}

func TestPaddingGivesTheTableNoGradient(t *testing.T) {
	c := newContext(t)
	table, padding := leaf(t, c, []float32{1, 2, 3}, 3, 1), 0
	y := must[*trafo.Tensor](t)(c.Embedding(tensor(t, c, []int32{2, 0, 2}, 3), table, &trafo.EmbeddingOptions{PaddingID: trafo.Some(padding)}))
	wantValues(t, "embedding", values(t, y), []float64{3, 1, 3})
	ok(t, must[*trafo.Tensor](t)(c.Sum(y)).Backward())
	wantValues(t, "gradient", grad(t, table), []float64{0, 0, 2})
}

func TestAdamWContinuesFromItsFile(t *testing.T) {
	c := newContext(t)
	path := filepath.Join(t.TempDir(), "adamw.safetensors")
	start := func() (*trafo.Tensor, *trafo.AdamW) {
		w := leaf(t, c, []float32{1, -2, 0.5}, 3)
		return w, must[*trafo.AdamW](t)(c.NewAdamW(nil, w))
	}
	update := func(w *trafo.Tensor, optimizer *trafo.AdamW) {
		cube := must[*trafo.Tensor](t)(c.Chain(w).Multiply(w).Multiply(w).End())
		ok(t, must[*trafo.Tensor](t)(c.Sum(cube)).Backward())
		must[float64](t)(optimizer.Step(0.01))
	}
	w, optimizer := start()
	update(w, optimizer)
	update(w, optimizer)
	ok(t, optimizer.Save(path))
	other, later := start()
	ok(t, later.Load(path))
	for range 3 {
		update(w, optimizer)
		update(other, later)
	}
	if !slices.Equal(values(t, w), values(t, other)) {
		t.Errorf("%v without the pause, %v with it", values(t, w), values(t, other))
	}
	unlike := must[*trafo.AdamW](t)(c.NewAdamW(nil, leaf(t, c, []float32{0}, 1)))
	wantError(t, unlike.Load(path), trafo.ErrShapeMismatch)
	wantError(t, unlike.Load(path+"2"), trafo.ErrNotFound)
	ok(t, unlike.Close())
	wantError(t, unlike.Save(path))
}

func TestGradients(t *testing.T) {
	c := newContext(t)
	w := leaf(t, c, []float32{2, 3}, 2)
	x := tensor(t, c, []float32{5, 7}, 2)
	if g := must[*trafo.Tensor](t)(w.Grad()); g != nil {
		t.Error("a gradient before any backward")
	}
	run := func() *trafo.Tensor {
		return must[*trafo.Tensor](t)(c.Sum(must[*trafo.Tensor](t)(c.Multiply(w, x))))
	}
	ok(t, run().Backward())
	wantValues(t, "gradient", grad(t, w), []float64{5, 7})
	ok(t, run().Backward())
	wantValues(t, "gradients add up", grad(t, w), []float64{10, 14})
	ok(t, w.ZeroGrad())
	ok(t, must[*trafo.Tensor](t)(c.Multiply(w, x)).BackwardFrom(tensor(t, c, []float32{1, -1}, 2)))
	wantValues(t, "of an upstream gradient", grad(t, w), []float64{5, -7})

	wantError(t, must[*trafo.Tensor](t)(c.Multiply(w, x)).Backward())
	wantError(t, run().BackwardFrom(nil))
	wantError(t, x.Backward())
	ok(t, c.NoGrad(func() error {
		wantError(t, run().Backward())
		return nil
	}))
	ok(t, run().Backward())
	detached := must[*trafo.Tensor](t)(must[*trafo.Tensor](t)(c.Scale(w, 2)).Detach())
	wantError(t, must[*trafo.Tensor](t)(c.Sum(detached)).Backward())
	wantError(t, trafo.Write(must[*trafo.Tensor](t)(c.Scale(w, 2)), []float32{1, 2}), trafo.ErrInvalidArgument)
}

func TestAdamW(t *testing.T) {
	c := newContext(t)
	w := leaf(t, c, []float32{1, -1}, 2)
	optimizer := must[*trafo.AdamW](t)(c.NewAdamW(nil, w))
	step := func() float64 {
		square := must[*trafo.Tensor](t)(c.Multiply(w, w))
		ok(t, must[*trafo.Tensor](t)(c.Sum(square)).Backward())
		return must[float64](t)(optimizer.Step(0.1))
	}
	wantValues(t, "gradient norm", []float64{step()}, []float64{2 * math.Sqrt2})
	// The first step of Adam is the learning rate, whatever the gradient.
	wantValues(t, "parameters", values(t, w), []float64{0.9, -0.9})
	for range 50 {
		step()
	}
	for _, v := range values(t, w) {
		if math.Abs(v) > 0.5 {
			t.Errorf("not at the minimum: %v", values(t, w))
		}
	}
	before := values(t, w)
	bad := must[*trafo.Tensor](t)(c.Multiply(w, tensor(t, c, []float32{float32(math.Inf(1)), 0}, 2)))
	ok(t, must[*trafo.Tensor](t)(c.Sum(bad)).Backward())
	_, err := optimizer.Step(0.1)
	wantError(t, err, trafo.ErrNonFinite)
	wantValues(t, "after a bad step", values(t, w), before)
	_, err = c.NewAdamW(nil, tensor(t, c, []float32{1}, 1))
	wantError(t, err)
	_, err = c.NewAdamW(nil, nil)
	wantError(t, err, trafo.ErrInvalidArgument)
	ok(t, optimizer.Close())
	ok(t, optimizer.Close())
	_, err = optimizer.Step(0.1)
	wantError(t, err, trafo.ErrClosed)
}
