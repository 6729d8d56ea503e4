use std::fmt;

use trafo_sys as sys;

use crate::context::to_i64;
use crate::error::{Result, check};
use crate::handle::defaults;
use crate::op_options::Activation;
use crate::tensor::DType;

/// Kinds of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Architecture {
    /// Encoder and decoder with cross-attention.
    EncoderDecoder,
    /// `source <eos> target <eos>` in one causal stream.
    DecoderLm,
}

/// The norm of a [`Architecture::DecoderLm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Norm {
    /// Layer norm.
    Layer,
    /// RMS norm, without biases.
    Rms,
}

/// How a [`Architecture::DecoderLm`] knows where a token stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Positions {
    /// Learned; sinusoidal in an [`Architecture::EncoderDecoder`].
    Standard,
    /// Queries and keys are turned.
    Rotary,
}

/// The feed-forward blocks of a [`Architecture::DecoderLm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FeedForward {
    /// Two products with an activation between them.
    Plain,
    /// A gate: with [`Activation::Silu`].
    Swiglu,
}

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

config_fields! {
    /// Kind of model.
    architecture / get_architecture: Architecture = architecture_to_raw, architecture_from_raw;
    /// Activation of the feed-forward layers.
    activation / get_activation: Activation = Activation::as_raw, activation_from_raw;
    /// Pieces of the tokenizer.
    vocabulary / get_vocabulary: usize = to_i64, from_i64;
    /// Layers of the encoder; not used by [`Architecture::DecoderLm`].
    encoder_layers / get_encoder_layers: usize = to_i64, from_i64;
    /// Layers of the decoder.
    decoder_layers / get_decoder_layers: usize = to_i64, from_i64;
    /// Width of the model.
    width / get_width: usize = to_i64, from_i64;
    /// Width of the feed-forward layers.
    ffn_width / get_ffn_width: usize = to_i64, from_i64;
    /// Attention heads.
    heads / get_heads: usize = to_i64, from_i64;
    /// Longest sequence in tokens.
    max_positions / get_max_positions: usize = to_i64, from_i64;
    /// Layer norm before each block instead of after it.
    pre_norm / get_pre_norm: bool = i32::from, from_flag;
    /// One table for source, target and output.
    tied_embeddings / get_tied_embeddings: bool = i32::from, from_flag;
    /// Whether the initial weights of layer l are divided by the root of l, as deep models like it; default no.
    depth_scaled_init / get_depth_scaled_init: bool = i32::from, from_flag;
    /// Dropout of residuals and embeddings.
    dropout / get_dropout: f64 = same, same;
    /// Dropout of attention probabilities.
    attention_dropout / get_attention_dropout: f64 = same, same;
    /// Dropout inside the feed-forward layers.
    ffn_dropout / get_ffn_dropout: f64 = same, same;
    /// Epsilon of layer norms.
    norm_epsilon / get_norm_epsilon: f64 = same, same;
    /// What the model computes in: `F32`, the default; `BF16` on CUDA; `F64` on the CPU, for gradient checks. Not part of
    /// the file.
    precision / get_precision: DType = DType::as_raw, DType::from_raw;
    /// Norm of a [`Architecture::DecoderLm`].
    norm / get_norm: Norm = norm_to_raw, norm_from_raw;
    /// Positions of a [`Architecture::DecoderLm`].
    positions / get_positions: Positions = positions_to_raw, positions_from_raw;
    /// Feed-forward blocks of a [`Architecture::DecoderLm`].
    ffn / get_ffn: FeedForward = ffn_to_raw, ffn_from_raw;
    /// Biases of the products.
    biases / get_biases: bool = i32::from, from_flag;
    /// Heads of keys and values, with [`Positions::Rotary`]; 0: as many as `heads`.
    kv_heads / get_kv_heads: usize = to_i64, from_i64;
    /// Theta of [`Positions::Rotary`].
    rope_theta / get_rope_theta: f64 = same, same;
}

impl ModelConfig {
    /// An encoder-decoder of 6+6 layers, width 512.
    pub fn new(vocabulary: usize) -> Self {
        ModelConfig(defaults(sys::trafo_model_config_init)).vocabulary(vocabulary)
    }
    /// A preset: `tiny` (4+4 layers, width 128), `small` (4+4, 256), `iwslt`, `base`, `big`, `lm` (a decoder-only model of
    /// 4 layers), `llama` (one as large with RMS norm, rotary positions and SwiGLU), `gpt2` (12 layers, width 768).
    /// The error [`NotFound`](crate::ErrorCode::NotFound) lists the names.
    pub fn preset(name: &str, vocabulary: usize) -> Result<Self> {
        let mut config = Self::new(vocabulary);
        // SAFETY: config and name are valid during the call.
        check(unsafe {
            sys::trafo_model_config_preset(&mut config.0, name.as_ptr().cast(), name.len())
        })?;
        Ok(config.vocabulary(vocabulary))
    }
}

fn architecture_to_raw(architecture: Architecture) -> i32 {
    match architecture {
        Architecture::EncoderDecoder => sys::TRAFO_ENCODER_DECODER,
        Architecture::DecoderLm => sys::TRAFO_DECODER_LM,
    }
}
fn architecture_from_raw(raw: i32) -> Architecture {
    match raw {
        sys::TRAFO_DECODER_LM => Architecture::DecoderLm,
        _ => Architecture::EncoderDecoder,
    }
}
fn activation_from_raw(raw: i32) -> Activation {
    match raw {
        sys::TRAFO_GELU => Activation::Gelu,
        sys::TRAFO_SILU => Activation::Silu,
        _ => Activation::Relu,
    }
}
fn norm_to_raw(norm: Norm) -> i32 {
    match norm {
        Norm::Layer => sys::TRAFO_NORM_LAYER,
        Norm::Rms => sys::TRAFO_NORM_RMS,
    }
}
fn norm_from_raw(raw: i32) -> Norm {
    match raw {
        sys::TRAFO_NORM_RMS => Norm::Rms,
        _ => Norm::Layer,
    }
}
fn positions_to_raw(positions: Positions) -> i32 {
    match positions {
        Positions::Standard => sys::TRAFO_POSITIONS_STANDARD,
        Positions::Rotary => sys::TRAFO_POSITIONS_ROTARY,
    }
}
fn positions_from_raw(raw: i32) -> Positions {
    match raw {
        sys::TRAFO_POSITIONS_ROTARY => Positions::Rotary,
        _ => Positions::Standard,
    }
}
fn ffn_to_raw(ffn: FeedForward) -> i32 {
    match ffn {
        FeedForward::Plain => sys::TRAFO_FFN_PLAIN,
        FeedForward::Swiglu => sys::TRAFO_FFN_SWIGLU,
    }
}
fn ffn_from_raw(raw: i32) -> FeedForward {
    match raw {
        sys::TRAFO_FFN_SWIGLU => FeedForward::Swiglu,
        _ => FeedForward::Plain,
    }
}
pub(crate) fn from_i64(value: i64) -> usize {
    usize::try_from(value).unwrap_or(0)
}
fn from_flag(flag: i32) -> bool {
    flag != 0
}
fn same(value: f64) -> f64 {
    value
}
