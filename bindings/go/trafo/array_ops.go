package trafo

// #include "trafo.h"
import "C"

// Masks are Int32 tensors, such as comparisons give; where one is not 0 it holds. Operands broadcast
// as in NumPy. A negative dimension counts from the end. A place out of range is an error on the CPU;
// a GPU gives NaN.

// Shift is x + amount.
func (c *Context) Shift(x *Tensor, amount float64) (*Tensor, error) {
	return c.op1("Context.Shift", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_shift(ptr, x.handle(), C.double(amount), out)
	}, x)
}

// Abs is the absolute value of every element; the gradient at 0 is 0.
func (c *Context) Abs(x *Tensor) (*Tensor, error) {
	return c.op1("Context.Abs", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_abs(ptr, x.handle(), out)
	}, x)
}

// Sin is the sine of every element.
func (c *Context) Sin(x *Tensor) (*Tensor, error) {
	return c.op1("Context.Sin", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_sin(ptr, x.handle(), out)
	}, x)
}

// Cos is the cosine of every element.
func (c *Context) Cos(x *Tensor) (*Tensor, error) {
	return c.op1("Context.Cos", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_cos(ptr, x.handle(), out)
	}, x)
}

// Erf is the error function of every element.
func (c *Context) Erf(x *Tensor) (*Tensor, error) {
	return c.op1("Context.Erf", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_erf(ptr, x.handle(), out)
	}, x)
}

// GELUErf is the exact GELU, x (1 + erf(x / sqrt(2))) / 2.
func (c *Context) GELUErf(x *Tensor) (*Tensor, error) {
	return c.op1("Context.GELUErf", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_gelu_erf(ptr, x.handle(), out)
	}, x)
}

// Power is x^exponent; NaN for negative x with an exponent that is no integer.
func (c *Context) Power(x *Tensor, exponent float64) (*Tensor, error) {
	return c.op1("Context.Power", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_power(ptr, x.handle(), C.double(exponent), out)
	}, x)
}

// Clamp is min(max(x, low), high); the gradient of an element outside is 0.
func (c *Context) Clamp(x *Tensor, low, high float64) (*Tensor, error) {
	return c.op1("Context.Clamp", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_clamp(ptr, x.handle(), C.double(low), C.double(high), out)
	}, x)
}

// Maximum is the larger of a and b; the gradient of equal elements is divided in half.
func (c *Context) Maximum(a, b *Tensor) (*Tensor, error) {
	return c.op1("Context.Maximum", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_maximum(ptr, a.handle(), b.handle(), out)
	}, a, b)
}

// Minimum is the smaller of a and b; the gradient of equal elements is divided in half.
func (c *Context) Minimum(a, b *Tensor) (*Tensor, error) {
	return c.op1("Context.Minimum", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_minimum(ptr, a.handle(), b.handle(), out)
	}, a, b)
}

// Pow is a^b.
func (c *Context) Pow(a, b *Tensor) (*Tensor, error) {
	return c.op1("Context.Pow", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_pow(ptr, a.handle(), b.handle(), out)
	}, a, b)
}

// Comparison is how Compare compares.
type Comparison int32

// The comparisons of a with b.
const (
	Equal        Comparison = C.TRAFO_EQUAL
	NotEqual     Comparison = C.TRAFO_NOT_EQUAL
	Less         Comparison = C.TRAFO_LESS
	LessEqual    Comparison = C.TRAFO_LESS_EQUAL
	Greater      Comparison = C.TRAFO_GREATER
	GreaterEqual Comparison = C.TRAFO_GREATER_EQUAL
)

// Compare gives an Int32 tensor: 1 where the comparison of a with b holds, else 0; a and b of one
// type, Int32 allowed. It has no gradient.
func (c *Context) Compare(a, b *Tensor, comparison Comparison) (*Tensor, error) {
	return c.op1("Context.Compare", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_compare(ptr, a.handle(), b.handle(), C.int32_t(comparison), out)
	}, a, b)
}

// CompareNumber is Compare with a number.
func (c *Context) CompareNumber(a *Tensor, number float64, comparison Comparison) (*Tensor, error) {
	return c.op1("Context.CompareNumber", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_compare_number(ptr, a.handle(), C.double(number), C.int32_t(comparison), out)
	}, a)
}

// Where is a where the mask is not 0, else b. An operand that is not chosen affects neither values
// nor gradients.
func (c *Context) Where(mask, a, b *Tensor) (*Tensor, error) {
	return c.op1("Context.Where", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_where(ptr, mask.handle(), a.handle(), b.handle(), out)
	}, mask, a, b)
}

// MaskedFill is value where the mask is not 0, else x.
func (c *Context) MaskedFill(x, mask *Tensor, value float64) (*Tensor, error) {
	return c.op1("Context.MaskedFill", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_masked_fill(ptr, x.handle(), mask.handle(), C.double(value), out)
	}, x, mask)
}

// Tril is x [.., rows, columns] with 0 in place of the elements above the diagonal: column - row >
// diagonal.
func (c *Context) Tril(x *Tensor, diagonal int) (*Tensor, error) {
	return c.op1("Context.Tril", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_tril(ptr, x.handle(), C.int64_t(diagonal), out)
	}, x)
}

// Triu is Tril with 0 below the diagonal: column - row < diagonal.
func (c *Context) Triu(x *Tensor, diagonal int) (*Tensor, error) {
	return c.op1("Context.Triu", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_triu(ptr, x.handle(), C.int64_t(diagonal), out)
	}, x)
}

