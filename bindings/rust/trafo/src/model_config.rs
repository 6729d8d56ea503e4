use std::fmt;
use std::path::Path;

use trafo_sys as sys;

use crate::context::to_i64;
use crate::error::{Result, check};
use crate::handle::{defaults, path_view};
use crate::names::named;
use crate::ops::Activation;
use crate::tensor::DType;

/// The shape of a model.
///
/// ```
/// use trafo::ModelConfig;
/// # fn main() -> trafo::Result<()> {
/// let config = ModelConfig::preset("tiny", 8000)?.dropout(0.2).encoder_layers(2);
/// assert_eq!(config.get_width(), 128);
/// # Ok(())
/// # }
/// ```
#[must_use]
#[derive(Clone)]
pub struct ModelConfig(pub(crate) sys::trafo_model_config);

macro_rules! config_fields {
    ($($(#[$doc:meta])* $name:ident / $get:ident: $type:ty = $to:expr, $from:expr;)*) => {
        impl ModelConfig {
            $(
                $(#[$doc])*
                pub fn $name(mut self, $name: $type) -> Self {
                    let to: fn($type) -> _ = $to;
                    self.0.$name = to($name);
                    self
                }
                $(#[$doc])*
                pub fn $get(&self) -> $type {
                    let from: fn(_) -> $type = $from;
                    from(self.0.$name)
                }
            )*
        }
        impl fmt::Debug for ModelConfig {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut out = f.debug_struct("ModelConfig");
                $(out.field(stringify!($name), &self.$get());)*
                out.finish()
            }
        }
        impl PartialEq for ModelConfig {
            fn eq(&self, other: &Self) -> bool {
                true $(&& self.$get() == other.$get())*
            }
        }
    };
}

// The table in schema/model.toml gives the enums and the fields.
include!("generated/model_config.rs");

impl ModelConfig {
    /// An encoder-decoder of 6+6 layers, width 512.
    pub fn new(vocabulary: usize) -> Self {
        ModelConfig(defaults(sys::trafo_model_config_init)).vocabulary(vocabulary)
    }
    /// A preset by task, for example `small` (docs/reference/generated/options.md lists the presets). The error
    /// [`NotFound`](crate::ErrorCode::NotFound) lists the names.
    pub fn preset(name: &str, vocabulary: usize) -> Result<Self> {
        let mut config = Self::new(vocabulary);
        // SAFETY: config and name are valid during the call.
        check(unsafe {
            sys::trafo_model_config_preset(&mut config.0, name.as_ptr().cast(), name.len())
        })?;
        Ok(config.vocabulary(vocabulary))
    }
    /// The configuration of a `model.safetensors`, whose weights are not read.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let mut config = ModelConfig(defaults(sys::trafo_model_config_init));
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the path is valid during the call; `config` has the size that is told.
        check(unsafe {
            sys::trafo_model_read_config(
                data,
                length,
                &mut config.0,
                size_of::<sys::trafo_model_config>(),
            )
        })?;
        Ok(config)
    }
}

pub(crate) fn from_i64(value: i64) -> usize {
    usize::try_from(value).unwrap_or(0)
}
// A number that the array cannot hold becomes a layer that no model has, and the engine refuses it
// by name.
fn to_layers(layers: Vec<usize>) -> [u8; sys::TRAFO_TIED_LAYERS as usize] {
    let mut raw = [0; sys::TRAFO_TIED_LAYERS as usize];
    if layers.len() > raw.len() {
        return [u8::MAX; sys::TRAFO_TIED_LAYERS as usize];
    }
    for (number, layer) in raw.iter_mut().zip(layers) {
        *number = match layer {
            0 => u8::MAX,
            _ => u8::try_from(layer).unwrap_or(u8::MAX),
        };
    }
    raw
}
fn from_layers(raw: [u8; sys::TRAFO_TIED_LAYERS as usize]) -> Vec<usize> {
    raw.into_iter().take_while(|&number| number != 0).map(usize::from).collect()
}
fn from_flag(flag: i32) -> bool {
    flag != 0
}
fn same(value: f64) -> f64 {
    value
}
