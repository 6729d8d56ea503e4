package trafo_test

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

func TestErrorsSayWhatIsWrong(t *testing.T) {
	c := newContext(t)
	_, err := c.MatMul(tensor(t, c, make([]float32, 6), 2, 3), tensor(t, c, make([]float32, 4), 2, 2))
	wantError(t, err, trafo.ErrShapeMismatch)
	if errors.Is(err, trafo.ErrDTypeMismatch) || errors.Is(err, trafo.ErrClosed) {
		t.Error("an error is two things at once")
	}
	var e *trafo.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T is no *Error", err)
	}
	if e.Code != trafo.ErrShapeMismatch || e.Origin != "matmul" || !strings.Contains(e.Message, "[2, 3]") ||
		!strings.Contains(e.Error(), "SHAPE_MISMATCH in matmul") {
		t.Errorf("%+v", e)
	}
	_, err = c.Add(tensor(t, c, []float32{1}, 1), tensor(t, c, []float64{1}, 1))
	wantError(t, err, trafo.ErrDTypeMismatch)
	_, err = trafo.NewContext(trafo.WithThreads(1000))
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = trafo.NewContext(trafo.WithDevice(trafo.Device(9), 0))
	wantError(t, err)
	_, err = c.Add(nil, tensor(t, c, []float32{1}, 1))
	wantError(t, err, trafo.ErrInvalidArgument)
	other := newContext(t)
	_, err = c.Sum(tensor(t, other, []float32{1}, 1))
	wantError(t, err, trafo.ErrInvalidArgument)
	if trafo.Code(99).Error() == "" || trafo.ErrIO.Error() != "IO" || trafo.Version() == "" {
		t.Error("names")
	}
}

