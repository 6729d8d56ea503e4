//! Training of one adapter.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use trafo::{
    AdapterOptions, Corpus, EventKind, Metric, Model, Period, Schedule, Trainer, TrainerOptions,
};

use crate::base::{Base, Engine};
use crate::fault::{Result, io};
use crate::hash;
use crate::serve::remove;
use crate::versions::{Pair, Point, Round};

/// What a round is told while it trains.
pub trait Observer {
    /// After an update, which took so long since the last call. `Break` ends the training, which a later call resumes.
    fn updated(&mut self, update: i64, took: std::time::Duration) -> ControlFlow<()>;
    /// Training has ended; its adapter is written next.
    fn writing(&mut self);
    /// After a validation, before the checkpoint of its update is written.
    fn validated(&mut self, point: Point) -> Result<()>;
}

/// Trains the adapter of a round from the base and writes it to `adapter`. Checkpoints are in `work`: an interrupted round
/// is resumed there, and ends with the same bytes. False: the observer has ended it.
pub fn train(
    base: &Base,
    round: &Round,
    engine: Engine,
    work: &Path,
    adapter: &Path,
    observer: &mut dyn Observer,
) -> Result<bool> {
    fs::create_dir_all(work).map_err(io(work))?;
    let mut model = base.load(engine)?;
    let options = AdapterOptions::new(round.learning.rank).seed(round.seed);
    model.add_adapter(&options)?;
    let parts = weighted(base, round)?;
    let parts: Vec<_> = parts.iter().map(|(corpus, weight)| (corpus, *weight)).collect();
    let train = Corpus::mix(&parts)?;
    let held = base.frame.corpus(&round.held)?;
    let mut trainer = Trainer::builder(model, &base.frame.tokenizer, &train)
        .valid(&held)
        .options(options_of(round).max_length(base.frame.longest()))
        .run_directory(work)
        .build()?;
    let (mut last, mut loss, mut failure) = (Instant::now(), 0.0, None);
    let stop = trainer.run(|event| match &event.kind {
        EventKind::Log => {
            loss = event.nll;
            let go_on = observer.updated(event.update, last.elapsed());
            last = Instant::now();
            go_on
        }
        EventKind::Validated { metrics, start: false, .. } => {
            let held_loss = metrics.get(Metric::Ce).unwrap_or(f64::MAX);
            let noted = observer.validated(Point { update: event.update, loss, held_loss });
            failure = noted.err();
            last = Instant::now();
            if failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        _ => ControlFlow::Continue(()),
    })?;
    if let Some(fault) = failure {
        return Err(fault);
    }
    if !stop.is_finished() {
        return Ok(false);
    }
    observer.writing();
    save(&trainer.into_best_model()?, adapter)?;
    Ok(true)
}

fn save(model: &Model, adapter: &Path) -> Result<()> {
    let parent = adapter.parent().expect("the folder of a version has a parent");
    fs::create_dir_all(parent).map_err(io(parent))?;
    remove(adapter)?; // an interrupted round may have left temporary files in it
    Ok(model.save_adapter(adapter)?)
}

/// The corrections, and a sample of the base's text, weighted so that the corrections have their share of an epoch.
fn weighted(base: &Base, round: &Round) -> Result<Vec<(Corpus, f64)>> {
    let corrections = base.frame.corpus(&round.train)?;
    let sample = sample(&base.replay, round.learning.replay, round.seed);
    if sample.is_empty() {
        return Ok(vec![(corrections, 1.0)]);
    }
    let share = round.learning.share;
    let wanted = sample.len() as f64 * share / (1.0 - share);
    let weight = (wanted / round.train.len() as f64).max(1.0);
    Ok(vec![(corrections, weight), (base.frame.corpus(&sample)?, 1.0)])
}

/// `count` pairs in the order of a hash of their text and the seed.
fn sample(pairs: &[Pair], count: usize, seed: u64) -> Vec<Pair> {
    let seed = seed.to_string();
    let mut keyed: Vec<_> =
        pairs.iter().map(|pair| (hash::seed(&[&seed, &pair.0, &pair.1]), pair)).collect();
    keyed.sort_unstable();
    keyed.into_iter().take(count).map(|(_, pair)| pair.clone()).collect()
}

fn options_of(round: &Round) -> TrainerOptions {
    let learning = &round.learning;
    let every = Period::Updates(learning.every);
    TrainerOptions::new()
        .learning_rate(learning.learning_rate)
        .schedule(Schedule::Linear)
        .schedule_updates(learning.updates)
        .warmup(learning.warmup)
        .after_updates(learning.updates)
        .batch_tokens(learning.batch_tokens)
        .seed(round.seed)
        .valid_freq(every)
        .valid_metrics(&[Metric::Ce])
        .early_stopping(learning.patience)
        .save_freq(every)
        .keep_last(1)
        .log_freq(Period::Updates(1))
}
