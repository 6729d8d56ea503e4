//! Settings of a [`Trainer`](crate::Trainer).

use std::fmt;
use std::str::FromStr;

use trafo_sys as sys;

use crate::error::{Error, ErrorCode, Result, check};
use crate::handle::defaults;
use crate::names::{named, text};
use crate::options::{from_flag, from_i64, options, same, to_count, to_i64};

/// How often something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Period {
    /// Never.
    Never,
    /// Every so many updates.
    Updates(usize),
    /// Every so many target tokens.
    Tokens(usize),
    /// Every so many epochs.
    Epochs(usize),
}

impl Period {
    fn from_raw(raw: sys::trafo_period) -> Self {
        match (from_i64(raw.value), raw.unit) {
            (0, _) => Period::Never,
            (value, sys::TRAFO_UNIT_TOKENS) => Period::Tokens(value),
            (value, sys::TRAFO_UNIT_EPOCHS) => Period::Epochs(value),
            (value, _) => Period::Updates(value),
        }
    }
    fn to_raw(self) -> sys::trafo_period {
        let (value, unit) = match self {
            Period::Never => (0, sys::TRAFO_UNIT_UPDATES),
            Period::Updates(value) => (value, sys::TRAFO_UNIT_UPDATES),
            Period::Tokens(value) => (value, sys::TRAFO_UNIT_TOKENS),
            Period::Epochs(value) => (value, sys::TRAFO_UNIT_EPOCHS),
        };
        sys::trafo_period { value: to_count(value), unit, reserved: 0 }
    }
}

/// As on the command line: `500u`, `20000t` or `2e`, and `0u` for never.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&match self {
            Period::Never => "0u".to_string(),
            Period::Updates(value) => format!("{value}u"),
            Period::Tokens(value) => format!("{value}t"),
            Period::Epochs(value) => format!("{value}e"),
        })
    }
}

/// A number alone counts updates.
impl FromStr for Period {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let digits = text.trim_end_matches(|unit: char| !unit.is_ascii_digit());
        let value =
            digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
        match (value, &text[digits.len()..]) {
            (Some(0), "" | "u" | "t" | "e") => Ok(Period::Never),
            (Some(value), "" | "u") => Ok(Period::Updates(value)),
            (Some(value), "t") => Ok(Period::Tokens(value)),
            (Some(value), "e") => Ok(Period::Epochs(value)),
            _ => Err(Error::new(
                ErrorCode::InvalidArgument,
                "Period::from_str",
                format!("{text:?} is no period such as 500u, 20000t or 2e"),
            )),
        }
    }
}

text! { Period }

impl Metric {
    /// The metrics of validations, the one that decides first.
    fn all_of(options: &sys::trafo_trainer_options) -> Vec<Self> {
        let wanted = Metric::ALL.into_iter().filter(|each| options.valid_metrics & each.bit() != 0);
        let (first, others) =
            wanted.partition::<Vec<_>, _>(|each| each.bit() == options.first_metric);
        first.into_iter().chain(others).collect()
    }
    pub(crate) fn from_bit(bit: i32) -> Option<Self> {
        Metric::ALL.into_iter().find(|metric| metric.bit() == bit)
    }
}

macro_rules! trainer_options {
    ($($fields:tt)*) => {
        options! {
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
            TrainerOptions = trafo_trainer_options, trafo_trainer_options_init {
                /// Metrics that validations measure; the first decides what is best. Default: BLEU, chrF and
                /// cross-entropy.
                pub valid_metrics: Vec<Metric> = Metric::all_of;
            }
            $($fields)*
        }
    };
}

// The table in schema/training.toml gives the enums and the setters.
include!("generated/trainer_options.rs");

impl TrainerOptions {
    /// The defaults; training has no limit.
    pub fn new() -> Self {
        Self::default()
    }
    /// The recipe of a preset; see [`ModelConfig::preset`](crate::ModelConfig::preset).
    pub fn preset(name: &str) -> Result<Self> {
        let mut raw = defaults(sys::trafo_trainer_options_init);
        // SAFETY: options and name are valid during the call.
        check(unsafe {
            sys::trafo_trainer_options_preset(&mut raw, name.as_ptr().cast(), name.len())
        })?;
        Ok(Self::from_raw(&raw))
    }
    /// Metrics that validations measure; the first decides what is best. Default: BLEU, chrF and
    /// cross-entropy.
    pub fn valid_metrics(mut self, metrics: &[Metric]) -> Self {
        self.valid_metrics = metrics.to_vec();
        self
    }
    /// The learning rate that the schedule gives an update, counted from 1, for optimizers of own networks. `width` is the
    /// model's, which [`Schedule::Noam`] needs; at least 1. `InvalidArgument`: an option.
    ///
    /// ```
    /// # fn main() -> trafo::Result<()> {
    /// let options = trafo::TrainerOptions::new().learning_rate(0.1).warmup(10);
    /// assert!((options.scheduled_rate(1, 5)? - 0.05).abs() < 1e-12);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scheduled_rate(&self, width: usize, update: usize) -> Result<f64> {
        let mut rate = 0.0;
        // SAFETY: options and output are valid during the call.
        check(unsafe {
            sys::trafo_scheduled_rate(&self.to_raw(), to_i64(width), to_i64(update), &mut rate)
        })?;
        Ok(rate)
    }
    pub(crate) fn to_raw(&self) -> sys::trafo_trainer_options {
        let mut raw = defaults(sys::trafo_trainer_options_init);
        self.write(&mut raw);
        raw.valid_metrics = self.valid_metrics.iter().fold(0, |bits, metric| bits | metric.bit());
        raw.first_metric = self.valid_metrics.first().map_or(0, |metric| metric.bit());
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::TrainerOptions;
    use crate::handle::defaults;

    /// C gets what it gave: no option is lost on the way through the fields.
    #[test]
    fn defaults_come_back_as_they_were() {
        let raw = defaults(trafo_sys::trafo_trainer_options_init);
        assert_eq!(format!("{raw:?}"), format!("{:?}", TrainerOptions::new().to_raw()));
        let raw = defaults(trafo_sys::trafo_model_config_init);
        assert_eq!(format!("{raw:?}"), format!("{:?}", crate::ModelConfig::default().to_raw()));
        let raw = defaults(trafo_sys::trafo_translate_options_init);
        assert_eq!(format!("{raw:?}"), format!("{:?}", crate::TranslateOptions::new().to_raw()));
    }

    #[test]
    fn switches_reach_the_options_of_the_engine() {
        let options = TrainerOptions::new();
        assert_eq!(options.to_raw().autotune_gemm, 1);
        let options = options.autotune_gemm(false);
        assert_eq!((options.to_raw().autotune_gemm, options.to_raw().batch_fit), (0, 0));
        assert_eq!(options.autotune_gemm(true).to_raw().autotune_gemm, 1);
    }
}
