//! Low rank.

use trafo_sys as sys;

use crate::cancel::CancelToken;
use crate::embed::tell_pairs;
use crate::error::Result;
use crate::handle::{RawModel, defaults, views};
use crate::model::Model;
use crate::text::{Corpus, Tokenizer};

/// How small [`Model::factorize`] makes the matrices of the linear layers.
#[must_use]
#[derive(Clone, Debug)]
pub struct FactorizeOptions {
    rank: i64,
    ratio: f64,
    layers: Vec<String>,
    cancel: Option<CancelToken>,
}

impl FactorizeOptions {
    /// All factors have this rank; a matrix that would be no smaller stays whole.
    pub fn rank(rank: usize) -> Self {
        let rank = i64::try_from(rank).unwrap_or(i64::MAX);
        Self { rank, ratio: 0.0, layers: Vec::new(), cancel: None }
    }
    /// This share of the weights of the matrices stays, above 0 and below 1: the rank is chosen for each matrix.
    pub fn ratio(ratio: f64) -> Self {
        Self { rank: 0, ratio, layers: Vec::new(), cancel: None }
    }
    /// Matrices, by a pattern of names as of [`Model::freeze`]; by default the matrices of all linear layers. Each call
    /// adds one.
    pub fn layers(mut self, pattern: impl Into<String>) -> Self {
        self.layers.push(pattern.into());
        self
    }
    /// Ends the work with the error [`Cancelled`](crate::ErrorCode::Cancelled) when the token is set.
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }
}

impl Model {
    /// Makes matrices NAME `[rows, columns]` of linear layers the product of two factors, NAME.u `[rows, rank]` and NAME.v
    /// `[rank, columns]`, whose outputs on the calibration pairs differ least (whitened singular value decomposition).
    /// Embeddings and the output projection stay, and so does a matrix whose factors would be no smaller.
    /// [`ParameterInfo::signal_to_noise`](crate::ParameterInfo::signal_to_noise) of NAME.u is measured on the layer's
    /// outputs. The model is float32 then, and has lost quality: fine-tune it. After an error it is as before.
    /// `InvalidArgument`: an option, no calibration pair or another vocabulary, a ratio that is too low, a rank that makes
    /// no matrix smaller, or the model is factorized already or has an adapter. `NotFound`: a pattern matches no matrix.
    /// `Unsupported`: int8 weights. `NonFinite`: a weight, or an input of a layer.
    ///
    /// ```
    /// use trafo::{Corpus, FactorizeOptions, Model, ModelConfig, TokenizerOptions};
    /// # fn main() -> trafo::Result<()> {
    /// let corpus = Corpus::from_pairs([("ein Haus", "a house"), ("ein Baum", "a tree")])?;
    /// let tokenizer = corpus.train_tokenizer(&TokenizerOptions::new(40).soft_limit(true))?;
    /// let config = ModelConfig::preset("tiny", tokenizer.vocabulary())?;
    /// let mut model = Model::new(&config, 1)?; // not trained yet
    /// let before = model.parameter_count();
    /// let options = FactorizeOptions::rank(16).layers("*.ffn.*");
    /// model.factorize(&tokenizer, &corpus, &options)?;
    /// assert!(model.parameter_count() < before);
    /// # Ok(())
    /// # }
    /// ```
    pub fn factorize(
        &mut self,
        tokenizer: &Tokenizer,
        calibration: &Corpus,
        options: &FactorizeOptions,
    ) -> Result<()> {
        let cancel = options.cancel.as_ref().map_or(std::ptr::null(), CancelToken::as_ptr);
        let names = views(&options.layers);
        let mut raw: sys::trafo_factorize_options = defaults(sys::trafo_factorize_options_init);
        (raw.rank, raw.ratio) = (options.rank, options.ratio);
        (raw.layers, raw.layers_count) = (names.as_ptr(), names.len());
        (raw.tokenizer, raw.calibration) = (tokenizer.as_ptr(), calibration.as_ptr());
        let model = self.as_ptr();
        // SAFETY: the handles are live, the options and what they point to are valid during the call. The new model is in the
        // context of this one and takes its place.
        let factorized =
            RawModel::make(|out| unsafe { sys::trafo_model_factorize(model, &raw, cancel, out) });
        self.replace(tell_pairs(&calibration.sources, factorized)?);
        Ok(())
    }
}
