//! Calls that another thread cancels, and what is left after them.

mod common;

use std::thread;
use std::time::Duration;

use trafo::{
    CancelToken, ContextOptions, Corpus, CorpusOptions, ErrorCode, EvaluationOptions, ExportFormat,
    ExportWeights, Model, ModelConfig, QuantizeOptions, Result, Shortlist, Tokenizer,
    TokenizerOptions, Trainer, TrainerOptions, evaluate_cancellable,
};

/// Lines of random words.
fn lines(count: usize) -> Vec<String> {
    let mut state = 1u64;
    let mut letter = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        char::from(b'a' + ((state >> 33) % 24) as u8)
    };
    (0..count)
        .map(|_| (0..72).map(|i| if i % 6 == 5 { ' ' } else { letter() }).collect::<String>())
        .collect()
}

/// The call fails if the token is set before it, and if a thread sets it meanwhile; the token is reset.
fn expect_cancelled<T>(token: &CancelToken, mut call: impl FnMut() -> Result<T>) {
    for meanwhile in [false, true] {
        let elsewhere = token.clone();
        let setter = thread::spawn(move || {
            if meanwhile {
                thread::sleep(Duration::from_millis(10));
            }
            elsewhere.cancel();
        });
        let setter = if meanwhile { Some(setter) } else { setter.join().map(|()| None).unwrap() };
        let error = call().map(|_| ()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Cancelled, "{error}");
        if let Some(setter) = setter {
            setter.join().unwrap();
        }
        token.reset();
    }
}

#[test]
fn long_calls_end_when_their_token_is_set() -> Result<()> {
    let token = CancelToken::new();
    let many = lines(20_000);
    let options = TokenizerOptions::new(2000).soft_limit(true).kind("byte-bpe");
    let corpus = Corpus::from_pairs(many.iter().map(|line| (line, line)))?;
    expect_cancelled(&token, || Tokenizer::train_cancellable(&many, &options, &token));
    expect_cancelled(&token, || corpus.train_tokenizer_cancellable(&options, &token));
    let tokenizer = Tokenizer::train_cancellable(
        &many[..200],
        &TokenizerOptions::new(60).soft_limit(true),
        &token,
    )?;
    expect_cancelled(&token, || Shortlist::learn_cancellable(&tokenizer, &many, &many, 4, &token));
    let resampled = EvaluationOptions::new().confidence(true).resamples(1 << 20); // many minutes
    expect_cancelled(&token, || evaluate_cancellable(&many, &[&many], None, &resampled, &token));
    let model = || {
        let config = ModelConfig::preset("tiny", tokenizer.vocabulary())?;
        Model::new(&config.encoder_layers(1).decoder_layers(1), 1)
    };
    token.cancel();
    let error = model()?.quantize(&QuantizeOptions::new().cancel(&token)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled);
    token.reset();

    let few = Corpus::from_pairs(many[..6].iter().map(|line| (line, line)))?;
    let trainer = |cancel: bool| {
        let builder = Trainer::builder(model()?, &tokenizer, &few)
            .valid(&corpus)
            .options(TrainerOptions::new().batch_tokens(512));
        if cancel { builder.cancel(&token) } else { builder }.build()
    };
    expect_cancelled(&token, || trainer(true));
    let (mut cancelled, mut twin) = (trainer(true)?, trainer(false)?);
    expect_cancelled(&token, || cancelled.validate());
    for update in 1..=2 {
        token.cancel();
        assert_eq!(cancelled.step().unwrap_err().code(), ErrorCode::Cancelled);
        token.reset();
        let step = cancelled.step()?;
        assert_eq!(step.update, update);
        assert_eq!(step, twin.step()?);
    }
    Ok(())
}

/// Files are not read, and models neither exported nor imported, with a token that is set.
#[test]
fn calls_on_files_end_when_their_token_is_set() -> Result<()> {
    let folder = common::TestFolder::new();
    let (file, whole, target) = (folder.join("a.tsv"), folder.join("whole"), folder.join("target"));
    std::fs::write(&file, "a\tb\n").unwrap();
    let tokenizer = Tokenizer::train(&lines(200), &TokenizerOptions::new(60).soft_limit(true))?;
    let config = ModelConfig::preset("tiny", tokenizer.vocabulary())?;
    let model = Model::new(&config.encoder_layers(1).decoder_layers(1), 1)?;
    let (format, weights) = (ExportFormat::HfPegasus, ExportWeights::ByFormat);
    let token = CancelToken::new();
    model.export_cancellable(Some(&tokenizer), format, weights, &whole, &token)?;
    assert_eq!(Model::import_cancellable(&ContextOptions::new(), &whole, &token)?.note, "");
    token.cancel();
    let to_target =
        || model.export_cancellable(Some(&tokenizer), format, weights, &target, &token).map(|_| ());
    let calls: [&dyn Fn() -> Result<()>; 5] = [
        &|| Corpus::load_cancellable(&file, &file, &token).map(|_| ()),
        &|| Corpus::load_tsv_cancellable(&file, &token).map(|_| ()),
        &|| Corpus::open_cancellable(&[&file], &CorpusOptions::new(), &token).map(|_| ()),
        &to_target,
        &|| Model::import_cancellable(&ContextOptions::new(), &whole, &token).map(|_| ()),
    ];
    for call in calls {
        assert_eq!(call().unwrap_err().code(), ErrorCode::Cancelled);
    }
    assert!(!target.exists());
    token.reset();
    assert_eq!(Corpus::open_cancellable(&[&file], &CorpusOptions::new(), &token)?.info().pairs, 1);
    Ok(())
}
