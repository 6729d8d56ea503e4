use std::cell::RefCell;
use std::fmt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use trafo_sys as sys;

use crate::device::Device;
use crate::enums::DType;
use crate::error::{Error, Result, check, infallible};
use crate::handle::{OutString, RawContext, check_abi, defaults, path_view};
use crate::network::tensor::{Element, Tensor};
use crate::options::{to_i32, to_i64};
use crate::results::{MemoryStats, filled};

/// Settings of a [`Context`] and of the engine of a [`Model`](crate::Model).
///
/// ```
/// use trafo::{Context, ContextOptions};
/// # fn main() -> trafo::Result<()> {
/// let context = Context::with_options(&ContextOptions::new().threads(2))?;
/// # Ok(())
/// # }
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct ContextOptions {
    /// The device that computes.
    pub device: Device,
    /// Host threads that compute, 1 to 256; 0 is one for each core.
    pub threads: usize,
    /// Whether ops run in fused kernels.
    pub fused_kernels: bool,
    /// Whether training steps on CUDA are replayed as graphs.
    pub graphs: bool,
    /// What GEMMs of float32 tensors multiply on the CPU; see [`matmul_precision`](Self::matmul_precision()).
    pub matmul_precision: DType,
    /// Below 1, the engine works in the background; see [`background_share`](Self::background_share()).
    pub background_share: f64,
    /// A directory for memory; see [`memory_directory`](Self::memory_directory()).
    pub memory_directory: Option<PathBuf>,
}

impl ContextOptions {
    /// The CPU, one thread for each core, fused kernels.
    pub fn new() -> Self {
        ContextOptions {
            device: Device::Cpu,
            threads: 0,
            fused_kernels: true,
            graphs: true,
            matmul_precision: DType::F32,
            background_share: 1.0,
            memory_directory: None,
        }
    }
    /// The device that computes.
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }
    /// Host threads that compute, 1 to 256; 0 is one for each core. The number never changes results.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }
    /// `false` runs every op's reference implementation. It is slow and serves comparisons.
    pub fn fused_kernels(mut self, fused: bool) -> Self {
        self.fused_kernels = fused;
        self
    }
    /// `false` issues training steps on CUDA kernel by kernel instead of replaying recorded graphs: for profiling.
    /// Never changes results.
    pub fn graphs(mut self, graphs: bool) -> Self {
        self.graphs = graphs;
        self
    }
    /// [`DType::BF16`] has GEMMs of float32 tensors multiply in bfloat16 on the CPU, forward and backward: both
    /// operands are rounded to it, and everything else stays float32. GEMMs with few rows and translating stay
    /// float32. `Unsupported` on CUDA, where [models](crate::ModelConfig::precision) compute in bfloat16, and on a
    /// processor without AVX512-BF16. The default is [`DType::F32`].
    pub fn matmul_precision(mut self, precision: DType) -> Self {
        self.matmul_precision = precision;
        self
    }
    /// Below 1, the engine works in the background: while other engines of the process, whose share is 1, are at work,
    /// it computes only this share of the time, 0.001 to 1. It gives way within about a millisecond. For training in
    /// a process that serves. On the CPU only. Never changes results.
    pub fn background_share(mut self, share: f64) -> Self {
        self.background_share = share;
        self
    }
    /// Tensors of at least 16 MiB lie in files without names in this directory, which the system pages in and out: for
    /// import, export and quantization of models that are larger than the machine's memory. All parameters are frozen
    /// at first. On the CPU only. Never changes results.
    pub fn memory_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.memory_directory = Some(directory.into());
        self
    }

    pub(crate) fn make(&self) -> Result<RawContext> {
        check_abi()?;
        let mut options = defaults(sys::trafo_context_options_init);
        (options.device, options.device_index) = self.device.as_raw();
        options.threads = to_i32(self.threads);
        options.fused_kernels = self.fused_kernels.into();
        options.graphs = self.graphs.into();
        options.matmul_precision = self.matmul_precision.as_raw();
        options.background_share = self.background_share;
        if let Some(directory) = &self.memory_directory {
            let (data, length) = path_view(directory);
            options.memory_directory = sys::trafo_string_view { data, length };
        }
        // SAFETY: options and out are valid during the call.
        RawContext::make(|out| unsafe { sys::trafo_context_new(&options, out) })
    }
}

