//! Fine-tunes a directory of transformers on pairs of texts, exports it, and answers the lines of standard input.
//!
//! Arguments: directory, file of source, tab, target, updates, directory of the export, and the languages of a multilingual model.

use std::ops::ControlFlow;

use trafo::{
    ContextOptions, Corpus, ExportFormat, ExportWeights, Model, Trainer, TrainerOptions,
    TranslateOptions,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, pairs, updates, exported, languages @ ..] = &arguments[..] else {
        panic!("finetune DIRECTORY PAIRS UPDATES EXPORTED [SOURCE TARGET]")
    };
    let imported = Model::import(&ContextOptions::new().threads(1), directory)?;
    let mut tokenizer = imported.tokenizer.ok_or("the directory has no tokenizer")?;
    let mut format = ExportFormat::HfLlama;
    if let [source, target] = languages {
        tokenizer = tokenizer.with_languages(source, target)?;
        format = ExportFormat::HfM2m100;
    }
    let options = TrainerOptions::new()
        .learning_rate(3e-3)
        .warmup(20)
        .batch_tokens(600)
        .after_updates(updates.parse()?);
    let corpus = Corpus::load_tsv(pairs)?;
    let mut trainer =
        Trainer::builder(imported.model, &tokenizer, &corpus).options(options).build()?;
    trainer.run(|_| ControlFlow::Continue(()))?;
    let model = trainer.into_model();
    model.export(&tokenizer, format, ExportWeights::ByFormat, exported)?;
    let lines = std::io::stdin().lines().collect::<Result<Vec<_>, _>>()?;
    let greedy = TranslateOptions::new().beam(1);
    for answer in model.translate(&tokenizer, &lines, &greedy)? {
        println!("{answer}");
    }
    Ok(())
}
