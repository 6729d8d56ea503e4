//! Calls that another thread cancels, and what is left after them.

use std::thread;
use std::time::Duration;

use trafo::{
    CancelToken, Corpus, ErrorCode, Model, ModelConfig, QuantizeOptions, Result, Shortlist,
    Tokenizer, TokenizerOptions, Trainer, TrainerOptions,
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
