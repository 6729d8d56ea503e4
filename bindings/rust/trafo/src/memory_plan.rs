use trafo_sys as sys;

use crate::handle::views;
use crate::options::to_i64;
use crate::results::{MemoryPlan, filled};
use crate::{AdapterOptions, ModelConfig, Result, TrainerOptions};

impl MemoryPlan {
    /// For batches of `sentences` with so many tokens a side; a decoder-only model has no source tokens.
    /// With `batch_fit` and a `memory_limit` the batch is the largest of such sentences that the limit has room for.
    ///
    /// ```
    /// use trafo::{DType, MemoryPlan, ModelConfig, OptimizerStates, Recompute, TrainerOptions};
    /// # fn main() -> trafo::Result<()> {
    /// let config = ModelConfig::preset("tiny", 8000)?.precision(DType::BF16);
    /// let plan = MemoryPlan::of(&config, &TrainerOptions::new(), 128, 4096, 4096)?;
    /// let lean = TrainerOptions::new().recompute(Recompute::Full);
    /// assert!(MemoryPlan::of(&config, &lean, 128, 4096, 4096)?.total < plan.total);
    /// let bytes = TrainerOptions::new().optimizer_states(OptimizerStates::EightBit);
    /// assert!(MemoryPlan::of(&config, &bytes, 128, 4096, 4096)?.optimizer < plan.optimizer / 3);
    /// let frozen = MemoryPlan::of_frozen(&config, &TrainerOptions::new(), &["encoder.*"], 128, 4096, 4096)?;
    /// assert!(frozen.gradients < plan.gradients);
    /// let rank = MemoryPlan::of_rank(&config, &TrainerOptions::new(), &[] as &[&str], (1, 4, 1), 128, 4096, 4096)?;
    /// assert!(rank.optimizer < plan.optimizer / 3);
    /// let far = MemoryPlan::of_rank(&config, &TrainerOptions::new(), &[] as &[&str], (1, 4, 4), 128, 4096, 4096)?;
    /// assert!(far.total > rank.total);
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(
        config: &ModelConfig,
        options: &TrainerOptions,
        sentences: usize,
        source_tokens: usize,
        target_tokens: usize,
    ) -> Result<Self> {
        Self::of_frozen(config, options, &[] as &[&str], sentences, source_tokens, target_tokens)
    }

    /// The same for a model whose parameters are frozen where their names match a pattern, as by
    /// [`Model::freeze`](crate::Model::freeze).
    pub fn of_frozen<S: AsRef<str>>(
        config: &ModelConfig,
        options: &TrainerOptions,
        frozen: &[S],
        sentences: usize,
        source_tokens: usize,
        target_tokens: usize,
    ) -> Result<Self> {
        let frozen = views(frozen);
        // SAFETY: all pointers are valid during the call.
        let plan = filled(|plan, bytes| unsafe {
            sys::trafo_plan_training(
                &config.to_raw(),
                &options.to_raw(),
                frozen.as_ptr(),
                frozen.len(),
                to_i64(sentences),
                to_i64(source_tokens),
                to_i64(target_tokens),
                plan,
                bytes,
            )
        })?;
        Ok(Self::from_raw(&plan))
    }

    /// The same for rank `rank` of a group of `size` on `hosts` hosts, given as `(rank, size, hosts)`: with its
    /// shard of the optimizer's states, the sums of lanes that it keeps and those that it receives. Each host has
    /// equally many ranks, host by host; several hosts exchange in other ways. `lanes` 1 is planned as one for each
    /// rank. With `batch_fit` the batch fits this rank; a group takes the smallest batch of all its ranks.
    pub fn of_rank<S: AsRef<str>>(
        config: &ModelConfig,
        options: &TrainerOptions,
        frozen: &[S],
        (rank, size, hosts): (i32, i32, i32),
        sentences: usize,
        source_tokens: usize,
        target_tokens: usize,
    ) -> Result<Self> {
        let frozen = views(frozen);
        // SAFETY: all pointers are valid during the call.
        let plan = filled(|plan, bytes| unsafe {
            sys::trafo_plan_training_of_rank(
                &config.to_raw(),
                &options.to_raw(),
                frozen.as_ptr(),
                frozen.len(),
                rank,
                size,
                hosts,
                to_i64(sentences),
                to_i64(source_tokens),
                to_i64(target_tokens),
                plan,
                bytes,
            )
        })?;
        Ok(Self::from_raw(&plan))
    }

    /// The same for a model with a teacher, as by [`Model::load_teacher`](crate::Model::load_teacher). The first pair are
    /// the configurations of the model and of its teacher. Without a group, the other is `(0, 1, 1)`.
    pub fn with_teacher<S: AsRef<str>>(
        (config, teacher): (&ModelConfig, &ModelConfig),
        options: &TrainerOptions,
        frozen: &[S],
        (rank, size, hosts): (i32, i32, i32),
        sentences: usize,
        source_tokens: usize,
        target_tokens: usize,
    ) -> Result<Self> {
        let frozen = views(frozen);
        // SAFETY: all pointers are valid during the call.
        let plan = filled(|plan, bytes| unsafe {
            sys::trafo_plan_distillation(
                &config.to_raw(),
                &teacher.to_raw(),
                &options.to_raw(),
                frozen.as_ptr(),
                frozen.len(),
                rank,
                size,
                hosts,
                to_i64(sentences),
                to_i64(source_tokens),
                to_i64(target_tokens),
                plan,
                bytes,
            )
        })?;
        Ok(Self::from_raw(&plan))
    }

    /// The same for a model whose adapter is trained, as by [`Model::add_adapter`](crate::Model::add_adapter), also with a
    /// `base_precision`. Without a group, the triple is `(0, 1, 1)`.
    pub fn with_adapter(
        config: &ModelConfig,
        adapter: &AdapterOptions,
        options: &TrainerOptions,
        (rank, size, hosts): (i32, i32, i32),
        sentences: usize,
        source_tokens: usize,
        target_tokens: usize,
    ) -> Result<Self> {
        let (adapter_rank, targets) = adapter.shape();
        // SAFETY: all pointers are valid during the call.
        let plan = filled(|plan, bytes| unsafe {
            sys::trafo_plan_adapter(
                &config.to_raw(),
                &options.to_raw(),
                adapter_rank,
                targets.as_ptr().cast(),
                targets.len(),
                rank,
                size,
                hosts,
                to_i64(sentences),
                to_i64(source_tokens),
                to_i64(target_tokens),
                plan,
                bytes,
            )
        })?;
        Ok(Self::from_raw(&plan))
    }
}
