use std::path::PathBuf;

use trafo_sys as sys;

use crate::handle::{view_to_path, view_to_string};
use crate::trainer_options::Metric;

/// Why training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stop {
    /// It has not.
    None,
    /// `after_updates`, `after_epochs` or `after_tokens` was reached.
    Limit,
    /// No improvement for `early_stopping` validations.
    Early,
    /// The callback asked for it.
    Callback,
    /// The cancel token was set.
    Cancelled,
    /// The updates that were asked for are done.
    Paused,
    /// A reason that this crate does not know yet.
    Unknown(i32),
}

impl Stop {
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_STOP_NONE => Stop::None,
            sys::TRAFO_STOP_LIMIT => Stop::Limit,
            sys::TRAFO_STOP_EARLY => Stop::Early,
            sys::TRAFO_STOP_CALLBACK => Stop::Callback,
            sys::TRAFO_STOP_CANCELLED => Stop::Cancelled,
            sys::TRAFO_STOP_PAUSED => Stop::Paused,
            other => Stop::Unknown(other),
        }
    }
    /// Whether training is done by its own options; otherwise it can go on.
    pub fn is_finished(self) -> bool {
        matches!(self, Stop::Limit | Stop::Early)
    }
}

/// Metrics of a validation: those that were asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics(Vec<(Metric, f64)>);

impl Metrics {
    /// The value of a metric; `None` if it was not asked for.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.iter().find(|(each, _)| *each == metric).map(|(_, value)| value)
    }
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (Metric, f64)> + '_ {
        self.0.iter().copied()
    }
    pub(crate) fn from_raw(values: &[sys::trafo_metric_value]) -> Self {
        let known =
            |raw: &sys::trafo_metric_value| Some((Metric::from_bit(raw.metric)?, raw.value));
        Metrics(values.iter().filter_map(known).collect())
    }
    /// # Safety
    /// The event's views are valid during the call.
    unsafe fn of_event(raw: &sys::trafo_event) -> Self {
        if raw.metric_count == 0 {
            return Metrics(Vec::new());
        }
        // SAFETY: the caller's promise.
        let values = unsafe { std::slice::from_raw_parts(raw.metrics, raw.metric_count as usize) };
        Self::from_raw(values)
    }
}

/// Kind of an event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// A new run.
    Started {
        /// The pairs dropped from the corpora, if any.
        message: String,
    },
    /// Continued from a checkpoint.
    Resumed {
        /// The checkpoint.
        checkpoint: PathBuf,
    },
    /// A newer checkpoint is damaged and was passed over.
    CheckpointRefused {
        /// Why.
        message: String,
    },
    /// Progress, every `log_freq`.
    Log,
    /// An update with NaN or Inf was left out.
    Skipped {
        /// Its loss and gradient norm.
        message: String,
    },
    /// An epoch is complete.
    Epoch {
        /// The pairs dropped from it, if any.
        message: String,
    },
    /// A validation begins, which may take long.
    Validating,
    /// The mean of the newest checkpoints is made, see [`average_last`](crate::TrainerOptions::average_last).
    Averaged {
        /// Its file.
        model: PathBuf,
        /// The updates it is the mean of, as "100, 200".
        updates: String,
        /// Its metrics, if there is a validation corpus.
        metrics: Metrics,
        /// Whether it is better than the best checkpoint.
        improved: bool,
    },
    /// GEMM kernels were timed or taken from a cache, see
    /// [`autotune_gemm`](crate::TrainerOptions::autotune_gemm).
    GemmAutotuned {
        /// How many were timed, how long that took, where the others come from.
        message: String,
    },
    /// Something cannot be used, and the run continues without it.
    Warning {
        /// The event and its reason.
        message: String,
    },
    /// A validation is done.
    Validated {
        /// Its results.
        metrics: Metrics,
        /// The metric that decides: chrF or cross-entropy instead of a metric of words for scripts without spaces.
        deciding: Option<Metric>,
        /// Whether the deciding metric improved.
        improved: bool,
        /// Best value of the deciding metric so far.
        best: f64,
        /// The update of the best value.
        best_update: i64,
        /// The translations, if any were written.
        translations: Option<PathBuf>,
        /// Whether this is the model that the run or the phase starts from, which is no candidate for the best.
        start: bool,
    },
    /// A checkpoint was written. On a GPU, events of later updates may precede this one.
    Saved {
        /// Where.
        checkpoint: PathBuf,
    },
    /// Training is done.
    Finished(Stop),
    /// Training ended and can go on.
    Stopped(Stop),
    /// An event that this crate does not know yet.
    Unknown(i32),
}

