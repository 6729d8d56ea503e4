//! Settings of a [`Trainer`](crate::Trainer).

use trafo_sys as sys;

use crate::handle::defaults;

/// What backward computes a second time instead of keeping it: less memory for more time, the same results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recompute {
    /// Nothing.
    None,
    /// Outputs of norms and of activations, which are large and cheap.
    Selective,
    /// Everything inside a layer.
    Full,
}

/// What the optimizer keeps its two moments of every parameter in. A run continues with those it has begun with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizerStates {
    /// float32.
    Float32,
    /// Codes in blocks of 256 with a scale: 2.03 bytes a parameter instead of 8.
    EightBit,
}

/// The metrics that early stopping counts validations without a better one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppingMetrics {
    /// The first of `valid_metrics`.
    First,
    /// One of them is enough to stop.
    Any,
    /// None may have become better.
    All,
}

/// How the learning rate goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Schedule {
    /// Stays at its peak.
    Constant,
    /// Falls to zero on a line; needs `schedule_updates`.
    Linear,
    /// Falls to zero on half a cosine; needs `schedule_updates`.
    Cosine,
    /// Falls with the square root of the update.
    InverseSqrt,
    /// The schedule of the first transformer.
    Noam,
}

/// How often something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Period {
    /// Never.
    Never,
    /// Every so many updates.
    Updates(i64),
    /// Every so many target tokens.
    Tokens(i64),
    /// Every so many epochs.
    Epochs(i64),
}

impl Period {
    fn to_raw(self) -> sys::trafo_period {
        let (value, unit) = match self {
            Period::Never => (0, sys::TRAFO_UNIT_UPDATES),
            Period::Updates(value) => (value, sys::TRAFO_UNIT_UPDATES),
            Period::Tokens(value) => (value, sys::TRAFO_UNIT_TOKENS),
            Period::Epochs(value) => (value, sys::TRAFO_UNIT_EPOCHS),
        };
        sys::trafo_period { value, unit, reserved: 0 }
    }
}

/// What a validation measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Metric {
    /// Cross-entropy per label.
    Ce,
    /// Corpus BLEU.
    Bleu,
    /// Corpus chrF2.
    Chrf,
}

impl Metric {
    fn bit(self) -> i32 {
        match self {
            Metric::Ce => sys::TRAFO_METRIC_CE,
            Metric::Bleu => sys::TRAFO_METRIC_BLEU,
            Metric::Chrf => sys::TRAFO_METRIC_CHRF,
        }
    }
}

/// Settings of a [`Trainer`](crate::Trainer).
///
/// ```
/// use trafo::{Metric, Period, Schedule, TrainerOptions};
///
/// let options = TrainerOptions::new()
///     .learning_rate(1e-3)
///     .schedule(Schedule::Cosine)
///     .warmup(100)
///     .schedule_updates(5000)
///     .after_updates(5000)
///     .valid_freq(Period::Epochs(1))
///     .valid_metrics(&[Metric::Bleu, Metric::Ce]);
/// ```
#[derive(Clone, Debug)]
pub struct TrainerOptions(pub(crate) sys::trafo_trainer_options);

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {$(
        $(#[$doc])*
        pub fn $name(mut self, $name: $type) -> Self {
            self.0.$name = $name;
            self
        }
    )*};
}

