//! Trains a small German-English translator on a corpus made here, and translates sentences that it has never seen.
//!
//!     cargo run --release --example train_translation [DEVICE [PRESET]]
//!
//! DEVICE: auto (the default: CUDA where there is one), cpu, cuda or cuda:N. PRESET: tiny (the default) is an
//! encoder-decoder, lm a decoder-only model.

use std::env;
use std::ops::ControlFlow;

use trafo::{
    ContextOptions, Corpus, DType, Device, EventKind, Metric, Model, ModelConfig, Period,
    TokenizerOptions, Trainer, TrainerOptions, TranslateOptions,
};

const SUBJECTS: [(&str, &str); 4] =
    [("ich", "I"), ("du", "you"), ("wir", "we"), ("die Kinder", "the children")];
// The verb agrees with its subject in German; in English it does not for these subjects.
const VERBS: [([&str; 4], &str); 5] = [
    (["sehe", "siehst", "sehen", "sehen"], "see"),
    (["suche", "suchst", "suchen", "suchen"], "seek"),
    (["kaufe", "kaufst", "kaufen", "kaufen"], "buy"),
    (["male", "malst", "malen", "malen"], "paint"),
    (["trage", "trägst", "tragen", "tragen"], "carry"),
];
const ADJECTIVES: [(&str, &str); 4] =
    [("kleinen", "small"), ("alten", "old"), ("roten", "red"), ("schweren", "heavy")];
const OBJECTS: [(&str, &str); 5] = [
    ("Tisch", "table"),
    ("Hut", "hat"),
    ("Stuhl", "chair"),
    ("Koffer", "suitcase"),
    ("Stein", "stone"),
];
const TIMES: [(&str, &str); 3] = [("heute", "today"), ("morgen", "tomorrow"), ("jetzt", "now")];

/// "heute kaufen wir den alten Hut" is "we buy the old hat today": with the time first, German puts the verb second.
fn sentence_pairs() -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for (person, (subject, s)) in SUBJECTS.iter().enumerate() {
        for (forms, v) in VERBS {
            for (adjective, a) in ADJECTIVES {
                for (object, o) in OBJECTS {
                    for (time, t) in TIMES {
                        let verb = forms[person];
                        pairs.push((
                            format!("{time} {verb} {subject} den {adjective} {object}"),
                            format!("{s} {v} the {a} {o} {t}"),
                        ));
                    }
                }
            }
        }
    }
    pairs
}

fn main() -> trafo::Result<()> {
    let mut arguments = env::args().skip(1);
    let device: Device = arguments.next().as_deref().unwrap_or("auto").parse()?;
    let preset = arguments.next().unwrap_or("tiny".into());

    // Every twentieth pair is held out.
    let mut train = Vec::new();
    let mut held_out = Vec::new();
    for (i, pair) in sentence_pairs().into_iter().enumerate() {
        if i % 20 == 0 { held_out.push(pair) } else { train.push(pair) }
    }
    println!("{} pairs to train on, {} held out", train.len(), held_out.len());
    let train = Corpus::from_pairs(train)?;
    let valid = Corpus::from_pairs(held_out.iter().map(|(s, t)| (s, t)))?;
    let tokenizer = train.train_tokenizer(&TokenizerOptions::new(150).soft_limit(true))?;

    let gpu = device != Device::Cpu && Device::cuda_devices().is_ok();
    let config = ModelConfig::preset(&preset, tokenizer.vocabulary())?
        .encoder_layers(2)
        .decoder_layers(2)
        .width(64)
        .ffn_width(128)
        .max_positions(128)
        .precision(if gpu { DType::BF16 } else { DType::F32 });
    let model = Model::new_on(&ContextOptions::new().device(device), &config, 1)?;
    println!("{} parameters on {}", model.parameter_count(), model.device());

    let options = TrainerOptions::new()
        .learning_rate(4e-3)
        .warmup(50)
        .batch_tokens(512)
        .max_length(50)
        .after_updates(300)
        .log_freq(Period::Updates(50))
        .valid_freq(Period::Updates(100))
        .valid_metrics(&[Metric::Bleu, Metric::Ce]);
    let mut trainer =
        Trainer::builder(model, &tokenizer, &train).valid(&valid).options(options).build()?;
    let stop = trainer.run(|event| {
        match &event.kind {
            EventKind::Log => println!(
                "update {:4}  loss {:.3}  {:.0} tokens/s",
                event.update, event.loss, event.target_tokens_per_second
            ),
            EventKind::Validated { metrics, .. } => {
                println!(
                    "update {:4}  BLEU {:.1}",
                    event.update,
                    metrics.get(Metric::Bleu).unwrap_or(f64::NAN)
                );
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    println!("training ended: {stop:?}");

    let sources: Vec<_> = held_out.iter().map(|(s, _)| s.as_str()).collect();
    let references: Vec<_> = held_out.iter().map(|(_, t)| t.as_str()).collect();
    let translations = trainer.model().translate(&tokenizer, &sources, &TranslateOptions::new())?;
    for (source, translation) in sources.iter().zip(&translations).step_by(7) {
        println!("{source}  ->  {translation}");
    }
    let texts: Vec<_> = translations.iter().map(|t| t.text()).collect();
    let bleu = trafo::bleu(&texts, &references, false)?;
    println!("BLEU {:.1} on {} sentences never seen in training", bleu.score, texts.len());
    Ok(())
}
