//go:build cgo

package trafo

// A Chain is an expression of several ops with one error at its end. After an error, later ops do
// nothing. Intermediate results are closed when the next op has run; the tensors that the program
// passes in stay open.
//
//	loss, err := c.Chain(x).MatMul(w).Add(b).Tanh().Mean().End()
type Chain struct {
	context *Context
	tensor  *Tensor
	made    bool // by the chain, which closes it
	err     error
}

// Chain begins an expression with x.
func (c *Context) Chain(x *Tensor) Chain {
	if x == nil {
		return Chain{context: c, err: closed("Context.Chain", "x")}
	}
	return Chain{context: c, tensor: x}
}

// End gives the result, or the error of the first op that failed. The caller closes the result. Of a
// chain without ops it is the tensor that the chain began with.
func (e Chain) End() (*Tensor, error) { return e.tensor, e.err }

// Then continues with the result of any op.
func (e Chain) Then(op func(x *Tensor) (*Tensor, error)) Chain {
	if e.err != nil {
		return e
	}
	result, err := op(e.tensor)
	if e.made && result != e.tensor {
		e.tensor.Close()
	}
	if err != nil {
		return Chain{context: e.context, err: err}
	}
	return Chain{context: e.context, tensor: result, made: true}
}

func (e Chain) unary(op func(*Context, *Tensor) (*Tensor, error)) Chain {
	return e.Then(func(x *Tensor) (*Tensor, error) { return op(e.context, x) })
}

func (e Chain) binary(op func(c *Context, a, b *Tensor) (*Tensor, error), other *Tensor) Chain {
	return e.Then(func(x *Tensor) (*Tensor, error) { return op(e.context, x, other) })
}

// Add is Context.Add.
func (e Chain) Add(other *Tensor) Chain { return e.binary((*Context).Add, other) }

// Subtract is Context.Subtract.
func (e Chain) Subtract(other *Tensor) Chain { return e.binary((*Context).Subtract, other) }

// Multiply is Context.Multiply.
func (e Chain) Multiply(other *Tensor) Chain { return e.binary((*Context).Multiply, other) }

// Divide is Context.Divide.
func (e Chain) Divide(other *Tensor) Chain { return e.binary((*Context).Divide, other) }

// Maximum is Context.Maximum.
func (e Chain) Maximum(other *Tensor) Chain { return e.binary((*Context).Maximum, other) }

// Minimum is Context.Minimum.
func (e Chain) Minimum(other *Tensor) Chain { return e.binary((*Context).Minimum, other) }

// MatMul is Context.MatMul.
func (e Chain) MatMul(other *Tensor) Chain { return e.binary((*Context).MatMul, other) }

// Scale is Context.Scale.
func (e Chain) Scale(factor float64) Chain {
	return e.Then(func(x *Tensor) (*Tensor, error) { return e.context.Scale(x, factor) })
}

// Shift is Context.Shift.
func (e Chain) Shift(amount float64) Chain {
	return e.Then(func(x *Tensor) (*Tensor, error) { return e.context.Shift(x, amount) })
}

// Power is Context.Power.
func (e Chain) Power(exponent float64) Chain {
	return e.Then(func(x *Tensor) (*Tensor, error) { return e.context.Power(x, exponent) })
}

// Clamp is Context.Clamp.
func (e Chain) Clamp(low, high float64) Chain {
	return e.Then(func(x *Tensor) (*Tensor, error) { return e.context.Clamp(x, low, high) })
}

// Exp is Context.Exp.
func (e Chain) Exp() Chain { return e.unary((*Context).Exp) }

// Log is Context.Log.
func (e Chain) Log() Chain { return e.unary((*Context).Log) }

// Sqrt is Context.Sqrt.
func (e Chain) Sqrt() Chain { return e.unary((*Context).Sqrt) }

// Tanh is Context.Tanh.
func (e Chain) Tanh() Chain { return e.unary((*Context).Tanh) }

// Sigmoid is Context.Sigmoid.
func (e Chain) Sigmoid() Chain { return e.unary((*Context).Sigmoid) }

// Abs is Context.Abs.
func (e Chain) Abs() Chain { return e.unary((*Context).Abs) }

// Sin is Context.Sin.
func (e Chain) Sin() Chain { return e.unary((*Context).Sin) }

// Cos is Context.Cos.
func (e Chain) Cos() Chain { return e.unary((*Context).Cos) }

// Erf is Context.Erf.
func (e Chain) Erf() Chain { return e.unary((*Context).Erf) }

// GELUErf is Context.GELUErf.
func (e Chain) GELUErf() Chain { return e.unary((*Context).GELUErf) }

// Activate is Context.Activate.
func (e Chain) Activate(activation Activation) Chain {
	return e.Then(func(x *Tensor) (*Tensor, error) { return e.context.Activate(x, activation) })
}

// Sum is Context.Sum.
func (e Chain) Sum() Chain { return e.unary((*Context).Sum) }

// Mean is Context.Mean.
func (e Chain) Mean() Chain { return e.unary((*Context).Mean) }

// SumDims is Context.SumDims.
func (e Chain) SumDims(dims []int, keepDim bool) Chain {
	return e.Then(func(x *Tensor) (*Tensor, error) { return e.context.SumDims(x, dims, keepDim) })
}

// MeanDims is Context.MeanDims.
func (e Chain) MeanDims(dims []int, keepDim bool) Chain {
	return e.Then(func(x *Tensor) (*Tensor, error) { return e.context.MeanDims(x, dims, keepDim) })
}

// Reshape is Context.Reshape.
func (e Chain) Reshape(shape ...int) Chain {
	return e.Then(func(x *Tensor) (*Tensor, error) { return e.context.Reshape(x, shape...) })
}

// Transpose is Context.Transpose.
func (e Chain) Transpose(dim0, dim1 int) Chain {
	return e.Then(func(x *Tensor) (*Tensor, error) { return e.context.Transpose(x, dim0, dim1) })
}

// Permute is Context.Permute.
func (e Chain) Permute(dims ...int) Chain {
	return e.Then(func(x *Tensor) (*Tensor, error) { return e.context.Permute(x, dims...) })
}

// Linear is Context.Linear.
func (e Chain) Linear(weight, bias *Tensor) Chain {
	return e.Then(func(x *Tensor) (*Tensor, error) { return e.context.Linear(x, weight, bias) })
}
