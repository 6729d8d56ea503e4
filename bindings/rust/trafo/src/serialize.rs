//! Events, metrics and results with serde, by the names that Go's JSON has. Values that are unknown or not finite are left out:
//! JSON has neither NaN nor infinity.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::evaluation::SentenceScore;
use crate::event::Metrics;
use crate::model::Score;
use crate::results::{Evaluation, Event, EventKind, ResampledScore, StepResult};

fn finite<M: SerializeMap>(map: &mut M, name: &str, value: f64) -> Result<(), M::Error> {
    if value.is_finite() { map.serialize_entry(name, &value) } else { Ok(()) }
}

fn known<M: SerializeMap, T: Serialize>(
    map: &mut M,
    name: &str,
    value: Option<T>,
) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(name, &value))
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter().filter(|(_, value)| value.is_finite()))
    }
}

struct Finite<'a>(&'a [(String, f64)]);

impl Serialize for Finite<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().filter(|(_, value)| value.is_finite()).map(|(k, v)| (k, v)))
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        let mut text = |kind: &str, name: &str, text: &str| {
            map.serialize_entry("kind", kind)?;
            if name.is_empty() { Ok(()) } else { map.serialize_entry(name, text) }
        };
        match &self.kind {
            EventKind::Started { message } => text("started", "message", message)?,
            EventKind::CheckpointRefused { message } => {
                text("checkpoint_refused", "message", message)?;
            }
            EventKind::Log => text("log", "", "")?,
            EventKind::Skipped { message } => text("skipped", "message", message)?,
            EventKind::Epoch { message } => text("epoch", "message", message)?,
            EventKind::Validating => text("validating", "", "")?,
            EventKind::GemmAutotuned { message } => text("gemm_autotuned", "message", message)?,
            EventKind::Warning { message } => text("warning", "message", message)?,
            EventKind::Resumed { checkpoint } => {
                text("resumed", "path", &checkpoint.to_string_lossy())?;
            }
            EventKind::Saved { checkpoint } => {
                text("saved", "path", &checkpoint.to_string_lossy())?;
            }
            EventKind::Finished(stop) => text("finished", "stop", &stop.to_string())?,
            EventKind::Stopped(stop) => text("stopped", "stop", &stop.to_string())?,
            EventKind::Averaged { model, updates, metrics, improved } => {
                text("averaged", "message", updates)?;
                map.serialize_entry("path", &model.to_string_lossy())?;
                map.serialize_entry("metrics", metrics)?;
                map.serialize_entry("improved", improved)?;
            }
            EventKind::Validated {
                metrics,
                deciding,
                improved,
                best,
                best_update,
                translations,
                start,
            } => {
                text("validated", "", "")?;
                map.serialize_entry("metrics", metrics)?;
                known(&mut map, "deciding_metric", deciding.as_ref())?;
                map.serialize_entry("improved", improved)?;
                finite(&mut map, "best_metric", *best)?;
                map.serialize_entry("best_update", best_update)?;
                let path = translations.as_ref().map(|path| path.to_string_lossy());
                known(&mut map, "path", path)?;
                map.serialize_entry("start", start)?;
            }
            EventKind::Unknown(number) => {
                text("unknown", "", "")?;
                map.serialize_entry("number", number)?;
            }
        }
        map.serialize_entry("update", &self.update)?;
        map.serialize_entry("epoch", &self.epoch)?;
        map.serialize_entry("epoch_fraction", &self.epoch_fraction)?;
        finite(&mut map, "loss", self.loss)?;
        finite(&mut map, "nll", self.nll)?;
        finite(&mut map, "grad_norm", self.grad_norm)?;
        map.serialize_entry("learning_rate", &self.learning_rate)?;
        map.serialize_entry("target_tokens", &self.target_tokens)?;
        map.serialize_entry("source_tokens", &self.source_tokens)?;
        map.serialize_entry("target_tokens_per_second", &self.target_tokens_per_second)?;
        map.serialize_entry("source_tokens_per_second", &self.source_tokens_per_second)?;
        map.serialize_entry("elapsed_seconds", &self.elapsed_seconds)?;
        known(&mut map, "eta_seconds", self.eta_seconds)?;
        map.serialize_entry("memory_bytes", &self.memory_bytes)?;
        map.serialize_entry("peak_memory_bytes", &self.peak_memory_bytes)?;
        map.serialize_entry("skipped_updates", &self.skipped_updates)?;
        map.serialize_entry("stalled", &self.stalled)?;
        if !self.objective_metrics.is_empty() {
            map.serialize_entry("objective_metrics", &Finite(&self.objective_metrics))?;
        }
        map.end()
    }
}

impl Serialize for StepResult {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("update", &self.update)?;
        finite(&mut map, "loss", self.loss)?;
        finite(&mut map, "nll", self.nll)?;
        finite(&mut map, "grad_norm", self.grad_norm)?;
        map.serialize_entry("learning_rate", &self.learning_rate)?;
        map.serialize_entry("labels", &self.labels)?;
        map.serialize_entry("skipped", &self.skipped)?;
        map.end()
    }
}

impl Serialize for Score {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("log_probability", &self.log_probability)?;
        map.serialize_entry("tokens", &self.tokens)?;
        map.end()
    }
}

impl Serialize for SentenceScore {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("bleu", &self.bleu)?;
        map.serialize_entry("chrf", &self.chrf)?;
        map.end()
    }
}

impl Serialize for ResampledScore {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("score", &self.score)?;
        known(&mut map, "mean", self.mean)?;
        known(&mut map, "half_width", self.half_width)?;
        known(&mut map, "p_value", self.p_value)?;
        map.end()
    }
}

impl Serialize for Evaluation {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("bleu", &self.bleu)?;
        map.serialize_entry("chrf", &self.chrf)?;
        known(&mut map, "baseline_bleu", self.baseline_bleu)?;
        known(&mut map, "baseline_chrf", self.baseline_chrf)?;
        map.serialize_entry("precisions", &self.precisions)?;
        map.serialize_entry("brevity_penalty", &self.brevity_penalty)?;
        map.serialize_entry("matches", &self.matches)?;
        map.serialize_entry("totals", &self.totals)?;
        map.serialize_entry("hypothesis_tokens", &self.hypothesis_tokens)?;
        map.serialize_entry("reference_tokens", &self.reference_tokens)?;
        map.serialize_entry("unspaced_references", &self.unspaced_references)?;
        map.serialize_entry("bleu_signature", &self.bleu_signature)?;
        map.serialize_entry("chrf_signature", &self.chrf_signature)?;
        map.end()
    }
}
