//! Functions of tensors that the library calls back: checkpointed regions, custom ops and gradient checks.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::{Rc, Weak};

use trafo_sys as sys;

use crate::context::{Context, ContextInner, Interruption};
use crate::error::{Error, ErrorCode, Result, check};
use crate::handle::OutString;
use crate::network::tensor::Tensor;
use crate::options::from_i64;

/// State of a region that the library keeps. The context is held weakly: the tape of the context owns the
/// region.
struct Region<F> {
    context: Weak<ContextInner>,
    body: F,
}

/// A new handle on its way to the library.
struct Given(*mut sys::trafo_tensor);

impl Drop for Given {
    fn drop(&mut self) {
        // SAFETY: ours, or NULL.
        unsafe { sys::trafo_tensor_free(self.0) }
    }
}

/// Inputs that end with the callback, whatever way it ends.
struct Inputs(Vec<Tensor>);

impl Drop for Inputs {
    fn drop(&mut self) {
        self.0.iter().for_each(Tensor::forget_borrowed);
    }
}

impl Inputs {
    /// # Safety
    /// The handles are live until the inputs are dropped.
    unsafe fn borrow(context: &Context, raw: &[*const sys::trafo_tensor]) -> Result<Self> {
        let mut inputs = Inputs(Vec::with_capacity(raw.len()));
        for &raw in raw {
            // SAFETY: the caller's promise.
            inputs.0.push(unsafe { Tensor::borrow(context, raw) }?);
        }
        Ok(inputs)
    }
    /// `N` of them from `begin`.
    fn part<const N: usize>(&self, begin: usize) -> Result<[&Tensor; N]> {
        let part = self.0.get(begin..begin + N).map(|part| part.iter().collect::<Vec<_>>());
        part.and_then(|part| <[&Tensor; N]>::try_from(part).ok())
            .ok_or_else(|| Error::new(ErrorCode::Internal, "region", "unexpected number of inputs"))
    }
}

fn give(output: Tensor) -> Result<Given> {
    output.into_raw().map(Given)
}

/// Runs `body` for the library, with borrowed inputs, and hands its outputs over.
///
/// # Safety
/// The arrays are valid for their lengths and the inputs live until the callback returns.
unsafe fn answer(
    context: &Weak<ContextInner>,
    inputs: (*const *const sys::trafo_tensor, usize),
    outputs: (*mut *mut sys::trafo_tensor, usize),
    body: impl FnOnce(&Context, &Inputs) -> Result<Vec<Given>>,
) -> i32 {
    let Some(inner) = context.upgrade() else { return 1 };
    let context = Context(inner);
    let result = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller's promise.
        let inputs = unsafe { Inputs::borrow(&context, crate::handle::slice(inputs.0, inputs.1)) }?;
        body(&context, &inputs)
    }));
    let interruption = match result {
        Ok(Ok(given)) => {
            for (i, mut tensor) in given.into_iter().enumerate().take(outputs.1) {
                // SAFETY: outputs has room for that many handles.
                unsafe {
                    outputs.0.add(i).write(std::mem::replace(&mut tensor.0, ptr::null_mut()));
                }
            }
            return 0;
        }
        Ok(Err(error)) => Interruption::Error(error),
        Err(payload) => Interruption::Panic(payload),
    };
    *context.0.interruption.borrow_mut() = Some(interruption);
    1
}

/// # Safety
/// Called by the library with the `Region<F>` it was given as user data.
unsafe extern "C" fn call_region<F, const M: usize, const N: usize>(
    user_data: *mut c_void,
    _context: *mut sys::trafo_context,
    inputs: *const *const sys::trafo_tensor,
    input_count: usize,
    outputs: *mut *mut sys::trafo_tensor,
    output_count: usize,
) -> i32
where
    F: Fn(&Context, [&Tensor; M]) -> Result<[Tensor; N]>,
{
    // SAFETY: the region lives until drop_user_data; the arrays are the library's.
    unsafe {
        let region = &*user_data.cast::<Region<F>>();
        let (inputs, outputs) = ((inputs, input_count), (outputs, output_count));
        answer(&region.context, inputs, outputs, |context, inputs| {
            (region.body)(context, inputs.part(0)?)?.into_iter().map(give).collect()
        })
    }
}

/// Both functions of a custom op.
struct CustomOp<F, B> {
    context: Weak<ContextInner>,
    forward: F,
    backward: B,
}

/// # Safety
/// As [`call_region`], with a `CustomOp<F, B>`.
unsafe extern "C" fn call_forward<F, B, const M: usize, const N: usize>(
    user_data: *mut c_void,
    _context: *mut sys::trafo_context,
    inputs: *const *const sys::trafo_tensor,
    input_count: usize,
    outputs: *mut *mut sys::trafo_tensor,
    output_count: usize,
) -> i32
where
    F: Fn(&Context, [&Tensor; M]) -> Result<[Tensor; N]>,
{
    // SAFETY: as in call_region.
    unsafe {
        let op = &*user_data.cast::<CustomOp<F, B>>();
        let (inputs, outputs) = ((inputs, input_count), (outputs, output_count));
        answer(&op.context, inputs, outputs, |context, inputs| {
            (op.forward)(context, inputs.part(0)?)?.into_iter().map(give).collect()
        })
    }
}

