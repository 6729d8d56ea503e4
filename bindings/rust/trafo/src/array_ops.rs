//! Comparisons, choices, and ops along dimensions, as methods of `Tensor`.

use std::ptr;

use trafo_sys as sys;

use crate::context::{Context, to_i64};
use crate::error::{Result, check};
use crate::tensor::{Tensor, rank};

// SAFETY of every call below: handles are live, or NULL or freed and then refused by the library; arrays are valid for
// the lengths that go with them; outputs are valid during the call, which keeps none of them.

/// How [`Tensor::compare`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Comparison {
    /// `a == b`
    Equal,
    /// `a != b`
    NotEqual,
    /// `a < b`
    Less,
    /// `a <= b`
    LessEqual,
    /// `a > b`
    Greater,
    /// `a >= b`
    GreaterEqual,
}

impl Comparison {
    fn as_raw(self) -> i32 {
        match self {
            Comparison::Equal => sys::TRAFO_EQUAL,
            Comparison::NotEqual => sys::TRAFO_NOT_EQUAL,
            Comparison::Less => sys::TRAFO_LESS,
            Comparison::LessEqual => sys::TRAFO_LESS_EQUAL,
            Comparison::Greater => sys::TRAFO_GREATER,
            Comparison::GreaterEqual => sys::TRAFO_GREATER_EQUAL,
        }
    }
}

type Ctx = *mut sys::trafo_context;
type Raw = *mut sys::trafo_tensor;

impl Tensor {
    /// Calls an op of this tensor with one result.
    fn op(&self, call: impl FnOnce(Ctx, Raw, *mut Raw) -> *mut sys::trafo_error) -> Result<Tensor> {
        let context: &Context = self.context();
        Self::make(context, |out| call(context.as_ptr(), self.as_ptr(), out))
    }
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty => $raw:expr),*) = $function:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self $(, $arg: $type)*) -> Result<Tensor> {
            self.op(|context, x, out| unsafe { sys::$function(context, x $(, $raw)*, out) })
        }
    )*};
}

macro_rules! over_dims {
    ($($(#[$doc:meta])* $name:ident = $function:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self, dims: &[i32], keep_dim: bool) -> Result<Tensor> {
            self.op(|context, x, out| unsafe {
                sys::$function(context, x, dims.as_ptr(), dims.len(), keep_dim.into(), out)
            })
        }
    )*};
}

/// # Element by element: functions, comparisons, choices
///
/// Masks are `I32` tensors, such as comparisons give; where one is not 0 it holds. Operands broadcast as in NumPy.
impl Tensor {
    ops! {
        /// `|x|`; the gradient at 0 is 0.
        abs() = trafo_op_abs;
        /// Sine.
        sin() = trafo_op_sin;
        /// Cosine.
        cos() = trafo_op_cos;
        /// The error function.
        erf() = trafo_op_erf;
        /// The exact GELU, `x (1 + erf(x / sqrt(2))) / 2`.
        gelu_erf() = trafo_op_gelu_erf;
        /// `x + amount`. Also `&x + amount`.
        shift(amount: f64 => amount) = trafo_op_shift;
        /// `x^exponent`; NaN for negative `x` with an exponent that is no integer.
        powf(exponent: f64 => exponent) = trafo_op_power;
        /// `min(max(x, low), high)`; the gradient of an element outside is 0.
        clamp(low: f64 => low, high: f64 => high) = trafo_op_clamp;
        /// The larger one; the gradient of equal elements is divided in half.
        maximum(other: &Tensor => other.as_ptr()) = trafo_op_maximum;
        /// The smaller one; the gradient of equal elements is divided in half.
        minimum(other: &Tensor => other.as_ptr()) = trafo_op_minimum;
        /// This tensor to the power of another.
        pow(other: &Tensor => other.as_ptr()) = trafo_op_pow;
        /// `I32`: 1 where the comparison with `other` holds, else 0. Of two tensors of one type, `I32` allowed.
        compare(other: &Tensor => other.as_ptr(), comparison: Comparison => comparison.as_raw()) = trafo_op_compare;
        /// The same with a number.
        compare_number(number: f64 => number, comparison: Comparison => comparison.as_raw()) = trafo_op_compare_number;
        /// `a` where this mask is not 0, else `b`. An operand that is not chosen affects neither values nor
        /// gradients.
        choose(a: &Tensor => a.as_ptr(), b: &Tensor => b.as_ptr()) = trafo_op_where;
        /// `value` where the mask is not 0, else `x`.
        masked_fill(mask: &Tensor => mask.as_ptr(), value: f64 => value) = trafo_op_masked_fill;
        /// `[.., rows, columns]` with 0 in place of the elements `[i, j]` above the diagonal: `j - i > diagonal`.
        tril(diagonal: i64 => diagonal) = trafo_op_tril;
        /// The same below the diagonal: `j - i < diagonal`.
        triu(diagonal: i64 => diagonal) = trafo_op_triu;
    }
}

