package trafo_test

import (
	"errors"
	"math"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// cubes is x^3 and 2 x on the host, times each other.
func cubes(c *trafo.Context) trafo.Region {
	values := func(tensors ...*trafo.Tensor) [][]float64 {
		all := make([][]float64, len(tensors))
		for i, tensor := range tensors {
			all[i], _ = tensor.Float64s()
		}
		return all
	}
	op := trafo.CustomOp{
		Forward: func(inputs []*trafo.Tensor) ([]*trafo.Tensor, error) {
			x := values(inputs...)[0]
			cube, twice := make([]float64, len(x)), make([]float64, len(x))
			for i := range x {
				cube[i], twice[i] = x[i]*x[i]*x[i], 2*x[i]
			}
			y, err := trafo.NewTensor(c, cube, len(x))
			if err != nil {
				return nil, err
			}
			z, err := trafo.NewTensor(c, twice, len(x))
			return []*trafo.Tensor{y, z}, err
		},
		Backward: func(inputs, outputs, gradients []*trafo.Tensor) ([]*trafo.Tensor, error) {
			x, d := values(inputs...)[0], values(gradients...)
			if len(outputs) != 2 {
				return nil, errors.New("not both outputs")
			}
			dx := make([]float64, len(x))
			for i := range x {
				dx[i] = 3*x[i]*x[i]*d[0][i] + 2*d[1][i]
			}
			gradient, err := trafo.NewTensor(c, dx, len(x))
			return []*trafo.Tensor{gradient}, err
		},
	}
	return func(inputs []*trafo.Tensor) ([]*trafo.Tensor, error) {
		both, err := c.Custom(2, op, inputs...)
		if err != nil {
			return nil, err
		}
		product, err := c.Multiply(both[0], both[1])
		return []*trafo.Tensor{product}, err
	}
}

func TestCustomOps(t *testing.T) {
	c := newContext(t)
	x := leaf(t, c, []float64{0.5, -1.25, 2}, 3)
	result, err := c.Gradcheck(cubes(c), &trafo.GradcheckOptions{Eps: 1e-5}, x)
	ok(t, err)
	if result.Checked != 3 {
		t.Errorf("%+v", result)
	}
	for _, checkpointed := range []bool{false, true} {
		var product []*trafo.Tensor
		if checkpointed {
			product, err = c.Checkpoint(1, cubes(c), x)
		} else {
			product, err = cubes(c)([]*trafo.Tensor{x})
		}
		ok(t, err)
		sum := must[*trafo.Tensor](t)(c.Sum(product[0]))
		ok(t, sum.Backward())
		gradient := must[*trafo.Tensor](t)(x.Grad())
		for i, g := range must[[]float64](t)(gradient.Float64s()) {
			at := []float64{0.5, -1.25, 2}[i]
			if math.Abs(g-8*at*at*at) > 1e-12 {
				t.Errorf("gradient %d is %v", i, g)
			}
		}
		ok(t, x.ZeroGrad())
	}

	why := errors.New("no gradient today")
	forward := func(in []*trafo.Tensor) ([]*trafo.Tensor, error) {
		y, err := c.Exp(in[0])
		return []*trafo.Tensor{y}, err
	}
	fails := func(_ []*trafo.Tensor) ([]*trafo.Tensor, error) { return nil, why }
	nothing := func(_, _, _ []*trafo.Tensor) ([]*trafo.Tensor, error) { return []*trafo.Tensor{nil}, nil }
	if _, err := c.Custom(1, trafo.CustomOp{Forward: fails, Backward: nothing}, x); !errors.Is(err, why) {
		t.Errorf("forward's error: %v", err)
	}
	if _, err := c.Custom(1, trafo.CustomOp{Forward: forward}, x); !errors.Is(err, trafo.ErrInvalidArgument) {
		t.Errorf("without backward: %v", err)
	}
	for _, wrong := range []struct {
		backward func(_, _, _ []*trafo.Tensor) ([]*trafo.Tensor, error)
		want     error
	}{
		{func(_, _, _ []*trafo.Tensor) ([]*trafo.Tensor, error) { return nil, why }, why},
		{func(_, _, _ []*trafo.Tensor) ([]*trafo.Tensor, error) { return nil, nil }, trafo.ErrInvalidArgument},
		{func(_, _, g []*trafo.Tensor) ([]*trafo.Tensor, error) {
			sum, err := c.Sum(g[0])
			return []*trafo.Tensor{sum}, err
		}, trafo.ErrShapeMismatch},
		{nothing, nil},
	} {
		y := must[[]*trafo.Tensor](t)(c.Custom(1, trafo.CustomOp{Forward: forward, Backward: wrong.backward}, x))
		sum := must[*trafo.Tensor](t)(c.Sum(y[0]))
		if err := sum.Backward(); !errors.Is(err, wrong.want) {
			t.Errorf("%v, not %v", err, wrong.want)
		}
		ok(t, x.ZeroGrad())
	}
}

func TestParameters(t *testing.T) {
	c := newContext(t)
	file := filepath.Join(t.TempDir(), "network.safetensors")
	network := c.NewParameters()
	ok(t, network.Add("w", leaf(t, c, []float64{1, 2}, 2)))
	ok(t, network.Add("b", leaf(t, c, []float64{3}, 1)))
	wantError(t, network.Add("b", leaf(t, c, []float64{3}, 1)), trafo.ErrInvalidArgument)
	wantError(t, network.Add("c", leaf(t, newContext(t), []float64{3}, 1)), trafo.ErrInvalidArgument)
	ok(t, network.Save(file))
	if names := must[[]string](t)(trafo.TensorNames(file)); !slices.Equal(names, []string{"b", "w"}) {
		t.Errorf("names %q", names)
	}
	copied := c.NewParameters()
	ok(t, copied.Add("w", leaf(t, c, []float64{0, 0}, 2)))
	ok(t, copied.Add("scale", leaf(t, c, []float64{7}, 1)))
	loaded, err := copied.Load(file)
	ok(t, err)
	if want := (trafo.Loaded{Missing: []string{"scale"}, Unexpected: []string{"b"}}); !reflect.DeepEqual(loaded, want) {
		t.Errorf("%+v", loaded)
	}
	if w := must[[]float64](t)(copied.Get("w").Float64s()); !slices.Equal(w, []float64{1, 2}) {
		t.Errorf("w is %v", w)
	}
	wrong := c.NewParameters()
	ok(t, wrong.Add("b", leaf(t, c, []float64{0}, 1)))
	ok(t, wrong.Add("w", leaf(t, c, []float64{0, 0, 0}, 3)))
	_, err = wrong.Load(file)
	wantError(t, err, trafo.ErrShapeMismatch)
	if b := must[[]float64](t)(wrong.Tensors()[0].Float64s()); b[0] != 0 {
		t.Errorf("b is %v", b)
	}
	for _, each := range []*trafo.Parameters{network, copied, wrong} {
		each.Close()
	}
	_, err = trafo.TensorNames(file + ".none")
	wantError(t, err, trafo.ErrNotFound)
}

func TestScheduledRate(t *testing.T) {
	options := trafo.DefaultTrainerOptions()
	options.Schedule, options.LearningRate, options.Warmup, options.ScheduleUpdates = trafo.ScheduleLinear, 0.5, trafo.Some(10), 50
	if rate := must[float64](t)(options.ScheduledRate(1, 30)); math.Abs(rate-0.25) > 1e-12 {
		t.Errorf("rate %v", rate)
	}
	_, err := options.ScheduledRate(1, 0)
	wantError(t, err, trafo.ErrInvalidArgument)
}

func TestIntegersAndBFloat16(t *testing.T) {
	c := newContext(t)
	labels := must[*trafo.Tensor](t)(trafo.NewIntegers(c, []int64{3, -100, math.MaxInt32}, 3))
	if values := must[[]int64](t)(trafo.Integers[int64](labels)); !slices.Equal(values, []int64{3, -100, math.MaxInt32}) {
		t.Errorf("labels %v", values)
	}
	mask := must[*trafo.Tensor](t)(trafo.NewIntegers(c, []uint8{1, 0, 255}, 3))
	if values := must[[]uint8](t)(trafo.Integers[uint8](mask)); !slices.Equal(values, []uint8{1, 0, 255}) {
		t.Errorf("mask %v", values)
	}
	for _, wide := range [][]uint64{{1, math.MaxInt32 + 1}, {1, math.MaxUint64}} {
		_, err := trafo.NewIntegers(c, wide, 2)
		wantError(t, err, trafo.ErrInvalidArgument)
	}
	_, err := trafo.Integers[uint8](labels)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = trafo.Integers[uint64](labels)
	wantError(t, err, trafo.ErrInvalidArgument)
	halves := must[*trafo.Tensor](t)(trafo.NewBFloat16(c, []uint16{0x3f80, 0xc040}, 2))
	if bits := must[[]uint16](t)(halves.BFloat16Bits()); !slices.Equal(bits, []uint16{0x3f80, 0xc040}) {
		t.Errorf("bits %x", bits)
	}
	single := must[*trafo.Tensor](t)(c.Cast(halves, trafo.Float32))
	if values := must[[]float32](t)(single.Float32s()); !slices.Equal(values, []float32{1, -3}) {
		t.Errorf("values %v", values)
	}
	_, err = labels.BFloat16Bits()
	wantError(t, err, trafo.ErrDTypeMismatch)
	_, err = trafo.NewBFloat16(c, []uint16{1}, 2)
	wantError(t, err, trafo.ErrShapeMismatch)
}

// A recorded op does not keep its context: both go when the program has forgotten them.
func TestAForgottenContextGoesWithItsRecordedOps(t *testing.T) {
	var held weak.Pointer[[1 << 10]byte]
	var context weak.Pointer[trafo.Context]
	func() {
		c := must[*trafo.Context](t)(trafo.NewContext(trafo.WithThreads(1)))
		captured := new([1 << 10]byte)
		held, context = weak.Make(captured), weak.Make(c)
		x := must[*trafo.Tensor](t)(trafo.NewTensor(c, []float64{1, 2}, 2))
		ok(t, x.SetRequiresGrad(true))
		must[[]*trafo.Tensor](t)(c.Custom(1, trafo.CustomOp{
			Forward: func(inputs []*trafo.Tensor) ([]*trafo.Tensor, error) {
				captured[0]++
				return inputs, nil
			},
			Backward: func(inputs, outputs, gradients []*trafo.Tensor) ([]*trafo.Tensor, error) { return gradients, nil },
		}, x))
		must[[]*trafo.Tensor](t)(c.Checkpoint(1, func(inputs []*trafo.Tensor) ([]*trafo.Tensor, error) {
			captured[1]++
			return inputs, nil
		}, x))
		if captured[0] != 1 || captured[1] != 1 {
			t.Errorf("%v: the functions have not run", captured[:2])
		}
	}()
	for end := time.Now().Add(20 * time.Second); (context.Value() != nil || held.Value() != nil) && time.Now().Before(end); {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	if context.Value() != nil || held.Value() != nil {
		t.Errorf("the context lives: %v; its ops: %v", context.Value() != nil, held.Value() != nil)
	}
}
