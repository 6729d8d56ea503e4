//! LoRA adapters.

use std::path::Path;

use trafo_sys as sys;

use crate::error::{Result, check};
use crate::handle::{RawModel, path_view};
use crate::model::Model;

/// The adapter that [`Model::add_adapter`] adds: y = x Wᵀ + alpha / rank (x Aᵀ) Bᵀ in the linear layers that are
/// its targets.
#[must_use]
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterOptions {
    rank: i64,
    alpha: f64,
    targets: String,
    seed: u64,
}

impl AdapterOptions {
    /// An adapter of all linear layers, with alpha = 2 rank and seed 1.
    pub fn new(rank: usize) -> Self {
        let rank = i64::try_from(rank).unwrap_or(i64::MAX);
        Self { rank, alpha: 2.0 * rank as f64, targets: String::new(), seed: 1 }
    }
    /// The product B A is multiplied with alpha / rank.
    pub fn alpha(mut self, alpha: f64) -> Self {
        self.alpha = alpha;
        self
    }
    /// Of `query`, `key`, `value`, `output`, `gate`, `up` and `down`, as far as the model has them; `qkv` in place of
    /// the first three in GPT-2 and ModernBERT, `gate_up` in place of `gate` and `up` in ModernBERT. None: all.
    pub fn targets<S: AsRef<str>>(mut self, targets: &[S]) -> Self {
        self.targets = targets.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(",");
        self
    }
    /// Rank and targets, which decide its memory.
    pub(crate) fn shape(&self) -> (i64, &str) {
        (self.rank, &self.targets)
    }
    /// Seed of the initial A.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

impl Model {
    /// Freezes the model and adds a trainable adapter, which changes nothing before it is trained. `InvalidArgument`:
    /// there is an adapter already, or a rank, an alpha or a target that cannot be.
    ///
    /// ```
    /// use trafo::{AdapterOptions, Model, ModelConfig};
    /// # fn main() -> trafo::Result<()> {
    /// let mut model = Model::new(&ModelConfig::preset("tiny", 50)?, 1)?;
    /// model.add_adapter(&AdapterOptions::new(4).targets(&["query", "value"]))?;
    /// assert!(model.parameter_infos()?.iter().all(|info| info.trainable == (info.group == "adapter")));
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_adapter(&mut self, options: &AdapterOptions) -> Result<()> {
        let (data, length) = (options.targets.as_ptr().cast(), options.targets.len());
        let AdapterOptions { rank, alpha, seed, .. } = *options;
        // SAFETY: the handle is live and exclusive, the text is valid during the call.
        check(unsafe {
            sys::trafo_model_add_adapter(self.as_ptr(), rank, alpha, data, length, seed)
        })
    }
    /// Adds the adapter in a directory of [`Model::save_adapter`] or of PEFT. `InvalidArgument`, naming what differs:
    /// it is of another base.
    pub fn load_adapter(&mut self, directory: impl AsRef<Path>) -> Result<()> {
        let (data, length) = path_view(directory.as_ref());
        // SAFETY: the handle is live and exclusive, the path is valid during the call.
        check(unsafe { sys::trafo_model_load_adapter(self.as_ptr(), data, length) })
    }
    /// Another model, which computes as this one would with the adapter in such a directory: any number of adapters serve
    /// over one base, and a request chooses its model. The new model has memory for its adapter alone; the other weights,
    /// quantized ones too, are this model's memory, which stays until the last of them is dropped. Both are prepared for
    /// inference, and calls on them are serialised. `InvalidArgument`: this model is not prepared with
    /// [`Model::prepare_inference`], or has an adapter; otherwise as [`Model::load_adapter`].
    ///
    /// ```no_run
    /// # use trafo::Model;
    /// # fn main() -> trafo::Result<()> {
    /// let mut base = Model::load("base")?;
    /// base.prepare_inference()?;
    /// let (support, legal) = (base.with_adapter("support")?, base.with_adapter("legal")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_adapter(&self, directory: impl AsRef<Path>) -> Result<Model> {
        let (data, length) = path_view(directory.as_ref());
        // SAFETY: the handle is live, the path is valid during the call.
        let raw = RawModel::make(|out| unsafe {
            sys::trafo_model_with_adapter(self.as_ptr(), data, length, out)
        })?;
        Ok(self.beside(raw))
    }
    /// Writes the adapter to a directory that PEFT reads, in place of one that is there.
    pub fn save_adapter(&self, directory: impl AsRef<Path>) -> Result<()> {
        let (data, length) = path_view(directory.as_ref());
        // SAFETY: the handle is live, the path is valid during the call.
        check(unsafe { sys::trafo_model_save_adapter(self.as_ptr(), data, length) })
    }
    /// Adds the adapter to the weights: the model computes as fast as without one. The earlier weights stay in memory
    /// until [`Model::remove_adapter`].
    pub fn merge_adapter(&mut self) -> Result<()> {
        // SAFETY: the handle is live and exclusive.
        check(unsafe { sys::trafo_model_merge_adapter(self.as_ptr()) })
    }
    /// Gives the model the weights before [`Model::merge_adapter`], bit for bit, and the adapter beside them.
    pub fn unmerge_adapter(&mut self) -> Result<()> {
        // SAFETY: the handle is live and exclusive.
        check(unsafe { sys::trafo_model_unmerge_adapter(self.as_ptr()) })
    }
    /// Drops the adapter; one that is merged stays in the weights. The parameters stay frozen, see [`Model::unfreeze`].
    pub fn remove_adapter(&mut self) -> Result<()> {
        // SAFETY: the handle is live and exclusive.
        check(unsafe { sys::trafo_model_remove_adapter(self.as_ptr()) })
    }
}
