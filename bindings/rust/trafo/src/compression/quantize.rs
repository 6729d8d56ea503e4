use trafo_sys as sys;

use crate::cancel::CancelToken;
use crate::error::Result;
use crate::handle::{RawModel, defaults, views};
use crate::model::Model;
use crate::text::{Corpus, Tokenizer};

/// How [`Model::quantize`] rounds weights: by default to int8, each weight to the nearest code, in all matrices.
#[must_use]
#[derive(Clone, Debug, Default)]
pub struct QuantizeOptions {
    int4: bool,
    gptq: bool,
    keep_float: Vec<String>,
    calibration: Option<(Tokenizer, Corpus)>,
    cancel: Option<CancelToken>,
}

impl QuantizeOptions {
    /// int8 in all matrices, with a scale for each row.
    pub fn new() -> Self {
        Self::default()
    }
    /// int4 with a scale for each 32 columns of a row, instead of int8.
    pub fn int4(mut self) -> Self {
        self.int4 = true;
        self
    }
    /// int4 by GPTQ (Frantar et al., arXiv 2210.17323): each weight with the error of the ones before it. It needs
    /// [`calibration`](Self::calibration).
    pub fn gptq(mut self) -> Self {
        self.int4 = true;
        self.gptq = true;
        self
    }
    /// Matrices that stay float32, by a pattern of names as of [`Model::freeze`]. Each call adds one.
    pub fn keep_float(mut self, pattern: impl Into<String>) -> Self {
        self.keep_float.push(pattern.into());
        self
    }
    /// Pairs that show what the layers multiply, and the model's vocabulary.
    pub fn calibration(mut self, tokenizer: &Tokenizer, corpus: &Corpus) -> Self {
        self.calibration = Some((tokenizer.clone(), corpus.clone()));
        self
    }
    /// Ends the work with the error [`Cancelled`](crate::ErrorCode::Cancelled) when the token is set.
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }
}

impl Model {
    /// This model with quantized weights, for translation and scoring: a float32 model on a CPU. It computes with int8
    /// codes, also of int4 weights, which [`save`](Model::save) writes as they are.
    /// [`ParameterInfo::signal_to_noise`](crate::ParameterInfo::signal_to_noise) says how much each matrix has lost.
    /// `NotFound`: a pattern matches no matrix. `InvalidArgument`: calibration without a pair or with another vocabulary,
    /// GPTQ without calibration, a weight that is not finite. `Unsupported`: a model on a GPU, in another precision, or
    /// with quantized weights.
    ///
    /// ```no_run
    /// # use trafo::{Model, QuantizeOptions};
    /// # fn main() -> trafo::Result<()> {
    /// let options = QuantizeOptions::new().int4().keep_float("embedding.weight");
    /// Model::load("run/ckpt/2000/model.safetensors")?.quantize(&options)?.save("small.safetensors")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn quantize(self, options: &QuantizeOptions) -> Result<Self> {
        let names = views(&options.keep_float);
        let mut settings: sys::trafo_quantize_options = defaults(sys::trafo_quantize_options_init);
        settings.bits = if options.int4 { 4 } else { 8 };
        settings.method =
            if options.gptq { sys::TRAFO_QUANTIZE_GPTQ } else { sys::TRAFO_QUANTIZE_NEAREST };
        settings.keep_float = names.as_ptr();
        settings.keep_float_count = names.len();
        if let Some((tokenizer, corpus)) = &options.calibration {
            settings.tokenizer = tokenizer.as_ptr();
            settings.calibration = corpus.as_ptr();
        }
        // SAFETY: the handles are live, the options and what they point to are valid during the call.
        let raw = RawModel::make(|out| unsafe {
            let cancel = CancelToken::raw(options.cancel.as_ref());
            sys::trafo_model_quantize(self.as_ptr(), &settings, cancel, out)
        })?;
        Ok(self.replaced(raw))
    }
}
