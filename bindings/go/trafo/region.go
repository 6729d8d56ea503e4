package trafo

// #include <stdint.h>
// #include "trafo.h"
//
// // Exported from callbacks.go; cgo knows no const.
// extern int32_t trafoGoRegion(uintptr_t, trafo_tensor **, size_t, trafo_tensor **, size_t);
// extern void trafoGoFree(uintptr_t);
//
// static int32_t trafo_go_region(void *user_data, trafo_context *context, const trafo_tensor *const *inputs,
//                                size_t input_count, trafo_tensor **outputs, size_t output_count) {
//   (void)context;
//   return trafoGoRegion((uintptr_t)user_data, (trafo_tensor **)inputs, input_count, outputs, output_count);
// }
// static void trafo_go_free(void *user_data) { trafoGoFree((uintptr_t)user_data); }
//
// static trafo_error *trafo_go_checkpoint(trafo_context *context, uintptr_t region, trafo_tensor **inputs,
//                                         size_t input_count, trafo_tensor **outputs, size_t output_count) {
//   return trafo_checkpoint(context, trafo_go_region, (void *)region, trafo_go_free,
//                           (const trafo_tensor *const *)inputs, input_count, outputs, output_count);
// }
// static trafo_error *trafo_go_gradcheck(trafo_context *context, uintptr_t region, trafo_tensor **inputs,
//                                        size_t input_count, size_t output_count, double eps, double atol,
//                                        double rtol, trafo_gradcheck_result *out, char **message) {
//   return trafo_gradcheck(context, trafo_go_region, (void *)region, (const trafo_tensor *const *)inputs,
//                          input_count, output_count, eps, atol, rtol, out, message);
// }
import "C"

import (
	"errors"
	"runtime/cgo"
	"slices"
	"weak"
)

// Region is a function of tensors. Its inputs are valid while it runs; what it makes and does not
// return is closed when it ends. It may capture other tensors and use the context. A panic in it is
// the panic of the call that ran it; it must not call runtime.Goexit (testing.T.FailNow does).
//
// Values that it captures live until Backward has run or the recorded ops are dropped. If it captures the Context or a
// tensor and no Backward runs, only Context.Close frees them.
type Region func(inputs []*Tensor) ([]*Tensor, error)

// regionBody is a Region on its way through C.
type regionBody struct {
	c        weak.Pointer[Context] // the tape of the context may hold the body
	region   Region
	optional bool // a result may be nil
}

func (b *regionBody) run(inputs, outputs []*C.trafo_tensor) C.int32_t {
	c := b.c.Value() // alive: a call on it or on one of its tensors has led here
	return c.core.runCallback(func() error {
		borrowed := make([]*Tensor, len(inputs))
		for i, input := range inputs {
			borrowed[i] = c.borrow(input)
		}
		defer func() {
			for _, tensor := range borrowed {
				tensor.release()
			}
		}()
		if err := c.openScope(); err != nil {
			return err
		}
		defer c.closeScope()
		results, err := b.region(borrowed)
		if err != nil {
			return err
		}
		if len(results) != len(outputs) {
			return refuse("Region", "it returned %d tensors, not the %d asked for", len(results), len(outputs))
		}
		return c.handOver(results, outputs, b.optional)
	})
}

// handOver moves the results of a region to C: what the region made itself, as it is; an input or a
// tensor from outside, as a view, for its handle stays where it is. optional: of a nil result, nothing.
func (c *Context) handOver(results []*Tensor, outputs []*C.trafo_tensor, optional bool) (err error) {
	views := make([]*Tensor, len(results))
	for i, result := range results {
		if result == nil {
			if optional {
				continue
			}
			return refuse("Region", "result %d is nil", i)
		}
		views[i] = result
		if slices.Contains(results[:i], result) || !slices.Contains(c.scopes[len(c.scopes)-1], result) {
			if views[i], err = c.Reshape(result, result.shape...); err != nil {
				return err
			}
		}
		if views[i].ptr == nil {
			return closed("Region", "a result")
		}
	}
	for i, view := range views {
		if view != nil {
			outputs[i] = view.take()
		}
	}
	return nil
}

