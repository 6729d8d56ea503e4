//! Structured pruning.

use trafo_sys as sys;

use crate::cancel::CancelToken;
use crate::embed::tell_pairs;
use crate::error::Result;
use crate::handle::{RawModel, defaults};
use crate::model::Model;
use crate::text::{Corpus, Tokenizer};

/// Parts that [`Model::prune`] leaves. A decoder-lm ignores what is said of the encoder.
#[must_use]
#[derive(Clone, Debug)]
pub struct PruneOptions {
    raw: sys::trafo_prune_options,
    cancel: Option<CancelToken>,
}

impl PruneOptions {
    /// All stays.
    pub fn new() -> Self {
        Self { raw: defaults(sys::trafo_prune_options_init), cancel: None }
    }
    /// Shares of the feed-forward columns of a layer that stay, above 0 and at most 1; rounded up to a multiple of 8 columns.
    pub fn ffn_shares(mut self, encoder: f64, decoder: f64) -> Self {
        (self.raw.encoder_ffn_share, self.raw.decoder_ffn_share) = (encoder, decoder);
        self
    }
    /// Shares of the attention heads of a layer that stay, above 0 and at most 1; at least one. Query heads that share keys
    /// and values stay or go together.
    pub fn head_shares(mut self, encoder: f64, decoder: f64) -> Self {
        (self.raw.encoder_head_share, self.raw.decoder_head_share) = (encoder, decoder);
        self
    }
    /// Layers that stay; 0: all.
    pub fn layers(mut self, encoder: usize, decoder: usize) -> Self {
        let count = |layers| i64::try_from(layers).unwrap_or(i64::MAX);
        (self.raw.encoder_layers, self.raw.decoder_layers) = (count(encoder), count(decoder));
        self
    }
    /// Ends the work with the error [`Cancelled`](crate::ErrorCode::Cancelled) when the token is set.
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }
}

impl Default for PruneOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// Makes the model smaller by removing whole layers, attention heads and feed-forward columns. `calibration` says which
    /// are needed least; pairs of more than 256 tokens a side are left out. The model is float32 then, and has lost quality:
    /// fine-tune it. After an error it is as before. `InvalidArgument`: an option, or the model has an adapter.
    /// `Unsupported`: int8 weights.
    ///
    /// ```
    /// use trafo::{Corpus, Model, ModelConfig, PruneOptions, TokenizerOptions};
    /// # fn main() -> trafo::Result<()> {
    /// let corpus = Corpus::from_pairs([("ein Haus", "a house"), ("ein Baum", "a tree")])?;
    /// let tokenizer = corpus.train_tokenizer(&TokenizerOptions::new(40).soft_limit(true))?;
    /// let config = ModelConfig::preset("tiny", tokenizer.vocabulary())?;
    /// let mut model = Model::new(&config, 1)?; // not trained yet
    /// let before = model.parameter_count();
    /// let options = PruneOptions::new().ffn_shares(0.25, 0.5).layers(1, 1);
    /// model.prune(&tokenizer, &corpus, &options)?;
    /// assert!(model.parameter_count() < before);
    /// # Ok(())
    /// # }
    /// ```
    pub fn prune(
        &mut self,
        tokenizer: &Tokenizer,
        calibration: &Corpus,
        options: &PruneOptions,
    ) -> Result<()> {
        let cancel = options.cancel.as_ref().map_or(std::ptr::null(), CancelToken::as_ptr);
        let (model, tokenizer, corpus) = (self.as_ptr(), tokenizer.as_ptr(), calibration.as_ptr());
        // SAFETY: the handles are live, the options are valid during the call. The new model is in the context of this one
        // and takes its place.
        let pruned = RawModel::make(|out| unsafe {
            sys::trafo_model_prune(model, tokenizer, corpus, &options.raw, cancel, out)
        });
        self.replace(tell_pairs(&calibration.sources, pruned)?);
        Ok(())
    }
}