func TestClosedObjectsGiveErrors(t *testing.T) {
	l := newLesson(t)
	c := l.context
	x := leaf(t, c, []float32{1}, 1)
	y := must[*trafo.Tensor](t)(c.Scale(x, 2))
	trainer := l.trainer(t)
	for range 2 {
		ok(t, x.Close())
		ok(t, l.model.Close())
		ok(t, trainer.Close())
		ok(t, l.tokenizer.Close())
		ok(t, l.train.Close())
	}
	calls := map[string]func() error{
		"read":       func() error { _, err := x.Float32s(); return err },
		"op":         func() error { _, err := c.Add(y, x); return err },
		"clone":      func() error { _, err := x.Clone(); return err },
		"grad":       func() error { _, err := x.Grad(); return err },
		"backward":   func() error { return x.Backward() },
		"write":      func() error { return trafo.Write(x, []float32{1}) },
		"checkpoint": func() error { _, err := c.Checkpoint(1, nil, x); return orClosed(err) },
		"adamw":      func() error { _, err := c.NewAdamW(nil, x); return err },
		"save":       func() error { return l.model.Save("unused") },
		"config":     func() error { _, err := l.model.Config(); return err },
		"parameters": func() error { _, err := l.model.Parameters(); return err },
		"translate":  func() error { _, err := l.model.Translate(t.Context(), l.tokenizer, nil, nil); return err },
		"score":      func() error { _, err := l.model.Score(t.Context(), l.tokenizer, nil, nil); return err },
		"new run":    func() error { _, err := l.model.NewTrainer(t.Context(), l.tokenizer, l.train, nil, nil); return err },
		"run":        func() error { _, err := trainer.Run(t.Context(), 1, nil); return err },
		"step":       func() error { _, err := trainer.Step(t.Context()); return err },
		"encode":     func() error { _, err := l.tokenizer.Encode("a"); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, trafo.ErrClosed) || !errors.Is(err, trafo.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}

	ok(t, c.Close())
	ok(t, c.Close())
	_, err := c.Scale(y, 2)
	wantError(t, err, trafo.ErrClosed)
	_, err = trafo.NewTensor(c, []float32{1}, 1)
	wantError(t, err, trafo.ErrClosed)
	_, err = c.NewModel(trafo.ModelConfig{}, 1)
	wantError(t, err, trafo.ErrClosed)
	wantError(t, c.NoGrad(func() error { return nil }), trafo.ErrClosed)
	wantError(t, c.SetThreads(1), trafo.ErrClosed)
	_, err = y.Float32s()
	wantError(t, err, trafo.ErrClosed)
}

// orClosed lets a nil region pass: the call is refused for that before it looks at its inputs.
func orClosed(err error) error {
	return errors.Join(err, trafo.ErrClosed)
}

func TestObjectsThatWereNeverMadeGiveErrors(t *testing.T) {
	var none *trafo.Tensor
	_, err := none.Float32s()
	wantError(t, err, trafo.ErrClosed)
	_, err = none.Item()
	wantError(t, err, trafo.ErrClosed)
	wantError(t, trafo.Write(none, []float32{1}), trafo.ErrClosed)
	wantError(t, none.Backward(), trafo.ErrClosed)
	ok(t, none.Close())
	_, err = new(trafo.Tensor).Float32s()
	wantError(t, err, trafo.ErrClosed)
	var context *trafo.Context
	_, err = trafo.NewTensor(context, []float32{1}, 1)
	wantError(t, err, trafo.ErrClosed)
	_, err = context.Add(none, none)
	wantError(t, err, trafo.ErrClosed)
	wantError(t, context.Scope(func() error { return nil }), trafo.ErrClosed)
	ok(t, context.Close())
	_, err = newContext(t).Sum(new(trafo.Tensor))
	wantError(t, err, trafo.ErrClosed)
	var trainer *trafo.Trainer
	_, err = trainer.Run(t.Context(), 1, nil)
	wantError(t, err, trafo.ErrClosed)
	ok(t, trainer.Close())
	var model *trafo.Model
	_, err = model.Translate(t.Context(), nil, nil, nil)
	wantError(t, err, trafo.ErrClosed)
	ok(t, model.Close())
	ok(t, new(trafo.Tokenizer).Close())
	ok(t, new(trafo.Corpus).Close())
	ok(t, new(trafo.AdamW).Close())
	var list *trafo.Shortlist
	wantError(t, list.Save("nowhere"), trafo.ErrClosed)
	ok(t, list.Close())
	ok(t, new(trafo.Shortlist).Close())
}

func TestScopesCloseWhatIsMadeInThem(t *testing.T) {
	c := newContext(t)
	var kept, inner, outer *trafo.Tensor
	sorry := errors.New("sorry")
	err := c.Scope(func() error {
		outer = tensor(t, c, []float32{1}, 1)
		ok(t, c.Scope(func() error {
			inner, kept = tensor(t, c, []float32{2}, 1), tensor(t, c, []float32{3}, 1)
			c.Keep(kept)
			return nil
		}))
		_, err := inner.Item()
		wantError(t, err, trafo.ErrClosed)
		must[float64](t)(outer.Item())
		return sorry
	})
	if err != sorry {
		t.Error(err)
	}
	_, err = outer.Item()
	wantError(t, err, trafo.ErrClosed)
	must[float64](t)(kept.Item())
	var lost *trafo.Tensor
	wantPanic(t, func() {
		c.Scope(func() error {
			lost = tensor(t, c, []float32{1}, 1)
			panic("ouch")
		})
	})
	_, err = lost.Item()
	wantError(t, err, trafo.ErrClosed)
}

func TestMemoryOfForgottenObjectsComesBack(t *testing.T) {
	c := newContext(t)
	// A context keeps the constants of its first backward.
	ok(t, c.Scope(func() error { stillWorks(t, c); return nil }))
	before := must[trafo.MemoryStats](t)(c.MemoryStats()).Allocated
	for range 20 {
		x := must[*trafo.Tensor](t)(trafo.NewTensor(c, make([]float32, 1<<14), 1<<14))
		ok(t, x.SetRequiresGrad(true))
		// Its closure is kept by C until the graph is gone.
		must[[]*trafo.Tensor](t)(c.Checkpoint(1, func(in []*trafo.Tensor) ([]*trafo.Tensor, error) { return in, nil }, x))
	}
	// Recorded ops are kept until a backward.
	ok(t, c.Scope(func() error { stillWorks(t, c); return nil }))
	stats := must[trafo.MemoryStats](t)(c.MemoryStats())
	if stats.Peak < 20*4<<14 || stats.Reserved < stats.Allocated {
		t.Errorf("%+v", stats)
	}
	for range 200 {
		if must[trafo.MemoryStats](t)(c.MemoryStats()).Allocated == before {
			ok(t, c.TrimMemory())
			return
		}
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%+v, %d bytes before", must[trafo.MemoryStats](t)(c.MemoryStats()), before)
}

func TestGoroutinesShareAContext(t *testing.T) {
	c := newContext(t)
	w := leaf(t, c, ramp(64), 8, 8)
	var group sync.WaitGroup
	for worker := range 4 {
		spawn(&group, func() {
			for i := range 50 {
				x, err := trafo.NewTensor(c, []float64{float64(worker), float64(i)}, 2)
				if err != nil {
					t.Error(err)
					return
				}
				y, err := c.Add(x, x)
				if err == nil && i%10 == 0 {
					_, err = c.Checkpoint(1, func(in []*trafo.Tensor) ([]*trafo.Tensor, error) {
						z, err := c.MatMul(w, in[0])
						return []*trafo.Tensor{z}, err
					}, w)
				}
				if err != nil {
					t.Error(err)
					return
				}
				got, err := y.Float64s()
				if err != nil || got[0] != 2*float64(worker) || got[1] != 2*float64(i) {
					t.Error(got, err)
				}
				if i%2 == 0 {
					y.Close()
				}
				if i%25 == 0 {
					runtime.GC()
				}
			}
		})
	}
	group.Wait()
	ok(t, c.SetThreads(2))
	stillWorks(t, c)
}

func TestBackgroundShare(t *testing.T) {
	c := newContext(t, trafo.WithBackgroundShare(0.25))
	stillWorks(t, c)
	ok(t, c.SetBackgroundShare(1))
	stillWorks(t, c)
	wantError(t, c.SetBackgroundShare(0), trafo.ErrInvalidArgument)
	_, err := trafo.NewContext(trafo.WithBackgroundShare(1.5))
	wantError(t, err, trafo.ErrInvalidArgument)
}

func TestMemoryDirectory(t *testing.T) {
	stillWorks(t, newContext(t, trafo.WithMemoryDirectory(t.TempDir())))
	_, err := trafo.NewContext(trafo.WithMemoryDirectory("nowhere"))
	wantError(t, err, trafo.ErrNotFound)
}

func TestMatmulPrecision(t *testing.T) {
	for _, wrong := range []trafo.DType{trafo.Float64, trafo.Int32, 77} {
		_, err := trafo.NewContext(trafo.WithMatmulPrecision(wrong))
		wantError(t, err, trafo.ErrInvalidArgument)
	}
	c, err := trafo.NewContext(trafo.WithMatmulPrecision(trafo.BFloat16))
	if err != nil { // a processor without AVX512-BF16
		wantError(t, err, trafo.ErrUnsupported)
		return
	}
	defer c.Close()
	// 1 + 2^-9 is 1 in bfloat16, and 30 rows are not few.
	data := make([]float32, 30*4)
	for i := range data {
		data[i] = 1 + 1.0/512
	}
	x := tensor(t, c, data, 30, 4)
	y := must[*trafo.Tensor](t)(c.Linear(x, x, nil))
	for _, value := range values(t, y) {
		if value != 4 {
			t.Fatal(value)
		}
	}
}

func TestReferenceOpsAgree(t *testing.T) {
	for _, fused := range []bool{true, false} {
		c := newContext(t, trafo.WithFusedKernels(fused), trafo.WithDevice(trafo.CPU, 0))
		x := tensor(t, c, []float64{1, 3}, 1, 2)
		gain := tensor(t, c, []float64{1, 1}, 2)
		y := must[*trafo.Tensor](t)(c.LayerNorm(x, gain, gain, 1e-9))
		wantValues(t, "layer norm", values(t, y), []float64{0, 2})
	}
}

func TestContextsOnCUDA(t *testing.T) {
	c, err := trafo.NewContext(trafo.WithDevice(trafo.CUDA, 0))
	if err == nil {
		defer c.Close()
		stillWorks(t, c)
		return
	}
	var e *trafo.Error
	if !errors.As(err, &e) || !strings.Contains(strings.ToUpper(e.Message), "CUDA") {
		t.Errorf("%v does not say what is missing", err)
	}
}

func TestDevices(t *testing.T) {
	type choice struct {
		device trafo.Device
		index  int
	}
	for text, want := range map[string]choice{
		"auto": {trafo.Auto, 0}, "cpu": {trafo.CPU, 0}, "cuda": {trafo.CUDA, 0}, "cuda:12": {trafo.CUDA, 12},
	} {
		device, index, err := trafo.ParseDevice(text)
		ok(t, err)
		if (choice{device, index}) != want || !strings.HasPrefix(text, device.String()) {
			t.Errorf("%s: %v %d", text, device, index)
		}
	}
	for _, text := range []string{"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:9999999999"} {
		_, _, err := trafo.ParseDevice(text)
		wantError(t, err, trafo.ErrInvalidArgument)
	}
	if info := must[trafo.DeviceInfo](t)(trafo.CPU.Info(0)); info.Name != "CPU" || info.MemoryBytes <= 0 {
		t.Errorf("%+v", info)
	}
	_, err := trafo.Auto.Info(0)
	wantError(t, err, trafo.ErrInvalidArgument)
	_, err = trafo.NewContext(trafo.WithDevice(trafo.Auto, 1))
	wantError(t, err, trafo.ErrInvalidArgument)

	device, index, err := newContext(t, trafo.WithDevice(trafo.Auto, 0)).Device()
	ok(t, err)
	want := trafo.CUDA
	if devices, err := trafo.CUDADevices(); err != nil {
		wantError(t, err, trafo.ErrUnsupported)
		_, err = trafo.CUDA.Info(0)
		wantError(t, err, trafo.ErrUnsupported)
		want = trafo.CPU
	} else if len(devices) == 0 || devices[0].MemoryBytes <= 0 || devices[0].ComputeMajor < 1 {
		t.Errorf("%+v", devices)
	}
	if device != want || index != 0 {
		t.Error(device, index)
	}
	_, _, err = new(trafo.Context).Device()
	wantError(t, err, trafo.ErrClosed)
}
