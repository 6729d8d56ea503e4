package trafo

// #include "trafo.h"
//
// enum { trafo_go_most_dims = 8 };
// typedef struct {
//   int32_t dtype, rank;
//   int64_t shape[trafo_go_most_dims];
// } trafo_go_description;
//
// static trafo_error *trafo_go_describe(const trafo_tensor *tensor, trafo_go_description *out) {
//   trafo_error *error = trafo_tensor_get_dtype(tensor, &out->dtype);
//   if (error) return error;
//   return trafo_tensor_get_shape(tensor, out->shape, trafo_go_most_dims, &out->rank);
// }
import "C"

import (
	"runtime"
	"slices"
	"unsafe"
)

// Element is a Go type that tensors are made of and read as.
type Element interface{ float32 | float64 | int32 }

// Tensor is an array on a Context. Close it, or make it in a Scope.
type Tensor struct {
	c        *Context
	ptr      *C.trafo_tensor // nil once closed; guarded by the context's core
	borrowed bool            // an input of a Region: C frees it
	cleanup  runtime.Cleanup
	dtype    DType
	shape    []int
}

// abandoned is what a cleanup needs to free an object.
type abandoned struct {
	core *core
	free func()
}

func (a abandoned) run() { a.core.abandon(a.free) }

// adopt makes a Tensor of a handle that belongs to the caller, who is in the engine.
func (c *Context) adopt(ptr *C.trafo_tensor) *Tensor {
	t := c.borrow(ptr)
	t.borrowed = false
	bytes, core := t.bytes(), c.core
	t.cleanup = runtime.AddCleanup(t, abandoned.run, abandoned{core, func() {
		core.tensors.collected(ptr, bytes)
		C.trafo_tensor_free(ptr)
	}})
	core.tensors.add(t)
	if last := len(c.scopes) - 1; last >= 0 {
		c.scopes[last] = append(c.scopes[last], t)
	}
	return t
}

func (c *Context) borrow(ptr *C.trafo_tensor) *Tensor {
	var d C.trafo_go_description
	if err := check(C.trafo_go_describe(ptr, &d)); err != nil {
		panic(err) // the handle has just come from the engine
	}
	t := &Tensor{c: c, ptr: ptr, borrowed: true, dtype: DType(d.dtype), shape: make([]int, d.rank)}
	for i := range t.shape {
		t.shape[i] = int(d.shape[i])
	}
	return t
}

// release frees the handle; the caller is in the engine.
func (t *Tensor) release() {
	if t.ptr != nil && !t.borrowed {
		C.trafo_tensor_free(t.take())
	}
	t.ptr = nil
}

// take gives the handle away; the caller is in the engine.
func (t *Tensor) take() *C.trafo_tensor {
	ptr := t.ptr
	t.cleanup.Stop()
	t.c.core.tensors.closed(ptr, t.bytes())
	t.ptr = nil
	return ptr
}

// NewTensor copies data, in row-major order, into a new tensor. No dimensions make a scalar.
func NewTensor[T Element](c *Context, data []T, shape ...int) (*Tensor, error) {
	const origin = "NewTensor"
	if err := fits(origin, len(data), shape); err != nil {
		return nil, err
	}
	return c.newTensor(origin, dtypeOf[T](), shape, unsafe.Pointer(first(data)), len(data)*sizeOf[T]())
}

// fits refuses data that a shape has not room for or does not take.
func fits(origin string, elements int, shape []int) error {
	count := 1
	for _, dim := range shape {
		if dim < 0 || (dim > 0 && count > int(^uint(0)>>1)/dim) {
			return &Error{Code: ErrShapeMismatch, Origin: origin, Message: "the shape has an impossible dimension"}
		}
		count *= dim
	}
	if count != elements {
		e := refuse(origin, "the shape %v takes %d elements, got %d", shape, count, elements).(*Error)
		e.Code = ErrShapeMismatch
		return e
	}
	return nil
}

// Zeros makes a tensor of zeros.
func (c *Context) Zeros(dtype DType, shape ...int) (*Tensor, error) {
	return c.newTensor("Context.Zeros", dtype, shape, nil, 0)
}

func (c *Context) newTensor(origin string, dtype DType, shape []int, data unsafe.Pointer, bytes int) (*Tensor, error) {
	if bytes == 0 {
		data = nil
	}
	dims := toDims(shape)
	return c.tensor(origin, func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_tensor_new(ptr, C.int32_t(dtype), first(dims), C.int32_t(len(dims)), data, C.size_t(bytes), out)
	})
}

