//! Unstructured pruning.

use trafo_sys as sys;

use crate::cancel::CancelToken;
use crate::embed::tell_pairs;
use crate::error::{Result, check};
use crate::handle::{RawModel, defaults};
use crate::model::Model;
use crate::options::from_i64;
use crate::text::{Corpus, Tokenizer};

/// Which weights [`Model::sparsify`] sets to zero: by default half of them, by magnitude.
#[must_use]
#[derive(Clone, Debug)]
pub struct SparsifyOptions {
    sparsity: Option<f64>,
    two_of_four: bool,
    calibration: Option<(Tokenizer, Corpus)>,
    cancel: Option<CancelToken>,
}

impl SparsifyOptions {
    /// Half of the weights of each linear layer, the ones of the least magnitude.
    pub fn new() -> Self {
        Self { sparsity: None, two_of_four: false, calibration: None, cancel: None }
    }
    /// Share of the weights of each linear layer that becomes zero, at least 0 and below 1; by default 0.5.
    pub fn sparsity(mut self, share: f64) -> Self {
        self.sparsity = Some(share);
        self
    }
    /// Compares |weight| times the norm of its input with the weights of its row (Wanda, arXiv 2306.11695), over these
    /// pairs of the model's vocabulary, instead of |weight| with all weights of the matrix.
    pub fn wanda(mut self, tokenizer: &Tokenizer, corpus: &Corpus) -> Self {
        self.calibration = Some((tokenizer.clone(), corpus.clone()));
        self
    }
    /// Of each four neighbours of a row, two become zero; the sparsity is 0.5.
    pub fn two_of_four(mut self) -> Self {
        self.two_of_four = true;
        self
    }
    /// Ends the work with the error [`Cancelled`](crate::ErrorCode::Cancelled) when the token is set.
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }
}

impl Default for SparsifyOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// Sets single weights of the linear layers to zero (unstructured pruning); embeddings, the output projection, biases
    /// and norms stay. The model is float32 then. Fine-tune it with
    /// [`keep_zeros`](crate::TrainerOptions::keep_zeros). After an error it is as before. `InvalidArgument`: an option,
    /// Wanda without a pair or with another vocabulary, 2:4 and a row that is no multiple of 4 weights long, or the model has
    /// an adapter. `Unsupported`: int8 weights. `NonFinite`: a weight, or an input of a layer.
    ///
    /// ```
    /// use trafo::{Model, ModelConfig, SparsifyOptions};
    /// # fn main() -> trafo::Result<()> {
    /// let mut model = Model::new(&ModelConfig::preset("tiny", 50)?, 1)?; // not trained yet
    /// model.sparsify(&SparsifyOptions::new().sparsity(0.75))?;
    /// let infos = model.parameter_infos()?;
    /// let layer = infos.iter().position(|info| info.name == "encoder.0.ffn.up.weight").unwrap();
    /// assert_eq!(model.zeros(layer)?, infos[layer].elements / 4 * 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn sparsify(&mut self, options: &SparsifyOptions) -> Result<()> {
        let cancel = options.cancel.as_ref().map_or(std::ptr::null(), CancelToken::as_ptr);
        let mut raw: sys::trafo_sparsify_options = defaults(sys::trafo_sparsify_options_init);
        raw.sparsity = options.sparsity.unwrap_or(raw.sparsity);
        if options.two_of_four {
            raw.pattern = sys::TRAFO_SPARSITY_2_4;
        }
        let mut sources = &[][..];
        if let Some((tokenizer, corpus)) = &options.calibration {
            raw.score = sys::TRAFO_PRUNE_WANDA;
            raw.tokenizer = tokenizer.as_ptr();
            raw.calibration = corpus.as_ptr();
            sources = &corpus.sources[..];
        }
        let model = self.as_ptr();
        // SAFETY: the handles are live, the options are valid during the call. The new model is in the context of this one
        // and takes its place.
        let sparse =
            RawModel::make(|out| unsafe { sys::trafo_model_sparsify(model, &raw, cancel, out) });
        self.replace(tell_pairs(sources, sparse)?);
        Ok(())
    }
    /// The number of elements of the parameter with this index (of [`parameter_infos`](Self::parameter_infos)) that are
    /// exactly zero; of an int8 weight, of its codes. It reads the parameter.
    pub fn zeros(&self, index: usize) -> Result<usize> {
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        let mut zeros = 0;
        // SAFETY: the handle is live, and `zeros` is valid during the call.
        check(unsafe { sys::trafo_model_get_zeros(self.as_ptr(), index, &mut zeros) })?;
        Ok(from_i64(zeros))
    }
}
