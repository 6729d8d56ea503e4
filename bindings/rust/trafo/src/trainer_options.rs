//! Settings of a [`Trainer`](crate::Trainer).

use trafo_sys as sys;

use crate::error::{Result, check};
use crate::handle::defaults;
use crate::names::named;

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

impl Metric {
    pub(crate) fn from_bit(bit: i32) -> Option<Self> {
        Metric::ALL.into_iter().find(|metric| metric.bit() == bit)
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
#[must_use]
#[derive(Clone, Debug)]
pub struct TrainerOptions(pub(crate) sys::trafo_trainer_options);

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $to:expr;)*) => {
        impl TrainerOptions {
            $(
                $(#[$doc])*
                pub fn $name(mut self, $name: $type) -> Self {
                    let to: fn($type) -> _ = $to;
                    self.0.$name = to($name);
                    self
                }
            )*
        }
    };
}

// The table in schema/training.toml gives the enums and the setters.
include!("generated/trainer_options.rs");

fn same<T>(value: T) -> T {
    value
}

impl TrainerOptions {
    /// The defaults; training has no limit.
    pub fn new() -> Self {
        TrainerOptions(defaults(sys::trafo_trainer_options_init))
    }
    /// The recipe of a preset; see [`ModelConfig::preset`](crate::ModelConfig::preset).
    pub fn preset(name: &str) -> Result<Self> {
        let mut options = Self::new();
        // SAFETY: options and name are valid during the call.
        check(unsafe {
            sys::trafo_trainer_options_preset(&mut options.0, name.as_ptr().cast(), name.len())
        })?;
        Ok(options)
    }
    /// Metrics that validations measure; the first decides what is best. Default: BLEU, chrF and
    /// cross-entropy.
    pub fn valid_metrics(mut self, metrics: &[Metric]) -> Self {
        self.0.valid_metrics = metrics.iter().fold(0, |bits, metric| bits | metric.bit());
        self.0.first_metric = metrics.first().map_or(0, |metric| metric.bit());
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
        assert_eq!(options.0.autotune_gemm, 1);
        let options = options.autotune_gemm(false);
        assert_eq!((options.0.autotune_gemm, options.0.batch_fit), (0, 0));
        assert_eq!(options.autotune_gemm(true).0.autotune_gemm, 1);
    }
}
