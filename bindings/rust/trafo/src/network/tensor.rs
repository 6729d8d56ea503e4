use std::cell::Cell;
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::rc::Rc;

use trafo_sys as sys;

use crate::context::Context;
pub(crate) use crate::enums::DType;
use crate::error::{Error, ErrorCode, Result, check};
use crate::handle::RawTensor;
use crate::options::to_i64;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
    impl Sealed for i32 {}
}

/// Rust types that tensors are made from and read into: `f32`, `f64`, `i32`.
pub trait Element: sealed::Sealed + Copy + Default + 'static {
    /// The tensor's type.
    const DTYPE: DType;
}
impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for f64 {
    const DTYPE: DType = DType::F64;
}
impl Element for i32 {
    const DTYPE: DType = DType::I32;
}

struct TensorInner {
    context: Context,
    // NULL in a region's input that was kept beyond the region; the library refuses it.
    raw: Cell<*mut sys::trafo_tensor>,
    dtype: DType,
    shape: Vec<usize>,
    borrowed: bool,
}

impl Drop for TensorInner {
    fn drop(&mut self) {
        if !self.borrowed {
            // SAFETY: ours (or NULL, once it was given away) and freed once.
            unsafe { sys::trafo_tensor_free(self.raw.get()) }
        }
    }
}

/// An array of numbers, and what it was computed from.
///
/// A clone is another handle on the same tensor; [`copy`](Tensor::copy) copies the elements. Ops never change their
/// inputs; only [`write`](Tensor::write) and an optimizer change the elements of a leaf. Ops are recorded as they run,
/// and [`backward`](Tensor::backward) gives the leaves that want them their gradients.
///
/// ```
/// use trafo::Context;
/// # fn main() -> trafo::Result<()> {
/// let context = Context::new()?;
/// let x = context.tensor(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// let y = x.matmul(&x)?;
/// assert_eq!(y.shape(), [2, 2]);
/// assert_eq!(y.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
/// assert_eq!((&x + &y)?.sum()?.item()?, 64.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tensor(Rc<TensorInner>);

impl Tensor {
    pub(crate) fn from_slice<T: Element>(
        context: &Context,
        data: &[T],
        shape: &[usize],
    ) -> Result<Self> {
        let dims: Vec<i64> = shape.iter().map(|&d| to_i64(d)).collect();
        // SAFETY: the handle is live; shape and data are valid for their lengths.
        Self::make(context, |out| unsafe {
            sys::trafo_tensor_new(
                context.as_ptr(),
                T::DTYPE.as_raw(),
                dims.as_ptr(),
                rank(&dims),
                data.as_ptr().cast(),
                size_of_val(data),
                out,
            )
        })
    }

    pub(crate) fn zeros(context: &Context, shape: &[usize], dtype: DType) -> Result<Self> {
        let dims: Vec<i64> = shape.iter().map(|&d| to_i64(d)).collect();
        // SAFETY: the handle is live; shape is valid for its length.
        Self::make(context, |out| unsafe {
            sys::trafo_tensor_new(
                context.as_ptr(),
                dtype.as_raw(),
                dims.as_ptr(),
                rank(&dims),
                ptr::null(),
                0,
                out,
            )
        })
    }

    /// Runs a C call with an out-parameter for a new tensor.
    pub(crate) fn make(
        context: &Context,
        call: impl FnOnce(*mut *mut sys::trafo_tensor) -> *mut sys::trafo_error,
    ) -> Result<Self> {
        let mut raw = ptr::null_mut();
        check(call(&mut raw))?;
        // SAFETY: a successful call gives a new handle.
        unsafe { Self::adopt(context, raw) }
    }

    /// # Safety
    /// `raw` is a live handle of `context` that nobody else frees.
    pub(crate) unsafe fn adopt(context: &Context, raw: *mut sys::trafo_tensor) -> Result<Self> {
        // SAFETY: the caller's promise.
        let mut inner = unsafe { Self::describe(context, raw) };
        match &mut inner {
            Ok(inner) => inner.borrowed = false,
            // SAFETY: nobody else frees it.
            Err(_) => unsafe { sys::trafo_tensor_free(raw) },
        }
        Ok(Tensor(Rc::new(inner?)))
    }

