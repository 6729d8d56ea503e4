//! The models that are served: the base, and over its weights one for each domain with an adapter.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use trafo::{FinishReason, Model, Sampling, TranslateOptions};

use crate::base::{Base, Engine};
use crate::fault::{Fault, Result};
use crate::hash;
use crate::serving::batcher::Translator;
use crate::store::{Domain, Store};
use crate::versions::Chosen;

/// The id of no domain: the base.
pub const BASE: i64 = 0;

/// Settings that lines must share to be translated together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    pub domain: i64,
    pub beam: usize,
    /// Translations of a line, at most `beam`.
    pub count: usize,
    pub presence_penalty: f64,
    pub frequency_penalty: f64,
    /// Draws the tokens in place of the search.
    pub draw: Option<Draw>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    pub temperature: f64,
    pub top_p: f64,
    pub seed: u64,
    /// Another number for each request: a draw depends on the place of a line among those that are translated together.
    pub request: u64,
}

impl Search {
    /// The best translation by beam search.
    pub fn new(domain: i64, beam: usize) -> Self {
        Search { domain, beam, count: 1, presence_penalty: 0.0, frequency_penalty: 0.0, draw: None }
    }
    fn options(&self) -> TranslateOptions {
        let options = TranslateOptions::new()
            .beam(self.beam)
            .n_best(self.count)
            .presence_penalty(self.presence_penalty)
            .frequency_penalty(self.frequency_penalty);
        match self.draw {
            None => options,
            Some(Draw { temperature, top_p, seed, .. }) => {
                options.sampling(Sampling::new().temperature(temperature).top_p(top_p).seed(seed))
            }
        }
    }
}

/// The translations of a line, by a version.
#[derive(Clone, Debug)]
pub struct Line {
    /// The best first; at least one, and fewer than were asked for if the search has found no more.
    pub hypotheses: Vec<Hypothesis>,
    pub source_tokens: usize,
    pub version: i64,
}

#[derive(Clone, Debug)]
pub struct Hypothesis {
    pub text: String,
    pub score: f64,
    pub tokens: Vec<i32>,
    /// Whether it was cut off at the longest length.
    pub cut: bool,
}

impl From<&trafo::Hypothesis> for Hypothesis {
    fn from(found: &trafo::Hypothesis) -> Self {
        Hypothesis {
            text: found.text.clone(),
            score: found.score,
            tokens: found.tokens.clone(),
            cut: found.finish == FinishReason::Length,
        }
    }
}

pub struct Served {
    pub version: i64,
    pub model: Model,
}

/// Which model serves a domain. A batch keeps the model that it began with, so that a switch fails no request.
pub struct Models {
    base: Arc<Served>,
    domains: Mutex<HashMap<i64, (String, Arc<Served>)>>,
}

