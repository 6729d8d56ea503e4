//! Tensors of other libraries without copies: [DLPack](https://dmlc.github.io/dlpack) 1.x.

use std::ptr::NonNull;

use trafo_sys as sys;

use crate::context::Context;
use crate::error::{Result, check};
use crate::network::tensor::Tensor;

/// Treatment of the memory by [`Context::tensor_from_dlpack`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CopyMode {
    /// Shares it where it can be shared, else copies.
    #[default]
    IfNeeded,
    /// Shares it, or says why it cannot be.
    Never,
    /// Copies.
    Always,
}

/// A tensor on its way to another library: `DLManagedTensorVersioned` of `dlpack.h`.
///
/// Dropping it gives the memory back; [`into_raw`](DlpackTensor::into_raw) hands it to a consumer, who does so by calling
/// its deleter.
#[derive(Debug)]
pub struct DlpackTensor(NonNull<sys::DLManagedTensorVersioned>);

/// The part of the layout that DLPack promises never to change, with the deleter in it.
#[repr(C)]
struct Header {
    version: [u32; 2],
    manager_ctx: *mut std::ffi::c_void,
    deleter: Option<unsafe extern "C" fn(*mut sys::DLManagedTensorVersioned)>,
}

impl DlpackTensor {
    /// The pointer, which the receiver gives back by calling its deleter.
    #[must_use]
    pub fn into_raw(self) -> *mut sys::DLManagedTensorVersioned {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }
    /// # Safety
    /// `raw` points to a `DLManagedTensorVersioned` that belongs to the caller.
    #[must_use]
    pub unsafe fn from_raw(raw: NonNull<sys::DLManagedTensorVersioned>) -> Self {
        Self(raw)
    }
}

impl Drop for DlpackTensor {
    fn drop(&mut self) {
        let raw = self.0.as_ptr();
        // SAFETY: it is ours and begins with this header in every version of DLPack.
        unsafe {
            if let Some(deleter) = (*raw.cast::<Header>()).deleter {
                deleter(raw);
            }
        }
    }
}

impl Tensor {
    /// The memory of this tensor for another library, kept alive until that is done with it. Writes are seen by both sides;
    /// no gradient flows through. On CUDA this waits until the elements are there.
    ///
    /// ```
    /// use trafo::{Context, CopyMode};
    /// # fn main() -> trafo::Result<()> {
    /// let context = Context::new()?;
    /// let tensor = context.tensor(&[1.0f32, 2.0], &[2])?;
    /// let lent = tensor.to_dlpack()?;
    /// // SAFETY: the memory is whole, and nobody else writes it while both look at it.
    /// let same = unsafe { context.tensor_from_dlpack(lent, CopyMode::Never)? };
    /// tensor.write(&[3.0f32, 4.0])?;
    /// assert_eq!(same.to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_dlpack(&self) -> Result<DlpackTensor> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the handle is live or NULL, `raw` is valid.
        check(unsafe { sys::trafo_tensor_to_dlpack(self.as_ptr(), &mut raw) })?;
        Ok(DlpackTensor(NonNull::new(raw).expect("a successful call gives a tensor")))
    }
}

impl Context {
    /// A leaf over the memory of another library's tensor, given back when the last tensor that uses it is dropped.
    ///
    /// # Safety
    /// What `tensor` says of its memory is true. While the memory is shared, other code writes it only where no tensor of
    /// Trafo is being read, and elements that a GPU computes are complete.
    pub unsafe fn tensor_from_dlpack(
        &self,
        tensor: DlpackTensor,
        copy: CopyMode,
    ) -> Result<Tensor> {
        let mode = match copy {
            CopyMode::IfNeeded => sys::TRAFO_COPY_IF_NEEDED,
            CopyMode::Never => sys::TRAFO_COPY_NEVER,
            CopyMode::Always => sys::TRAFO_COPY_ALWAYS,
        };
        let taken = Tensor::make(self, |out| {
            // SAFETY: the handle is live; the memory is as the caller promises.
            unsafe { sys::trafo_tensor_from_dlpack(self.as_ptr(), tensor.0.as_ptr(), mode, out) }
        })?;
        std::mem::forget(tensor); // the engine has it now
        Ok(taken)
    }
}