// tensor runs a call that makes one tensor.
func (c *Context) tensor(origin string, f func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error) (*Tensor, error) {
	var result *Tensor
	err := c.call(origin, func(ptr *C.trafo_context) *C.trafo_error {
		var out *C.trafo_tensor
		if e := f(ptr, &out); e != nil {
			return e
		}
		if out != nil {
			result = c.adopt(out)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

func dtypeOf[T Element]() DType {
	switch any(*new(T)).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	}
	return Int32
}

// bytes is the memory of the elements.
func (t *Tensor) bytes() int {
	size := 4
	switch t.dtype {
	case Float64:
		size = 8
	case BFloat16:
		size = 2
	case Int8:
		size = 1
	}
	return size * t.Len()
}

func sizeOf[T Element]() int { return int(unsafe.Sizeof(*new(T))) }

func toDims(shape []int) []C.int64_t {
	dims := make([]C.int64_t, len(shape))
	for i, dim := range shape {
		dims[i] = C.int64_t(dim)
	}
	return dims
}

// Close frees the tensor; it may be called more than once.
func (t *Tensor) Close() error {
	if t == nil || t.c == nil {
		return nil
	}
	nested, err := t.c.core.enter("Tensor.Close")
	if err != nil {
		return err
	}
	defer t.c.core.leave(nested)
	t.release()
	return nil
}

// Shape gives the dimensions, outermost first.
func (t *Tensor) Shape() []int { return slices.Clone(t.shape) }

// DType gives the element type.
func (t *Tensor) DType() DType { return t.dtype }

// Len gives the number of elements.
func (t *Tensor) Len() int {
	count := 1
	for _, dim := range t.shape {
		count *= dim
	}
	return count
}

// in runs f in the engine with the open tensor.
func (t *Tensor) in(origin string, f func() *C.trafo_error) error {
	if t == nil || t.c == nil {
		return closed(origin, "the tensor")
	}
	nested, err := t.c.core.enter(origin)
	if err != nil {
		return err
	}
	defer t.c.core.leave(nested)
	if t.ptr == nil {
		return closed(origin, "the tensor")
	}
	defer runtime.KeepAlive(t)
	return t.c.core.finish(f())
}

// another runs a call that makes a tensor from t; a call that makes none gives nil.
func (t *Tensor) another(origin string, f func(out **C.trafo_tensor) *C.trafo_error) (result *Tensor, err error) {
	err = t.in(origin, func() *C.trafo_error {
		var out *C.trafo_tensor
		if e := f(&out); e != nil || out == nil {
			return e
		}
		result = t.c.adopt(out)
		return nil
	})
	return result, err
}

func read[T Element](t *Tensor, origin string) ([]T, error) {
	if t == nil || t.c == nil {
		return nil, closed(origin, "the tensor")
	}
	if t.dtype != dtypeOf[T]() {
		return nil, &Error{Code: ErrDTypeMismatch, Origin: origin,
			Message: "the tensor is of " + t.dtype.String() + "; read it as that, or Cast it first"}
	}
	data := make([]T, t.Len())
	err := t.in(origin, func() *C.trafo_error {
		return C.trafo_tensor_read(t.ptr, unsafe.Pointer(first(data)), C.size_t(len(data)*sizeOf[T]()))
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// Float32s copies the elements of a Float32 tensor, in row-major order.
func (t *Tensor) Float32s() ([]float32, error) { return read[float32](t, "Tensor.Float32s") }

// Float64s copies the elements of a Float64 tensor, in row-major order.
func (t *Tensor) Float64s() ([]float64, error) { return read[float64](t, "Tensor.Float64s") }

// Int32s copies the elements of an Int32 tensor, in row-major order.
func (t *Tensor) Int32s() ([]int32, error) { return read[int32](t, "Tensor.Int32s") }

// Item gives the one element of a tensor of any type but BFloat16.
func (t *Tensor) Item() (float64, error) {
	const origin = "Tensor.Item"
	if t != nil && t.c != nil && t.Len() != 1 {
		return 0, &Error{Code: ErrShapeMismatch, Origin: origin, Message: "the tensor has not exactly one element"}
	}
	if t != nil && t.dtype == Float64 {
		return item[float64](t, origin)
	} else if t != nil && t.dtype == Int32 {
		return item[int32](t, origin)
	}
	return item[float32](t, origin)
}

func item[T Element](t *Tensor, origin string) (float64, error) {
	data, err := read[T](t, origin)
	if err != nil {
		return 0, err
	}
	return float64(data[0]), nil
}

// Write overwrites the elements of a tensor that is no result of an op, in row-major order. A Backward
// that needs the old ones is an error afterwards.
func Write[T Element](t *Tensor, data []T) error {
	const origin = "Write"
	if t != nil && t.c != nil && t.dtype != dtypeOf[T]() {
		return &Error{Code: ErrDTypeMismatch, Origin: origin,
			Message: "the tensor is of " + t.dtype.String() + ", the data of " + dtypeOf[T]().String()}
	}
	return t.in(origin, func() *C.trafo_error {
		return C.trafo_tensor_write(t.ptr, unsafe.Pointer(first(data)), C.size_t(len(data)*sizeOf[T]()))
	})
}

// MarkWritten tells the engine that other code has written to the tensor's memory (ToDLPack). A
// Backward that needs the old elements is an error afterwards.
func (t *Tensor) MarkWritten() error {
	return t.in("Tensor.MarkWritten", func() *C.trafo_error { return C.trafo_tensor_mark_written(t.ptr) })
}

// Clone copies the values; no gradient flows through.
func (t *Tensor) Clone() (*Tensor, error) {
	return t.another("Tensor.Clone", func(out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_tensor_clone(t.ptr, out)
	})
}

// Detach is the same memory without history: no gradient flows through.
func (t *Tensor) Detach() (*Tensor, error) {
	return t.another("Tensor.Detach", func(out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_tensor_detach(t.ptr, out)
	})
}

// SetRequiresGrad marks a floating-point tensor, no result of an op, whose gradient is wanted.
func (t *Tensor) SetRequiresGrad(wanted bool) error {
	return t.in("Tensor.SetRequiresGrad", func() *C.trafo_error {
		return C.trafo_tensor_set_requires_grad(t.ptr, cBool(wanted))
	})
}

// Grad gives the gradient, nil if none has arrived since it was zeroed.
func (t *Tensor) Grad() (*Tensor, error) {
	return t.another("Tensor.Grad", func(out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_tensor_get_grad(t.ptr, out)
	})
}

// ZeroGrad forgets the gradient.
func (t *Tensor) ZeroGrad() error {
	return t.in("Tensor.ZeroGrad", func() *C.trafo_error { return C.trafo_tensor_zero_grad(t.ptr) })
}

// Backward adds the gradients of a one-element tensor to everything that it depends on and wants
// gradients, and frees all that was recorded on the context. ErrInvalidArgument names an op that needs a
// tensor whose memory was written to since the op ran.
func (t *Tensor) Backward() error { return t.backward("Tensor.Backward", nil) }

// BackwardFrom is Backward of any tensor: upstream is its gradient, of its shape.
func (t *Tensor) BackwardFrom(upstream *Tensor) error {
	if upstream == nil {
		return closed("Tensor.BackwardFrom", "upstream")
	}
	return t.backward("Tensor.BackwardFrom", upstream)
}

func (t *Tensor) backward(origin string, upstream *Tensor) error {
	if t == nil || t.c == nil {
		return closed(origin, "the tensor")
	}
	return t.c.op(origin, func(ptr *C.trafo_context) *C.trafo_error {
		return C.trafo_backward(ptr, t.ptr, upstream.handle())
	}, t, upstream)
}

// handle is the C object, NULL for an optional tensor that is not there; the caller is in the engine.
func (t *Tensor) handle() *C.trafo_tensor {
	if t == nil {
		return nil
	}
	return t.ptr
}

// op runs f in the engine after checking that its tensors, nil ones aside, are open.
func (c *Context) op(origin string, f func(ptr *C.trafo_context) *C.trafo_error, inputs ...*Tensor) error {
	defer runtime.KeepAlive(inputs)
	var unusable error
	err := c.call(origin, func(ptr *C.trafo_context) *C.trafo_error {
		for _, input := range inputs {
			if input == nil {
				continue
			}
			if input.c == nil || (input.c == c && input.ptr == nil) {
				unusable = closed(origin, "an input tensor")
				return nil
			}
			if input.c != c {
				unusable = refuse(origin, "an input tensor belongs to another context")
				return nil
			}
		}
		return f(ptr)
	})
	if unusable != nil {
		return unusable
	}
	return err
}

// op1 runs an op that makes one tensor.
func (c *Context) op1(origin string, f func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error, inputs ...*Tensor) (result *Tensor, err error) {
	err = c.op(origin, func(ptr *C.trafo_context) *C.trafo_error {
		var out *C.trafo_tensor
		if e := f(ptr, &out); e != nil {
			return e
		}
		result = c.adopt(out)
		return nil
	}, inputs...)
	return result, err
}

// op2 runs an op that makes two tensors.
func (c *Context) op2(origin string, f func(ptr *C.trafo_context, first, second **C.trafo_tensor) *C.trafo_error, inputs ...*Tensor) (a, b *Tensor, err error) {
	err = c.op(origin, func(ptr *C.trafo_context) *C.trafo_error {
		var first, second *C.trafo_tensor
		if e := f(ptr, &first, &second); e != nil {
			return e
		}
		a, b = c.adopt(first), c.adopt(second)
		return nil
	}, inputs...)
	return a, b, err
}
