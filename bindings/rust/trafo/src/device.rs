use std::fmt;
use std::str::FromStr;

use trafo_sys as sys;

use crate::error::{Error, ErrorCode, Result, check, infallible};
use crate::handle::{OutString, RawContext, check_abi};
use crate::names::text;
use crate::results::{filled, text_of};

/// Where work happens.
///
/// ```
/// use trafo::{Context, ContextOptions, Device};
/// # fn main() -> trafo::Result<()> {
/// let device: Device = "auto".parse()?; // or "cpu", "cuda", "cuda:1"
/// let context = Context::with_options(&ContextOptions::new().device(device))?;
/// println!("computing on {}: {}", context.device(), context.device().info()?.name());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Device {
    /// The host's processor.
    Cpu,
    /// A CUDA device, by its index.
    Cuda(i32),
    /// `Cuda(0)` where the plugin, a driver and a device are there and fit, else `Cpu`.
    /// [`Context::device`](crate::Context::device) says which.
    Auto,
}

/// Description of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    name: String,
    memory_bytes: i64,
    compute_capability: (i32, i32),
    int8_kernel: String,
}

impl DeviceInfo {
    /// `NVIDIA H200`; `CPU`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
    /// All of the device's memory; for the CPU all of the machine's.
    #[must_use]
    pub fn memory_bytes(&self) -> i64 {
        self.memory_bytes
    }
    /// Of a CUDA device, such as (9, 0); (0, 0) for the CPU.
    #[must_use]
    pub fn compute_capability(&self) -> (i32, i32) {
        self.compute_capability
    }
    /// Of the CPU: what multiplies int8 weights, `avx512-vnni`, `avx-vnni`, `avx2`, `neon-dot`, `neon` or `portable`; empty for a GPU.
    #[must_use]
    pub fn int8_kernel(&self) -> &str {
        &self.int8_kernel
    }
}

impl Device {
    /// The CUDA devices of this machine, none of which is opened. Without devices, the error says what is missing and
    /// where it was looked for.
    ///
    /// ```
    /// match trafo::Device::cuda_devices() {
    ///     Ok(devices) => println!("{} devices, the first is {}", devices.len(), devices[0].name()),
    ///     Err(error) => println!("no CUDA: {error}"),
    /// }
    /// ```
    pub fn cuda_devices() -> Result<Vec<DeviceInfo>> {
        check_abi()?;
        let (mut count, mut why) = (0, OutString::new());
        // SAFETY: the outputs are valid.
        check(unsafe {
            sys::trafo_device_count(sys::TRAFO_DEVICE_CUDA, &mut count, &mut why.data)
        })?;
        if count == 0 {
            return Err(Error::new(
                ErrorCode::Unsupported,
                "Device::cuda_devices",
                why.to_c_text(),
            ));
        }
        (0..count).map(|index| Device::Cuda(index).info()).collect()
    }

    /// Description of this device; it is not opened. Not for [`Device::Auto`].
    pub fn info(self) -> Result<DeviceInfo> {
        check_abi()?;
        let (device, index) = self.as_raw();
        // SAFETY: the struct has the size that is told.
        let info =
            filled(|info, size| unsafe { sys::trafo_device_get_info(device, index, info, size) })?;
        Ok(DeviceInfo {
            name: text_of(&info.name),
            memory_bytes: info.memory_bytes,
            compute_capability: (info.compute_major, info.compute_minor),
            int8_kernel: text_of(&info.int8_kernel),
        })
    }

    pub(crate) fn as_raw(self) -> (i32, i32) {
        match self {
            Device::Cpu => (sys::TRAFO_DEVICE_CPU, 0),
            Device::Cuda(index) => (sys::TRAFO_DEVICE_CUDA, index),
            Device::Auto => (sys::TRAFO_DEVICE_AUTO, 0),
        }
    }

    pub(crate) fn of(context: &RawContext) -> Self {
        let (mut device, mut index) = (0, 0);
        // SAFETY: the handle is live, the outputs are valid.
        infallible(unsafe {
            sys::trafo_context_get_device(context.as_ptr(), &mut device, &mut index)
        });
        if device == sys::TRAFO_DEVICE_CUDA { Device::Cuda(index) } else { Device::Cpu }
    }
}

text! { Device }

impl fmt::Display for Device {
    /// `cpu`, `cuda:0`, `auto`: what [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(index) => write!(f, "cuda:{index}"),
            Device::Auto => f.write_str("auto"),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = |digits: &str| digits.parse().ok().filter(|index| *index >= 0);
        let found = match text {
            "cpu" => Some(Device::Cpu),
            "cuda" => Some(Device::Cuda(0)),
            "auto" => Some(Device::Auto),
            other => other.strip_prefix("cuda:").and_then(number).map(Device::Cuda),
        };
        found.ok_or_else(|| {
            let message = format!("a device is auto, cpu, cuda or cuda:N, not {text:?}");
            Error::new(ErrorCode::InvalidArgument, "Device::from_str", message)
        })
    }
}
