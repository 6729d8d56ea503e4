//! The learner: a thread that trains, measures and switches, within its share of the time.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trafo::Model;

use crate::core::{Core, Progress};
use crate::fault::{Fault, Result};
use crate::hash;
use crate::measure::{Measured, Sets, measure, refusal};
use crate::serve::{Served, adapter_folder, check_adapter, remove, work_folder};
use crate::train::{Observer, train};
use crate::versions::{Chosen, Outcome, Point, Round};

/// Translations of held-out corrections that a version shows, before and after.
const EXAMPLES: usize = 12;
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const FIRST_RETRY: Duration = Duration::from_secs(2);
/// Failures after which a round begins anew without its checkpoints, and after as many more ends.
const MOST_FAILURES: usize = 5;
const LAST_RETRY: Duration = Duration::from_secs(300);

/// Starts the thread. It ends after [`Core::close`].
pub fn start(core: Arc<Core>) -> JoinHandle<()> {
    let thread = std::thread::Builder::new().name("learner".into());
    thread.spawn(move || work(&core)).expect("a thread can be started")
}

fn work(core: &Core) {
    // Also the first time: a process that was killed may have left something.
    let (mut retry, mut untidy) = (FIRST_RETRY, true);
    let mut failures = Failures::default();
    while !core.is_closing() {
        untidy |= core.begin_round();
        let tidied = if untidy { core.tidy() } else { Ok(()) };
        untidy = tidied.is_err();
        let done = tidied.and_then(|()| one_round(core, &mut failures));
        untidy |= matches!(done, Ok(true));
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
}

/// How often a round has failed in a row, for reasons that time alone does not mend.
#[derive(Default)]
struct Failures {
    round: (i64, i64),
    count: usize,
}

impl Failures {
    /// Decides about a round that has failed. True: it ends. False: it is tried again, once from its beginning.
    fn note(&mut self, data: &Path, round: &Round, fault: &Fault) -> Result<bool> {
        if matches!(fault, Fault::Invalid(_) | Fault::Hopeless(_)) {
            return Ok(true);
        }
        if matches!(fault, Fault::Unavailable(_)) {
            return Ok(false);
        }
        let this = (round.domain_id, round.version);
        self.count = if self.round == this { self.count + 1 } else { 1 };
        self.round = this;
        if self.count == MOST_FAILURES {
            remove(&work_folder(data, &round.domain, round.version))?;
        }
        Ok(self.count >= 2 * MOST_FAILURES)
    }
}

/// Works on the next round. False: there is none.
fn one_round(core: &Core, failures: &mut Failures) -> Result<bool> {
    let settings = &core.settings;
    let Some(round) = core.store.next_round(settings.batch, &settings.learning)? else {
        return Ok(false);
    };
    match learn(core, &round) {
        Err(fault) if !core.must_end_round() => {
            if !failures.note(&settings.data, &round, &fault)? {
                return Err(fault);
            }
            let reason = fault.to_string();
            let outcome = Outcome { serve: false, hash: None, figures: Value::Null, reason };
            core.store.finish(&round, &outcome)?;
        }
        _ => {}
    }
    Ok(true)
}

/// Trains, measures and decides, unless the round must end before its time.
fn learn(core: &Core, round: &Round) -> Result<()> {
    let settings = &core.settings;
    let adapter = adapter_folder(&settings.data, &round.domain, round.version);
    let work = work_folder(&settings.data, &round.domain, round.version);
    let mut observer = Watch { core, round };
    log(round, "training");
    if !train(&core.base, round, settings.learner(), &work, &adapter, &mut observer)? {
        return Ok(());
    }
    let hash = hash::of_adapter(&adapter)?;
    let mut ended = false;
    while !ended {
        log(round, "measuring");
        let Some(judged) = judge(core, round, hash.clone())? else { return Ok(()) };
        log(round, "switching");
        ended = core.switching(|| end(core, round, judged))?;
    }
    Ok(())
}

/// Ends a round. False: another version than the measured one is served meanwhile, and nothing has changed.
fn end(core: &Core, round: &Round, judged: Judged) -> Result<bool> {
    let Judged { outcome, served, before } = judged;
    if core.store.chosen(round.domain_id)? != before {
        return Ok(false);
    }
    if core.store.finish(round, &outcome)? {
        if served.is_some() {
            core.models.put(round.domain_id, &round.domain, served);
        }
        log(round, if outcome.serve { "served" } else { "refused" });
    }
    Ok(true)
}

struct Judged {
    outcome: Outcome,
    /// The candidate, if it is good.
    served: Option<Served>,
    /// The version that it was compared with; none is the base.
    before: Option<Chosen>,
}

/// Measures the candidate, the current version and the base on the same sentences. None: the round must end.
fn judge(core: &Core, round: &Round, hash: String) -> Result<Option<Judged>> {
    let settings = &core.settings;
    let (base, learner) = (&core.base, settings.learner());
    let terms = core.store.terms(round.domain_id)?;
    let sets = Sets::new(&round.held, &round.train, &base.regression, &terms);
    let figures_of = |model: &Model| -> Result<Measured> {
        core.set_progress(Some(progress(round, "measuring", 0)));
        let mut pause = |took| rest(core, took);
        measure(model, &base.frame, &sets, settings.beam, &core.cancel, &mut pause)
    };
    let model = base.load_to_serve(learner)?;
    let of_base = figures_of(&model)?;
    let current = current(core, round)?;
    let of_current = match &current {
        None => None,
        Some(chosen) => {
            let folder = adapter_folder(&settings.data, &round.domain, chosen.version);
            Some(figures_of(&model.with_adapter(folder)?)?)
        }
    };
    let before = of_current.as_ref().unwrap_or(&of_base);
    let adapter = adapter_folder(&settings.data, &round.domain, round.version);
    let candidate = figures_of(&model.with_adapter(&adapter)?)?;
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
    let serve = why.is_none();
    let served = serve.then(|| core.models.with_adapter(&adapter, round.version)).transpose()?;
    let reason = why.unwrap_or_else(|| "it is better".to_string());
    let outcome = Outcome { serve, hash: Some(hash), figures, reason };
    Ok(Some(Judged { outcome, served, before: current }))
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

fn log(round: &Round, phase: &str) {
    eprintln!("learning-service: {} {}: {phase}", round.domain, round.version);
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

/// Leaves the rest of the time to other programs: `took` was the learner's share.
fn rest(core: &Core, took: Duration) {
    let share = core.settings.train_share;
    let pause = took.mul_f64((1.0 - share) / share).min(LONGEST_PAUSE);
    let began = Instant::now();
    while began.elapsed() < pause && !core.must_end_round() {
        let left = pause.saturating_sub(began.elapsed());
        std::thread::sleep(left.min(Duration::from_millis(50)));
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
    fn writing(&mut self) {
        log(self.round, "writing");
    }
    fn validated(&mut self, point: Point) -> Result<()> {
        self.core.store.add_point(self.round, point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Learning;

    fn round(version: i64) -> Round {
        let learning = Learning::default();
        let domain = "rail".to_string();
        Round { domain_id: 1, domain, version, seed: 1, learning, train: vec![], held: vec![] }
    }

    /// A folder with the checkpoints of a round.
    struct Data(std::path::PathBuf);

    impl Data {
        fn new() -> Self {
            let data = std::env::temp_dir().join(format!("learning-unit-{}", std::process::id()));
            let data = Data(data);
            data.add_checkpoints();
            data
        }
        fn add_checkpoints(&self) {
            std::fs::create_dir_all(work_folder(&self.0, "rail", 7)).unwrap();
        }
        fn has_checkpoints(&self) -> bool {
            work_folder(&self.0, "rail", 7).exists()
        }
    }

    impl Drop for Data {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_round_that_fails_again_and_again_begins_anew_and_then_ends() {
        let data = Data::new();
        let mut failures = Failures::default();
        let internal = Fault::Internal("a checkpoint".into());
        let mut note = |round: &Round, fault: &Fault| failures.note(&data.0, round, fault).unwrap();
        // What time mends does not count.
        for _ in 0..20 {
            assert!(!note(&round(7), &Fault::Unavailable("no space".into())));
        }
        for _ in 1..MOST_FAILURES {
            assert!(!note(&round(7), &internal));
            assert!(data.has_checkpoints());
        }
        assert!(!note(&round(7), &internal));
        assert!(!data.has_checkpoints(), "it begins anew");
        data.add_checkpoints();
        for _ in 1..MOST_FAILURES {
            assert!(!note(&round(7), &internal));
            assert!(data.has_checkpoints(), "once only");
        }
        assert!(note(&round(7), &internal), "it ends");
        // Another round counts from the beginning, and what would fail in the same way again ends at once.
        assert!(!note(&round(8), &internal));
        assert!(note(&round(8), &Fault::Hopeless("not finite".into())));
        assert!(note(&round(9), &Fault::Invalid("no such option".into())));
    }
}