/// A message of a running trainer. Owned, so that it can be sent to another thread.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// Kind of the event.
    pub kind: EventKind,
    /// Updates so far.
    pub update: i64,
    /// The current epoch, from 1; of [`EventKind::Epoch`] the completed one.
    pub epoch: i64,
    /// Share of the current epoch that is done.
    pub epoch_fraction: f64,
    /// Mean per label since the last log event, smoothing included; of DPO per pair.
    pub loss: f64,
    /// Negative log-likelihood per label since then, without smoothing.
    pub nll: f64,
    /// Global gradient norm.
    pub grad_norm: f64,
    /// Learning rate.
    pub learning_rate: f64,
    /// Target tokens of the run so far.
    pub target_tokens: i64,
    /// Source tokens of the run so far.
    pub source_tokens: i64,
    /// Speed since the last log event.
    pub target_tokens_per_second: f64,
    /// Speed since the last log event.
    pub source_tokens_per_second: f64,
    /// Training time of the run in seconds, earlier processes included.
    pub elapsed_seconds: f64,
    /// Seconds to the nearest limit, `None` if unknown.
    pub eta_seconds: Option<f64>,
    /// Bytes in use.
    pub memory_bytes: i64,
    /// Most bytes in use.
    pub peak_memory_bytes: i64,
    /// Updates left out because of NaN or Inf.
    pub skipped_updates: i64,
    /// Validations in a row without improvement.
    pub stalled: i64,
    /// Metrics of the objective by name: means per unit of the objective since the last log event.
    pub objective_metrics: Vec<(String, f64)>,
}

impl Event {
    /// `exp(nll)`
    pub fn perplexity(&self) -> f64 {
        self.nll.exp()
    }

    /// # Safety
    /// The event's views are valid during the call.
    pub(crate) unsafe fn from_raw(raw: &sys::trafo_event) -> Self {
        // SAFETY: the caller's promise.
        let (message, path, metrics) = unsafe {
            (view_to_string(&raw.message), view_to_path(&raw.path), Metrics::of_event(raw))
        };
        let objective_metrics = if raw.objective_metric_count == 0 {
            Vec::new()
        } else {
            // SAFETY: the caller's promise.
            let values = unsafe {
                std::slice::from_raw_parts(
                    raw.objective_metrics,
                    raw.objective_metric_count as usize,
                )
            };
            // SAFETY: the caller's promise.
            values.iter().map(|each| (unsafe { view_to_string(&each.name) }, each.value)).collect()
        };
        let kind = match raw.kind {
            sys::TRAFO_EVENT_STARTED => EventKind::Started { message },
            sys::TRAFO_EVENT_RESUMED => EventKind::Resumed { checkpoint: path },
            sys::TRAFO_EVENT_CHECKPOINT_REFUSED => EventKind::CheckpointRefused { message },
            sys::TRAFO_EVENT_LOG => EventKind::Log,
            sys::TRAFO_EVENT_SKIPPED => EventKind::Skipped { message },
            sys::TRAFO_EVENT_EPOCH => EventKind::Epoch { message },
            sys::TRAFO_EVENT_VALIDATED => EventKind::Validated {
                metrics,
                deciding: Metric::from_bit(raw.deciding_metric),
                improved: raw.improved != 0,
                best: raw.best_metric,
                best_update: raw.best_update,
                translations: (!path.as_os_str().is_empty()).then_some(path),
                start: !message.is_empty(),
            },
            sys::TRAFO_EVENT_VALIDATING => EventKind::Validating,
            sys::TRAFO_EVENT_AVERAGED => EventKind::Averaged {
                model: path,
                updates: message,
                metrics,
                improved: raw.improved != 0,
            },
            sys::TRAFO_EVENT_GEMM_AUTOTUNED => EventKind::GemmAutotuned { message },
            sys::TRAFO_EVENT_WARNING => EventKind::Warning { message },
            sys::TRAFO_EVENT_SAVED => EventKind::Saved { checkpoint: path },
            sys::TRAFO_EVENT_FINISHED => EventKind::Finished(Stop::from_raw(raw.stop)),
            sys::TRAFO_EVENT_STOPPED => EventKind::Stopped(Stop::from_raw(raw.stop)),
            other => EventKind::Unknown(other),
        };
        Event {
            kind,
            update: raw.update,
            epoch: raw.epoch,
            epoch_fraction: raw.epoch_fraction,
            loss: raw.loss,
            nll: raw.nll,
            grad_norm: raw.grad_norm,
            learning_rate: raw.learning_rate,
            target_tokens: raw.target_tokens,
            source_tokens: raw.source_tokens,
            target_tokens_per_second: raw.target_tokens_per_second,
            source_tokens_per_second: raw.source_tokens_per_second,
            elapsed_seconds: raw.elapsed_seconds,
            eta_seconds: (raw.eta_seconds >= 0.0).then_some(raw.eta_seconds),
            memory_bytes: raw.memory_bytes,
            peak_memory_bytes: raw.peak_memory_bytes,
            skipped_updates: raw.skipped_updates,
            stalled: raw.stalled,
            objective_metrics,
        }
    }
}
