use std::path::Path;

use trafo_sys as sys;

use crate::enums::Pooling;
use crate::error::{Result, check};
use crate::handle::{defaults, path_view};
use crate::names::named;
use crate::network::ops::Activation;
use crate::network::tensor::DType;
use crate::options::{from_flag, from_i64, options, same, to_count};

macro_rules! model_config {
    ($($fields:tt)*) => {
        options! {
            /// The shape of a model.
            ///
            /// ```
            /// use trafo::ModelConfig;
            /// # fn main() -> trafo::Result<()> {
            /// let config = ModelConfig::preset("tiny", 8000)?.dropout(0.2).encoder_layers(2);
            /// assert_eq!(config.width, 128);
            /// # Ok(())
            /// # }
            /// ```
            ModelConfig = trafo_model_config, trafo_model_config_init {}
            $($fields)*
        }
    };
}

// The table in schema/model.toml gives the enums and the fields.
include!("generated/model_config.rs");

impl ModelConfig {
    /// An encoder-decoder of 6+6 layers, width 512.
    pub fn new(vocabulary: usize) -> Self {
        Self::default().vocabulary(vocabulary)
    }
    /// A preset by task, for example `small` (docs/reference/generated/options.md lists the presets). The error
    /// [`NotFound`](crate::ErrorCode::NotFound) lists the names.
    pub fn preset(name: &str, vocabulary: usize) -> Result<Self> {
        let mut raw = Self::new(vocabulary).to_raw();
        // SAFETY: config and name are valid during the call.
        check(unsafe {
            sys::trafo_model_config_preset(&mut raw, name.as_ptr().cast(), name.len())
        })?;
        Ok(Self::from_raw(&raw).vocabulary(vocabulary))
    }
    /// The configuration of a `model.safetensors`, whose weights are not read.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let mut raw = defaults(sys::trafo_model_config_init);
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the path is valid during the call; `raw` has the size that is told.
        check(unsafe {
            sys::trafo_model_read_config(
                data,
                length,
                &mut raw,
                size_of::<sys::trafo_model_config>(),
            )
        })?;
        Ok(Self::from_raw(&raw))
    }
    pub(crate) fn to_raw(&self) -> sys::trafo_model_config {
        let mut raw = defaults(sys::trafo_model_config_init);
        self.write(&mut raw);
        raw
    }
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