impl TrainerOptions {
    /// The defaults; training has no limit of its own.
    pub fn new() -> Self {
        TrainerOptions(defaults(sys::trafo_trainer_options_init))
    }
    setters! {
        /// Of dropout and data order.
        seed: u64;
        /// Peak of the learning rate; default 2e-3.
        learning_rate: f64;
        /// Updates in which the rate rises; default 1000.
        warmup: i64;
        /// The update at which cosine and linear schedules reach their end; must be set for them.
        schedule_updates: i64;
        /// Batches accumulated for an update; default 1.
        gradient_accumulation: i32;
        /// Default 0.1.
        label_smoothing: f64;
        /// Limit of the global gradient norm; default 1, 0 is off.
        clip_norm: f64;
        /// Decoupled weight decay; default 0.
        weight_decay: f64;
        /// Default 0.9.
        beta1: f64;
        /// Default 0.98.
        beta2: f64;
        /// Default 1e-9.
        epsilon: f64;
        /// Target tokens in a batch; default 4096.
        batch_tokens: i64;
        /// Longer pairs are dropped and counted; default 256 tokens a side.
        max_length: i64;
        /// Done after so many updates; 0 is never.
        after_updates: i64;
        /// Done after so many epochs; 0 is never.
        after_epochs: i64;
        /// Done after so many target tokens; 0 is never.
        after_tokens: i64;
        /// The first so many updates are displayed as well.
        log_first: i64;
        /// Done after so many validations in a row without improvement; 0 is never.
        early_stopping: i32;
        /// Beam of validations; default 1, greedy.
        valid_beam: i32;
        /// Of that beam: score = log-probability / length^valid_normalize; default 1.
        valid_normalize: f64;
        /// Checkpoints kept; default 3.
        keep_last: i32;
        /// Updates in a row with NaN or Inf before the error [`NonFinite`](crate::ErrorCode::NonFinite); default 10.
        max_non_finite_steps: i32;
        /// Bytes that training may take; default 0, what the device has free.
        memory_limit: i64;
        /// Share of every update's weights in their running mean (1e-4 is usual), which is what validations measure and
        /// checkpoints hold to be used; the model keeps the weights that training goes on with. Default 0: none is kept.
        ema_alpha: f64;
        /// At the end the mean of so many of the newest checkpoints, which are kept for it, is written to
        /// `ckpt/averaged/model.safetensors` and measured; needs a run directory. Default 0: not.
        average_last: i32;
        /// Pairs with a side of more than so many times the tokens of the other are dropped and counted; default 0: none.
        max_length_ratio: f64;
        /// Batches filled from sentences sorted by length together; default 0: 262144 sentences.
        maxi_batch: i32;
        /// The sources' segmentations are sampled anew in every epoch: by probability^alpha of a unigram vocabulary, or
        /// with every merge of a BPE vocabulary left out with probability alpha. Default 0: the best one.
        source_alpha: f64;
        /// The same of the targets.
        target_alpha: f64;
    }
    /// Whether pairs with the same text on both sides are dropped and counted; default no.
    pub fn drop_identical(mut self, drop: bool) -> Self {
        self.0.drop_identical = drop.into();
        self
    }
    /// Whether `batch_tokens` is the largest that the memory has room for; default no.
    pub fn batch_fit(mut self, fit: bool) -> Self {
        self.0.batch_fit = fit.into();
        self
    }
    /// Whether, on CUDA, the kernels of a new batch shape's matrix products are measured before they first run and the
    /// fastest kept; the run directory holds the choices, so that a continued run computes the same bits. Changes nothing
    /// on the CPU. Default no.
    pub fn autotune_gemm(mut self, tune: bool) -> Self {
        self.0.autotune_gemm = tune.into();
        self
    }
    /// What backward computes a second time instead of keeping it; default [`Recompute::None`].
    pub fn recompute(mut self, recompute: Recompute) -> Self {
        self.0.recompute = match recompute {
            Recompute::None => sys::TRAFO_RECOMPUTE_NONE,
            Recompute::Selective => sys::TRAFO_RECOMPUTE_SELECTIVE,
            Recompute::Full => sys::TRAFO_RECOMPUTE_FULL,
        };
        self
    }
    /// The metrics that `early_stopping` counts; default [`StoppingMetrics::First`].
    pub fn early_stopping_on(mut self, metrics: StoppingMetrics) -> Self {
        self.0.early_stopping_on = match metrics {
            StoppingMetrics::First => sys::TRAFO_STOPPING_FIRST,
            StoppingMetrics::Any => sys::TRAFO_STOPPING_ANY,
            StoppingMetrics::All => sys::TRAFO_STOPPING_ALL,
        };
        self
    }
    /// What the optimizer keeps its moments in; default [`OptimizerStates::Float32`].
    pub fn optimizer_states(mut self, states: OptimizerStates) -> Self {
        self.0.optimizer_states = match states {
            OptimizerStates::Float32 => sys::TRAFO_OPTIMIZER_STATES_FLOAT32,
            OptimizerStates::EightBit => sys::TRAFO_OPTIMIZER_STATES_8BIT,
        };
        self
    }
    /// How the rate goes; default [`Schedule::InverseSqrt`].
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.0.schedule = match schedule {
            Schedule::Constant => sys::TRAFO_SCHEDULE_CONSTANT,
            Schedule::Linear => sys::TRAFO_SCHEDULE_LINEAR,
            Schedule::Cosine => sys::TRAFO_SCHEDULE_COSINE,
            Schedule::InverseSqrt => sys::TRAFO_SCHEDULE_INVERSE_SQRT,
            Schedule::Noam => sys::TRAFO_SCHEDULE_NOAM,
        };
        self
    }
    /// How often it validates, besides at the end; default 1000 updates.
    pub fn valid_freq(mut self, period: Period) -> Self {
        self.0.valid_freq = period.to_raw();
        self
    }
    /// How often it saves, besides at the end; default 1000 updates.
    pub fn save_freq(mut self, period: Period) -> Self {
        self.0.save_freq = period.to_raw();
        self
    }
    /// How often it tells about its progress; default 100 updates.
    pub fn log_freq(mut self, period: Period) -> Self {
        self.0.log_freq = period.to_raw();
        self
    }
    /// What validations measure; the first decides what is best. Default: BLEU, chrF and cross-entropy.
    pub fn valid_metrics(mut self, metrics: &[Metric]) -> Self {
        self.0.valid_metrics = metrics.iter().fold(0, |bits, metric| bits | metric.bit());
        self.0.first_metric = metrics.first().map_or(0, |metric| metric.bit());
        self
    }
    /// Whether the best checkpoint of every metric is kept as well; default true.
    pub fn keep_best(mut self, keep_best: bool) -> Self {
        self.0.keep_best = keep_best.into();
        self
    }
}

impl Default for TrainerOptions {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::TrainerOptions;

    #[test]
    fn switches_reach_the_options_of_the_engine() {
        let options = TrainerOptions::new();
        assert_eq!(options.0.autotune_gemm, 0);
        let options = options.autotune_gemm(true);
        assert_eq!((options.0.autotune_gemm, options.0.batch_fit), (1, 0));
        assert_eq!(options.autotune_gemm(false).0.autotune_gemm, 0);
    }
}