/// # Safety
/// As [`call_region`], with a `CustomOp<F, B>`.
unsafe extern "C" fn call_backward<F, B, const M: usize, const N: usize>(
    user_data: *mut c_void,
    _context: *mut sys::trafo_context,
    inputs: *const *const sys::trafo_tensor,
    input_count: usize,
    outputs: *mut *mut sys::trafo_tensor,
    output_count: usize,
) -> i32
where
    B: Fn(&Context, CustomBackward<'_, M, N>) -> Result<[Option<Tensor>; M]>,
{
    // SAFETY: as in call_region.
    unsafe {
        let op = &*user_data.cast::<CustomOp<F, B>>();
        let (inputs, outputs) = ((inputs, input_count), (outputs, output_count));
        answer(&op.context, inputs, outputs, |context, inputs| {
            let given = CustomBackward {
                inputs: inputs.part(0)?,
                outputs: inputs.part(M)?,
                gradients: inputs.part(M + N)?,
            };
            let gradients = (op.backward)(context, given)?;
            gradients.into_iter().map(|g| g.map_or(Ok(Given(ptr::null_mut())), give)).collect()
        })
    }
}

/// # Safety
/// Called once by the library with a boxed `T`.
unsafe extern "C" fn drop_user_data<T>(user_data: *mut c_void) {
    // A panic in the destructor of something captured must not cross the library; the panic hook has reported it.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: made by Box::into_raw.
        drop(unsafe { Box::from_raw(user_data.cast::<T>()) });
    }));
}

fn raw_inputs<const M: usize>(inputs: [&Tensor; M]) -> [*const sys::trafo_tensor; M] {
    inputs.map(|t| t.as_ptr().cast_const())
}

/// Tolerances of [`Context::gradcheck`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct GradcheckOptions {
    /// Step of the central differences.
    pub eps: f64,
    /// Absolute tolerance.
    pub atol: f64,
    /// Relative tolerance.
    pub rtol: f64,
}

impl GradcheckOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }
    /// Step of the central differences. Default 1e-6.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }
    /// Absolute tolerance. Default 1e-5.
    pub fn atol(mut self, atol: f64) -> Self {
        self.atol = atol;
        self
    }
    /// Relative tolerance. Default 1e-3.
    pub fn rtol(mut self, rtol: f64) -> Self {
        self.rtol = rtol;
        self
    }
}

impl Default for GradcheckOptions {
    fn default() -> Self {
        GradcheckOptions { eps: 1e-6, atol: 1e-5, rtol: 1e-3 }
    }
}

/// Result of [`Context::gradcheck`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Gradcheck {
    /// Whether every derivative is within the tolerances.
    pub ok: bool,
    /// Derivatives compared.
    pub checked: usize,
    /// Largest `|analytic - numeric| - rtol |numeric|`.
    pub worst_error: f64,
    /// The first failure, or empty.
    pub message: String,
}