impl Models {
    pub fn new(base: &Base, engine: Engine) -> Result<Self> {
        let model = base.load_to_serve(engine)?;
        let base = Arc::new(Served { version: 0, model });
        Ok(Models { base, domains: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i64, (String, Arc<Served>)>> {
        self.domains.lock().expect("no thread panics with the lock")
    }

    /// The id of a domain that has an adapter, or [`BASE`].
    pub fn id(&self, name: &str) -> i64 {
        self.lock().iter().find(|(_, (each, _))| each == name).map_or(BASE, |(id, _)| *id)
    }

    fn get(&self, domain: i64) -> Arc<Served> {
        self.lock().get(&domain).map_or_else(|| self.base.clone(), |(_, served)| served.clone())
    }

    /// Loads the model of `chosen`, whose adapter is in `data`; none for the base. `Damaged`: its files are. Other errors
    /// say nothing about the adapter: there may be no memory, for instance.
    pub fn load(
        &self,
        data: &Path,
        domain: &Domain,
        chosen: Option<&Chosen>,
    ) -> Result<Option<Served>> {
        let Some(chosen) = chosen else { return Ok(None) };
        let adapter = adapter_folder(data, &domain.name, chosen.version);
        check_adapter(&adapter, &chosen.hash)?;
        let served = self.with_adapter(&adapter, chosen.version).map_err(|fault| {
            let (version, name) = (chosen.version, &domain.name);
            Fault::Unavailable(format!("version {version} of {name} cannot be loaded: {fault}"))
        })?;
        Ok(Some(served))
    }

    /// The model of an adapter, which takes the memory of the adapter alone.
    pub fn with_adapter(&self, adapter: &Path, version: i64) -> Result<Served> {
        Ok(Served { version, model: self.base.model.with_adapter(adapter)? })
    }

    /// Serves a loaded model from the next batch on, or the base without one.
    pub fn put(&self, domain: i64, name: &str, served: Option<Served>) {
        let before = match served {
            Some(served) => self.lock().insert(domain, (name.to_string(), Arc::new(served))),
            None => self.lock().remove(&domain),
        };
        drop(before); // not under the lock: freeing a model takes a moment
    }

    /// Serves the base in place of versions that may not be served any more.
    pub fn withdraw(&self, versions: &[(String, i64)]) {
        let mut domains = self.lock();
        domains.retain(|_, (name, served)| {
            !versions.iter().any(|(each, version)| each == name && *version == served.version)
        });
    }

    /// Translates with the model that is served when a batch begins.
    pub fn translator(self: Arc<Self>, base: &Base) -> Translator<Search, Line> {
        let frame = base.frame.clone();
        Box::new(move |lines, how: Search, cancel| {
            let served = self.get(how.domain);
            let options = how.options().cancel(cancel);
            let (found, truncated) = frame.translate(&served.model, lines, &options)?;
            let line = |translation: &trafo::Translation| Line {
                hypotheses: translation.hypotheses.iter().map(Hypothesis::from).collect(),
                source_tokens: translation.used_tokens,
                version: served.version,
            };
            Ok((found.iter().map(line).collect(), truncated))
        })
    }
}

pub fn adapter_folder(data: &Path, domain: &str, version: i64) -> PathBuf {
    data.join("adapters").join(domain).join(version.to_string())
}

pub fn work_folder(data: &Path, domain: &str, version: i64) -> PathBuf {
    data.join("work").join(domain).join(version.to_string())
}

/// `Damaged`: files of an adapter are missing, or were read and are not those that the database knows.
pub fn check_adapter(adapter: &Path, expected: &str) -> Result<()> {
    let found = hash::of_adapter(adapter).map_err(|fault| match fault {
        Fault::NotFound(text) => Fault::Damaged(text),
        other => other,
    })?;
    if found == expected {
        return Ok(());
    }
    Err(Fault::Damaged(format!(
        "{} is damaged: its hash is {found}, not {expected}",
        adapter.display()
    )))
}

/// Serves the current version of a domain. A damaged one is noted, and another good one is served. Returns the reasons.
pub fn load_current(
    models: &Models,
    store: &Store,
    data: &Path,
    domain: &Domain,
) -> Result<Vec<String>> {
    let mut refused = Vec::new();
    loop {
        let chosen = store.chosen(domain.id)?;
        match (models.load(data, domain, chosen.as_ref()), chosen) {
            (Ok(served), _) => {
                models.put(domain.id, &domain.name, served);
                return Ok(refused);
            }
            (Err(fault @ Fault::Damaged(_)), Some(chosen)) => {
                store.mark_damaged(domain.id, chosen.version, fault.message())?;
                let (version, name) = (chosen.version, &domain.name);
                refused.push(format!("version {version} of {name} is not served: {fault}"));
            }
            (Err(fault), _) => return Err(fault),
        }
    }
}

/// Removes adapters.
pub fn remove_adapters(data: &Path, versions: &[(String, i64)]) -> Result<()> {
    let removed: Vec<_> = versions
        .iter()
        .map(|(name, version)| remove(&adapter_folder(data, name, *version)))
        .collect();
    removed.into_iter().collect() // the first fault, after all were tried
}

/// Removes files that versions no longer need: checkpoints of rounds that have ended, adapters that may not be served.
pub fn clean(store: &Store, data: &Path) -> Result<()> {
    for domain in store.domains()? {
        for (number, state) in store.states(&domain)? {
            let name = &domain.name;
            if state != "learning" {
                remove(&work_folder(data, name, number))?;
            }
            if ["failed", "forgotten"].contains(&state.as_str()) {
                remove(&adapter_folder(data, name, number))?;
            }
        }
    }
    Ok(())
}

/// Removes a folder if it is there.
pub fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(crate::fault::io(folder)(error))
        }
        _ => Ok(()),
    }
}
