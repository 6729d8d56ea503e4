//! Models in the directories of other programs.

use std::path::Path;
use std::ptr;

use trafo_sys as sys;

use crate::cancel::CancelToken;
use crate::context::ContextOptions;
use crate::enums::{ExportFormat, ExportWeights};
use crate::error::{Result, check};
use crate::handle::{OutString, path_view};
use crate::ids::optional;
use crate::model::Model;
use crate::text::Tokenizer;

/// Result of [`Model::import`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Imported {
    /// The model, float32. It knows the special tokens of the directory ([`Model::special_tokens`]).
    pub model: Model,
    /// None if the directory has no tokenizer that can be imported.
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
        self.exported(Some(tokenizer), format, weights, directory.as_ref(), None)
    }
    /// The same, ended with `Cancelled` when the token is set: nothing is left of the directory. Without a tokenizer as
    /// [`Model::export_without_tokenizer`].
    pub fn export_cancellable(
        &self,
        tokenizer: Option<&Tokenizer>,
        format: ExportFormat,
        weights: ExportWeights,
        directory: impl AsRef<Path>,
        token: &CancelToken,
    ) -> Result<f64> {
        self.exported(tokenizer, format, weights, directory.as_ref(), Some(token))
    }
    pub(crate) fn exported(
        &self,
        tokenizer: Option<&Tokenizer>,
        format: ExportFormat,
        weights: ExportWeights,
        directory: &Path,
        token: Option<&CancelToken>,
    ) -> Result<f64> {
        let (data, length) = path_view(directory);
        let mut difference = 0.0;
        // SAFETY: the handles are live, the path and the output are valid during the call.
        check(unsafe {
            sys::trafo_model_export(
                self.as_ptr(),
                optional(tokenizer),
                format.as_raw(),
                weights.as_raw(),
                data,
                length,
                CancelToken::raw(token),
                &mut difference,
            )
        })?;
        Ok(difference)
    }
    /// Reads a directory of Hugging Face Transformers with safetensors weights. `docs/guide/import.md` lists the families.
    pub fn import(options: &ContextOptions, directory: impl AsRef<Path>) -> Result<Imported> {
        Self::imported(options, directory.as_ref(), None)
    }
    /// The same, ended with `Cancelled` when the token is set.
    pub fn import_cancellable(
        options: &ContextOptions,
        directory: impl AsRef<Path>,
        token: &CancelToken,
    ) -> Result<Imported> {
        Self::imported(options, directory.as_ref(), Some(token))
    }
    fn imported(
        options: &ContextOptions,
        directory: &Path,
        token: Option<&CancelToken>,
    ) -> Result<Imported> {
        let (data, length) = path_view(directory);
        let cancel = CancelToken::raw(token);
        let mut tokenizer = ptr::null_mut();
        let mut note = OutString::new();
        // SAFETY: the handle is live, the path and the outputs are valid during the call.
        let model = Self::make_in(options, |context, out| unsafe {
            sys::trafo_model_import(
                context,
                data,
                length,
                cancel,
                out,
                &mut tokenizer,
                &mut note.data,
            )
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
