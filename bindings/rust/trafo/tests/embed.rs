//! Training inside a program: rates and pairs from closures, models and runs to writers and from readers.

mod common;

use std::error::Error;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use common::{TestFolder, corpus, model, options, pairs, tokenizer, weights};
use trafo::{
    Batch, BatchSource, CancelToken, ContextOptions, Corpus, DType, ErrorCode, EventKind, Model,
    Result, Tokenizer, TokenizerOptions, Trainer, TranslateOptions,
};

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
    assert_eq!(panic_of(|| trainer.step()), "in a closure");
    trainer.clear_rate()?;
    let rate = trainer.step()?.learning_rate;
    assert!(rate > 0.0 && rate < 1.0, "{rate}");
    Ok(())
}

#[test]
fn pairs_from_a_closure_train_as_those_in_memory() -> Result<()> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let asked = Arc::new(AtomicUsize::new(0));
    let (all, count) = (pairs(), asked.clone());
    let pulled = Corpus::from_function(all.len(), 1, move |index| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok::<_, Broken>(all[index].clone())
    })?;
    let losses = [&corpus, &pulled].map(|corpus| {
        let mut trainer = Trainer::builder(model(&tokenizer), &tokenizer, corpus)
            .options(options())
            .build()
            .unwrap();
        [(); 3].map(|()| trainer.step().unwrap().loss)
    });
    assert_eq!(losses[0], losses[1]);
    assert!(asked.load(Ordering::Relaxed) >= pairs().len());
    Ok(())
}

#[derive(Debug, PartialEq)]
struct Broken(usize);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "row {} is broken", self.0)
    }
}

impl std::error::Error for Broken {}

fn panic_of<T>(work: impl FnOnce() -> T) -> String {
    let payload = catch_unwind(AssertUnwindSafe(work)).err().expect("a panic");
    payload.downcast_ref::<&str>().unwrap_or(&"").to_string()
}

fn expect_broken<T>(result: Result<T>) {
    let error = result.err().expect("the closure has failed");
    assert_eq!(error.code(), ErrorCode::Io, "{error}");
    assert!(error.message().contains("is broken"), "{error}");
    assert!(error.source().unwrap().downcast_ref::<Broken>().is_some());
}

#[test]
fn what_a_closure_of_pairs_meets_is_told_by_the_call_that_needs_the_pair() -> Result<()> {
    let all = pairs();
    let tokenizer = tokenizer(&corpus());
    let (asked, until) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, limit) = (asked.clone(), until.clone());
    let pulled = Corpus::from_function(all.len(), 1, move |index| {
        if count.fetch_add(1, Ordering::Relaxed) >= limit.load(Ordering::Relaxed) {
            return Err(Broken(index));
        }
        Ok(all[index].clone())
    })?;
    expect_broken(pulled.pair(0));
    expect_broken(pulled.hold_out(2));
    expect_broken(pulled.train_tokenizer(&TokenizerOptions::new(40)));
    until.store(usize::MAX, Ordering::Relaxed);
    let mixed = Corpus::mix(&[(&pulled, 1.0), (&pulled, 2.0)])?;
    until.store(0, Ordering::Relaxed);
    let build = |corpus| {
        Trainer::builder(model(&tokenizer), &tokenizer, corpus)
            .options(options())
            .cancel(&CancelToken::new())
            .build()
    };
    expect_broken(build(&mixed));
    // In the midst of a run: an error, not an end that was asked for; it goes on when it can.
    until.store(usize::MAX, Ordering::Relaxed);
    let mut trainer = build(&mixed)?;
    until.store(asked.load(Ordering::Relaxed), Ordering::Relaxed);
    expect_broken(trainer.run_updates(1000, |_| ControlFlow::Continue(())));
    until.store(usize::MAX, Ordering::Relaxed);
    trainer.step()?;
    Ok(())
}

