package trafo_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// mlp is layer_norm(gelu(x W^T)) with dropout, a region that captures w, gamma and beta.
func mlp(c *trafo.Context, w, gamma, beta *trafo.Tensor) trafo.Region {
	return func(inputs []*trafo.Tensor) ([]*trafo.Tensor, error) {
		x, err := c.Linear(inputs[0], w, nil)
		if err != nil {
			return nil, err
		}
		if x, err = c.BiasActDropout(x, nil, trafo.GELU, &trafo.Dropout{P: 0.3, Seed: 1, Step: 2, ID: 3}); err != nil {
			return nil, err
		}
		y, err := c.LayerNorm(x, gamma, beta, 1e-5)
		return []*trafo.Tensor{y}, err
	}
}

func TestGradcheck(t *testing.T) {
	c := newContext(t)
	x, w := tensor(t, c, ramp(15), 3, 5), tensor(t, c, ramp(20), 4, 5)
	gamma, beta := tensor(t, c, ramp(4), 4), tensor(t, c, ramp(4), 4)
	result, err := c.Gradcheck(func(in []*trafo.Tensor) ([]*trafo.Tensor, error) {
		return mlp(c, in[1], in[2], in[3])(in)
	}, nil, x, w, gamma, beta)
	ok(t, err)
	if !result.OK || result.Checked != 15+20+4+4 || result.Message != "" {
		t.Errorf("%+v", result)
	}

	wrong := func(in []*trafo.Tensor) ([]*trafo.Tensor, error) {
		constant, err := in[0].Detach()
		if err != nil {
			return nil, err
		}
		y, err := c.Multiply(in[0], constant) // half of the gradient of the square is missing
		return []*trafo.Tensor{y}, err
	}
	result, err = c.Gradcheck(wrong, nil, x)
	wantError(t, err, trafo.ErrGradcheck)
	if result.OK || result.Message == "" || result.WorstError < 1e-3 {
		t.Errorf("%+v", result)
	}
}

func TestCheckpointHasTheSameBits(t *testing.T) {
	c := newContext(t)
	w := leaf(t, c, ramp(36), 6, 6)
	gamma, beta := leaf(t, c, ramp(6), 6), leaf(t, c, ramp(6), 6)
	region := mlp(c, w, gamma, beta)
	runs := 0
	counted := func(in []*trafo.Tensor) ([]*trafo.Tensor, error) { runs++; return region(in) }
	gradients := func(layer func(x *trafo.Tensor) []*trafo.Tensor) [][]float64 {
		x := leaf(t, c, ramp(24), 4, 6)
		y := layer(layer(x)[0])[0]
		out := [][]float64{values(t, y)}
		ok(t, must[*trafo.Tensor](t)(c.Sum(must[*trafo.Tensor](t)(c.Multiply(y, y)))).Backward())
		for _, leaf := range []*trafo.Tensor{x, w, gamma, beta} {
			out = append(out, grad(t, leaf))
			ok(t, leaf.ZeroGrad())
		}
		return out
	}
	plain := gradients(func(x *trafo.Tensor) []*trafo.Tensor {
		return must[[]*trafo.Tensor](t)(region([]*trafo.Tensor{x}))
	})
	checkpointed := gradients(func(x *trafo.Tensor) []*trafo.Tensor {
		return must[[]*trafo.Tensor](t)(c.Checkpoint(1, counted, x))
	})
	if runs != 4 {
		t.Errorf("two regions ran %d times", runs)
	}
	nested := gradients(func(x *trafo.Tensor) []*trafo.Tensor {
		return must[[]*trafo.Tensor](t)(c.Checkpoint(1, func(in []*trafo.Tensor) ([]*trafo.Tensor, error) {
			return c.Checkpoint(1, region, in...)
		}, x))
	})
	for i := range plain {
		if !slices.Equal(plain[i], checkpointed[i]) || !slices.Equal(plain[i], nested[i]) {
			t.Errorf("result %d differs:\n%v\n%v\n%v", i, plain[i], checkpointed[i], nested[i])
		}
	}
}

func TestRegionsMayGiveBackWhatTheyDidNotMake(t *testing.T) {
	c := newContext(t)
	x, outside := leaf(t, c, []float32{1, 2}, 2), leaf(t, c, []float32{3, 4}, 2)
	out := must[[]*trafo.Tensor](t)(c.Checkpoint(4, func(in []*trafo.Tensor) ([]*trafo.Tensor, error) {
		twice, err := c.Scale(in[0], 2)
		return []*trafo.Tensor{in[0], outside, twice, twice}, err
	}, x))
	wantValues(t, "outputs", slices.Concat(values(t, out[0]), values(t, out[1]), values(t, out[2]), values(t, out[3])),
		[]float64{1, 2, 3, 4, 2, 4, 2, 4})
	ok(t, must[*trafo.Tensor](t)(c.Sum(must[*trafo.Tensor](t)(c.Concat(0, out...)))).Backward())
	wantValues(t, "input", grad(t, x), []float64{5, 5})
	wantValues(t, "outside", grad(t, outside), []float64{1, 1})
}

