package trafo

// #include "trafo.h"
import "C"

// Ops take tensors of their context, floating-point ones of one type, and give new tensors. A nil
// tensor is allowed only where a comment says so.

// Add is a + b with NumPy broadcasting.
func (c *Context) Add(a, b *Tensor) (*Tensor, error) {
	return c.op1("Context.Add", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_add(ptr, a.handle(), b.handle(), out)
	}, a, b)
}

// Subtract is a - b with NumPy broadcasting.
func (c *Context) Subtract(a, b *Tensor) (*Tensor, error) {
	return c.op1("Context.Subtract", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_subtract(ptr, a.handle(), b.handle(), out)
	}, a, b)
}

// Multiply is a * b, element by element, with NumPy broadcasting.
func (c *Context) Multiply(a, b *Tensor) (*Tensor, error) {
	return c.op1("Context.Multiply", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_multiply(ptr, a.handle(), b.handle(), out)
	}, a, b)
}

// Divide is a / b with NumPy broadcasting.
func (c *Context) Divide(a, b *Tensor) (*Tensor, error) {
	return c.op1("Context.Divide", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_divide(ptr, a.handle(), b.handle(), out)
	}, a, b)
}

// Scale is factor * x.
func (c *Context) Scale(x *Tensor, factor float64) (*Tensor, error) {
	return c.op1("Context.Scale", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_scale(ptr, x.handle(), C.double(factor), out)
	}, x)
}

// Exp is the exponential of every element.
func (c *Context) Exp(x *Tensor) (*Tensor, error) {
	return c.op1("Context.Exp", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_exp(ptr, x.handle(), out)
	}, x)
}

// Log is the natural logarithm of every element.
func (c *Context) Log(x *Tensor) (*Tensor, error) {
	return c.op1("Context.Log", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_log(ptr, x.handle(), out)
	}, x)
}

// Sqrt is the square root of every element.
func (c *Context) Sqrt(x *Tensor) (*Tensor, error) {
	return c.op1("Context.Sqrt", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_sqrt(ptr, x.handle(), out)
	}, x)
}

// Tanh is the hyperbolic tangent of every element.
func (c *Context) Tanh(x *Tensor) (*Tensor, error) {
	return c.op1("Context.Tanh", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_tanh(ptr, x.handle(), out)
	}, x)
}

// Sigmoid is 1 / (1 + exp(-x)) of every element.
func (c *Context) Sigmoid(x *Tensor) (*Tensor, error) {
	return c.op1("Context.Sigmoid", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_sigmoid(ptr, x.handle(), out)
	}, x)
}

// Sum adds all elements -> [1].
func (c *Context) Sum(x *Tensor) (*Tensor, error) {
	return c.op1("Context.Sum", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_sum(ptr, x.handle(), out)
	}, x)
}

// Mean is the mean of all elements -> [1].
func (c *Context) Mean(x *Tensor) (*Tensor, error) {
	return c.op1("Context.Mean", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_mean(ptr, x.handle(), out)
	}, x)
}

// SumDim adds along one dimension, a negative one counted from the end; keepDim leaves a 1 in its
// place.
func (c *Context) SumDim(x *Tensor, dim int, keepDim bool) (*Tensor, error) {
	return c.op1("Context.SumDim", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_sum_dim(ptr, x.handle(), cInt(dim), cBool(keepDim), out)
	}, x)
}

// MeanDim is the mean along one dimension, as SumDim.
func (c *Context) MeanDim(x *Tensor, dim int, keepDim bool) (*Tensor, error) {
	return c.op1("Context.MeanDim", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_mean_dim(ptr, x.handle(), cInt(dim), cBool(keepDim), out)
	}, x)
}

// MaxDim is the maximum along one dimension, as SumDim; the gradient goes to the first one.
func (c *Context) MaxDim(x *Tensor, dim int, keepDim bool) (*Tensor, error) {
	return c.op1("Context.MaxDim", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_max_dim(ptr, x.handle(), cInt(dim), cBool(keepDim), out)
	}, x)
}

// Reshape gives x another shape; one dimension may be -1 and is inferred.
func (c *Context) Reshape(x *Tensor, shape ...int) (*Tensor, error) {
	dims := toDims(shape)
	return c.op1("Context.Reshape", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_reshape(ptr, x.handle(), first(dims), C.int32_t(len(dims)), out)
	}, x)
}

// Transpose swaps two dimensions; a view.
func (c *Context) Transpose(x *Tensor, dim0, dim1 int) (*Tensor, error) {
	return c.op1("Context.Transpose", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_transpose(ptr, x.handle(), cInt(dim0), cInt(dim1), out)
	}, x)
}

// Slice is the elements start to stop, stop excluded, of one dimension; a view.
func (c *Context) Slice(x *Tensor, dim, start, stop int) (*Tensor, error) {
	return c.op1("Context.Slice", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_slice(ptr, x.handle(), cInt(dim), C.int64_t(start), C.int64_t(stop), out)
	}, x)
}

// Concat joins tensors along one dimension.
func (c *Context) Concat(dim int, tensors ...*Tensor) (*Tensor, error) {
	return c.op1("Context.Concat", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		handles := handlesOf(tensors)
		return C.trafo_op_concat(ptr, first(handles), C.size_t(len(handles)), cInt(dim), out)
	}, tensors...)
}

// handlesOf is an array of C pointers for the length of a call; the caller is in the engine.
func handlesOf(tensors []*Tensor) []*C.trafo_tensor {
	handles := make([]*C.trafo_tensor, len(tensors))
	for i, tensor := range tensors {
		handles[i] = tensor.handle()
	}
	return handles
}

// Cast converts between Float32, Float64, BFloat16 and Int32. To Int32 it rounds towards zero, into its
// range, without a gradient.
func (c *Context) Cast(x *Tensor, dtype DType) (*Tensor, error) {
	return c.op1("Context.Cast", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_cast(ptr, x.handle(), C.int32_t(dtype), out)
	}, x)
}

// MatMul is the product [m,k] x [k,n], or batched [..,m,k] x [..,k,n], whose leading dimensions broadcast.
// A vector is a row on the left and a column on the right.
func (c *Context) MatMul(a, b *Tensor) (*Tensor, error) {
	return c.MatMulTransposed(a, b, false, false)
}

// MatMulTransposed is MatMul after swapping the last two dimensions of an input or both.
func (c *Context) MatMulTransposed(a, b *Tensor, transposeA, transposeB bool) (*Tensor, error) {
	return c.op1("Context.MatMul", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_matmul(ptr, a.handle(), b.handle(), cBool(transposeA), cBool(transposeB), out)
	}, a, b)
}

// Linear is x W^T + bias: x [.., in], weight [out, in], bias [out] or nil.
func (c *Context) Linear(x, weight, bias *Tensor) (*Tensor, error) {
	return c.op1("Context.Linear", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_linear(ptr, x.handle(), weight.handle(), bias.handle(), out)
	}, x, weight, bias)
}