/// The argument of the backward function of [`Context::custom_op`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CustomBackward<'a, const M: usize, const N: usize> {
    /// The inputs of the op.
    pub inputs: [&'a Tensor; M],
    /// Its outputs.
    pub outputs: [&'a Tensor; N],
    /// The gradient of each output; zeros where nothing used it.
    pub gradients: [&'a Tensor; N],
}

impl Context {
    /// Runs `region` now without keeping its intermediates, and again during backward with the same bits: memory for time.
    ///
    /// It must be a function of its inputs and of leaves alone. Its captures live until backward has run. A panic in it
    /// goes on in the caller; an error of it comes out of this call, or of `backward`.
    ///
    /// ```
    /// use trafo::Context;
    /// # fn main() -> trafo::Result<()> {
    /// let context = Context::new()?;
    /// let x = context.parameter(&[0.5f32, 1.5], &[2])?;
    /// let [y] = context.checkpoint([&x], |_, [x]| Ok([x.exp()?.mul(x)?]))?;
    /// y.sum()?.backward()?;
    /// assert!(x.grad()?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn checkpoint<F, const M: usize, const N: usize>(
        &self,
        inputs: [&Tensor; M],
        region: F,
    ) -> Result<[Tensor; N]>
    where
        F: Fn(&Context, [&Tensor; M]) -> Result<[Tensor; N]> + 'static,
    {
        let inputs = raw_inputs(inputs);
        let user_data =
            Box::into_raw(Box::new(Region { context: Rc::downgrade(&self.0), body: region }));
        let mut outputs = [ptr::null_mut(); N];
        self.run_regions(|| {
            // SAFETY: the arrays are valid for their lengths. The library frees the region once, also when it refuses.
            check(unsafe {
                sys::trafo_checkpoint(
                    self.as_ptr(),
                    Some(call_region::<F, M, N>),
                    user_data.cast(),
                    Some(drop_user_data::<Region<F>>),
                    inputs.as_ptr(),
                    M,
                    outputs.as_mut_ptr(),
                    N,
                )
            })
        })?;
        // SAFETY: a successful call gives new handles.
        unsafe { self.adopt_all(outputs) }
    }

    /// # Safety
    /// The handles are new and nobody else's.
    unsafe fn adopt_all<const N: usize>(
        &self,
        raw: [*mut sys::trafo_tensor; N],
    ) -> Result<[Tensor; N]> {
        // All are taken over before any result is looked at.
        // SAFETY: the caller's promise.
        let tensors = raw.map(|raw| unsafe { Tensor::adopt(self, raw) });
        let tensors = tensors.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(tensors.try_into().expect("N outputs"))
    }

    /// Runs an op of the program, which has its own gradient.
    ///
    /// `forward` makes new floating-point tensors of the inputs and is not recorded. In [`Tensor::backward`], `backward`
    /// gives a gradient of each input, of the input's shape, or `None` where there is none. No gradient flows to tensors
    /// that are captured. It may be used in checkpointed regions and in [`gradcheck`](Context::gradcheck). A panic in one
    /// of the functions goes on in the caller; an error of it comes out of this call, or of `backward`.
    ///
    /// ```
    /// use trafo::Context;
    /// # fn main() -> trafo::Result<()> {
    /// let context = Context::new()?;
    /// let x = context.parameter(&[0.5f32, 1.5], &[2])?;
    /// let [y] = context.custom_op(
    ///     [&x],
    ///     |_, [x]| Ok([x.mul(x)?]),
    ///     |_, given| Ok([Some(given.inputs[0].scale(2.0)?.mul(given.gradients[0])?)]),
    /// )?;
    /// y.sum()?.backward()?;
    /// assert_eq!(x.grad()?.unwrap().to_vec::<f32>()?, [1.0, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn custom_op<F, B, const M: usize, const N: usize>(
        &self,
        inputs: [&Tensor; M],
        forward: F,
        backward: B,
    ) -> Result<[Tensor; N]>
    where
        F: Fn(&Context, [&Tensor; M]) -> Result<[Tensor; N]> + 'static,
        B: Fn(&Context, CustomBackward<'_, M, N>) -> Result<[Option<Tensor>; M]> + 'static,
    {
        let inputs = raw_inputs(inputs);
        let op = CustomOp { context: Rc::downgrade(&self.0), forward, backward };
        let user_data = Box::into_raw(Box::new(op));
        let mut outputs = [ptr::null_mut(); N];
        self.run_regions(|| {
            // SAFETY: the arrays are valid for their lengths. The library frees the op once, also when it refuses.
            check(unsafe {
                sys::trafo_custom_op(
                    self.as_ptr(),
                    Some(call_forward::<F, B, M, N>),
                    Some(call_backward::<F, B, M, N>),
                    user_data.cast(),
                    Some(drop_user_data::<CustomOp<F, B>>),
                    inputs.as_ptr(),
                    M,
                    outputs.as_mut_ptr(),
                    N,
                )
            })
        })?;
        // SAFETY: a successful call gives new handles.
        unsafe { self.adopt_all(outputs) }
    }

    /// Compares analytic gradients of `function` with central differences, for every element of every `f64` input.
    ///
    /// ```
    /// use trafo::{Context, GradcheckOptions};
    /// # fn main() -> trafo::Result<()> {
    /// let context = Context::new()?;
    /// let x = context.tensor(&[0.3f64, -1.2, 2.0], &[3])?;
    /// let result =
    ///     context.gradcheck([&x], GradcheckOptions::default(), |_, [x]| Ok([x.sigmoid()?.mul(x)?]))?;
    /// assert!(result.ok, "{}", result.message);
    /// # Ok(())
    /// # }
    /// ```
    pub fn gradcheck<F, const M: usize, const N: usize>(
        &self,
        inputs: [&Tensor; M],
        options: GradcheckOptions,
        function: F,
    ) -> Result<Gradcheck>
    where
        F: Fn(&Context, [&Tensor; M]) -> Result<[Tensor; N]>,
    {
        let inputs = raw_inputs(inputs);
        let region = Region { context: Rc::downgrade(&self.0), body: function };
        let mut result = sys::trafo_gradcheck_result { ok: 0, checked: 0, worst_error: 0.0 };
        let mut message = OutString::new();
        self.run_regions(|| {
            // SAFETY: the arrays are valid for their lengths; the region outlives the call, which does not keep it.
            check(unsafe {
                sys::trafo_gradcheck(
                    self.as_ptr(),
                    Some(call_region::<F, M, N>),
                    ptr::from_ref(&region).cast_mut().cast(),
                    inputs.as_ptr(),
                    M,
                    N,
                    options.eps,
                    options.atol,
                    options.rtol,
                    &mut result,
                    &mut message.data,
                )
            })
        })?;
        Ok(Gradcheck {
            ok: result.ok != 0,
            checked: from_i64(result.checked),
            worst_error: result.worst_error,
            message: message.to_c_text(),
        })
    }
}
