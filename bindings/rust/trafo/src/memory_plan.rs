use trafo_sys as sys;

use crate::error::check;
use crate::handle::views;
use crate::options::to_i64;
use crate::{ModelConfig, Result, TrainerOptions};

/// Memory that training takes on a CUDA device, in bytes, known without training and without the
/// device.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPlan {
    /// Weights, with the float32 masters of a bfloat16 model.
    pub weights: i64,
    /// Gradients.
    pub gradients: i64,
    /// The optimizer's moments, and the mean of the weights under `ema_alpha`.
    pub optimizer: i64,
    /// The weights of the teacher; 0 without one.
    pub teacher: i64,
    /// Memory that forward and backward keep and use.
    pub activations: i64,
    /// The peak: all of these, the batch and small change.
    pub total: i64,
    /// Target tokens of the batch: those given, or the largest that fits.
    pub batch_tokens: i64,
    /// Memory that training may take; 0: not known.
    pub limit: i64,
    /// All of the device's memory; 0: not asked.
    pub device: i64,
    /// Memory of it that was free before training.
    pub free: i64,
}

impl MemoryPlan {
    /// For batches of `sentences` with so many tokens a side; a decoder-only model has no source tokens.
    /// With `batch_fit` and a `memory_limit` the batch is the largest of such sentences that the limit has room for.
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
        Self::planned(|plan, bytes| unsafe {
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
        })
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
        Self::planned(|plan, bytes| unsafe {
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
        })
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
        Self::planned(|plan, bytes| unsafe {
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
        })
    }

    /// The plan that `plan` writes to the struct of the given size.
    fn planned(
        plan: impl FnOnce(*mut sys::trafo_memory_plan, usize) -> *mut sys::trafo_error,
    ) -> Result<Self> {
        let mut raw = Self::empty();
        check(plan(&mut raw, size_of::<sys::trafo_memory_plan>()))?;
        Ok(Self::from_raw(&raw))
    }

    pub(crate) fn empty() -> sys::trafo_memory_plan {
        sys::trafo_memory_plan {
            struct_size: 0,
            weights_bytes: 0,
            gradients_bytes: 0,
            optimizer_bytes: 0,
            activations_bytes: 0,
            total_bytes: 0,
            batch_tokens: 0,
            limit_bytes: 0,
            device_bytes: 0,
            free_bytes: 0,
            teacher_bytes: 0,
        }
    }

    pub(crate) fn from_raw(plan: &sys::trafo_memory_plan) -> Self {
        MemoryPlan {
            weights: plan.weights_bytes,
            gradients: plan.gradients_bytes,
            optimizer: plan.optimizer_bytes,
            teacher: plan.teacher_bytes,
            activations: plan.activations_bytes,
            total: plan.total_bytes,
            batch_tokens: plan.batch_tokens,
            limit: plan.limit_bytes,
            device: plan.device_bytes,
            free: plan.free_bytes,
        }
    }
}
