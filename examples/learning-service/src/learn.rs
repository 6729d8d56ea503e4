//! The learner: a thread that trains, measures and switches, within its share of the time.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trafo::Model;

use crate::core::{Core, Progress};
use crate::fault::{Fault, Result};
use crate::hash;
use crate::measure::{Measured, Sets, measure, refusal};
use crate::serve::{Served, adapter_folder, check_adapter, work_folder};
use crate::train::{Observer, train};
use crate::versions::{Chosen, Outcome, Point, Round};

/// Translations of held-out corrections that a version shows, before and after.
const EXAMPLES: usize = 12;
/// Longest wait for requests between two updates, so that a busy service learns as well.
const PATIENCE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LAST_RETRY: Duration = Duration::from_secs(300);

/// Starts the thread. It ends after [`Core::close`].
pub fn start(core: Arc<Core>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let (mut retry, mut untidy) = (FIRST_RETRY, false);
        while !core.is_closing() {
            untidy |= core.begin_round();
            let done = one_round(&core).and_then(|more| {
                if more || untidy {
                    core.tidy()?;
                    untidy = false;
                }
                Ok(more)
            });
            if done.is_ok() {
                core.set_fault(None);
            }
            match done {
                Ok(true) => retry = FIRST_RETRY,
                Ok(false) => core.sleep(Duration::from_secs(3600)),
                Err(fault) => {
                    core.set_fault(Some(fault.to_string()));
                    core.sleep(retry);
                    retry = (2 * retry).min(LAST_RETRY);
                }
            }
            core.set_progress(None);
        }
    })
}

/// Works on the next round. False: there is none.
fn one_round(core: &Core) -> Result<bool> {
    let settings = &core.settings;
    let Some(round) = core.store.next_round(settings.batch, &settings.learning)? else {
        return Ok(false);
    };
    match learn(core, &round) {
        Err(Fault::Invalid(reason)) => {
            let outcome = Outcome { serve: false, hash: None, figures: Value::Null, reason };
            core.store.finish(&round, &outcome)?;
        }
        Err(_) if core.must_end_round() => {}
        other => other?,
    }
    Ok(true)
}

/// Trains, measures and decides, unless the round must end before its time.
fn learn(core: &Core, round: &Round) -> Result<()> {
    let settings = &core.settings;
    let adapter = adapter_folder(&settings.data, &round.domain, round.version);
    let work = work_folder(&settings.data, &round.domain, round.version);
    let mut observer = Watch { core, round };
    if !train(&core.base, round, settings.train_threads, &work, &adapter, &mut observer)? {
        return Ok(());
    }
    let hash = hash::of_adapter(&adapter)?;
    let Some((outcome, model)) = judge(core, round, hash)? else {
        return Ok(());
    };
    core.switching(|| {
        if core.store.finish(round, &outcome)? && outcome.serve {
            let served = Served { version: round.version, model };
            core.models.put(round.domain_id, &round.domain, Some(served));
        }
        Ok(())
    })
}

/// Measures the candidate, the current version and the base on the same sentences. None: the round must end.
fn judge(core: &Core, round: &Round, hash: String) -> Result<Option<(Outcome, Model)>> {
    let settings = &core.settings;
    let (base, threads) = (&core.base, settings.train_threads);
    let terms = core.store.terms(round.domain_id)?;
    let sets = Sets::new(&round.held, &round.train, &base.regression, &terms);
    let figures_of = |model: &Model| -> Result<Measured> {
        core.set_progress(Some(progress(round, "measuring", 0)));
        let mut pause = |took| rest(core, took);
        measure(model, &base.tokenizer, &sets, settings.beam, &core.cancel, &mut pause)
    };
    let of_base = figures_of(&base.load_to_serve(None, threads)?)?;
    let current = current(core, round)?;
    let of_current = match &current {
        None => None,
        Some(chosen) => {
            let folder = adapter_folder(&settings.data, &round.domain, chosen.version);
            Some(figures_of(&base.load_to_serve(Some(&folder), threads)?)?)
        }
    };
    let before = of_current.as_ref().unwrap_or(&of_base);
    let adapter = adapter_folder(&settings.data, &round.domain, round.version);
    let mut model = base.load_to_serve(Some(&adapter), threads)?;
    let candidate = figures_of(&model)?;
    if core.must_end_round() {
        return Ok(None);
    }
    let why = refusal(&candidate.figures, &before.figures, &of_base.figures, &settings.bounds);
    let figures = json!({
        "candidate": candidate.figures,
        "before": before.figures,
        "base": of_base.figures,
        "before_version": current.as_ref().map_or(0, |chosen| chosen.version),
        "examples": examples(round, before, &candidate),
    });
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads = settings.serve_threads;
    model.set_threads(if threads > 0 { threads } else { cores() })?;
    let serve = why.is_none();
    let reason = why.unwrap_or_else(|| "it is better".to_string());
    Ok(Some((Outcome { serve, hash: Some(hash), figures, reason }, model)))
}

/// The version that is served, after one that is damaged on disk was replaced.
fn current(core: &Core, round: &Round) -> Result<Option<Chosen>> {
    loop {
        let Some(chosen) = core.store.chosen(round.domain_id)? else { return Ok(None) };
        let folder = adapter_folder(&core.settings.data, &round.domain, chosen.version);
        match check_adapter(&folder, &chosen.hash) {
            Ok(()) => return Ok(Some(chosen)),
            Err(Fault::Damaged(_)) => {
                let domain = core.store.domain(&round.domain)?;
                core.switching(|| core.load_current(&domain))?;
            }
            Err(fault) => return Err(fault),
        }
    }
}

/// Held-out corrections whose translation has changed, before others.
fn examples(round: &Round, before: &Measured, after: &Measured) -> Vec<Value> {
    let lines = round.held.iter().zip(before.held.iter().zip(&after.held));
    let mut lines: Vec<_> = lines.collect();
    lines.sort_by_key(|(_, (before, after))| before == after);
    let shown = lines.into_iter().take(EXAMPLES);
    shown
        .map(|((source, right), (before, after))| {
            json!({ "source": source, "right": right, "before": before, "after": after })
        })
        .collect()
}

fn progress(round: &Round, phase: &'static str, update: i64) -> Progress {
    let Round { domain, version, .. } = round;
    Progress {
        domain: domain.clone(),
        version: *version,
        phase,
        update,
        of: round.learning.updates,
    }
}

/// Leaves the rest of the time to requests: `took` was this thread's share. Then it waits while requests are translated,
/// but not for long.
fn rest(core: &Core, took: Duration) {
    let share = core.settings.train_share;
    let pause = took.mul_f64((1.0 - share) / share).min(LONGEST_PAUSE);
    let began = Instant::now();
    let must_wait = || {
        let waited = began.elapsed();
        let busy = core.busy.load(Ordering::Acquire) > 0;
        waited < pause || (busy && waited < pause + PATIENCE)
    };
    while must_wait() && !core.must_end_round() {
        let left = pause.saturating_sub(began.elapsed());
        std::thread::sleep(left.clamp(Duration::from_millis(1), Duration::from_millis(50)));
    }
}

struct Watch<'a> {
    core: &'a Core,
    round: &'a Round,
}

impl Observer for Watch<'_> {
    fn updated(&mut self, update: i64, took: Duration) -> ControlFlow<()> {
        self.core.set_progress(Some(progress(self.round, "training", update)));
        rest(self.core, took);
        if self.core.must_end_round() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
    fn validated(&mut self, point: Point) -> Result<()> {
        self.core.store.add_point(self.round, point)
    }
}
