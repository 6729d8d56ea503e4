//! Settings of the service and its command line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use trafo::Device;

use crate::base::Engine;
use crate::fault::{Fault, Result};

/// Settings that decide the bytes of an adapter, beside the corrections and the base.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learning {
    /// First part of the seeds of all versions.
    pub seed: u64,
    /// Of the LoRA adapter.
    pub rank: usize,
    pub learning_rate: f64,
    pub warmup: usize,
    /// Most updates of a round.
    pub updates: usize,
    /// Updates from one validation and checkpoint to the next.
    pub every: usize,
    /// Validations without a better loss on held-out corrections that end a round.
    pub patience: usize,
    pub batch_tokens: usize,
    /// Pairs of the base's text that are learned again.
    pub replay: usize,
    /// Share of the corrections in the pairs of an epoch, above 0 and below 1.
    pub share: f64,
    /// Newest corrections of a person in a domain that are learned.
    pub per_person: usize,
    /// Newest corrections of a domain that are learned.
    pub most: usize,
}

impl Default for Learning {
    fn default() -> Self {
        Learning {
            seed: 1,
            rank: 8,
            learning_rate: 3e-3,
            warmup: 20,
            updates: 400,
            every: 20,
            patience: 5,
            batch_tokens: 1024,
            replay: 12000,
            share: 0.15,
            per_person: 200,
            most: 5000,
        }
    }
}

/// Bounds that a candidate must keep to be served.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds {
    /// BLEU that a candidate may lose on the regression set, against the base.
    pub regression_loss: f64,
    /// Tokens that a candidate may take for the measured lines, relative to the current version. Their number decides how
    /// long a translation takes, and it is the same in every run.
    pub length: f64,
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// Database, adapters, and the base model if it is trained here.
    pub data: PathBuf,
    /// Directory of the base model; `data/base` by default.
    pub base: Option<PathBuf>,
    /// Directory of a language model that the OpenAI interface serves beside the base. It learns nothing.
    pub language_model: Option<PathBuf>,
    pub address: String,
    /// Clients must send it. Without one, the address must be a loopback address.
    pub token: Option<String>,
    /// New corrections of a domain that start a round.
    pub batch: usize,
    pub beam: usize,
    /// Computes translations, training and measuring.
    pub device: Device,
    /// Threads that translate; 0 is one for each core.
    pub serve_threads: usize,
    /// Threads that train.
    pub train_threads: usize,
    /// Share of the time in which training computes, above 0 and at most 1.
    pub train_share: f64,
    /// The same while requests are translated, 0.001 to 1.
    pub busy_share: f64,
    /// Sentences that may wait to be translated.
    pub queue: usize,
    /// Largest body of a request in bytes.
    pub most_body: usize,
    /// Seconds until a request that is not answered is given up.
    pub time_limit: f64,
    /// Domains that may exist; each has an adapter in memory.
    pub most_domains: usize,
    /// Corrections of a person that are stored.
    pub stored_per_person: usize,
    /// Corrections of a domain that are stored.
    pub most_corrections: usize,
    pub learning: Learning,
    pub bounds: Bounds,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            data: "learning-data".into(),
            base: None,
            language_model: None,
            address: "127.0.0.1:8080".into(),
            token: None,
            batch: 10,
            beam: 4,
            device: Device::Cpu,
            serve_threads: 0,
            train_threads: 1,
            train_share: 1.0,
            busy_share: 0.1,
            queue: 1024,
            most_body: 1 << 20,
            time_limit: 30.0,
            most_domains: 16,
            stored_per_person: 10_000,
            most_corrections: 100_000,
            learning: Learning::default(),
            bounds: Bounds { regression_loss: 0.5, length: 1.5 },
        }
    }
}

pub const USAGE: &str = "usage: learning-service [--NAME VALUE]...
  --data FOLDER          database and adapters (learning-data)
  --base FOLDER          base model; FOLDER/base of --data by default, which is trained if it is missing
  --language-model FOLDER
                         decoder-only model for /v1/chat/completions and /v1/completions; it learns nothing
  --address HOST:PORT    (127.0.0.1:8080); port 0 is a free one
  --batch N              new corrections of a domain that start a round (10)
  --beam N               (4)
  --device DEVICE        cpu, cuda, cuda:N or auto, of translations and training (cpu)
  --serve-threads N      threads that translate, 0: one for each core (0)
  --train-threads N      threads that train (1)
  --train-share X        share of the time in which training computes (1)
  --busy-share X         the same while requests are translated (0.1)
  --queue N              sentences that may wait (1024)
  --most-body BYTES      (1048576)
  --time-limit SECONDS   until a request is given up (30)
  --most-domains N       (16)
  --most-corrections N   of a domain that are stored (100000)
  --seed N, --rank N, --learning-rate X, --warmup N, --updates N, --every N, --patience N, --batch-tokens N,
  --replay N, --share X, --per-person N
                         of a round, see docs/guide/learning-service.md
  --regression-loss X    BLEU that a version may lose on the regression set (0.5)
