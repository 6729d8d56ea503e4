//! Output of `/metrics`, in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Counts observations up to each bound.
struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Histogram { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }
    fn observe(&mut self, value: f64) {
        self.counts[self.bounds.partition_point(|&bound| bound < value)] += 1;
        self.sum += value;
    }
    fn write(&self, text: &mut String, name: &str, help: &str) -> std::fmt::Result {
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram")?;
        let mut total = 0;
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            total += count;
            writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {total}")?;
        }
        total += self.counts[self.bounds.len()];
        writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {total}")?;
        writeln!(text, "{name}_sum {}\n{name}_count {total}", self.sum)
    }
}

struct Counts {
    requests: BTreeMap<u16, u64>, // of /translate, by status
    sentences: usize,
    truncated: usize,
    queued: usize,
    latency: Histogram,
    batches: Histogram,
}

pub struct Metrics(Mutex<Counts>);

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        const SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
        const LINES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
        Metrics(Mutex::new(Counts {
            requests: BTreeMap::new(),
            sentences: 0,
            truncated: 0,
            queued: 0,
            latency: Histogram::new(SECONDS),
            batches: Histogram::new(LINES),
        }))
    }
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().expect("no thread panics with the lock")
    }
    pub fn answered(&self, status: u16, took: Duration) {
        let mut counts = self.lock();
        *counts.requests.entry(status).or_default() += 1;
        counts.latency.observe(took.as_secs_f64());
    }
    pub fn queue(&self, lines: usize) {
        self.lock().queued = lines;
    }
    pub fn batch(&self, lines: usize) {
        self.lock().batches.observe(lines as f64);
    }
    pub fn translated(&self, lines: usize, truncated: usize) {
        let mut counts = self.lock();
        counts.sentences += lines;
        counts.truncated += truncated;
    }
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("a string takes everything");
        text
    }
    fn write(&self, text: &mut String) -> std::fmt::Result {
        let counts = self.lock();
        writeln!(text, "# HELP translate_requests_total Requests to /translate, by status.")?;
        writeln!(text, "# TYPE translate_requests_total counter")?;
        for (status, count) in &counts.requests {
            writeln!(text, "translate_requests_total{{code=\"{status}\"}} {count}")?;
        }
        for (name, kind, help, value) in [
            ("sentences_total", "counter", "Sentences translated.", counts.sentences),
            (
                "truncated_total",
                "counter",
                "Sentences cut because they are longer than the model takes.",
                counts.truncated,
            ),
            ("queue_sentences", "gauge", "Sentences that wait for their batch.", counts.queued),
        ] {
            writeln!(text, "# HELP translate_{name} {help}\n# TYPE translate_{name} {kind}")?;
            writeln!(text, "translate_{name} {value}")?;
        }
        let help = "Time from a request to its answer.";
        counts.latency.write(text, "translate_request_seconds", help)?;
        counts.batches.write(text, "translate_batch_sentences", "Sentences translated together.")
    }
}
