//! Random tensors, files of tensors, and SGD, for own networks.

use std::fmt;
use std::path::Path;
use std::ptr;

use trafo_sys as sys;

use crate::context::Context;
use crate::error::{Result, check};
use crate::handle::{path_view, views};
use crate::network::tensor::{DType, Tensor, rank};
use crate::options::to_i64;

// SAFETY of every call below: handles are live, or NULL or freed and then refused by the library; arrays are valid for
// the lengths that go with them; outputs are valid during the call, which keeps none of them.

/// Distribution of [`Context::random`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Distribution {
    /// Evenly from `low` to `high`.
    Uniform {
        /// The least number.
        low: f64,
        /// The bound, which is not drawn.
        high: f64,
    },
    /// The normal distribution.
    Normal {
        /// Its mean.
        mean: f64,
        /// Its standard deviation.
        deviation: f64,
    },
}

impl Context {
    /// A leaf with random elements. A seed gives the same numbers on every device.
    ///
    /// ```
    /// use trafo::{Context, DType, Distribution};
    /// # fn main() -> trafo::Result<()> {
    /// let context = Context::new()?;
    /// let normal = Distribution::Normal { mean: 0.0, deviation: 0.02 };
    /// let w = context.random(&[64, 32], DType::F32, normal, 1)?;
    /// w.set_requires_grad(true)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn random(
        &self,
        shape: &[usize],
        dtype: DType,
        distribution: Distribution,
        seed: u64,
    ) -> Result<Tensor> {
        let dims: Vec<i64> = shape.iter().map(|&d| to_i64(d)).collect();
        let (kind, a, b) = match distribution {
            Distribution::Uniform { low, high } => (sys::TRAFO_UNIFORM, low, high),
            Distribution::Normal { mean, deviation } => (sys::TRAFO_NORMAL, mean, deviation),
        };
        Tensor::make(self, |out| unsafe {
            sys::trafo_tensor_random(
                self.as_ptr(),
                dtype.as_raw(),
                dims.as_ptr(),
                rank(&dims),
                kind,
                a,
                b,
                seed,
                out,
            )
        })
    }

    /// Writes tensors with their names to a safetensors file with checksums, which appears whole or not at all.
    pub fn save_tensors(&self, path: impl AsRef<Path>, tensors: &[(&str, &Tensor)]) -> Result<()> {
        let (data, length) = path_view(path.as_ref());
        let names: Vec<&str> = tensors.iter().map(|(name, _)| *name).collect();
        let names = views(&names);
        let raw: Vec<_> = tensors.iter().map(|(_, t)| t.as_ptr().cast_const()).collect();
        check(unsafe {
            sys::trafo_tensors_save(
                self.as_ptr(),
                data,
                length,
                names.as_ptr(),
                raw.as_ptr(),
                raw.len(),
            )
        })
    }

    /// Reads the tensors of these names from a safetensors file as new leaves. The file may have more.
    pub fn load_tensors(&self, path: impl AsRef<Path>, names: &[&str]) -> Result<Vec<Tensor>> {
        let (data, length) = path_view(path.as_ref());
        let names = views(names);
        let mut raw = vec![ptr::null_mut(); names.len()];
        check(unsafe {
            sys::trafo_tensors_load(
                self.as_ptr(),
                data,
                length,
                names.as_ptr(),
                names.len(),
                raw.as_mut_ptr(),
            )
        })?;
        // SAFETY: a successful call gives new handles. All are adopted before one of them can fail the call.
        let tensors: Vec<_> = raw.iter().map(|&t| unsafe { Tensor::adopt(self, t) }).collect();
        tensors.into_iter().collect()
    }

    /// Scales the gradients of these leaves so that their common norm is at most `max_norm` (0 measures only), and gives
    /// the norm before. The leaves may belong to several optimizers. A norm that is not finite changes nothing and is the
    /// error [`NonFinite`](crate::ErrorCode::NonFinite).
    pub fn clip_grad_norm(&self, parameters: &[&Tensor], max_norm: f64) -> Result<f64> {
        let raw: Vec<_> = parameters.iter().map(|t| t.as_ptr()).collect();
        let mut norm = 0.0;
        check(unsafe {
            sys::trafo_clip_grad_norm(self.as_ptr(), raw.as_ptr(), raw.len(), max_norm, &mut norm)
        })?;
        Ok(norm)
    }
}

/// SGD with momentum on a group of parameters of an own network.
///
/// An update is `v = momentum v + g + weight_decay p`, `p = p - learning_rate v`. The velocities `v` are tensors of the
/// program, which can save them.
///
/// ```
/// use trafo::{Context, Sgd};
/// # fn main() -> trafo::Result<()> {
/// let context = Context::new()?;
/// let w = context.parameter(&[5.0f32], &[1])?;
/// let mut optimizer = Sgd::new(&context, &[&w], 0.9, 0.0)?;
/// for _ in 0..200 {
///     w.mul(&w)?.sum()?.backward()?;
///     optimizer.step(0.01)?;
/// }
/// assert!(w.item()?.abs() < 0.1);
/// # Ok(())
/// # }
/// ```
pub struct Sgd {
    context: Context,
    parameters: Vec<Tensor>,
    velocities: Vec<Tensor>,
    momentum: f64,
    weight_decay: f64,
}

impl Sgd {
    /// For leaves that want gradients; keeps them alive.
    pub fn new(
        context: &Context,
        parameters: &[&Tensor],
        momentum: f64,
        weight_decay: f64,
    ) -> Result<Self> {
        let zeros = |p: &&Tensor| context.zeros(p.shape(), p.dtype());
        Ok(Sgd {
            context: context.clone(),
            parameters: parameters.iter().map(|&p| p.clone()).collect(),
            velocities: parameters.iter().map(zeros).collect::<Result<_>>()?,
            momentum,
            weight_decay,
        })
    }
    /// Updates every parameter that has a gradient and zeroes the gradients.
    pub fn step(&mut self, learning_rate: f64) -> Result<()> {
        let parameters: Vec<_> = self.parameters.iter().map(Tensor::as_ptr).collect();
        let velocities: Vec<_> = self.velocities.iter().map(Tensor::as_ptr).collect();
        check(unsafe {
            sys::trafo_sgd_step(
                self.context.as_ptr(),
                parameters.as_ptr(),
                velocities.as_ptr(),
                parameters.len(),
                learning_rate,
                self.momentum,
                self.weight_decay,
            )
        })
    }
    /// A velocity for each parameter: the whole state of the optimizer. [`Tensor::write`] restores one.
    #[must_use]
    pub fn velocities(&self) -> &[Tensor] {
        &self.velocities
    }
}

impl fmt::Debug for Sgd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sgd").field("parameters", &self.parameters).finish_non_exhaustive()
    }
}
