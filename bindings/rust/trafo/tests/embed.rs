//! Training inside a program: rates and pairs from closures, models and runs to writers and from readers.

mod common;

use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use common::{corpus, model, options, pairs, tokenizer, weights};
use trafo::{ContextOptions, Corpus, ErrorCode, Model, Result, Tokenizer, Trainer};

#[test]
fn rates_come_from_a_closure() -> Result<()> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let mut trainer =
        Trainer::builder(model(&tokenizer), &tokenizer, &corpus).options(options()).build()?;
    trainer.set_rate(|update, scheduled| update as f64 + scheduled)?;
    let rate = trainer.step()?.learning_rate;
    assert!(rate > 1.0 && rate < 1.1, "{rate}");
    trainer.set_rate(|_, _| -1.0)?;
    assert_eq!(trainer.step().unwrap_err().code(), ErrorCode::InvalidArgument);
    trainer.set_rate(|_, _| panic!("in a closure"))?;
    assert_eq!(trainer.step().unwrap_err().code(), ErrorCode::InvalidArgument);
    Ok(())
}

#[test]
fn pairs_from_a_closure_train_as_those_in_memory() -> Result<()> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let asked = Arc::new(AtomicI64::new(0));
    let (all, count) = (pairs(), asked.clone());
    let pulled = Corpus::from_function(all.len() as i64, 1, move |index| {
        count.fetch_add(1, Ordering::Relaxed);
        Some(all[index as usize].clone())
    })?;
    let losses = [&corpus, &pulled].map(|corpus| {
        let mut trainer = Trainer::builder(model(&tokenizer), &tokenizer, corpus)
            .options(options())
            .build()
            .unwrap();
        [(); 3].map(|()| trainer.step().unwrap().loss)
    });
    assert_eq!(losses[0], losses[1]);
    assert!(asked.load(Ordering::Relaxed) >= pairs().len() as i64);
    let none = Corpus::from_function(3, 1, |_| None)?;
    let refused = Trainer::builder(model(&tokenizer), &tokenizer, &none).options(options()).build();
    let error = refused.and_then(|mut trainer| trainer.step()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled);
    Ok(())
}

#[test]
fn a_run_goes_on_from_its_bytes() -> Result<()> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let build =
        || Trainer::builder(model(&tokenizer), &tokenizer, &corpus).options(options()).build();
    let mut first = build()?;
    first.step()?;
    let mut bytes = Vec::new();
    first.write_to(&mut bytes)?;
    let expected = [first.step()?.loss, first.step()?.loss];
    let mut second = build()?;
    second.read_from(&mut bytes.as_slice())?;
    assert_eq!([second.step()?.loss, second.step()?.loss], expected);
    let error = second.read_from(&mut &bytes[..bytes.len() - 1]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CorruptFile);
    let mut full = [0u8; 10];
    let error = second.write_to(&mut Cursor::new(&mut full[..])).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Io);

    let model = second.into_model();
    let (mut file, mut pieces) = (Vec::new(), Vec::new());
    model.write_to(&mut file)?;
    let read = Model::read_from(&ContextOptions::new(), &mut file.as_slice())?;
    assert_eq!(weights(&read), weights(&model));
    tokenizer.write_to(&mut pieces)?;
    assert_eq!(Tokenizer::from_bytes(&pieces)?.vocabulary()?, tokenizer.vocabulary()?);
    Ok(())
}