/// # Along dimensions
///
/// A negative dimension counts from the end. A place out of range is an error on the CPU; a GPU gives NaN.
impl Tensor {
    over_dims! {
        /// The sum over several dimensions, over all without any; `keep_dim` leaves dimensions of size 1.
        sum_dims = trafo_op_sum_dims;
        /// The mean, as [`sum_dims`](Tensor::sum_dims).
        mean_dims = trafo_op_mean_dims;
        /// The maximum, as [`sum_dims`](Tensor::sum_dims). The gradient goes to the first one.
        max_dims = trafo_op_max_dims;
        /// The minimum, as [`sum_dims`](Tensor::sum_dims). The gradient goes to the first one.
        min_dims = trafo_op_min_dims;
    }
    ops! {
        /// `I32`: the number along `dim` of the largest element, the first of equal ones; NaN counts as largest.
        argmax(dim: i32 => dim, keep_dim: bool => keep_dim.into()) = trafo_op_argmax;
        /// The same of the smallest; NaN counts as smallest.
        argmin(dim: i32 => dim, keep_dim: bool => keep_dim.into()) = trafo_op_argmin;
        /// `y_i = x_0 + .. + x_i` along `dim`.
        cumsum(dim: i32 => dim) = trafo_op_cumsum;
        /// The element at each place of `index` (`I32`), with the place along `dim` replaced by the index's element.
        gather(dim: i32 => dim, index: &Tensor => index.as_ptr()) = trafo_op_gather;
        /// This tensor with the elements of `src` added at these places; `src` has the shape of the index.
        scatter_add(dim: i32 => dim, index: &Tensor => index.as_ptr(), src: &Tensor => src.as_ptr()) = trafo_op_scatter_add;
        /// The same with the elements put there; of several for one place the last stays.
        scatter(dim: i32 => dim, index: &Tensor => index.as_ptr(), src: &Tensor => src.as_ptr()) = trafo_op_scatter;
        /// The mean of the rows of each packed sequence, zeros for an empty sequence: `[T, ..]` to `[B, ..]`. Sequence `b`
        /// has the rows `cu_seqlens[b]` to `cu_seqlens[b + 1] - 1` (`I32`).
        segment_mean(cu_seqlens: &Tensor => cu_seqlens.as_ptr()) = trafo_op_segment_mean;
    }
    /// Dimension i of the result is dimension `dims[i]`, each given once; a view.
    pub fn permute(&self, dims: &[i32]) -> Result<Tensor> {
        self.op(|context, x, out| unsafe {
            sys::trafo_op_permute(context, x, dims.as_ptr(), dims.len(), out)
        })
    }
    /// Repeats dimensions of size 1, and new ones in front; -1 keeps a size. A view.
    pub fn expand(&self, shape: &[i64]) -> Result<Tensor> {
        self.op(|context, x, out| unsafe {
            sys::trafo_op_expand(context, x, shape.as_ptr(), rank(shape), out)
        })
    }
    /// The `k` largest elements along `dim`, largest first, and their numbers (`I32`), equal ones by lower number.
    pub fn top_k(&self, k: usize, dim: i32) -> Result<(Tensor, Tensor)> {
        let context = self.context();
        let (mut values, mut ids) = (ptr::null_mut(), ptr::null_mut());
        check(unsafe {
            sys::trafo_op_top_k(
                context.as_ptr(),
                self.as_ptr(),
                to_i64(k),
                dim,
                &mut values,
                &mut ids,
            )
        })?;
        // SAFETY: a successful call gives two new handles.
        let (values, ids) = unsafe { (Self::adopt(context, values), Self::adopt(context, ids)) };
        Ok((values?, ids?))
    }
}