    /// # Safety
    /// `raw` is a live handle of `context` until `forget_borrowed` is called.
    pub(crate) unsafe fn borrow(context: &Context, raw: *const sys::trafo_tensor) -> Result<Self> {
        // SAFETY: the caller's promise.
        Ok(Tensor(Rc::new(unsafe { Self::describe(context, raw.cast_mut()) }?)))
    }

    /// Ends the life of a borrowed tensor: clones that were kept are refused from now on.
    pub(crate) fn forget_borrowed(&self) {
        self.0.raw.set(ptr::null_mut());
    }

    unsafe fn describe(context: &Context, raw: *mut sys::trafo_tensor) -> Result<TensorInner> {
        let mut dtype = 0;
        let mut rank = 0;
        let mut dims = [0i64; 8];
        // SAFETY: the handle is live by the caller's promise, the outputs are valid.
        unsafe {
            check(sys::trafo_tensor_get_dtype(raw, &mut dtype))?;
            check(sys::trafo_tensor_get_shape(
                raw,
                dims.as_mut_ptr(),
                dims.len() as i32,
                &mut rank,
            ))?;
        }
        let shape = dims.iter().take(rank as usize).map(|&d| d as usize).collect();
        Ok(TensorInner {
            context: context.clone(),
            raw: Cell::new(raw),
            dtype: DType::from_raw(dtype),
            shape,
            borrowed: true,
        })
    }

    /// Gives the handle to C. A tensor that has clones, or is borrowed, gives a view of itself.
    pub(crate) fn into_raw(self) -> Result<*mut sys::trafo_tensor> {
        let dims: Vec<i64> = self.0.shape.iter().map(|&d| to_i64(d)).collect();
        match Rc::try_unwrap(self.0) {
            Ok(inner) if !inner.borrowed => Ok(inner.raw.replace(ptr::null_mut())),
            Ok(inner) => alias(&inner, &dims),
            Err(shared) => alias(&shared, &dims),
        }
    }

    /// Whether this is the only handle on the tensor, and not a borrowed one.
    pub(crate) fn is_alone(&self) -> bool {
        Rc::strong_count(&self.0) == 1 && !self.0.borrowed
    }
    /// The handle without its context. The tensor [is alone](Self::is_alone).
    pub(crate) fn into_owned(self) -> RawTensor {
        let raw = self.into_raw().expect("the only handle is given as it is");
        // SAFETY: the output is valid.
        let made = RawTensor::make(|out| unsafe {
            out.write(raw);
            ptr::null_mut()
        });
        made.expect("the call above cannot fail")
    }
    /// The tensor of such a handle, which is of this context.
    pub(crate) fn of_owned(context: &Context, owned: RawTensor) -> Self {
        let raw = owned.as_ptr();
        std::mem::forget(owned);
        // SAFETY: the handle is live, and nobody else frees it.
        unsafe { Self::adopt(context, raw) }.expect("a live handle has a type and a shape")
    }
    pub(crate) fn as_ptr(&self) -> *mut sys::trafo_tensor {
        self.0.raw.get()
    }

