use trafo_sys as sys;

use crate::enums::Stop;
use crate::results::Event;
use crate::trainer_options::Metric;

impl Stop {
    /// Whether training is done by its own options; otherwise it can go on.
    #[must_use]
    pub fn is_finished(self) -> bool {
        matches!(self, Stop::Limit | Stop::Early)
    }
}

/// Metrics of a validation: those that were asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics(Vec<(Metric, f64)>);

impl Metrics {
    /// The value of a metric; `None` if it was not asked for.
    #[must_use]
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
    /// The event's metrics are valid during the call.
    pub(crate) unsafe fn of_event(raw: &sys::trafo_event) -> Self {
        if raw.metric_count == 0 {
            return Metrics(Vec::new());
        }
        // SAFETY: the caller's promise.
        let values = unsafe { std::slice::from_raw_parts(raw.metrics, raw.metric_count as usize) };
        Self::from_raw(values)
    }
}

impl Event {
    /// `exp(nll)`
    #[must_use]
    pub fn perplexity(&self) -> f64 {
        self.nll.exp()
    }
}
