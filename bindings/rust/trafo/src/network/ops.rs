//! Ops as methods of `Tensor`.

use std::ops::{Add, Div, Mul, Range, Sub};
use std::ptr;

use trafo_sys as sys;

use crate::context::Context;
use crate::error::{Result, check};
use crate::names::named;
use crate::network::op_options::{
    AttentionOptions, CrossEntropyOptions, Dropout, EmbeddingOptions, OptionalDropout,
    SoftmaxOptions, optional,
};
use crate::network::tensor::{DType, Tensor, rank};
use crate::options::to_i64;

// SAFETY of every call of an op: handles are live, or NULL or freed and then refused by the library; arrays are valid
// for the lengths that go with them; options and outputs are valid during the call, which keeps none of them.

type Ctx = *mut sys::trafo_context;
type Raw = *mut sys::trafo_tensor;

// The table schema/ops.toml gives the ops and their enums.
include!("../generated/ops.rs");

fn pointers(tensors: &[&Tensor]) -> Vec<*const sys::trafo_tensor> {
    tensors.iter().map(|tensor| tensor.as_ptr().cast_const()).collect()
}

impl Tensor {
    /// Calls an op of this tensor with one result.
    fn op(&self, call: impl FnOnce(Ctx, Raw, *mut Raw) -> *mut sys::trafo_error) -> Result<Tensor> {
        let context: &Context = self.context();
        Self::make(context, |out| call(context.as_ptr(), self.as_ptr(), out))
    }
    /// The same with two results.
    fn op_of_two(
        &self,
        call: impl FnOnce(Ctx, Raw, *mut Raw, *mut Raw) -> *mut sys::trafo_error,
    ) -> Result<(Tensor, Tensor)> {
        let context: &Context = self.context();
        let (mut first, mut second) = (ptr::null_mut(), ptr::null_mut());
        check(call(context.as_ptr(), self.as_ptr(), &mut first, &mut second))?;
        // Both are taken over before either result is looked at, so that none is lost.
        // SAFETY: a successful call gives two new handles.
        let (first, second) =
            unsafe { (Tensor::adopt(context, first), Tensor::adopt(context, second)) };
        Ok((first?, second?))
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
    /// `[m,k] x [k,n]`, or batched `[..,m,k] x [..,k,n]`, whose leading dimensions broadcast; a vector is a row on the
    /// left and a column on the right.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        self.matmul_with(other, false, false)
    }
    /// Over the last dimension.
    pub fn softmax(&self) -> Result<Tensor> {
        self.softmax_with(&SoftmaxOptions::new())
    }
    /// Over the last dimension of `[batch, heads, queries, keys]` or fewer dimensions, scaled and masked. A row with every
    /// key hidden is zeros.
    pub fn softmax_with(&self, options: &SoftmaxOptions<'_>) -> Result<Tensor> {
        self.op(|context, x, out| unsafe {
            sys::trafo_op_softmax(
                context,
                x,
                options.scale,
                options.causal.into(),
                optional(options.padding_mask),
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
