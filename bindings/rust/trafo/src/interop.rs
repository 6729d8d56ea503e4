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
    /// CTranslate2, every architecture, but not the Llama form.
    CTranslate2,
    /// LlamaForCausalLM of transformers: a pre-norm decoder-only model with RMS norm, rotary positions and SwiGLU.
    HfLlama,
    /// ONNX graphs of opset 17 and their weights: every model.
    Onnx,
}

impl ExportFormat {
    fn as_raw(self) -> i32 {
        match self {
            ExportFormat::HfMarian => sys::TRAFO_EXPORT_HF_MARIAN,
            ExportFormat::HfGpt2 => sys::TRAFO_EXPORT_HF_GPT2,
            ExportFormat::CTranslate2 => sys::TRAFO_EXPORT_CTRANSLATE2,
            ExportFormat::HfLlama => sys::TRAFO_EXPORT_HF_LLAMA,
            ExportFormat::Onnx => sys::TRAFO_EXPORT_ONNX,
        }
    }
}

/// What [`Model::import`] found.
#[derive(Debug)]
pub struct Imported {
    /// The model, float32.
    pub model: Model,
    /// None if the directory has no SentencePiece model.
    pub tokenizer: Option<Tokenizer>,
    /// What the user should know; may be empty.
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
                data,
                length,
                &mut difference,
            )
        })?;
        Ok(difference)
    }
    /// Reads a MarianMT, GPT-2 or Llama directory of transformers, with `model.safetensors`.
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
