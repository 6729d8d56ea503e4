//! A program with the packages alone: trains, resumes where an earlier call has stopped, translates.
//!
//!     from_packages RUN_DIRECTORY UPDATES
//!     from_packages group                     finds the plugin for groups of processes

use std::ops::ControlFlow;
use trafo::{
    Corpus, EventKind, GroupId, Model, ModelConfig, Period, TokenizerOptions, Trainer, TrainerOptions,
    TranslateOptions,
};

fn main() -> trafo::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments[1] == "group" {
        GroupId::tcp("127.0.0.1:0", None)?;
        println!("a group of processes");
        return Ok(());
    }
    let (directory, updates) = (&arguments[1], arguments[2].parse().expect("a number of updates"));
    let corpus =
        Corpus::from_pairs([("guten Tag", "good day"), ("guten Abend", "good evening")])?;
    let tokenizer = corpus.train_tokenizer(&TokenizerOptions::new(50).soft_limit(true))?;
    let model = Model::new(&ModelConfig::preset("tiny", tokenizer.vocabulary())?, 1)?;
    let options = TrainerOptions::new().warmup(10).after_updates(updates).save_freq(Period::Updates(20));
    let mut trainer = Trainer::builder(model, &tokenizer, &corpus)
        .options(options)
        .run_directory(directory)
        .build()?;
    trainer.run(|event| {
        if let EventKind::Resumed { .. } = event.kind {
            println!("resumed after {} updates", event.update);
        }
        ControlFlow::Continue(())
    })?;
    let translations =
        trainer.model().translate(&tokenizer, &["guten Abend"], &TranslateOptions::new())?;
    println!("{}", translations[0]);
    Ok(())
}