The bearer token is the variable LEARNING_SERVICE_TOKEN. Without it the address must be a loopback address.";

impl Settings {
    /// From the arguments after the program's name.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut settings = Settings::default();
        while let Some(name) = arguments.next() {
            let value = arguments
                .next()
                .ok_or_else(|| Fault::Invalid(format!("{name} needs a value\n{USAGE}")))?;
            settings.set(&name, &value)?;
        }
        settings.check()?;
        Ok(settings)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T> {
            value
                .parse()
                .map_err(|_| Fault::Invalid(format!("{name}: {value:?} is no such number")))
        }
        let learning = &mut self.learning;
        match name {
            "--data" => self.data = value.into(),
            "--base" => self.base = Some(value.into()),
            "--language-model" => self.language_model = Some(value.into()),
            "--address" => self.address = value.into(),
            "--batch" => self.batch = number(name, value)?,
            "--beam" => self.beam = number(name, value)?,
            "--device" => {
                self.device =
                    value.parse().map_err(|error| Fault::Invalid(format!("{name}: {error}")))?;
            }
            "--serve-threads" => self.serve_threads = number(name, value)?,
            "--train-threads" => self.train_threads = number(name, value)?,
            "--train-share" => self.train_share = number(name, value)?,
            "--busy-share" => self.busy_share = number(name, value)?,
            "--queue" => self.queue = number(name, value)?,
            "--most-body" => self.most_body = number(name, value)?,
            "--time-limit" => self.time_limit = number(name, value)?,
            "--most-domains" => self.most_domains = number(name, value)?,
            "--most-corrections" => self.most_corrections = number(name, value)?,
            "--seed" => learning.seed = number(name, value)?,
            "--rank" => learning.rank = number(name, value)?,
            "--learning-rate" => learning.learning_rate = number(name, value)?,
            "--warmup" => learning.warmup = number(name, value)?,
            "--updates" => learning.updates = number(name, value)?,
            "--every" => learning.every = number(name, value)?,
            "--patience" => learning.patience = number(name, value)?,
            "--batch-tokens" => learning.batch_tokens = number(name, value)?,
            "--replay" => learning.replay = number(name, value)?,
            "--share" => learning.share = number(name, value)?,
            "--per-person" => learning.per_person = number(name, value)?,
            "--regression-loss" => self.bounds.regression_loss = number(name, value)?,
            _ => return Err(Fault::Invalid(format!("there is no option {name}\n{USAGE}"))),
        }
        Ok(())
    }

    /// Whether the values can be; the message names the option.
    pub fn check(&self) -> Result<()> {
        let learning = &self.learning;
        let at_least_one = [
            ("--batch", self.batch),
            ("--beam", self.beam),
            ("--train-threads", self.train_threads),
            ("--queue", self.queue),
            ("--most-domains", self.most_domains),
            ("--most-corrections", self.most_corrections),
            ("--rank", learning.rank),
            ("--updates", learning.updates),
            ("--every", learning.every),
            ("--patience", learning.patience),
            ("--per-person", learning.per_person),
        ];
        if let Some((name, _)) = at_least_one.iter().find(|(_, value)| *value < 1) {
            return Err(Fault::Invalid(format!("{name} must be at least 1")));
        }
        if learning.updates <= learning.warmup {
            return Err(Fault::Invalid("--updates must be above --warmup".into()));
        }
        if !(self.train_share > 0.0 && self.train_share <= 1.0) {
            return Err(Fault::Invalid("--train-share must be above 0 and at most 1".into()));
        }
        if !(self.busy_share >= 0.001 && self.busy_share <= 1.0) {
            return Err(Fault::Invalid("--busy-share must be 0.001 to 1".into()));
        }
        if !(learning.share > 0.0 && learning.share < 1.0) {
            return Err(Fault::Invalid("--share must be above 0 and below 1".into()));
        }
        if !(self.time_limit > 0.0 && self.time_limit <= 86_400.0) {
            return Err(Fault::Invalid("--time-limit must be above 0 and at most 86400".into()));
        }
        Ok(())
    }

    /// How requests are computed.
    pub fn server(&self) -> Engine {
        Engine { device: self.device, threads: self.serve_threads, share: 1.0 }
    }
    /// How training and measuring compute.
    pub fn learner(&self) -> Engine {
        Engine { device: self.device, threads: self.train_threads, share: self.busy_share }
    }

    pub fn base_folder(&self) -> PathBuf {
        self.base.clone().unwrap_or_else(|| self.data.join("base"))
    }
}
