//! The basic ops, as methods of `Tensor`.

use std::ops::{Add, Div, Mul, Range, Sub};

use trafo_sys as sys;

use crate::context::{Context, to_i64};
use crate::error::Result;
use crate::op_options::{Activation, Dropout, optional};
use crate::tensor::{DType, Tensor, rank};

// SAFETY of every call below: handles are live, or NULL or freed and then refused by the library; arrays are valid for
// the lengths that go with them; options and outputs are valid during the call, which keeps none of them.

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $function:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
            let context = self.context();
            Self::make(context, |out| unsafe {
                sys::$function(context.as_ptr(), self.as_ptr(), other.as_ptr(), out)
            })
        }
    )*};
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $function:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self) -> Result<Tensor> {
            let context = self.context();
            Self::make(context, |out| unsafe {
                sys::$function(context.as_ptr(), self.as_ptr(), out)
            })
        }
    )*};
}

macro_rules! over_dim {
    ($($(#[$doc:meta])* $name:ident = $function:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self, dim: i32, keep_dim: bool) -> Result<Tensor> {
            let context = self.context();
            Self::make(context, |out| unsafe {
                sys::$function(context.as_ptr(), self.as_ptr(), dim, keep_dim.into(), out)
            })
        }
    )*};
}

/// # Element by element
impl Tensor {
    binary! {
        /// Sum, with NumPy's broadcasting. Also `&a + &b`.
        add = trafo_op_add;
        /// Difference, with NumPy's broadcasting. Also `&a - &b`.
        sub = trafo_op_subtract;
        /// Product, with NumPy's broadcasting. Also `&a * &b`.
        mul = trafo_op_multiply;
        /// Quotient, with NumPy's broadcasting. Also `&a / &b`.
        div = trafo_op_divide;
    }
    unary! {
        /// e to the power of x.
        exp = trafo_op_exp;
        /// Natural logarithm.
        log = trafo_op_log;
        /// Square root.
        sqrt = trafo_op_sqrt;
        /// Hyperbolic tangent.
        tanh = trafo_op_tanh;
        /// `1 / (1 + exp(-x))`
        sigmoid = trafo_op_sigmoid;
    }
    /// `factor * x`. Also `&x * factor`.
    pub fn scale(&self, factor: f64) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_scale(context.as_ptr(), self.as_ptr(), factor, out)
        })
    }
    /// An activation function.
    pub fn activation(&self, activation: Activation) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_activation(context.as_ptr(), self.as_ptr(), activation.as_raw(), out)
        })
    }
    /// [`Activation::Relu`]
    pub fn relu(&self) -> Result<Tensor> {
        self.activation(Activation::Relu)
    }
    /// [`Activation::Gelu`]
    pub fn gelu(&self) -> Result<Tensor> {
        self.activation(Activation::Gelu)
    }
    /// [`Activation::Silu`]
    pub fn silu(&self) -> Result<Tensor> {
        self.activation(Activation::Silu)
    }
    /// Zeroes elements and scales the others by `1 / (1 - p)`.
    pub fn dropout(&self, dropout: Dropout) -> Result<Tensor> {
        let context = self.context();
        let dropout = dropout.to_raw();
        Self::make(context, |out| unsafe {
            sys::trafo_op_dropout(context.as_ptr(), self.as_ptr(), &dropout, out)
        })
    }
    /// Between `F32`, `F64`, `BF16` and `I32`. To `I32` it rounds towards zero, into its range; that has no gradient.
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_cast(context.as_ptr(), self.as_ptr(), dtype.as_raw(), out)
        })
    }
}

/// # Reductions
impl Tensor {
    unary! {
        /// Over everything, shape `[1]`.
        sum = trafo_op_sum;
        /// Over everything, shape `[1]`.
        mean = trafo_op_mean;
    }
    over_dim! {
        /// Over one dimension, negative counts from the end; `keep_dim` leaves a 1 in its place.
        sum_dim = trafo_op_sum_dim;
        /// Over one dimension, negative counts from the end; `keep_dim` leaves a 1 in its place.
        mean_dim = trafo_op_mean_dim;
        /// Over one dimension, negative counts from the end. The gradient goes to the first maximum.
        max_dim = trafo_op_max_dim;
    }
}

/// # Shapes
impl Tensor {
    /// The same elements in another shape; one dimension may be -1 and is inferred.
    pub fn reshape(&self, shape: &[i64]) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_reshape(context.as_ptr(), self.as_ptr(), shape.as_ptr(), rank(shape), out)
        })
    }
    /// Swaps two dimensions; a view.
    pub fn transpose(&self, dim0: i32, dim1: i32) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_transpose(context.as_ptr(), self.as_ptr(), dim0, dim1, out)
        })
    }
    /// `x[.., range, ..]` in dimension `dim`; a view.
    pub fn slice(&self, dim: i32, range: Range<usize>) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_slice(
                context.as_ptr(),
                self.as_ptr(),
                dim,
                to_i64(range.start),
                to_i64(range.end),
                out,
            )
        })
    }
}

impl Context {
    /// Puts tensors one after another along dimension `dim`.
    pub fn concat(&self, tensors: &[&Tensor], dim: i32) -> Result<Tensor> {
        let raw: Vec<*const sys::trafo_tensor> =
            tensors.iter().map(|t| t.as_ptr().cast_const()).collect();
        Tensor::make(self, |out| unsafe {
            sys::trafo_op_concat(self.as_ptr(), raw.as_ptr(), raw.len(), dim, out)
        })
    }
}

/// # Products
impl Tensor {
    /// `[m,k] x [k,n]`, or batched `[..,m,k] x [..,k,n]`, whose leading dimensions broadcast; a vector is a row on the
    /// left and a column on the right.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        self.matmul_with(other, false, false)
    }
    /// The same with the last two dimensions of an input swapped.
    pub fn matmul_with(
        &self,
        other: &Tensor,
        transpose_self: bool,
        transpose_other: bool,
    ) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_matmul(
                context.as_ptr(),
                self.as_ptr(),
                other.as_ptr(),
                transpose_self.into(),
                transpose_other.into(),
                out,
            )
        })
    }
    /// `x W^T + bias`: `x [.., in]`, `weight [out, in]`, `bias [out]`.
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_linear(
                context.as_ptr(),
                self.as_ptr(),
                weight.as_ptr(),
                optional(bias),
                out,
            )
        })
    }
}

macro_rules! operator {
    ($($trait:ident $method:ident;)*) => {$(
        impl $trait<&Tensor> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, other: &Tensor) -> Result<Tensor> {
                Tensor::$method(self, other)
            }
        }
    )*};
}
operator! {
    Add add;
    Sub sub;
    Mul mul;
    Div div;
}
