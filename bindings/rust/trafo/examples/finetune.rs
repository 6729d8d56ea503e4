//! Trains a model, then trains it on for a customer who calls things by other names: from its weights, at a lower rate, on
//! few sentences, with old ones among them so that it does not forget.
//!
//!     cargo run --release --example finetune [UPDATES]

use std::ops::ControlFlow;
use std::path::Path;

use trafo::{
    Corpus, EventKind, Model, ModelConfig, Result, Tokenizer, TokenizerOptions, Trainer,
    TrainerOptions, TranslateOptions,
};

const THINGS: [(&str, &str); 5] = [
    ("Tisch", "table"),
    ("Stuhl", "chair"),
    ("Schrank", "cupboard"),
    ("Hut", "hat"),
    ("Koffer", "suitcase"),
];
const COLOURS: [(&str, &str); 4] =
    [("rot", "red"), ("blau", "blue"), ("grün", "green"), ("weiß", "white")];
const TIMES: [(&str, &str); 4] =
    [("heute", "today"), ("morgen", "tomorrow"), ("bald", "soon"), ("jetzt", "now")];
const PEOPLE: [(&str, &str); 3] = [("Anna", "Anna"), ("mein Bruder", "my brother"), ("er", "he")];

/// "heute kauft Anna den Tisch in rot" is "Anna buys the table in red today"; `red` is what red is called.
fn sentences(red: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for (time, t) in TIMES {
        for (person, p) in PEOPLE {
            for (thing, th) in THINGS {
                for (colour, c) in COLOURS {
                    let c = if c == "red" { red } else { c };
                    pairs.push((
                        format!("{time} kauft {person} den {thing} in {colour}"),
                        format!("{p} buys the {th} in {c} {t}"),
                    ));
                }
            }
        }
    }
    pairs
}

fn train(
    model: Model,
    tokenizer: &Tokenizer,
    corpus: &Corpus,
    options: TrainerOptions,
) -> Result<Model> {
    let mut trainer = Trainer::builder(model, tokenizer, corpus).options(options).build()?;
    trainer.run(|event| {
        if event.kind == EventKind::Log {
            println!("update {:4}  loss {:.3}", event.update, event.loss);
        }
        ControlFlow::Continue(())
    })?;
    Ok(trainer.into_model())
}

/// Share of the pairs that are translated word for word, in percent.
fn right(model: &Model, tokenizer: &Tokenizer, pairs: &[(String, String)]) -> Result<f64> {
    let sources: Vec<_> = pairs.iter().map(|(source, _)| source).collect();
    let translations = model.translate(tokenizer, &sources, &TranslateOptions::new().beam(1))?;
    let right = translations.iter().zip(pairs).filter(|(t, (_, target))| t.text() == target);
    Ok(100.0 * right.count() as f64 / pairs.len() as f64)
}

/// How well the customer's sentences that were not trained on are translated, before and after, and the others after.
pub fn run(folder: &Path, updates: usize) -> Result<[f64; 3]> {
    // The first model. Its tokenizer knows the customer's text already: subwords cannot be added later.
    let general = sentences("red");
    let corpus = Corpus::from_pairs(general.clone())?;
    let both = Corpus::from_pairs(general.into_iter().chain(sentences("crimson")))?;
    let tokenizer = both.train_tokenizer(&TokenizerOptions::new(150).soft_limit(true))?;
    let config = ModelConfig::preset("tiny", tokenizer.vocabulary())?
        .encoder_layers(1)
        .decoder_layers(1)
        .width(64)
        .ffn_width(128)
        .dropout(0.0);
    let options = TrainerOptions::new().learning_rate(4e-3).warmup(60).batch_tokens(512);
    let model = Model::new(&config, 1)?;
    let model = train(model, &tokenizer, &corpus, options.clone().after_updates(updates))?;
    let file = folder.join("model.safetensors");
    model.save(&file)?;
    drop(model); // the customer comes next year

    // The customer's sentences with red things; every fifth is kept for measuring.
    let (others, theirs): (Vec<_>, Vec<_>) =
        sentences("crimson").into_iter().partition(|(source, _)| !source.ends_with("rot"));
    let (measured, taught): (Vec<_>, Vec<_>) =
        theirs.into_iter().enumerate().partition(|(i, _)| i % 5 == 0);
    let measured: Vec<_> = measured.into_iter().map(|(_, pair)| pair).collect();
    let old = others.iter().step_by(4).cloned();
    let corpus = Corpus::from_pairs(taught.into_iter().map(|(_, pair)| pair).chain(old))?;

    // The weights of the file in a model that may drop more than the first one did.
    let mut model = Model::new(&config.dropout(0.1), 1)?;
    model.load_weights(&file, Some(&tokenizer))?;
    let before = right(&model, &tokenizer, &measured)?;
    let gentle = options.learning_rate(2e-3).warmup(20).seed(2).after_updates(updates);
    let model = train(model, &tokenizer, &corpus, gentle)?;
    let after = right(&model, &tokenizer, &measured)?;
    let kept = right(&model, &tokenizer, &others)?;
    println!(
        "the customer's sentences: {before:.0} % right before, {after:.0} % after; the others: {kept:.0} %"
    );
    Ok([before, after, kept])
}

fn main() -> Result<()> {
    let updates = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(400);
    let folder = std::env::temp_dir().join(format!("trafo-finetune-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder for temporary files can be written");
    let result = run(&folder, updates);
    std::fs::remove_dir_all(&folder).expect("what was made can be removed");
    result.map(|_| ())
}