// Checkpoint runs a region, which gives this many outputs, without keeping what it computes in
// between, and runs it again in Backward, with the same bits.
func (c *Context) Checkpoint(outputs int, region Region, inputs ...*Tensor) ([]*Tensor, error) {
	const origin = "Context.Checkpoint"
	if outputs < 0 || region == nil || slices.Contains(inputs, nil) {
		return nil, refuse(origin, "the region, its inputs and the number of outputs must be given")
	}
	var results []*Tensor
	err := c.op(origin, func(ptr *C.trafo_context) *C.trafo_error {
		handles, made := handlesOf(inputs), make([]*C.trafo_tensor, outputs)
		// C deletes it by trafoGoFree, also if the call fails.
		body := cgo.NewHandle(&regionBody{c: weak.Make(c), region: region})
		e := C.trafo_go_checkpoint(ptr, C.uintptr_t(body), first(handles), C.size_t(len(handles)), first(made), C.size_t(outputs))
		if e != nil {
			return e
		}
		for _, output := range made {
			results = append(results, c.adopt(output))
		}
		return nil
	}, inputs...)
	return results, err
}

// GradcheckOptions are the step and the tolerances of Gradcheck; zero values are replaced by the
// defaults.
type GradcheckOptions struct {
	Outputs int     // of the region; default 1
	Eps     float64 // step of the central difference; default 1e-6
	// |analytic - numeric| <= ATol + RTol |numeric|; default 1e-5 and 1e-3.
	ATol, RTol Optional[float64]
}

// GradcheckResult is what Gradcheck measured.
type GradcheckResult struct {
	OK         bool
	Checked    int64   // derivatives compared
	WorstError float64 // largest |analytic - numeric| - RTol |numeric|
	Message    string  // the first failure
}

// ErrGradcheck is in the chain of Gradcheck's error when gradients differ.
var ErrGradcheck = errors.New("trafo: analytic and numeric gradients differ")

// Gradcheck compares the gradients of a region with central differences for every element of every
// Float64 input. Gradients that differ are an error as well, with ErrGradcheck in its chain. options
// may be nil.
func (c *Context) Gradcheck(region Region, options *GradcheckOptions, inputs ...*Tensor) (GradcheckResult, error) {
	const origin = "Context.Gradcheck"
	var o GradcheckOptions
	if options != nil {
		o = *options
	}
	setDefault(&o.Outputs, 1)
	setDefault(&o.Eps, 1e-6)
	if o.Outputs < 0 || region == nil || slices.Contains(inputs, nil) {
		return GradcheckResult{}, refuse(origin, "the region, its inputs and the number of outputs must be given")
	}
	var out C.trafo_gradcheck_result
	var message string
	err := c.op(origin, func(ptr *C.trafo_context) *C.trafo_error {
		handles := handlesOf(inputs)
		body := cgo.NewHandle(&regionBody{c: weak.Make(c), region: region})
		defer body.Delete()
		var text *C.char
		e := C.trafo_go_gradcheck(ptr, C.uintptr_t(body), first(handles), C.size_t(len(handles)), C.size_t(o.Outputs),
			C.double(o.Eps), C.double(o.ATol.Or(1e-5)), C.double(o.RTol.Or(1e-3)), &out, &text)
		message = takeCString(text)
		return e
	}, inputs...)
	result := GradcheckResult{out.ok != 0, int64(out.checked), float64(out.worst_error), message}
	if err == nil && !result.OK {
		err = &Error{Code: ErrInvalidArgument, Origin: origin, Message: message, causes: []error{ErrGradcheck}}
	}
	return result, err
}

func setDefault[T comparable](value *T, fallback T) {
	if *value == *new(T) {
		*value = fallback
	}
}
