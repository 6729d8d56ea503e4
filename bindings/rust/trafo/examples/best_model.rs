//! Trains the model of a run on with other texts, and loads the best model that came out.
//!
//!     cargo run --release --example best_model RUN NEW-RUN SOURCE.de TARGET.en
//!
//! RUN: a run directory of translate-train. NEW-RUN: where the training goes. A tenth of the texts is kept for
//! validation, which decides what is best.

use std::ops::ControlFlow;
use std::path::Path;

use trafo::{
    Corpus, Model, Period, Result, RunModel, Tokenizer, Trainer, TrainerOptions, TranslateOptions,
};

/// The model of the best checkpoint.
pub fn run(
    base: &Path,
    directory: &Path,
    texts: &Corpus,
    learning_rate: f64,
    updates: usize,
) -> Result<Model> {
    let tokenizer = Tokenizer::load(base)?;
    let model = Model::load_run(base, RunModel::Best)?;
    let (train, valid) = texts.hold_out(texts.info().pairs / 10)?;
    let options = TrainerOptions::new()
        .learning_rate(learning_rate)
        .warmup(updates / 10)
        .after_updates(updates)
        .valid_freq(Period::Updates(updates / 4));
    let mut trainer = Trainer::builder(model, &tokenizer, &train)
        .valid(&valid)
        .options(options)
        .run_directory(directory)
        .build()?;
    trainer.run(|_| ControlFlow::Continue(()))?;
    drop(trainer);
    // Another program, later, does the same: all that it needs is the directory.
    Model::load_run(directory, RunModel::Best)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [base, directory, source, target] = &arguments[..] else {
        panic!("best_model RUN NEW-RUN SOURCE.de TARGET.en")
    };
    let texts = Corpus::load(source, target)?;
    let model = run(Path::new(base), Path::new(directory), &texts, 5e-4, 1000)?;
    let tokenizer = Tokenizer::load(base)?;
    let (line, _) = texts.pair(0)?;
    let found = model.translate(&tokenizer, &[&line], &TranslateOptions::new())?;
    println!("{line}\n{}", found[0]);
    Ok(())
}