#[test]
fn a_closure_of_pairs_may_panic_but_not_read_its_own_corpus() -> Result<()> {
    let panics = Corpus::from_function(3, 1, |_| -> std::result::Result<_, Broken> {
        panic!("in a closure")
    })?;
    assert_eq!(panic_of(|| panics.pair(0)), "in a closure");
    let own = Arc::new(OnceLock::<Corpus>::new());
    let itself = own.clone();
    let corpus = Corpus::from_function(3, 1, move |_| itself.get().unwrap().pair(1))?;
    let corpus = own.get_or_init(|| corpus);
    let error = corpus.pair(0).unwrap_err();
    assert!(error.message().contains("its own corpus"), "{error}");
    Ok(())
}

#[test]
fn events_tell_what_was_dropped() -> Result<()> {
    let mut all = pairs();
    all.push(("der Hund ".repeat(100), "the dog".to_string()));
    // Not kept as tokens: what is too long is seen in every epoch anew.
    let count = all.len();
    let corpus = Corpus::from_function(count, 1, move |i| Ok::<_, Broken>(all[i].clone()))?;
    let tokenizer = tokenizer(&corpus);
    let mut trainer = Trainer::builder(model(&tokenizer), &tokenizer, &corpus)
        .options(options().max_length(32).after_epochs(1).after_updates(0))
        .build()?;
    let mut messages = Vec::new();
    trainer.run(|event| {
        if let EventKind::Epoch { message } = &event.kind {
            messages.push(message.clone());
        }
        ControlFlow::Continue(())
    })?;
    assert_eq!(messages.len(), 1);
    assert!(messages[0].contains("1 over 32 tokens"), "{messages:?}");
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
    let source = error.source().unwrap().downcast_ref::<std::io::Error>().unwrap();
    assert_eq!(source.kind(), std::io::ErrorKind::WriteZero);

    let model = second.into_model();
    let (mut file, mut vocabulary) = (Vec::new(), Vec::new());
    model.write_to(&mut file)?;
    let read = Model::read_from(&ContextOptions::new(), &mut file.as_slice())?;
    assert_eq!(weights(&read), weights(&model));
    let read = Model::read_as(&ContextOptions::new(), &mut file.as_slice(), DType::F32)?;
    assert_eq!(weights(&read), weights(&model));
    let refused = Model::read_as(&ContextOptions::new(), &mut file.as_slice(), DType::BF16);
    assert_eq!(refused.unwrap_err().code(), ErrorCode::Unsupported, "bfloat16 is for CUDA");
    tokenizer.write_to(&mut vocabulary)?;
    assert_eq!(Tokenizer::from_bytes(&vocabulary)?.vocabulary(), tokenizer.vocabulary());
    Ok(())
}

/// Sentences of two to five words, and the batch of their ids, shortest first as the corpus's own batches are.
fn one_batch(tokenizer: &Tokenizer) -> Result<(Vec<(String, String)>, Batch)> {
    let words = ["der", "kleine", "Hund", "sieht", "den"];
    let mut batch = Batch::new();
    let mut texts = Vec::new();
    for count in 2..=words.len() {
        let text = words[..count].join(" ");
        let mut ids = tokenizer.encode(&text)?;
        ids.push(Batch::EOS);
        batch.push(ids.clone(), ids);
        texts.push((text.clone(), text));
    }
    Ok((texts, batch))
}

