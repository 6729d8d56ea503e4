//! Expressions of several ops with one `?` at their end.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::error::Result;
use crate::network::tensor::Tensor;

/// An expression that keeps its first error until [`end`](Chain::end). Later ops then do nothing.
///
/// Operators take tensors, numbers and other chains. [`then`](Chain::then) calls any op.
///
/// ```
/// use trafo::Context;
/// # fn main() -> trafo::Result<()> {
/// let context = Context::new()?;
/// let x = context.tensor(&[1.0f32, 2.0], &[2])?;
/// let b = context.tensor(&[0.5f32], &[1])?;
/// let y = ((x.chain() * &x + &b) / 2.0 - 1.0).abs().then(|y| y.sum_dim(0, true)).end()?;
/// assert_eq!(y.item()?, 1.5);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "an expression gives its result and its error to `end`"]
pub struct Chain(Result<Tensor>);

impl Tensor {
    /// Begins an expression with this tensor.
    pub fn chain(&self) -> Chain {
        Chain(Ok(self.clone()))
    }
}

macro_rules! ops {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {$(
        #[doc = concat!("[`Tensor::", stringify!($name), "`]")]
        pub fn $name(self $(, $arg: $type)*) -> Chain {
            self.then(|x| x.$name($($arg),*))
        }
    )*};
}

impl Chain {
    /// The result, or the error of the first op that failed.
    pub fn end(self) -> Result<Tensor> {
        self.0
    }
    /// Goes on with the result of any op.
    pub fn then(self, op: impl FnOnce(&Tensor) -> Result<Tensor>) -> Chain {
        Chain(self.0.and_then(|x| op(&x)))
    }
    ops! {
        exp();
        log();
        sqrt();
        tanh();
        sigmoid();
        relu();
        gelu();
        silu();
        abs();
        sin();
        cos();
        erf();
        gelu_erf();
        powf(exponent: f64);
        clamp(low: f64, high: f64);
        sum();
        mean();
        sum_dims(dims: &[i32], keep_dim: bool);
        mean_dims(dims: &[i32], keep_dim: bool);
        max_dims(dims: &[i32], keep_dim: bool);
        reshape(shape: &[i64]);
        transpose(dim0: i32, dim1: i32);
        permute(dims: &[i32]);
        expand(shape: &[i64]);
        matmul(other: &Tensor);
        linear(weight: &Tensor, bias: Option<&Tensor>);
        masked_fill(mask: &Tensor, value: f64);
    }
}

macro_rules! operator {
    ($($trait:ident $method:ident;)*) => {$(
        impl $trait<&Tensor> for Chain {
            type Output = Chain;
            fn $method(self, other: &Tensor) -> Chain {
                self.then(|x| Tensor::$method(x, other))
            }
        }
        impl $trait<Chain> for Chain {
            type Output = Chain;
            fn $method(self, other: Chain) -> Chain {
                self.then(|x| Tensor::$method(x, &other.0?))
            }
        }
        impl $trait<Chain> for &Tensor {
            type Output = Chain;
            fn $method(self, other: Chain) -> Chain {
                other.then(|y| Tensor::$method(self, y))
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

macro_rules! with_number {
    ($($trait:ident $method:ident $x:ident $number:ident => $result:expr;)*) => {$(
        impl $trait<f64> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, $number: f64) -> Result<Tensor> {
                let $x = self;
                $result
            }
        }
        impl $trait<f64> for Chain {
            type Output = Chain;
            fn $method(self, $number: f64) -> Chain {
                self.then(|$x| $result)
            }
        }
    )*};
}
with_number! {
    Add add x number => x.shift(number);
    Sub sub x number => x.shift(-number);
    Mul mul x number => x.scale(number);
    Div div x number => x.scale(1.0 / number);
}

impl Neg for &Tensor {
    type Output = Result<Tensor>;
    fn neg(self) -> Result<Tensor> {
        self.scale(-1.0)
    }
}
impl Neg for Chain {
    type Output = Chain;
    fn neg(self) -> Chain {
        self.then(|x| x.scale(-1.0))
    }
}
