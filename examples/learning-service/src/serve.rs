//! The models that are served: one for each domain with an adapter, and the base.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use trafo::{Model, TranslateOptions};

use crate::base::Base;
use crate::fault::{Fault, Result};
use crate::hash;
use crate::serving::batcher::Translator;
use crate::store::{Domain, Store};
use crate::versions::Chosen;

/// The id of no domain: the base.
pub const BASE: i64 = 0;

/// Settings that lines must share to be translated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    pub domain: i64,
    pub beam: usize,
}

/// The translation of a line, by a version.
#[derive(Clone, Debug)]
pub struct Line {
    pub text: String,
    pub score: f64,
    pub version: i64,
}

pub struct Served {
    pub version: i64,
    pub model: Model,
}

/// Which model serves a domain. A batch keeps the model that it began with, so that a switch fails no request.
pub struct Models {
    threads: usize,
    base: Arc<Served>,
    domains: Mutex<HashMap<i64, (String, Arc<Served>)>>,
}

impl Models {
    pub fn new(base: &Base, threads: usize) -> Result<Self> {
        let model = base.load_to_serve(None, threads)?;
        let base = Arc::new(Served { version: 0, model });
        Ok(Models { threads, base, domains: Mutex::default() })
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

    /// Serves `chosen`, whose adapter is in `data`, from the next batch on; the base without one. `Conflict`: the adapter
    /// is damaged, and nothing has changed.
    pub fn load(
        &self,
        base: &Base,
        data: &Path,
        domain: &Domain,
        chosen: Option<&Chosen>,
    ) -> Result<()> {
        let Some(chosen) = chosen else {
            self.lock().remove(&domain.id);
            return Ok(());
        };
        let adapter = adapter_folder(data, &domain.name, chosen.version);
        let model = check_adapter(&adapter, &chosen.hash)
            .and_then(|()| base.load_to_serve(Some(&adapter), self.threads))
            .map_err(|fault| Fault::Conflict(fault.message().to_string()))?;
        self.put(domain.id, &domain.name, Served { version: chosen.version, model });
        Ok(())
    }

    /// Serves a loaded model from the next batch on.
    pub fn put(&self, domain: i64, name: &str, served: Served) {
        let served = (name.to_string(), Arc::new(served));
        let before = self.lock().insert(domain, served);
        drop(before); // not under the lock: freeing a model takes a moment
    }

    /// Translates with the model that is served when a batch begins.
    pub fn translator(self: Arc<Self>, base: &Base) -> Translator<Search, Line> {
        let tokenizer = base.tokenizer.clone();
        Box::new(move |lines, how: Search, cancel| {
            let served = self.get(how.domain);
            let options = TranslateOptions::new().beam(how.beam).cancel(cancel);
            let (found, truncated) = served.model.translate_counted(&tokenizer, lines, &options)?;
            let line = |translation: &trafo::Translation| Line {
                text: translation.text().to_string(),
                score: translation.score(),
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

/// `Conflict`: the files of an adapter are not those that the database knows.
pub fn check_adapter(adapter: &Path, expected: &str) -> Result<()> {
    let found = hash::of_directory(adapter)?;
    if found == expected {
        return Ok(());
    }
    Err(Fault::Conflict(format!(
        "{} is damaged: its hash is {found}, not {expected}",
        adapter.display()
    )))
}

/// Loads the current version of every domain. A damaged one is noted, and the good one before it is served. Returns the
/// reasons.
pub fn load_all(models: &Models, base: &Base, store: &Store, data: &Path) -> Result<Vec<String>> {
    let mut refused = Vec::new();
    for domain in store.domains()? {
        loop {
            let chosen = store.chosen(domain.id)?;
            let loaded = models.load(base, data, &domain, chosen.as_ref());
            let (Some(chosen), Err(fault)) = (chosen, loaded) else { break };
            store.mark_damaged(domain.id, chosen.version, fault.message())?;
            let (version, name) = (chosen.version, &domain.name);
            refused.push(format!("version {version} of {name} is not served: {fault}"));
        }
    }
    Ok(refused)
}

/// Removes files that versions no longer need: checkpoints of rounds that have ended, adapters that may not be served.
pub fn clean(store: &Store, data: &Path) -> Result<()> {
    for domain in store.domains()? {
        for version in store.versions(&domain)? {
            let (name, number) = (&domain.name, version.version);
            if version.state != "learning" {
                remove(&work_folder(data, name, number))?;
            }
            if ["failed", "forgotten"].contains(&version.state.as_str()) {
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
