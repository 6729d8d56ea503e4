//! The figures of docs/guide/learning-service.md: the demo's base, 200 corrections with words that it has never seen.
//!
//!     cargo test --test figures -- --ignored --nocapture
//!
//! LEARNING_BASE: the folder of a base that the service has trained from the demo corpus; it is trained without it.
//! LEARNING_OPTIONS: options of the service.

mod common;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use common::{Instance, TestFolder, device};
use learning_service::base::{demo_corpus, train_demo};
use learning_service::measure::contains_words;
use learning_service::versions::Pair;
use serde_json::{Value, json};

/// German and English words of the corpus, and the words of the new domain in their places.
const WORDS: [[&str; 4]; 6] = [
    ["Fahrrad", "bicycle", "Triebwerk", "engine"],
    ["Bild", "picture", "Gleis", "track"],
    ["Tisch", "table", "Puffer", "buffer"],
    ["Mantel", "coat", "Schieber", "valve"],
    ["Lampe", "lamp", "Weiche", "switch"],
    ["Tasche", "bag", "Schiene", "rail"],
];

/// Sentences of the corpus with one new word each.
fn domain(corpus: &[Pair]) -> Vec<Pair> {
    let changed = corpus.iter().filter_map(|(german, english)| {
        let mut found =
            WORDS.iter().filter(|w| contains_words(german, w[0]) && contains_words(english, w[1]));
        let [from_german, from_english, german_word, english_word] = found.next()?;
        let once = found.next().is_none();
        once.then(|| {
            (german.replace(from_german, german_word), english.replace(from_english, english_word))
        })
    });
    changed.collect()
}

struct Score {
    bleu: f64,
    terms: usize,
}

fn score(service: &Instance, name: &str, pairs: &[Pair]) -> Score {
    let lines: Vec<&str> = pairs.iter().map(|pair| pair.0.as_str()).collect();
    let translations: Vec<String> =
        lines.chunks(100).flat_map(|chunk| service.translate(name, chunk).1).collect();
    let targets: Vec<&str> = pairs.iter().map(|pair| pair.1.as_str()).collect();
    let targets: Vec<String> = targets.into_iter().map(String::from).collect();
    let right = |line: &str, translation: &str| {
        WORDS.iter().any(|w| contains_words(line, w[2]) && contains_words(translation, w[3]))
    };
    let terms = lines.iter().zip(&translations).filter(|(line, said)| right(line, said)).count();
    Score { bleu: trafo::bleu(&translations, &targets, false).unwrap().score, terms }
}

/// Milliseconds of requests of four clients until `end`, at least 100 of each.
fn latencies(service: &Instance, lines: &[Pair], end: &AtomicBool) -> Vec<f64> {
    let client = |first: usize| {
        let mut times = Vec::new();
        for (pair, n) in lines.iter().cycle().skip(first).zip(0..) {
            if n >= 100 && end.load(Ordering::Acquire) {
                break;
            }
            let began = Instant::now();
            service.translate("rail", &[&pair.0]);
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        times
    };
    let mut times = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|n| scope.spawn(move || client(100 * n))).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect::<Vec<f64>>()
    });
    times.sort_by(f64::total_cmp);
    times
}

fn tell(name: &str, times: &[f64]) {
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let (p50, p95, p99) = (at(0.5), at(0.95), at(0.99));
    println!("{name}: {} requests, p50 {p50:.1} ms, p95 {p95:.1} ms, p99 {p99:.1} ms", times.len());
}

#[test]
#[ignore = "takes minutes"]
fn figures_of_the_guide() {
    let folder = TestFolder::new();
    let base =
        std::env::var_os("LEARNING_BASE").map_or_else(|| folder.path().join("base"), PathBuf::from);
    if !base.exists() {
        let began = Instant::now();
        train_demo(&base, device(), |_| {}).unwrap();
        println!("base: {:.0} s", began.elapsed().as_secs_f64());
    }
    let (train, test) = demo_corpus(&folder.path().join("corpus")).unwrap();
    let pairs = domain(&train);
    let (taught, rest) = pairs.split_at(200);
    let asked = &rest[..200];
    // The sentences of the regression set are the first 400.
    let general = &test[400..];

    let more = std::env::var("LEARNING_OPTIONS").unwrap_or_default();
    let options: Vec<&str> =
        ["--batch", "200"].into_iter().chain(more.split_whitespace()).collect();
    let service = Instance::start_on(&base, &folder.path().join("data"), &options);
    for [_, _, source, target] in WORDS {
        service.post("/terms", json!({ "domain": "rail", "source": source, "target": target }));
    }
    let (before, general_before) =
        (score(&service, "rail", asked), score(&service, "rail", general));
    tell("without training", &latencies(&service, general, &AtomicBool::new(true)));

    let began = Instant::now();
    service.correct("rail", "anna", taught);
    println!("200 corrections: {:.1} s", began.elapsed().as_secs_f64());
    let (end, began) = (AtomicBool::new(false), Instant::now());
    let (version, times) = std::thread::scope(|scope| {
        let times = scope.spawn(|| latencies(&service, general, &end));
        let version: Value = service.wait_for_versions("rail", 1)[0].clone();
        end.store(true, Ordering::Release);
        (version, times.join().unwrap())
    });
    println!(
        "round: {:.0} s, {} {}",
        began.elapsed().as_secs_f64(),
        version["state"],
        version["reason"]
    );
    println!("updates: {}", version["points"].as_array().unwrap().last().unwrap()["update"]);
    tell("with training and measuring", &times);
    for which in ["base", "candidate"] {
        println!("{which}: {}", version["figures"][which]);
    }
    let (after, general_after) = (score(&service, "rail", asked), score(&service, "rail", general));
    println!(
        "terms right on {} other sentences: {} before, {} after",
        asked.len(),
        before.terms,
        after.terms
    );
    println!("their BLEU: {:.1} before, {:.1} after", before.bleu, after.bleu);
    println!(
        "BLEU on {} general sentences: {:.2} before, {:.2} after",
        general.len(),
        general_before.bleu,
        general_after.bleu
    );
    assert_eq!(version["state"], "good");
}
