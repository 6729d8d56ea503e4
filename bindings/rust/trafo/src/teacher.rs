//! The second model of an objective: the teacher of word-level distillation, the reference of DPO.

use std::path::Path;

use trafo_sys as sys;

use crate::error::{Result, check};
use crate::handle::path_view;
use crate::model::Model;

impl Model {
    /// Gives the model a teacher: a model file, a directory with one, or a run directory, whose best model it is. In
    /// training the teacher runs beside the model, frozen and in its precision, and
    /// [`TrainerOptions::teacher_weight`](crate::TrainerOptions::teacher_weight) is its share in the loss. A run resumes
    /// with the same teacher only. `InvalidArgument`, naming both: another architecture or vocabulary.
    ///
    /// ```no_run
    /// # fn main() -> trafo::Result<()> {
    /// use trafo::{Model, ModelConfig, Tokenizer};
    /// let tokenizer = Tokenizer::load("teacher")?;
    /// let mut student = Model::new(&ModelConfig::preset("student-tiny", tokenizer.vocabulary())?, 1)?;
    /// student.load_teacher("teacher")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn load_teacher(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the handle is live and exclusive, the path is valid during the call.
        check(unsafe { sys::trafo_model_load_teacher(self.as_ptr(), data, length) })
    }
    /// Frees the teacher. `InvalidArgument`: the model has no teacher.
    pub fn remove_teacher(&mut self) -> Result<()> {
        // SAFETY: the handle is live and exclusive.
        check(unsafe { sys::trafo_model_remove_teacher(self.as_ptr()) })
    }
    /// Gives the model the reference that [`Objective::Dpo`](crate::Objective::Dpo) or `Kto` compares it with, usually the file that
    /// its weights come from, in place of a teacher or an earlier reference. A model with an adapter needs none: without
    /// its adapter it is its own reference. Otherwise as [`Model::load_teacher`].
    ///
    /// ```no_run
    /// # fn main() -> trafo::Result<()> {
    /// use trafo::{Corpus, CorpusOptions, Metric, Model, Objective, Trainer, TrainerOptions};
    /// # let (tokenizer, mut model): (trafo::Tokenizer, Model) = todo!();
    /// model.load_reference("base")?;
    /// let pairs = Corpus::open(&["pairs.tsv"], &CorpusOptions::new().preferences(true))?;
    /// let options = TrainerOptions::new()
    ///     .objective(Objective::Dpo)
    ///     .dpo_beta(0.1)
    ///     .valid_metrics(&[Metric::RewardAccuracy])
    ///     .after_updates(100);
    /// let mut trainer = Trainer::builder(model, &tokenizer, &pairs).options(options).build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn load_reference(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the handle is live and exclusive, the path is valid during the call.
        check(unsafe { sys::trafo_model_load_reference(self.as_ptr(), data, length) })
    }
    /// Frees the reference. `InvalidArgument`: the model has no reference.
    pub fn remove_reference(&mut self) -> Result<()> {
        // SAFETY: the handle is live and exclusive.
        check(unsafe { sys::trafo_model_remove_reference(self.as_ptr()) })
    }
}