#[test]
fn batches_from_a_closure_train_as_the_corpus_s() -> Result<()> {
    let tokenizer = tokenizer(&corpus());
    let (texts, batch) = one_batch(&tokenizer)?;
    let corpus = Corpus::from_pairs(texts)?;
    let build = || Trainer::builder(model(&tokenizer), &tokenizer, &corpus).options(options());
    let mut of_corpus = build().build()?;
    let mut given = build().build()?;
    let asked = Arc::new(AtomicUsize::new(0));
    let (count, own) = (asked.clone(), batch.clone());
    given.set_batches(move |index| {
        assert_eq!(index, count.fetch_add(1, Ordering::Relaxed));
        Some(own.clone())
    })?;
    for _ in 0..4 {
        let (a, b) = (of_corpus.step()?, given.step()?);
        assert_eq!((a.loss, a.grad_norm), (b.loss, b.grad_norm));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 4);

    given.set_batches(|_| None)?;
    assert_eq!(given.step().unwrap_err().code(), ErrorCode::Io);
    given.set_batches(|_| -> Option<Batch> { panic!("in a closure") })?;
    assert_eq!(panic_of(|| given.step()), "in a closure");
    given.set_batches(|_| Some(Batch::new()))?;
    assert_eq!(given.step().unwrap_err().code(), ErrorCode::InvalidArgument);
    given.set_batches(|_| Some(Batch::new().pair([1 << 20, Batch::EOS], [4, Batch::EOS])))?;
    assert_eq!(given.step().unwrap_err().code(), ErrorCode::InvalidArgument);

    struct Same(Batch);
    impl BatchSource for Same {
        fn batch(&mut self, _: usize) -> Option<Batch> {
            Some(self.0.clone())
        }
    }
    given.set_batches(Same(batch))?;
    assert_eq!(given.step()?.loss, of_corpus.step()?.loss, "what failed has changed nothing");
    given.use_corpus()?;
    assert_eq!(given.step()?.update, 6);
    Ok(())
}

#[test]
fn one_model_translates_for_many_threads() -> Result<()> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let mut trainer =
        Trainer::builder(model(&tokenizer), &tokenizer, &corpus).options(options()).build()?;
    for _ in 0..3 {
        trainer.step()?;
    }
    let model = trainer.into_model();
    let options = TranslateOptions::new().beam(2).max_length(8);
    let texts: Vec<String> = pairs().into_iter().step_by(37).map(|pair| pair.0).collect();
    let translate = |text: &str| -> Result<(String, f64)> {
        let all = model.translate(&tokenizer, &[text], &options)?;
        Ok((all[0].text().to_string(), all[0].score()))
    };
    let alone = texts.iter().map(|text| translate(text)).collect::<Result<Vec<_>>>()?;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|_| scope.spawn(|| texts.iter().map(|t| translate(t)).collect())).collect();
        for thread in threads {
            let together: Result<Vec<_>> = thread.join().unwrap();
            assert_eq!(together?, alone);
        }
        Ok(())
    })
}

// Reading parameters frees handles, and so do results: neither refuses the calls of other threads. Each pair of calls runs on
// two threads at a time.
#[test]
fn no_pair_of_calls_on_one_model_is_refused() -> Result<()> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let model = model(&tokenizer);
    let texts = ["der Hund", "den alten Baum"];
    let options = TranslateOptions::new().max_length(6);
    let saved = TestFolder::new();
    let path = saved.join("model.safetensors");
    let calls: [&(dyn Fn() -> Result<()> + Sync); 7] = [
        &|| model.save(&path),
        &|| model.force_decode(&tokenizer, &texts, &texts, &options).map(drop),
        &|| model.parameters().map(drop),
        &|| model.translate(&tokenizer, &texts, &options).map(drop),
        &|| model.score(&tokenizer, &texts, &texts).map(drop),
        &|| model.hidden_states(&tokenizer, &texts).map(drop),
        &|| model.logits(&tokenizer, &texts, &texts).map(drop),
    ];
    for first in 0..calls.len() {
        for second in first..calls.len() {
            std::thread::scope(|scope| {
                let threads = [first, second]
                    .map(|i| scope.spawn(move || (0..8).try_for_each(|_| calls[i]())));
                threads.into_iter().try_for_each(|thread| thread.join().unwrap())
            })?;
        }
    }
    // Recording is as it was: a backward reaches the parameters.
    let open = model.open();
    let (logits, _) = open.logits(&tokenizer, &texts, &texts)?;
    logits.sum()?.backward()
}
