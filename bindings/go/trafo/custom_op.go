package trafo

// #include <stdint.h>
// #include "trafo.h"
//
// // Exported from callbacks.go; cgo knows no const.
// extern int32_t trafoGoCustom(uintptr_t, int32_t, trafo_tensor **, size_t, trafo_tensor **, size_t);
// extern void trafoGoFree(uintptr_t);
//
// static int32_t trafo_go_custom_forward(void *user_data, trafo_context *context, const trafo_tensor *const *inputs,
//                                        size_t input_count, trafo_tensor **outputs, size_t output_count) {
//   (void)context;
//   return trafoGoCustom((uintptr_t)user_data, 0, (trafo_tensor **)inputs, input_count, outputs, output_count);
// }
// static int32_t trafo_go_custom_backward(void *user_data, trafo_context *context, const trafo_tensor *const *inputs,
//                                         size_t input_count, trafo_tensor **outputs, size_t output_count) {
//   (void)context;
//   return trafoGoCustom((uintptr_t)user_data, 1, (trafo_tensor **)inputs, input_count, outputs, output_count);
// }
// static void trafo_go_custom_free(void *user_data) { trafoGoFree((uintptr_t)user_data); }
//
// static trafo_error *trafo_go_custom_op(trafo_context *context, uintptr_t op, trafo_tensor **inputs, size_t input_count,
//                                        trafo_tensor **outputs, size_t output_count) {
//   return trafo_custom_op(context, trafo_go_custom_forward, trafo_go_custom_backward, (void *)op, trafo_go_custom_free,
//                          (const trafo_tensor *const *)inputs, input_count, outputs, output_count);
// }
import "C"

import (
	"runtime/cgo"
	"slices"
	"weak"
)

// CustomOp is an op of the program, with its gradient. Both functions are called as a [Region] is.
type CustomOp struct {
	// Forward makes new floating-point tensors of its inputs. It is not recorded.
	Forward Region
	// Backward runs in Tensor.Backward. It gets the inputs, the outputs and a gradient of each output (zeros where
	// nothing used it), and gives a gradient of each input, of the input's shape, or nil where there is none.
	Backward func(inputs, outputs, gradients []*Tensor) ([]*Tensor, error)
}

// customBody is a CustomOp on its way through C.
type customBody struct {
	forward, backward regionBody
}

// Custom runs an op of the program, which gives this many outputs. No gradient flows to tensors that it captures. It
// may be used in regions.
func (c *Context) Custom(outputs int, op CustomOp, inputs ...*Tensor) ([]*Tensor, error) {
	const origin = "Context.Custom"
	if outputs < 0 || op.Forward == nil || op.Backward == nil || slices.Contains(inputs, nil) {
		return nil, refuse(origin, "both functions, the inputs and the number of outputs must be given")
	}
	count := len(inputs)
	backward := func(given []*Tensor) ([]*Tensor, error) {
		results := count + outputs
		return op.Backward(given[:count:count], given[count:results:results], given[results:len(given):len(given)])
	}
	var results []*Tensor
	err := c.op(origin, func(ptr *C.trafo_context) *C.trafo_error {
		handles, made := handlesOf(inputs), make([]*C.trafo_tensor, outputs)
		// C deletes it by trafoGoFree, also if the call fails.
		body := cgo.NewHandle(&customBody{regionBody{c: weak.Make(c), region: op.Forward}, regionBody{c: weak.Make(c), region: backward, optional: true}})
		e := C.trafo_go_custom_op(ptr, C.uintptr_t(body), first(handles), C.size_t(count), first(made), C.size_t(outputs))
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