impl Default for ContextOptions {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) fn memory_stats(context: &RawContext) -> Result<MemoryStats> {
    // SAFETY: the handle is live; the struct is valid.
    let stats =
        filled(|stats, _| unsafe { sys::trafo_context_memory_stats(context.as_ptr(), stats) })?;
    Ok(MemoryStats::from_raw(&stats))
}

pub(crate) fn start_profile(context: &RawContext, keep_graphs: bool) -> Result<()> {
    // SAFETY: the handle is live.
    check(unsafe { sys::trafo_context_profile_start(context.as_ptr(), i32::from(keep_graphs)) })
}

pub(crate) fn write_profile(context: &RawContext, path: Option<&Path>) -> Result<String> {
    let (path, length) = path.map_or((std::ptr::null(), 0), path_view);
    let mut table = OutString::new();
    // SAFETY: the handle is live, the path outlives the call, `table` takes what comes out.
    check(unsafe {
        sys::trafo_context_profile_write(context.as_ptr(), path, length, &mut table.data)
    })?;
    Ok(table.to_c_text())
}

/// Why a callback ended the C call that ran it.
pub(crate) enum Interruption {
    Panic(Box<dyn std::any::Any + Send>),
    Error(Error),
}

pub(crate) struct ContextInner {
    pub(crate) raw: Arc<RawContext>,
    /// Left by a region's callback for the call that ran it.
    pub(crate) interruption: RefCell<Option<Interruption>>,
}

/// A device, its memory, its threads and its tape: what tensors are made from.
///
/// Clones are the same context. A context and its tensors stay on the thread that made them (they are not `Send`): all
/// of them share one tape and one memory pool, so moving one of them alone to another thread would be a data race.
/// Threads that train own networks at the same time make a context each. A [`Model`](crate::Model) and a
/// [`Trainer`](crate::Trainer) have a context to themselves and move between threads.
///
/// ```
/// use trafo::Context;
/// # fn main() -> trafo::Result<()> {
/// let context = Context::new()?;
/// let w = context.parameter(&[2.0f32, -1.0], &[2])?;
/// let loss = w.mul(&w)?.sum()?;
/// loss.backward()?;
/// assert_eq!(w.grad()?.unwrap().to_vec::<f32>()?, [4.0, -2.0]);
/// # Ok(())
/// # }
/// ```
///
/// ```compile_fail,E0277
/// let context = trafo::Context::new().unwrap();
/// std::thread::spawn(move || context.tensor(&[0.0f32], &[1])); // not Send
/// ```
#[derive(Clone)]
pub struct Context(pub(crate) Rc<ContextInner>);

impl Context {
    /// On the CPU, with a thread for each core.
    pub fn new() -> Result<Self> {
        Self::with_options(&ContextOptions::new())
    }
    /// With other settings.
    pub fn with_options(options: &ContextOptions) -> Result<Self> {
        let raw = Arc::new(options.make()?);
        Ok(Context(Rc::new(ContextInner { raw, interruption: RefCell::new(None) })))
    }
    /// The device that computes: `Cpu` or `Cuda`, also where `Auto` was asked for.
    #[must_use]
    pub fn device(&self) -> Device {
        Device::of(&self.0.raw)
    }
    /// Sets the number of host threads, 1 to 256. It never changes results.
    pub fn set_threads(&self, threads: usize) -> Result<()> {
        // SAFETY: the handle is live.
        check(unsafe { sys::trafo_context_set_threads(self.as_ptr(), to_i32(threads)) })
    }
    /// Sets [`background_share`](ContextOptions::background_share()), 0.001 to 1, from the next call on.
    pub fn set_background_share(&self, share: f64) -> Result<()> {
        // SAFETY: the handle is live.
        check(unsafe { sys::trafo_context_set_background_share(self.as_ptr(), share) })
    }
    /// Memory in use.
    pub fn memory_stats(&self) -> Result<MemoryStats> {
        memory_stats(&self.0.raw)
    }
    /// Gives kept blocks back to the system and starts a new peak.
    pub fn trim_memory(&self) -> Result<()> {
        // SAFETY: the handle is live.
        check(unsafe { sys::trafo_context_trim_memory(self.as_ptr()) })
    }

