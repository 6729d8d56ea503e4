//! Models in the directories of other programs.

use std::path::Path;
use std::ptr;

use trafo_sys as sys;

use crate::context::ContextOptions;
use crate::error::{Result, check};
use crate::handle::{OutString, path_view};
use crate::model::Model;
use crate::text::Tokenizer;

/// A form of model directories of other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExportFormat {
    /// MarianMTModel of transformers: a post-norm encoder-decoder with tied embeddings.
    HfMarian,
    /// GPT2LMHeadModel of transformers: a pre-norm decoder-only model.
    HfGpt2,
    /// CTranslate2, every architecture.
    CTranslate2,
    /// LlamaForCausalLM of transformers: a pre-norm decoder-only model with RMS norm, rotary positions and SwiGLU.
    HfLlama,
    /// ONNX graphs of opset 17 and their weights: every model.
    Onnx,
    /// llama.cpp's file of such a model, `model.gguf`. The vocabulary must be BPE with byte fallback.
    Gguf,
    /// compressed-tensors, for transformers and vLLM: such a model in int8 or int4.
    HfCompressed,
    /// PegasusForConditionalGeneration of transformers: a pre-norm encoder-decoder with tied embeddings.
    HfPegasus,
}

impl ExportFormat {
    fn as_raw(self) -> i32 {
        match self {
            ExportFormat::HfMarian => sys::TRAFO_EXPORT_HF_MARIAN,
            ExportFormat::HfGpt2 => sys::TRAFO_EXPORT_HF_GPT2,
            ExportFormat::CTranslate2 => sys::TRAFO_EXPORT_CTRANSLATE2,
            ExportFormat::HfLlama => sys::TRAFO_EXPORT_HF_LLAMA,
            ExportFormat::Onnx => sys::TRAFO_EXPORT_ONNX,
            ExportFormat::Gguf => sys::TRAFO_EXPORT_GGUF,
            ExportFormat::HfCompressed => sys::TRAFO_EXPORT_HF_COMPRESSED,
            ExportFormat::HfPegasus => sys::TRAFO_EXPORT_HF_PEGASUS,
        }
    }
}

/// How an export stores matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExportWeights {
    /// float16 in GGUF, int8 in compressed-tensors, float32 in the others.
    #[default]
    ByFormat,
    /// float32.
    Float32,
    /// float16: CTranslate2 and GGUF.
    Float16,
    /// bfloat16: CTranslate2.
    BFloat16,
    /// CTranslate2: 16 bits, one scale for a matrix.
    Int16,
    /// CTranslate2 and compressed-tensors (8 bits), ONNX (7 bits): a scale for each output.
    Int8,
    /// GGUF: 8 bits, a scale for each block of 32.
    Q8_0,
    /// GGUF: 4 bits, a scale for each block of 32.
    Q4_0,
    /// compressed-tensors: 4 bits, a scale for each 32 values of a row.
    Int4,
}

impl ExportWeights {
    fn as_raw(self) -> i32 {
        match self {
            ExportWeights::ByFormat => sys::TRAFO_EXPORT_WEIGHTS_BY_FORMAT,
            ExportWeights::Float32 => sys::TRAFO_EXPORT_WEIGHTS_FLOAT32,
            ExportWeights::Float16 => sys::TRAFO_EXPORT_WEIGHTS_FLOAT16,
            ExportWeights::BFloat16 => sys::TRAFO_EXPORT_WEIGHTS_BFLOAT16,
            ExportWeights::Int16 => sys::TRAFO_EXPORT_WEIGHTS_INT16,
            ExportWeights::Int8 => sys::TRAFO_EXPORT_WEIGHTS_INT8,
            ExportWeights::Q8_0 => sys::TRAFO_EXPORT_WEIGHTS_Q8_0,
            ExportWeights::Q4_0 => sys::TRAFO_EXPORT_WEIGHTS_Q4_0,
            ExportWeights::Int4 => sys::TRAFO_EXPORT_WEIGHTS_INT4,
        }
    }
}

/// Result of [`Model::import`].
#[derive(Debug)]
pub struct Imported {
    /// The model, float32.
    pub model: Model,
    /// None if the directory has no SentencePiece model.
    pub tokenizer: Option<Tokenizer>,
    /// A remark for the user; may be empty.
    pub note: String,
}

impl Model {
    /// Writes a model directory, which must not exist or be empty, for another program. It appears after it was read
    /// back; the result is how far the logits of what was read are from the model's. `Unsupported` names the setting
    /// that the format cannot express.
    pub fn export(
        &self,
        tokenizer: &Tokenizer,
        format: ExportFormat,
        weights: ExportWeights,
        directory: impl AsRef<Path>,
    ) -> Result<f64> {
        let (data, length) = path_view(directory.as_ref());
        let mut difference = 0.0;
        // SAFETY: the handles are live, the path and the output are valid during the call.
        check(unsafe {
            sys::trafo_model_export(
                self.as_ptr(),
                tokenizer.as_ptr(),
                format.as_raw(),
                weights.as_raw(),
                data,
                length,
                &mut difference,
            )
        })?;
        Ok(difference)
    }
    /// Reads a MarianMT, Pegasus, GPT-2 or Llama directory of transformers, with `model.safetensors`.
    pub fn import(options: &ContextOptions, directory: impl AsRef<Path>) -> Result<Imported> {
        let (data, length) = path_view(directory.as_ref());
        let mut tokenizer = ptr::null_mut();
        let mut note = OutString::new();
        // SAFETY: the handle is live, the path and the outputs are valid during the call.
        let model = Self::make_in(options, |context, out| unsafe {
            sys::trafo_model_import(context, data, length, out, &mut tokenizer, &mut note.data)
        })?;
        let tokenizer = if tokenizer.is_null() {
            None
        } else {
            Some(Tokenizer::make(|out| {
                // SAFETY: `make` gives a place for the handle, which the call above made.
                unsafe { *out = tokenizer };
                ptr::null_mut()
            })?)
        };
        Ok(Imported { model, tokenizer, note: note.to_c_text() })
    }
}
