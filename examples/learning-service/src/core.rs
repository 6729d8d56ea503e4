//! What requests and the learner share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use serde::Serialize;
use trafo::CancelToken;

use crate::base::Base;
use crate::fault::{Fault, Result};
use crate::serve::{BASE, Models, clean, load_current, remove_adapters};
use crate::settings::Settings;
use crate::store::{Domain, Room, Store};
use crate::versions::Forgotten;

/// How far a round is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Progress {
    pub domain: String,
    pub version: i64,
    /// `training` or `measuring`.
    pub phase: &'static str,
    pub update: i64,
    pub of: usize,
}

#[derive(Default)]
struct Status {
    progress: Option<Progress>,
    /// Why the last round could not be continued; it is tried again.
    fault: Option<String>,
    woken: bool,
}

pub struct Core {
    pub settings: Settings,
    pub store: Store,
    pub base: Base,
    pub models: Arc<Models>,
    /// Held while the current version changes, in the database and in memory.
    switching: Mutex<()>,
    status: Mutex<Status>,
    woken: Condvar,
    closing: AtomicBool,
    /// Set when corrections were deleted: a round that has learned from them ends.
    abandoned: AtomicBool,
    /// Ends translations of the learner.
    pub cancel: CancelToken,
}

impl Core {
    /// Loads the base and the versions that are served. `store`: of the folder of the settings. Returns the reasons why
    /// versions are not served.
    pub fn open(settings: Settings, store: Store) -> Result<(Self, Vec<String>)> {
        let data = &settings.data;
        let base = Base::open(&settings.base_folder())?;
        store.bind_base(&base.hash)?;
        clean(&store, data)?;
        let models = Arc::new(Models::new(&base, settings.server())?);
        let mut refused = Vec::new();
        for domain in store.domains()? {
            refused.extend(load_current(&models, &store, data, &domain)?);
        }
        let core = Core {
            settings,
            store,
            base,
            models,
            switching: Mutex::new(()),
            status: Mutex::default(),
            woken: Condvar::new(),
            closing: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            cancel: CancelToken::new(),
        };
        Ok((core, refused))
    }

    pub fn room(&self) -> Room {
        let settings = &self.settings;
        Room {
            domains: settings.most_domains,
            per_person: settings.stored_per_person,
            per_domain: settings.most_corrections,
        }
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().expect("no thread panics with the lock")
    }
    pub fn progress(&self) -> Option<Progress> {
        self.status().progress.clone()
    }
    pub fn set_progress(&self, progress: Option<Progress>) {
        self.status().progress = progress;
    }
    pub fn fault(&self) -> Option<String> {
        self.status().fault.clone()
    }
    pub fn set_fault(&self, fault: Option<String>) {
        self.status().fault = fault;
    }

    /// Has the learner look for work.
    pub fn wake(&self) {
        self.status().woken = true;
        self.woken.notify_all();
    }
    /// Waits for [`wake`](Self::wake), at most `most`.
    pub fn sleep(&self, most: Duration) {
        let (mut status, _) = self
            .woken
            .wait_timeout_while(self.status(), most, |status| !status.woken)
            .expect("no thread panics with the lock");
        status.woken = false;
    }

    /// Ends the learner; its round is resumed by the next process.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.cancel.cancel();
        self.wake();
    }
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
    /// A round begins: deletions before it are in the database. Returns whether there were some.
    pub fn begin_round(&self) -> bool {
        self.abandoned.swap(false, Ordering::AcqRel)
    }
    pub fn must_end_round(&self) -> bool {
        self.is_closing() || self.abandoned.load(Ordering::Acquire)
    }

    /// Runs `work` while nobody else changes the current version of a domain.
    pub fn switching<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _alone = self.switching.lock().expect("no thread panics with the lock");
        work()
    }

    /// Serves an earlier version, or the base with 0. `Conflict`: it is not good. `Damaged`: its files are not whole. Then
    /// the domain serves what it did, unless that was the damaged version.
    pub fn roll_back(&self, domain: &str, version: i64) -> Result<()> {
        self.switching(|| {
            let domain = self.store.domain(domain)?;
            let chosen = self.store.good(&domain, version)?;
            // Loaded first: a version that cannot be loaded must not be the current one.
            let data = &self.settings.data;
            let served = match self.models.load(data, &domain, chosen.as_ref()) {
                Ok(served) => served,
                Err(fault @ Fault::Damaged(_)) => {
                    self.store.mark_damaged(domain.id, version, fault.message())?;
                    self.load_current(&domain)?;
                    return Err(fault);
                }
                Err(fault) => return Err(fault),
            };
            self.store.roll_back(domain.id, version)?;
            self.models.put(domain.id, &domain.name, served);
            Ok(())
        })
    }

    /// Serves the current version of a domain anew. To be called within [`switching`](Self::switching).
    pub fn load_current(&self, domain: &Domain) -> Result<Vec<String>> {
        load_current(&self.models, &self.store, &self.settings.data, domain)
    }

    /// Deletes a person's corrections and the adapters that have learned from them. The learner removes the files of its
    /// round, if that has learned from them as well. An error after the commit undoes nothing: the rest is done as far as it
    /// can be, and the learner tries it again.
    pub fn forget(&self, who: &str) -> Result<Forgotten> {
        let (forgotten, loaded) = self.switching(|| {
            let forgotten = self.store.forget(who)?;
            self.abandoned.store(true, Ordering::Release);
            self.models.withdraw(&forgotten.versions);
            let loaded = self.load_missing();
            Ok((forgotten, loaded))
        })?;
        let removed = remove_adapters(&self.settings.data, &forgotten.versions);
        self.wake();
        let text = self.store.remove_deleted_text();
        loaded.and(removed).and(text).map_err(|fault| {
            let text = format!("the corrections are deleted, the rest is tried again: {fault}");
            Fault::Unavailable(text)
        })?;
        Ok(forgotten)
    }

    /// Serves the current versions of domains that serve the base in their place. To be called within
    /// [`switching`](Self::switching).
    fn load_missing(&self) -> Result<()> {
        let mut result = Ok(());
        for domain in self.store.domains()? {
            if domain.current != 0 && self.models.id(&domain.name) == BASE {
                result = result.and(self.load_current(&domain).map(drop));
            }
        }
        result
    }

    /// Does what a deletion has left to do, and removes files that are no longer needed.
    pub fn tidy(&self) -> Result<()> {
        let loaded = self.switching(|| self.load_missing());
        let cleaned = clean(&self.store, &self.settings.data);
        loaded.and(cleaned).and(self.store.remove_deleted_text())
    }
}