    /// The context it lives in.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }
    /// Dimensions, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.0.shape
    }
    /// Type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.shape.iter().product()
    }
    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of the elements in row-major order; `T` is the tensor's type.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        expect_dtype::<T>("Tensor::to_vec", self.dtype())?;
        let mut data = vec![T::default(); self.len()];
        // SAFETY: the buffer has the tensor's size; every bit pattern is a valid T.
        check(unsafe {
            sys::trafo_tensor_read(
                self.as_ptr(),
                data.as_mut_ptr().cast::<c_void>(),
                size_of_val(&*data),
            )
        })?;
        Ok(data)
    }
    /// The one element of a floating-point tensor.
    pub fn item(&self) -> Result<f64> {
        if self.len() != 1 {
            return Err(Error::new(
                ErrorCode::ShapeMismatch,
                "Tensor::item",
                format!("the tensor must have one element, its shape is {:?}", self.shape()),
            ));
        }
        match self.dtype() {
            DType::F64 => Ok(self.to_vec::<f64>()?[0]),
            _ => Ok(self.to_vec::<f32>()?[0].into()),
        }
    }
    /// Overwrites the elements of a leaf, in row-major order. A [`backward`](Tensor::backward) that needs the old ones
    /// is an error afterwards.
    pub fn write<T: Element>(&self, data: &[T]) -> Result<()> {
        expect_dtype::<T>("Tensor::write", self.dtype())?;
        // SAFETY: the handle is live or NULL, data is valid for its length.
        check(unsafe {
            sys::trafo_tensor_write(self.as_ptr(), data.as_ptr().cast(), size_of_val(data))
        })
    }
    /// Tells the engine that other code has written to the memory of this tensor ([`to_dlpack`](Tensor::to_dlpack)). A
    /// [`backward`](Tensor::backward) that needs the old elements is an error afterwards.
    pub fn mark_written(&self) -> Result<()> {
        // SAFETY: the handle is live or NULL.
        check(unsafe { sys::trafo_tensor_mark_written(self.as_ptr()) })
    }
    /// A leaf with separate memory and the same elements.
    pub fn copy(&self) -> Result<Tensor> {
        // SAFETY: the handle is live or NULL, `out` is valid.
        Self::make(self.context(), |out| unsafe { sys::trafo_tensor_clone(self.as_ptr(), out) })
    }
    /// The same memory without history: no gradient flows through it.
    pub fn detach(&self) -> Result<Tensor> {
        // SAFETY: the handle is live or NULL, `out` is valid.
        Self::make(self.context(), |out| unsafe { sys::trafo_tensor_detach(self.as_ptr(), out) })
    }

    /// Says whether the gradient of this floating-point leaf is wanted.
    pub fn set_requires_grad(&self, requires_grad: bool) -> Result<()> {
        // SAFETY: the handle is live or NULL.
        check(unsafe { sys::trafo_tensor_set_requires_grad(self.as_ptr(), requires_grad.into()) })
    }
    /// The gradient, `None` if none has arrived since it was zeroed.
    pub fn grad(&self) -> Result<Option<Tensor>> {
        let mut raw = ptr::null_mut();
        // SAFETY: the handle is live or NULL, `raw` is valid.
        check(unsafe { sys::trafo_tensor_get_grad(self.as_ptr(), &mut raw) })?;
        if raw.is_null() {
            return Ok(None);
        }
        // SAFETY: a new handle.
        unsafe { Self::adopt(self.context(), raw) }.map(Some)
    }
    /// Forgets the gradient.
    pub fn zero_grad(&self) -> Result<()> {
        // SAFETY: the handle is live or NULL.
        check(unsafe { sys::trafo_tensor_zero_grad(self.as_ptr()) })
    }
    /// Adds the gradients of this one-element tensor to every leaf it depends on, and frees the graph.
    /// `InvalidArgument` names an op that needs a tensor whose memory was written to since the op ran.
    pub fn backward(&self) -> Result<()> {
        self.run_backward(ptr::null())
    }
    /// The same for a tensor of any shape, given its own gradient.
    pub fn backward_with(&self, upstream: &Tensor) -> Result<()> {
        self.run_backward(upstream.as_ptr())
    }
    fn run_backward(&self, upstream: *const sys::trafo_tensor) -> Result<()> {
        let context = self.context();
        context.run_regions(|| {
            // SAFETY: the handles are live or NULL.
            check(unsafe { sys::trafo_backward(context.as_ptr(), self.as_ptr(), upstream) })
        })
    }
}

pub(crate) fn expect_dtype<T: Element>(origin: &str, dtype: DType) -> Result<()> {
    if dtype == T::DTYPE {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::DTypeMismatch,
        origin,
        format!("the tensor holds {dtype:?}, the slice {:?}", T::DTYPE),
    ))
}

pub(crate) fn rank(dims: &[i64]) -> i32 {
    i32::try_from(dims.len()).unwrap_or(i32::MAX)
}

/// Another handle on the same tensor, with its history: a reshape to the same shape.
fn alias(inner: &TensorInner, dims: &[i64]) -> Result<*mut sys::trafo_tensor> {
    let mut out = ptr::null_mut();
    // SAFETY: the handles are live, shape and `out` are valid.
    check(unsafe {
        sys::trafo_op_reshape(
            inner.context.as_ptr(),
            inner.raw.get(),
            dims.as_ptr(),
            rank(dims),
            &mut out,
        )
    })?;
    Ok(out)
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("shape", &self.shape())
            .field("dtype", &self.dtype())
            .finish_non_exhaustive()
    }
}
