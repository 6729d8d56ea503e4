//! A training run that can be interrupted at any moment and goes on where it stopped, bit for bit.
//!
//!     cargo run --release --example resume [RUN [UPDATES]]
//!
//! Press Ctrl-C, or kill it, and call it again. RUN: the run directory, default resume-run.

use std::ops::ControlFlow;
use std::path::Path;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use trafo::{
    CancelToken, Corpus, EventKind, Model, ModelConfig, Period, Result, Stop, TokenizerOptions,
    Trainer, TrainerOptions,
};

fn corpus() -> Result<Corpus> {
    let words = [("eins", "one"), ("zwei", "two"), ("drei", "three"), ("vier", "four")];
    let mut pairs = Vec::new();
    for a in words {
        for b in words {
            for c in words {
                pairs
                    .push((format!("{} {} {}", a.0, b.0, c.0), format!("{} {} {}", c.1, b.1, a.1)));
            }
        }
    }
    Corpus::from_pairs(pairs)
}

/// Trains until `updates` are done or `cancel` is set. `at_update` is told of every update.
pub fn run(
    directory: &Path,
    updates: usize,
    cancel: &CancelToken,
    mut at_update: impl FnMut(i64),
) -> Result<Stop> {
    // The same corpus, tokenizer, configuration and seeds in every call: another one is refused when the run goes on.
    let corpus = corpus()?;
    let tokenizer = corpus.train_tokenizer(&TokenizerOptions::new(50).soft_limit(true))?;
    let config = ModelConfig::preset("tiny", tokenizer.vocabulary())?
        .encoder_layers(1)
        .decoder_layers(1)
        .width(32)
        .ffn_width(64)
        .heads(2);
    let options = TrainerOptions::new()
        .learning_rate(5e-3)
        .warmup(20)
        .batch_tokens(128)
        .after_updates(updates)
        .log_freq(Period::Updates(1))
        // After a kill -9 or a power failure it resumes from here; a cancelled run saves where it stops.
        .save_freq(Period::Updates(50));
    // If the directory holds checkpoints, the newest whole one replaces the model's weights, the moments of the optimizer,
    // the place in the corpus and the count of updates.
    let mut trainer = Trainer::builder(Model::new(&config, 1)?, &tokenizer, &corpus)
        .options(options)
        .run_directory(directory)
        .cancel(cancel)
        .build()?;
    trainer.run(|event| {
        match &event.kind {
            EventKind::Resumed { checkpoint } => println!("going on from {}", checkpoint.display()),
            EventKind::Log => {
                if event.update % 50 == 0 {
                    println!("update {:4}  loss {:.3}", event.update, event.loss);
                }
                at_update(event.update);
            }
            EventKind::Saved { checkpoint } => println!("saved {}", checkpoint.display()),
            _ => {}
        }
        ControlFlow::Continue(())
    })
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or("resume-run".into());
    let updates = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(20_000);
    let cancel = CancelToken::new();
    let elsewhere = cancel.clone();
    let mut signals = Signals::new([SIGINT, SIGTERM]).expect("signals can be handled");
    std::thread::spawn(move || {
        for _ in signals.forever() {
            elsewhere.cancel();
        }
    });
    match run(Path::new(&directory), updates, &cancel, |_| {})? {
        Stop::Cancelled => println!("interrupted: call it again to go on"),
        stop => println!("done: {stop:?}"),
    }
    Ok(())
}
