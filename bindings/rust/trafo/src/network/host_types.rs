//! Integers of any width and bits of bfloat16, into tensors and out of them.

use std::ptr;

use trafo_sys as sys;

use crate::context::Context;
use crate::error::{Error, ErrorCode, Result, check};
use crate::network::tensor::{DType, Tensor, rank};
use crate::options::to_i64;

impl Context {
    /// A tensor of [`DType::I32`] with a copy of integers of any type, such as `i64` labels or a `u8` mask. `InvalidArgument`
    /// names the first one that an `i32` cannot hold.
    ///
    /// ```
    /// # fn main() -> trafo::Result<()> {
    /// let context = trafo::Context::new()?;
    /// let labels = context.integers(&[3i64, -100, 7], &[3])?;
    /// assert_eq!(labels.to_integers::<i64>()?, [3, -100, 7]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn integers<T>(&self, data: &[T], shape: &[usize]) -> Result<Tensor>
    where
        T: Copy + TryInto<i32> + std::fmt::Display,
    {
        let narrow = |(i, &value): (usize, &T)| {
            value.try_into().map_err(|_| {
                let message = format!("data: element {i} is {value}, which an i32 cannot hold");
                Error::new(ErrorCode::InvalidArgument, "Context::integers", message)
            })
        };
        let data = data.iter().enumerate().map(narrow).collect::<Result<Vec<i32>>>()?;
        self.tensor(&data, shape)
    }
    /// A tensor of [`DType::BF16`] with these bits: the upper halves of `f32`s, as `half::bf16::to_bits` gives them.
    pub fn bf16_tensor(&self, bits: &[u16], shape: &[usize]) -> Result<Tensor> {
        let dims: Vec<i64> = shape.iter().map(|&d| to_i64(d)).collect();
        // SAFETY: the handle is live; shape and data are valid for their lengths.
        Tensor::make(self, |out| unsafe {
            sys::trafo_tensor_new(
                self.as_ptr(),
                DType::BF16.as_raw(),
                dims.as_ptr(),
                rank(&dims),
                ptr::from_ref(bits).cast(),
                size_of_val(bits),
                out,
            )
        })
    }
}

impl Tensor {
    /// A copy of the elements of an [`DType::I32`] tensor as another integer type. `InvalidArgument` names the first one that
    /// it cannot hold.
    pub fn to_integers<T: TryFrom<i32>>(&self) -> Result<Vec<T>> {
        let widen = |(i, value)| {
            T::try_from(value).map_err(|_| {
                let message =
                    format!("element {i} is {value}, which the type asked for cannot hold");
                Error::new(ErrorCode::InvalidArgument, "Tensor::to_integers", message)
            })
        };
        self.to_vec::<i32>()?.into_iter().enumerate().map(widen).collect()
    }
    /// A copy of the bits of a [`DType::BF16`] tensor, for `half::bf16::from_bits`.
    pub fn to_bf16_bits(&self) -> Result<Vec<u16>> {
        if self.dtype() != DType::BF16 {
            return Err(Error::new(
                ErrorCode::DTypeMismatch,
                "Tensor::to_bf16_bits",
                format!("the tensor holds {:?}", self.dtype()),
            ));
        }
        let mut bits = vec![0u16; self.len()];
        // SAFETY: the buffer has the tensor's size.
        check(unsafe {
            sys::trafo_tensor_read(self.as_ptr(), bits.as_mut_ptr().cast(), size_of_val(&*bits))
        })?;
        Ok(bits)
    }
}