func TestErrorsOfRegionsComeBack(t *testing.T) {
	c := newContext(t)
	x, longer := leaf(t, c, []float64{1, 2}, 2), leaf(t, c, []float64{1, 2, 3}, 3)
	sorry := errors.New("sorry")
	failing := func([]*trafo.Tensor) ([]*trafo.Tensor, error) { return nil, sorry }
	_, err := c.Checkpoint(1, failing, x)
	wantError(t, err, sorry)
	_, err = c.Gradcheck(failing, nil, x)
	wantError(t, err, sorry)
	_, err = c.Checkpoint(1, func(in []*trafo.Tensor) ([]*trafo.Tensor, error) {
		y, err := c.MatMul(in[0], longer)
		return []*trafo.Tensor{y}, err
	}, x)
	wantError(t, err, trafo.ErrShapeMismatch)
	_, err = c.Checkpoint(2, func(in []*trafo.Tensor) ([]*trafo.Tensor, error) { return in, nil }, x)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = c.Checkpoint(1, func([]*trafo.Tensor) ([]*trafo.Tensor, error) { return []*trafo.Tensor{nil}, nil }, x)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = c.Checkpoint(1, nil, x)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = c.Checkpoint(-1, failing, x)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = c.Checkpoint(1<<20, failing, x)
	wantError(t, err, trafo.ErrInvalidArgument)

	// An error when the region runs again is the error of Backward.
	runs := 0
	out := must[[]*trafo.Tensor](t)(c.Checkpoint(1, func(in []*trafo.Tensor) ([]*trafo.Tensor, error) {
		if runs++; runs > 1 {
			return nil, sorry
		}
		return in, nil
	}, x))
	wantError(t, must[*trafo.Tensor](t)(c.Sum(out[0])).Backward(), sorry)
	stillWorks(t, c)
}

func TestInputsOfARegionEndWithIt(t *testing.T) {
	c := newContext(t)
	var input, made *trafo.Tensor
	must[[]*trafo.Tensor](t)(c.Checkpoint(1, func(in []*trafo.Tensor) ([]*trafo.Tensor, error) {
		input = in[0]
		ok(t, input.Close())
		return []*trafo.Tensor{tensor(t, c, []float32{1}, 1)}, nil
	}, tensor(t, c, []float32{1}, 1)))
	_, err := input.Float32s()
	wantError(t, err, trafo.ErrClosed)
	_, err = c.Checkpoint(1, func(in []*trafo.Tensor) (_ []*trafo.Tensor, err error) {
		made, err = c.Scale(in[0], 2)
		return in, err
	}, tensor(t, c, []float32{1}, 1))
	ok(t, err)
	_, err = made.Float32s()
	wantError(t, err, trafo.ErrClosed)
}

func TestPanicsOfRegionsContinue(t *testing.T) {
	c := newContext(t)
	x := leaf(t, c, []float64{1, 2}, 2)
	panicking := func([]*trafo.Tensor) ([]*trafo.Tensor, error) { panic("ouch") }
	wantPanic(t, func() { c.Checkpoint(1, panicking, x) })
	wantPanic(t, func() { c.Gradcheck(panicking, nil, x) })
	wantPanic(t, func() {
		c.Checkpoint(1, func(in []*trafo.Tensor) ([]*trafo.Tensor, error) { return c.Checkpoint(1, panicking, in...) }, x)
	})
	runs := 0
	out := must[[]*trafo.Tensor](t)(c.Checkpoint(1, func(in []*trafo.Tensor) ([]*trafo.Tensor, error) {
		if runs++; runs > 1 {
			panic("ouch")
		}
		return in, nil
	}, x))
	sum := must[*trafo.Tensor](t)(c.Sum(out[0]))
	wantPanic(t, func() { sum.Backward() })
	stillWorks(t, c)
}

func wantPanic(t testing.TB, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if value := recover(); value != "ouch" {
			t.Errorf("panicked with %v", value)
		}
	}()
	f()
}

// stillWorks checks that a context records and computes as usual.
func stillWorks(t testing.TB, c *trafo.Context) {
	t.Helper()
	x := leaf(t, c, []float32{3}, 1)
	ok(t, must[*trafo.Tensor](t)(c.Multiply(x, x)).Backward())
	wantValues(t, "gradient", grad(t, x), []float64{6})
}
