use std::fmt;
use std::path::Path;

use trafo_sys as sys;

use crate::context::Context;
use crate::error::{Result, check};
use crate::handle::{RawAdamW, defaults, path_view};
use crate::network::tensor::Tensor;

// The table in schema/structs.toml gives the options.
include!("../generated/adamw_options.rs");

/// AdamW on parameters of an own network.
///
/// ```
/// use trafo::{AdamW, AdamWOptions, Context};
/// # fn main() -> trafo::Result<()> {
/// let context = Context::new()?;
/// let w = context.parameter(&[5.0f32], &[1])?;
/// let mut optimizer = AdamW::new(&context, &[&w], &AdamWOptions::default())?;
/// for _ in 0..200 {
///     w.mul(&w)?.sum()?.backward()?;
///     optimizer.step(0.1)?;
/// }
/// assert!(w.item()?.abs() < 0.1);
/// # Ok(())
/// # }
/// ```
pub struct AdamW {
    raw: RawAdamW, // freed before the context
    // Keeps the context on this thread.
    _context: Context,
}

impl AdamW {
    /// For leaves of one type that want gradients; keeps them alive.
    pub fn new(context: &Context, parameters: &[&Tensor], options: &AdamWOptions) -> Result<Self> {
        let raw_parameters: Vec<_> = parameters.iter().map(|t| t.as_ptr()).collect();
        let raw_options = options.to_raw();
        // SAFETY: the handles are live or NULL; array and options are valid during the call.
        let raw = RawAdamW::make(|out| unsafe {
            sys::trafo_adamw_new(
                context.as_ptr(),
                raw_parameters.as_ptr(),
                raw_parameters.len(),
                &raw_options,
                out,
            )
        })?;
        Ok(AdamW { raw, _context: context.clone() })
    }
    /// Updates every parameter that has a gradient and zeroes the gradients. Gives the gradient norm before clipping. A norm
    /// that is not finite leaves everything as it is and is the error [`NonFinite`](crate::ErrorCode::NonFinite).
    pub fn step(&mut self, learning_rate: f64) -> Result<f64> {
        let mut norm = 0.0;
        // SAFETY: the handle is live, `norm` is valid.
        check(unsafe { sys::trafo_adamw_step(self.raw.as_ptr(), learning_rate, &mut norm) })?;
        Ok(norm)
    }
    /// Writes what training resumes from to a safetensors file with checksums, which appears whole or not at all: the
    /// parameters, their moments and the number of updates.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the handle is live, the path is valid during the call.
        check(unsafe { sys::trafo_adamw_save(self.raw.as_ptr(), data, length) })
    }
    /// Reads such a file into the parameters and the optimizer: the next update has the same bits as without the pause.
    /// Gradients are zeroed; the options of [`new`](AdamW::new) stay. An error changes nothing.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the handle is live, the path is valid during the call.
        check(unsafe { sys::trafo_adamw_load(self.raw.as_ptr(), data, length) })
    }
}

impl fmt::Debug for AdamW {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdamW").finish_non_exhaustive()
    }
}