func cInts(numbers []int) []C.int32_t {
	result := make([]C.int32_t, len(numbers))
	for i, number := range numbers {
		result[i] = cInt(number)
	}
	return result
}

// SumDims adds along several dimensions, along all without any; keepDim leaves dimensions of size
// 1.
func (c *Context) SumDims(x *Tensor, dims []int, keepDim bool) (*Tensor, error) {
	numbers := cInts(dims)
	return c.op1("Context.SumDims", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_sum_dims(ptr, x.handle(), first(numbers), C.size_t(len(numbers)), cBool(keepDim), out)
	}, x)
}

// MeanDims is the mean along several dimensions, as SumDims.
func (c *Context) MeanDims(x *Tensor, dims []int, keepDim bool) (*Tensor, error) {
	numbers := cInts(dims)
	return c.op1("Context.MeanDims", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_mean_dims(ptr, x.handle(), first(numbers), C.size_t(len(numbers)), cBool(keepDim), out)
	}, x)
}

// MaxDims is the maximum along several dimensions, as SumDims; the gradient goes to the first one.
func (c *Context) MaxDims(x *Tensor, dims []int, keepDim bool) (*Tensor, error) {
	numbers := cInts(dims)
	return c.op1("Context.MaxDims", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_max_dims(ptr, x.handle(), first(numbers), C.size_t(len(numbers)), cBool(keepDim), out)
	}, x)
}

// MinDims is the minimum along several dimensions, as SumDims; the gradient goes to the first one.
func (c *Context) MinDims(x *Tensor, dims []int, keepDim bool) (*Tensor, error) {
	numbers := cInts(dims)
	return c.op1("Context.MinDims", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_min_dims(ptr, x.handle(), first(numbers), C.size_t(len(numbers)), cBool(keepDim), out)
	}, x)
}

// ArgMax gives the number along dim of the largest element (Int32), the first of equal ones; NaN
// counts as largest.
func (c *Context) ArgMax(x *Tensor, dim int, keepDim bool) (*Tensor, error) {
	return c.op1("Context.ArgMax", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_argmax(ptr, x.handle(), cInt(dim), cBool(keepDim), out)
	}, x)
}

// ArgMin is ArgMax of the smallest element; NaN counts as smallest.
func (c *Context) ArgMin(x *Tensor, dim int, keepDim bool) (*Tensor, error) {
	return c.op1("Context.ArgMin", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_argmin(ptr, x.handle(), cInt(dim), cBool(keepDim), out)
	}, x)
}

// TopK gives the k largest elements along dim, largest first, and their numbers (Int32), equal ones
// by lower number.
func (c *Context) TopK(x *Tensor, k, dim int) (values, ids *Tensor, err error) {
	return c.op2("Context.TopK", func(ptr *C.trafo_context, values, ids **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_top_k(ptr, x.handle(), C.int64_t(k), cInt(dim), values, ids)
	}, x)
}

// CumSum is the sum of all elements up to each one along dim.
func (c *Context) CumSum(x *Tensor, dim int) (*Tensor, error) {
	return c.op1("Context.CumSum", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_cumsum(ptr, x.handle(), cInt(dim), out)
	}, x)
}

// Permute gives a view whose dimension i is dimension dims[i] of x, each given once.
func (c *Context) Permute(x *Tensor, dims ...int) (*Tensor, error) {
	numbers := cInts(dims)
	return c.op1("Context.Permute", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_permute(ptr, x.handle(), first(numbers), C.size_t(len(numbers)), out)
	}, x)
}

// Expand repeats dimensions of size 1, and new ones in front; -1 keeps a size. A view.
func (c *Context) Expand(x *Tensor, shape ...int) (*Tensor, error) {
	dims := toDims(shape)
	return c.op1("Context.Expand", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_expand(ptr, x.handle(), first(dims), C.int32_t(len(dims)), out)
	}, x)
}

// SegmentMean gives the mean of the rows of each packed sequence, zeros for an empty sequence: x
// [T, ..] becomes [B, ..]. Sequence b has the rows cuSeqlens[b] to cuSeqlens[b+1]-1 (Int32).
func (c *Context) SegmentMean(x, cuSeqlens *Tensor) (*Tensor, error) {
	return c.op1("Context.SegmentMean", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_segment_mean(ptr, x.handle(), cuSeqlens.handle(), out)
	}, x, cuSeqlens)
}

// Gather gives the element of x at each place of index (Int32), with the place along dim replaced by
// the index's element.
func (c *Context) Gather(x *Tensor, dim int, index *Tensor) (*Tensor, error) {
	return c.op1("Context.Gather", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_gather(ptr, x.handle(), cInt(dim), index.handle(), out)
	}, x, index)
}

// ScatterAdd is x with the elements of src added at these places; src has the shape of index.
func (c *Context) ScatterAdd(x *Tensor, dim int, index, src *Tensor) (*Tensor, error) {
	return c.op1("Context.ScatterAdd", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_scatter_add(ptr, x.handle(), cInt(dim), index.handle(), src.handle(), out)
	}, x, index, src)
}

// Scatter is x with the elements of src put there; of several for one place the last stays.
func (c *Context) Scatter(x *Tensor, dim int, index, src *Tensor) (*Tensor, error) {
	return c.op1("Context.Scatter", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_scatter(ptr, x.handle(), cInt(dim), index.handle(), src.handle(), out)
	}, x, index, src)
}