    /// Begins a profile: times of every op, forward and backward, until [`write_profile`](Self::write_profile). Unless
    /// `keep_graphs`, what would run as a CUDA graph is issued kernel by kernel meanwhile, so that its ops are seen. A
    /// profile that was being recorded is dropped. It never changes a bit.
    pub fn start_profile(&self, keep_graphs: bool) -> Result<()> {
        start_profile(&self.0.raw, keep_graphs)
    }
    /// Ends the profile, writes it as a Chrome trace if `path` is given, whole or not at all, and returns a table of the
    /// ops by time. The profile is kept until the next one is started: it may be written again.
    pub fn write_profile(&self, path: Option<&Path>) -> Result<String> {
        write_profile(&self.0.raw, path)
    }

    /// A tensor with a copy of `data`, row-major. `shape` may be empty for a scalar.
    pub fn tensor<T: Element>(&self, data: &[T], shape: &[usize]) -> Result<Tensor> {
        Tensor::from_slice(self, data, shape)
    }
    /// A tensor whose gradient is wanted.
    pub fn parameter<T: Element>(&self, data: &[T], shape: &[usize]) -> Result<Tensor> {
        let tensor = self.tensor(data, shape)?;
        tensor.set_requires_grad(true)?;
        Ok(tensor)
    }
    /// A tensor of zeros.
    pub fn zeros(&self, shape: &[usize], dtype: crate::DType) -> Result<Tensor> {
        Tensor::zeros(self, shape, dtype)
    }
    /// The sinusoidal position table `[positions, width]`, sines first, then cosines; `width` is even.
    pub fn sinusoidal_positions(
        &self,
        positions: usize,
        width: usize,
        dtype: crate::DType,
    ) -> Result<Tensor> {
        // SAFETY: the handle is live, `out` is valid.
        Tensor::make(self, |out| unsafe {
            sys::trafo_sinusoidal_positions(
                self.as_ptr(),
                to_i64(positions),
                to_i64(width),
                dtype.as_raw(),
                out,
            )
        })
    }

    /// Runs `work` without recording its ops: no gradients, no memory kept for them.
    pub fn no_grad<R>(&self, work: impl FnOnce() -> R) -> R {
        struct Restore<'a>(&'a Context, i32);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                // SAFETY: the handle is live. The call can only refuse a handle that is not.
                let _ = check(unsafe {
                    sys::trafo_context_set_recording(self.0.as_ptr(), self.1, std::ptr::null_mut())
                });
            }
        }
        let mut previous = 0;
        // SAFETY: the handle is live, `previous` is valid.
        infallible(unsafe { sys::trafo_context_set_recording(self.as_ptr(), 0, &mut previous) });
        let _restore = Restore(self, previous);
        work()
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::trafo_context {
        self.0.raw.as_ptr()
    }

    /// Runs a C call that may run regions: a panic in one goes on here, an error of one comes out as it was.
    pub(crate) fn run_regions<R>(&self, call: impl FnOnce() -> Result<R>) -> Result<R> {
        self.0.interruption.take();
        let result = call();
        if result.is_err() {
            match self.0.interruption.take() {
                Some(Interruption::Panic(payload)) => resume_unwind(payload),
                Some(Interruption::Error(error)) => return Err(error),
                None => {}
            }
        }
        result
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("memory", &self.memory_stats()).finish()
    }
}
