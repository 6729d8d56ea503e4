#![allow(dead_code)] // each test binary uses a part

//! A small parallel corpus and a folder that goes away.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use trafo::{
    ContextOptions, Corpus, Model, ModelConfig, Tokenizer, TokenizerOptions, TrainerOptions,
};

pub struct TestFolder(PathBuf);

impl TestFolder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("trafo-rust-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TestFolder(path)
    }
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const NOUNS: [(&str, &str); 5] =
    [("Hund", "dog"), ("Baum", "tree"), ("Tisch", "table"), ("Vogel", "bird"), ("Stein", "stone")];
const ADJECTIVES: [(&str, &str); 4] =
    [("kleine", "small"), ("alte", "old"), ("rote", "red"), ("schwere", "heavy")];
const VERBS: [(&str, &str); 3] = [("sieht", "sees"), ("sucht", "seeks"), ("kennt", "knows")];

/// "der kleine Hund sieht den Baum", "the small dog sees the tree": 300 pairs.
pub fn pairs() -> Vec<(String, String)> {
    let mut result = Vec::new();
    for (adjective, a) in ADJECTIVES {
        for (noun, n) in NOUNS {
            for (verb, v) in VERBS {
                for (object, o) in NOUNS {
                    result.push((
                        format!("der {adjective} {noun} {verb} den {object}"),
                        format!("the {a} {n} {v} the {o}"),
                    ));
                }
            }
        }
    }
    result
}

pub fn corpus() -> Corpus {
    Corpus::from_pairs(pairs()).unwrap()
}

pub fn tokenizer(corpus: &Corpus) -> Tokenizer {
    corpus.train_tokenizer(&TokenizerOptions::new(120).soft_limit(true)).unwrap()
}

pub fn model(tokenizer: &Tokenizer) -> Model {
    model_with_positions(tokenizer, 64)
}

pub fn model_with_positions(tokenizer: &Tokenizer, positions: usize) -> Model {
    let config = ModelConfig::new(tokenizer.vocabulary())
        .encoder_layers(1)
        .decoder_layers(1)
        .width(32)
        .ffn_width(64)
        .heads(2)
        .dropout(0.1)
        .max_positions(positions);
    Model::new_on(&ContextOptions::new().threads(2), &config, 7).unwrap()
}

pub fn options() -> TrainerOptions {
    TrainerOptions::new().seed(3).learning_rate(5e-3).warmup(20).batch_tokens(256).max_length(30)
}

pub fn weights(model: &Model) -> Vec<u32> {
    let parameters = model.parameters().unwrap();
    parameters.iter().flat_map(|p| p.to_vec::<f32>().unwrap()).map(f32::to_bits).collect()
}
