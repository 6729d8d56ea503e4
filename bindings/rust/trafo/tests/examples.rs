//! The examples do what they say, at a small size.

#[allow(dead_code)] // its main
#[path = "../examples/best_model.rs"]
mod best_model;
#[allow(dead_code)]
#[path = "../examples/classifier.rs"]
mod classifier;
mod common;
#[allow(dead_code)]
#[path = "../examples/finetune.rs"]
mod finetune;
#[allow(dead_code)]
#[path = "../examples/own_network.rs"]
mod own_network;
#[allow(dead_code)]
#[path = "../examples/resume.rs"]
mod resume;
#[allow(dead_code)]
#[path = "../examples/several_gpus.rs"]
mod several_gpus;

use std::ops::ControlFlow;
use std::path::Path;

use common::TestFolder;
use trafo::{
    CancelToken, Corpus, Device, ModelConfig, Period, Result, Stop, Tokenizer, Trainer,
    TrainerOptions, TranslateOptions,
};

/// A run like translate-train's: a model of the small corpus, and its tokenizer.
fn train_base(run: &Path) -> Result<()> {
    let corpus = common::corpus();
    let tokenizer = common::tokenizer(&corpus);
    let options = TrainerOptions::new()
        .learning_rate(4e-3)
        .warmup(30)
        .batch_tokens(256)
        .after_updates(240)
        .valid_freq(Period::Updates(60));
    let mut trainer =
        Trainer::builder(common::model_with_positions(&tokenizer, 256), &tokenizer, &corpus)
            .valid(&corpus)
            .options(options)
            .run_directory(run)
            .build()?;
    trainer.run(|_| ControlFlow::Continue(()))?;
    tokenizer.save(run.join("vocab.spm"))
}

#[test]
fn an_encoder_sorts_sentences_that_it_has_not_seen() -> Result<()> {
    let folder = TestFolder::new();
    train_base(folder.path())?;
    // The class is the adjective.
    let labelled = |rest| {
        let words = ["kleine", "alte", "rote", "schwere"];
        let class = |text: &str| words.iter().position(|word| text.contains(word)).unwrap() as i32;
        let pairs = common::pairs().into_iter().enumerate().filter(move |(i, _)| i % 2 == rest);
        pairs.map(|(_, (text, _))| (text.clone(), class(&text))).collect::<Vec<_>>()
    };
    let right = classifier::run(folder.path(), &labelled(0), &labelled(1))?;
    assert!(right > 0.9, "{right}");
    Ok(())
}

#[test]
fn the_best_model_of_a_fine_tuning_knows_the_new_texts() -> Result<()> {
    let folder = TestFolder::new();
    let (base, tuned) = (folder.join("base"), folder.join("tuned"));
    train_base(&base)?;
    let texts = common::pairs()
        .into_iter()
        .map(|(source, target)| (source, target.replace("red", "old red")));
    let texts = Corpus::from_pairs(texts)?;
    let model = best_model::run(&base, &tuned, &texts, 4e-3, 300)?;
    let tokenizer = Tokenizer::load(base.join("vocab.spm"))?;
    let line = "der rote Hund sieht den Baum";
    let found = model.translate(&tokenizer, &[line], &TranslateOptions::new())?;
    assert_eq!(found[0].text(), "the old red dog sees the tree");
    Ok(())
}

#[test]
fn finetuning_teaches_the_new_and_keeps_the_old() -> Result<()> {
    let folder = TestFolder::new();
    let [before, after, kept] = finetune::run(folder.path(), 400)?;
    assert!(before < 10.0 && after > 80.0 && kept > 80.0, "{before} {after} {kept}");
    Ok(())
}

#[test]
fn an_interrupted_run_ends_like_one_that_was_not() -> Result<()> {
    let folder = TestFolder::new();
    let (whole, parts) = (folder.join("whole"), folder.join("parts"));
    assert_eq!(resume::run(&whole, 60, &CancelToken::new(), |_| {})?, Stop::Limit);
    for at in [13, 37] {
        let token = CancelToken::new();
        let interrupt = |update| {
            if update == at {
                token.cancel();
            }
        };
        assert_eq!(resume::run(&parts, 60, &token, interrupt)?, Stop::Cancelled);
    }
    let mut first = None;
    let stop = resume::run(&parts, 60, &CancelToken::new(), |update| {
        first.get_or_insert(update);
    })?;
    assert_eq!((stop, first), (Stop::Limit, Some(38)));
    let file =
        |run: &std::path::Path| std::fs::read(run.join("ckpt/60/model.safetensors")).unwrap();
    assert!(file(&whole) == file(&parts), "other weights");
    Ok(())
}

#[test]
fn the_own_network_learns() -> Result<()> {
    let right = own_network::run(trafo::Device::Cpu)?;
    assert!(right > 0.98, "{right} of the digits are right");
    Ok(())
}

#[test]
fn a_run_of_two_ranks_has_the_files_of_one() -> Result<()> {
    let on_gpus = std::env::var("TRAFO_TEST_DEVICE").is_ok_and(|device| device == "cuda");
    let devices = if on_gpus { [Device::Cuda(0), Device::Cuda(1)] } else { [Device::Cpu; 2] };
    if on_gpus && Device::cuda_devices().map_or(0, |gpus| gpus.len()) < 2 {
        eprintln!("skipped: there are fewer than two GPUs");
        return Ok(());
    }
    let config = ModelConfig::preset("tiny", 100)?
        .encoder_layers(1)
        .decoder_layers(1)
        .width(32)
        .ffn_width(64)
        .heads(2);
    let options = TrainerOptions::new().lanes(2).after_updates(6).batch_tokens(256);
    let folder = TestFolder::new();
    let train = |ranks: usize| -> Result<Vec<u8>> {
        let run = folder.join(&ranks.to_string());
        several_gpus::run(&devices[..ranks], &common::corpus(), &config, &options, &run)?;
        Ok(std::fs::read(run.join("ckpt/6/model.safetensors")).expect("a checkpoint"))
    };
    assert!(train(2)? == train(1)?, "two ranks have written another model than one");
    Ok(())
}
