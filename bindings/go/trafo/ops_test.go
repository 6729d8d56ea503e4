package trafo_test

import (
	"math"
	"slices"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func ints(t *testing.T, x *trafo.Tensor, err error) []int32 {
	t.Helper()
	ok(t, err)
	defer x.Close()
	return must[[]int32](t)(x.Int32s())
}

func TestArrayOps(t *testing.T) {
	c := newContext(t)
	x := tensor(t, c, []float32{-1, 0, 2}, 3)
	y := tensor(t, c, []float32{1, -1, 2}, 3)
	m := tensor(t, c, []float32{1, 5, 3, 4, 2, 6}, 2, 3)
	mask := tensor(t, c, []int32{0, 1, 1}, 3)
	index := tensor(t, c, []int32{0, 2, 1, 1}, 2, 2)
	src := tensor(t, c, []float32{10, 20, 30, 40}, 2, 2)
	phi := func(x float64) float64 { return x * (1 + math.Erf(x/math.Sqrt2)) / 2 }
	for _, test := range []struct {
		name  string
		op    func() (*trafo.Tensor, error)
		shape []int
		want  []float64
	}{
		{"shift", func() (*trafo.Tensor, error) { return c.Shift(x, 0.5) }, []int{3}, []float64{-0.5, 0.5, 2.5}},
		{"abs", func() (*trafo.Tensor, error) { return c.Abs(x) }, []int{3}, []float64{1, 0, 2}},
		{"sin", func() (*trafo.Tensor, error) { return c.Sin(x) }, []int{3}, []float64{-math.Sin(1), 0, math.Sin(2)}},
		{"cos", func() (*trafo.Tensor, error) { return c.Cos(x) }, []int{3}, []float64{math.Cos(1), 1, math.Cos(2)}},
		{"erf", func() (*trafo.Tensor, error) { return c.Erf(x) }, []int{3}, []float64{-math.Erf(1), 0, math.Erf(2)}},
		{"gelu_erf", func() (*trafo.Tensor, error) { return c.GELUErf(x) }, []int{3}, []float64{phi(-1), 0, phi(2)}},
		{"power", func() (*trafo.Tensor, error) { return c.Power(x, 3) }, []int{3}, []float64{-1, 0, 8}},
		{"clamp", func() (*trafo.Tensor, error) { return c.Clamp(x, -0.5, 1) }, []int{3}, []float64{-0.5, 0, 1}},
		{"maximum", func() (*trafo.Tensor, error) { return c.Maximum(x, y) }, []int{3}, []float64{1, 0, 2}},
		{"minimum", func() (*trafo.Tensor, error) { return c.Minimum(x, y) }, []int{3}, []float64{-1, -1, 2}},
		{"pow", func() (*trafo.Tensor, error) { return c.Pow(y, x) }, []int{3}, []float64{1, 1, 4}},
		{"where", func() (*trafo.Tensor, error) { return c.Where(mask, x, y) }, []int{3}, []float64{1, 0, 2}},
		{"masked_fill", func() (*trafo.Tensor, error) { return c.MaskedFill(x, mask, 9) }, []int{3}, []float64{-1, 9, 9}},
		{"tril", func() (*trafo.Tensor, error) { return c.Tril(m, 0) }, []int{2, 3}, []float64{1, 0, 0, 4, 2, 0}},
		{"triu", func() (*trafo.Tensor, error) { return c.Triu(m, 1) }, []int{2, 3}, []float64{0, 5, 3, 0, 0, 6}},
		{"sum_dims", func() (*trafo.Tensor, error) { return c.SumDims(m, []int{1, 0}, true) }, []int{1, 1}, []float64{21}},
		{"mean_dims", func() (*trafo.Tensor, error) { return c.MeanDims(m, []int{-1}, false) }, []int{2}, []float64{3, 4}},
		{"max_dims", func() (*trafo.Tensor, error) { return c.MaxDims(m, nil, false) }, []int{}, []float64{6}},
		{"min_dims", func() (*trafo.Tensor, error) { return c.MinDims(m, []int{0}, false) }, []int{3}, []float64{1, 2, 3}},
		{"cumsum", func() (*trafo.Tensor, error) { return c.CumSum(m, 1) }, []int{2, 3}, []float64{1, 6, 9, 4, 6, 12}},
		{"permute", func() (*trafo.Tensor, error) { return c.Permute(m, 1, 0) }, []int{3, 2}, []float64{1, 4, 5, 2, 3, 6}},
		{"expand", func() (*trafo.Tensor, error) { return c.Expand(x, 2, -1) }, []int{2, 3}, []float64{-1, 0, 2, -1, 0, 2}},
		{"gather", func() (*trafo.Tensor, error) { return c.Gather(m, 1, index) }, []int{2, 2}, []float64{1, 3, 2, 2}},
		{"scatter_add", func() (*trafo.Tensor, error) { return c.ScatterAdd(m, 1, index, src) }, []int{2, 3}, []float64{11, 5, 23, 4, 72, 6}},
		{"scatter", func() (*trafo.Tensor, error) { return c.Scatter(m, 1, index, src) }, []int{2, 3}, []float64{10, 5, 20, 4, 40, 6}},
	} {
		result := must[*trafo.Tensor](t)(test.op())
		if !slices.Equal(result.Shape(), test.shape) {
			t.Errorf("%s: shape %v, not %v", test.name, result.Shape(), test.shape)
		}
		wantValues(t, test.name, values(t, result), test.want)
		result.Close()
	}

	compared, err := c.Compare(x, y, trafo.GreaterEqual)
	if got := ints(t, compared, err); !slices.Equal(got, []int32{0, 1, 1}) {
		t.Error(got)
	}
	compared, err = c.CompareNumber(x, 0, trafo.NotEqual)
	if got := ints(t, compared, err); !slices.Equal(got, []int32{1, 0, 1}) {
		t.Error(got)
	}
	largest, err := c.ArgMax(m, 1, false)
	if got := ints(t, largest, err); !slices.Equal(got, []int32{1, 2}) {
		t.Error(got)
	}
	smallest, err := c.ArgMin(m, 0, true)
	if got := ints(t, smallest, err); !slices.Equal(got, []int32{0, 1, 0}) {
		t.Error(got)
	}
	top, ids, err := c.TopK(m, 2, -1)
	ok(t, err)
	wantValues(t, "top_k", values(t, top), []float64{5, 3, 6, 4})
	if got := ints(t, ids, nil); !slices.Equal(got, []int32{1, 2, 2, 0}) {
		t.Error(got)
	}
	_, err = c.Where(x, x, y)
	wantError(t, err, trafo.ErrDTypeMismatch)
}

func TestAChainKeepsItsFirstError(t *testing.T) {
	c := newContext(t)
	x := tensor(t, c, []float64{1, -2}, 2)
	w := leaf(t, c, []float64{3, 4}, 2)
	loss := must[*trafo.Tensor](t)(c.Chain(x).Multiply(w).Shift(-1).Scale(-0.5).Add(x).Sum().End())
	wantValues(t, "loss", values(t, loss), []float64{2.5})
	ok(t, loss.Backward())
	wantValues(t, "gradient", grad(t, w), []float64{-0.5, 1})
	if got := values(t, x); !slices.Equal(got, []float64{1, -2}) {
		t.Errorf("the tensor that a chain began with is %v", got)
	}

	three := tensor(t, c, []float64{1, 1, 1}, 3)
	ran := false
	_, err := c.Chain(x).Add(three).Exp().Then(func(x *trafo.Tensor) (*trafo.Tensor, error) {
		ran = true
		return c.Sum(x)
	}).End()
	wantError(t, err, trafo.ErrShapeMismatch)
	if ran {
		t.Error("an op ran after an error")
	}
	_, err = c.Chain(nil).Exp().End()
	wantError(t, err, trafo.ErrClosed)
}

func TestOwnTensors(t *testing.T) {
	c := newContext(t)
	u := must[*trafo.Tensor](t)(c.RandomUniform(trafo.Float64, 2, 3, 7, 100))
	again := must[*trafo.Tensor](t)(c.RandomUniform(trafo.Float64, 2, 3, 7, 100))
	if !slices.Equal(values(t, u), values(t, again)) {
		t.Error("a seed gave two tensors")
	}
	if low, high := slices.Min(values(t, u)), slices.Max(values(t, u)); low < 2 || high >= 3 || high-low < 0.8 {
		t.Error(low, high)
	}
	n := must[*trafo.Tensor](t)(c.RandomNormal(trafo.Float32, 5, 0, 7, 2))
	wantValues(t, "no deviation", values(t, n), []float64{5, 5})

	path := t.TempDir() + "/own.safetensors"
	ok(t, c.SaveTensors(path, map[string]*trafo.Tensor{"u": u, "n": n}))
	loaded := must[map[string]*trafo.Tensor](t)(c.LoadTensors(path, "n", "u"))
	if !slices.Equal(values(t, loaded["u"]), values(t, u)) || !slices.Equal(loaded["n"].Shape(), []int{2}) {
		t.Error("what was loaded is not what was saved")
	}
	_, err := c.LoadTensors(path, "w")
	wantError(t, err, trafo.ErrNotFound)

	w, b := leaf(t, c, []float64{3}, 1), leaf(t, c, []float64{4}, 1)
	sgd := must[*trafo.SGD](t)(c.NewSGD(0.5, 0, w, b))
	defer sgd.Close()
	for range 2 {
		loss := must[*trafo.Tensor](t)(c.Chain(w).Scale(3).Add(must[*trafo.Tensor](t)(c.Scale(b, 4))).Sum().End())
		ok(t, loss.Backward())
		if norm := must[float64](t)(c.ClipGradNorm(1, w, b)); math.Abs(norm-5) > 1e-9 {
			t.Error(norm)
		}
		ok(t, sgd.Step(1))
	}
	wantValues(t, "w", values(t, w), []float64{3 - 0.6 - 0.9})
	wantValues(t, "b", values(t, b), []float64{4 - 0.8 - 1.2})
	wantValues(t, "velocity", values(t, sgd.Velocities()[0]), []float64{0.9})
}
