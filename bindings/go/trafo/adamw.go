package trafo

// #include "trafo.h"
import "C"

import (
	"runtime"
	"slices"
)

// AdamWOptions are the constants of AdamW. Fields that are left out or zero have their defaults.
type AdamWOptions struct {
	Beta1       Optional[float64] `json:"beta1,omitzero"`        // default 0.9
	Beta2       Optional[float64] `json:"beta2,omitzero"`        // default 0.98
	Epsilon     float64           `json:"epsilon,omitzero"`      // default 1e-9
	WeightDecay float64           `json:"weight_decay,omitzero"` // default 0
	ClipNorm    float64           `json:"clip_norm,omitzero"`    // limit of the global gradient norm; default 0: off
}

// DefaultAdamWOptions gives the defaults.
func DefaultAdamWOptions() AdamWOptions {
	var o C.trafo_adamw_options
	mustInit(C.trafo_adamw_options_init(&o, C.sizeof_trafo_adamw_options))
	return AdamWOptions{Some(float64(o.beta1)), Some(float64(o.beta2)), float64(o.epsilon), float64(o.weight_decay), float64(o.clip_norm)}
}

// c gives the options with the defaults where fields are zero; o may be nil.
func (o *AdamWOptions) c() *C.trafo_adamw_options {
	c := new(C.trafo_adamw_options)
	mustInit(C.trafo_adamw_options_init(c, C.sizeof_trafo_adamw_options))
	if o == nil {
		return c
	}
	if beta, given := o.Beta1.Get(); given {
		c.beta1 = C.double(beta)
	}
	if beta, given := o.Beta2.Get(); given {
		c.beta2 = C.double(beta)
	}
	setUnlessZero(&c.epsilon, C.double(o.Epsilon))
	c.weight_decay, c.clip_norm = C.double(o.WeightDecay), C.double(o.ClipNorm)
	return c
}

// setUnlessZero overwrites a default with what a literal gives.
func setUnlessZero[T comparable](target *T, given T) {
	if given != *new(T) {
		*target = given
	}
}

// mustInit is for _init calls, which fail only if the library is not the one of this header.
func mustInit(e *C.trafo_error) {
	if err := check(e); err != nil {
		panic(err)
	}
}

// AdamW updates parameters by their gradients.
type AdamW struct {
	c       *Context
	ptr     *C.trafo_adamw
	cleanup runtime.Cleanup
}

// NewAdamW makes an optimizer of tensors that want gradients, all of one type. It keeps their memory
// alive; the tensors may be closed. options may be nil.
func (c *Context) NewAdamW(options *AdamWOptions, parameters ...*Tensor) (*AdamW, error) {
	const origin = "Context.NewAdamW"
	if slices.Contains(parameters, nil) {
		return nil, closed(origin, "a parameter")
	}
	var a *AdamW
	err := c.op(origin, func(ptr *C.trafo_context) *C.trafo_error {
		handles := handlesOf(parameters)
		var out *C.trafo_adamw
		if e := C.trafo_adamw_new(ptr, first(handles), C.size_t(len(handles)), options.c(), &out); e != nil {
			return e
		}
		a = &AdamW{c: c, ptr: out}
		a.cleanup = runtime.AddCleanup(a, abandoned.run, abandoned{c.core, func() { C.trafo_adamw_free(out) }})
		return nil
	}, parameters...)
	return a, err
}

// Step updates every parameter that has a gradient and zeroes the gradients. It gives the norm of all
// gradients before clipping; if that is not finite, nothing is changed and the error is ErrNonFinite.
func (a *AdamW) Step(learningRate float64) (gradNorm float64, err error) {
	var norm C.double
	err = a.in("AdamW.Step", func() *C.trafo_error {
		return C.trafo_adamw_step(a.ptr, C.double(learningRate), &norm)
	})
	return float64(norm), err
}

// Save writes what training resumes from to a safetensors file with checksums, which appears whole or
// not at all: the parameters, their moments and the number of updates.
func (a *AdamW) Save(path string) error {
	return a.in("AdamW.Save", func() *C.trafo_error {
		data, length := chars(path)
		return C.trafo_adamw_save(a.ptr, data, length)
	})
}

// Load reads such a file into the parameters and the optimizer: the next update has the same bits as
// without the pause. Gradients are zeroed; the options of NewAdamW stay. An error changes nothing.
func (a *AdamW) Load(path string) error {
	return a.in("AdamW.Load", func() *C.trafo_error {
		data, length := chars(path)
		return C.trafo_adamw_load(a.ptr, data, length)
	})
}

// in runs a call of an open optimizer.
func (a *AdamW) in(origin string, call func() *C.trafo_error) error {
	if a == nil || a.c == nil {
		return closed(origin, "the optimizer")
	}
	nested, err := a.c.core.enter(origin)
	if err != nil {
		return err
	}
	defer a.c.core.leave(nested)
	if a.ptr == nil {
		return closed(origin, "the optimizer")
	}
	defer runtime.KeepAlive(a)
	return a.c.core.finish(call())
}

// Close frees the optimizer; it may be called more than once.
func (a *AdamW) Close() error {
	if a == nil || a.c == nil {
		return nil
	}
	nested, err := a.c.core.enter("AdamW.Close")
	if err != nil {
		return err
	}
	defer a.c.core.leave(nested)
	if a.ptr != nil {
		a.cleanup.Stop()
		C.trafo_adamw_free(a.ptr)
		a.ptr = nil
	}
	return nil
}
