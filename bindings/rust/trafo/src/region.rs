//! Functions of tensors that the library calls back: checkpointed regions and gradient checks.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::{Rc, Weak};

use trafo_sys as sys;

use crate::context::{Context, ContextInner, Interruption};
use crate::error::{Error, ErrorCode, Result, check};
use crate::handle::OutString;
use crate::tensor::Tensor;

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
struct Inputs<const M: usize>([Tensor; M]);

impl<const M: usize> Drop for Inputs<M> {
    fn drop(&mut self) {
        self.0.iter().for_each(Tensor::forget_borrowed);
    }
}

fn run_body<F, const M: usize, const N: usize>(
    context: &Context,
    body: &F,
    inputs: &[*const sys::trafo_tensor],
) -> Result<[Given; N]>
where
    F: Fn(&Context, [&Tensor; M]) -> Result<[Tensor; N]>,
{
    let mut borrowed = Vec::with_capacity(M);
    for &raw in inputs {
        // SAFETY: live until the callback returns; Inputs ends them before that.
        borrowed.push(unsafe { Tensor::borrow(context, raw) }?);
    }
    let Ok(borrowed) = <[Tensor; M]>::try_from(borrowed) else {
        return Err(Error::new(ErrorCode::Internal, "region", "unexpected number of inputs"));
    };
    let inputs = Inputs(borrowed);
    let outputs = body(context, inputs.0.each_ref())?;
    let mut given = [const { Given(ptr::null_mut()) }; N];
    for (slot, output) in given.iter_mut().zip(outputs) {
        slot.0 = output.into_raw()?;
    }
    Ok(given)
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
    // SAFETY: the region lives until drop_region.
    let region = unsafe { &*user_data.cast::<Region<F>>() };
    let Some(inner) = region.context.upgrade() else { return 1 };
    let context = Context(inner);
    // SAFETY: the library gives a valid array.
    let inputs = unsafe { crate::handle::slice(inputs, input_count) };
    let result =
        catch_unwind(AssertUnwindSafe(|| run_body::<F, M, N>(&context, &region.body, inputs)));
    let interruption = match result {
        Ok(Ok(given)) => {
            for (i, mut tensor) in given.into_iter().enumerate().take(output_count) {
                // SAFETY: outputs has room for output_count handles.
                unsafe { outputs.add(i).write(std::mem::replace(&mut tensor.0, ptr::null_mut())) };
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
/// Called once by the library with a boxed `Region<F>`.
unsafe extern "C" fn drop_region<F>(user_data: *mut c_void) {
    // A panic in the destructor of something captured must not cross the library; the panic hook has reported it.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: made by Box::into_raw.
        drop(unsafe { Box::from_raw(user_data.cast::<Region<F>>()) });
    }));
}

fn raw_inputs<const M: usize>(inputs: [&Tensor; M]) -> [*const sys::trafo_tensor; M] {
    inputs.map(|t| t.as_ptr().cast_const())
}

/// Tolerances of [`Context::gradcheck`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradcheckOptions {
    /// Step of the central differences.
    pub eps: f64,
    /// Absolute tolerance.
    pub atol: f64,
    /// Relative tolerance.
    pub rtol: f64,
}

impl Default for GradcheckOptions {
    fn default() -> Self {
        GradcheckOptions { eps: 1e-6, atol: 1e-5, rtol: 1e-3 }
    }
}

/// Result of [`Context::gradcheck`].
#[derive(Clone, Debug, PartialEq)]
pub struct Gradcheck {
    /// Whether every derivative is within the tolerances.
    pub ok: bool,
    /// Derivatives compared.
    pub checked: i64,
    /// Largest `|analytic - numeric| - rtol |numeric|`.
    pub worst_error: f64,
    /// The first failure, or empty.
    pub message: String,
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
                    Some(drop_region::<F>),
                    inputs.as_ptr(),
                    M,
                    outputs.as_mut_ptr(),
                    N,
                )
            })
        })?;
        // SAFETY: a successful call gives new handles; all are taken over before any result is looked at.
        let tensors = outputs.map(|raw| unsafe { Tensor::adopt(self, raw) });
        let tensors = tensors.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(tensors.try_into().expect("N outputs"))
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
            checked: result.checked,
            worst_error: result.worst_error,
            message: message.to_c_text(),
        })
    }
}
