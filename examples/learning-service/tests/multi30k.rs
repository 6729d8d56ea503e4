//! Multi30k as the stream of corrections of a domain, for docs/guide/learning-service.md: BLEU on its test 2016 after each round,
//! beside models that are trained anew on everything that was known then.
//!
//!     cargo test --test multi30k -- --ignored --nocapture
//!
//! MULTI30K: the folder of train.de.gz, train.en.gz, val.*.gz and test_2016_flickr.*.gz; without it, shared/data/multi30k beside the
//! repository. MULTI30K_BASE: pairs that the base is trained on (3000). MULTI30K_ROUNDS: corrections with which each round begins
//! ("1000 4000"). MULTI30K_UPDATES: of a base (500). MULTI30K_OPTIONS: of the service. Its default rate is for words that a base does
//! not know ("--learning-rate 0.001 --share 0.5"). MULTI30K_MODELS: a folder that keeps the trained models for the next run.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use common::{Instance, TestFolder, device};
use learning_service::base::{Recipe, train};
use learning_service::versions::Pair;
use serde_json::json;

/// Corrections of one person, which is what the service learns of one by default.
const OF_A_PERSON: usize = 200;

fn setting(name: &str, default: &str) -> Vec<usize> {
    let text = std::env::var(name).unwrap_or_else(|_| default.into());
    text.split_whitespace().map(|number| number.parse().expect(name)).collect()
}

fn lines(path: &Path) -> Vec<String> {
    let output = Command::new("gzip").arg("-dc").arg(path).output().unwrap();
    assert!(output.status.success(), "{}", path.display());
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim().into()).collect()
}

fn pairs(folder: &Path, name: &str) -> Vec<Pair> {
    let side = |language: &str| lines(&folder.join(format!("{name}.{language}.gz")));
    let (german, english) = (side("de"), side("en"));
    assert_eq!(german.len(), english.len(), "{name}");
    german.into_iter().zip(english).collect()
}

/// BLEU on the test set by a domain, and the version that translated it.
fn bleu(service: &Instance, test: &[Pair]) -> (f64, i64) {
    let sources: Vec<&str> = test.iter().map(|pair| pair.0.as_str()).collect();
    let (mut version, mut translations) = (0, Vec::new());
    for chunk in sources.chunks(50) {
        let (by, texts) = service.translate("photos", chunk);
        version = by;
        translations.extend(texts);
    }
    let targets: Vec<String> = test.iter().map(|pair| pair.1.clone()).collect();
    (trafo::bleu(&translations, &targets, false).unwrap().score, version)
}

fn recipe() -> Recipe {
    let updates = setting("MULTI30K_UPDATES", "500")[0];
    Recipe { device: device(), vocabulary: 4000, updates, ..Recipe::demo() }
}

/// Trains a model from nothing, unless it is there.
fn train_anew(folder: &Path, known: &[Pair], regression: &[Pair]) {
    let began = Instant::now();
    if !folder.exists() {
        train(folder, known, regression, &recipe(), |_| {}).unwrap();
        println!("trained on {} pairs: {:.0} s", known.len(), began.elapsed().as_secs_f64());
    }
}

#[test]
#[ignore = "takes minutes"]
fn corrections_of_multi30k() {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/multi30k");
    let data = std::env::var_os("MULTI30K").map_or_else(beside, PathBuf::from);
    let (all, test) = (pairs(&data, "train"), pairs(&data, "test_2016_flickr"));
    let regression = &pairs(&data, "val")[..400];
    let rounds = setting("MULTI30K_ROUNDS", "1000 4000");
    let (known, stream) = all.split_at(setting("MULTI30K_BASE", "3000")[0]);
    println!("a base of {} pairs: {:?}", known.len(), recipe());

    let folder = TestFolder::new();
    let models = std::env::var_os("MULTI30K_MODELS");
    let models = models.map_or_else(|| folder.path().to_path_buf(), PathBuf::from);
    std::fs::create_dir_all(&models).unwrap();
    let base = models.join("base");
    train_anew(&base, known, regression);
    let options = std::env::var("MULTI30K_OPTIONS");
    let options = options.unwrap_or_else(|_| "--learning-rate 0.001 --share 0.5".into());
    println!("the service: {options}");
    let options: Vec<&str> =
        ["--batch", "1000000"].into_iter().chain(options.split_whitespace()).collect();
    let service = Instance::start_on(&base, &folder.path().join("data"), &options);
    let before = bleu(&service, &test).0;
    println!("base: BLEU {before:.2}");
    let (mut sent, mut last) = (0, before);
    for (n, &count) in rounds.iter().enumerate() {
        while sent < count {
            let end = count.min((sent / OF_A_PERSON + 1) * OF_A_PERSON);
            service.correct(
                "photos",
                &format!("person {}", sent / OF_A_PERSON),
                &stream[sent..end],
            );
            sent = end;
        }
        let began = Instant::now();
        service.post("/learn", json!({ "domain": "photos" }));
        let version = service.wait_for_versions("photos", n + 1)[0].clone();
        let took = began.elapsed().as_secs_f64();
        let updates = &version["points"].as_array().unwrap().last().unwrap()["update"];
        let (score, by) = bleu(&service, &test);
        last = score;
        println!(
            "{count} corrections: round {took:.0} s, {updates} updates, {} ({}), version {by} is served, BLEU {score:.2}",
            version["state"], version["reason"]
        );
        let again = models.join(format!("trained-anew-{count}"));
        train_anew(&again, &all[..known.len() + count], regression);
        let data = folder.path().join(format!("data-{count}"));
        let other = Instance::start_on(&again, &data, &[]);
        println!("{count} corrections, trained anew: BLEU {:.2}", bleu(&other, &test).0);
    }
    assert!(last > before, "nothing was learned");
}
