//! Calls that tell how far they are.

mod common;

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use trafo::{
    CancelToken, ContextOptions, Corpus, CorpusOptions, ErrorCode, EvaluationOptions, ExportFormat,
    ExportWeights, Model, Period, Progress, QuantizeOptions, Result, Stop, Tokenizer,
    TokenizerOptions, Trainer, TranslateOptions, Work, evaluate_cancellable,
};

/// A token and what its calls have told.
fn listening() -> (CancelToken, Arc<Mutex<Vec<Progress>>>) {
    let (token, told) = (CancelToken::new(), Arc::new(Mutex::new(Vec::new())));
    let heard = told.clone();
    token.on_progress(move |progress| {
        heard.lock().unwrap().push(progress);
        ControlFlow::Continue(())
    });
    (token, told)
}

/// The work was told from its beginning to its end, and of so much.
fn expect(told: &Mutex<Vec<Progress>>, work: Work, total: Option<usize>) {
    let mut told = told.lock().unwrap();
    let of_work: Vec<_> = told.drain(..).filter(|each| each.work == work).collect();
    assert_eq!(of_work.first().expect("nothing was told").done, 0, "{of_work:?}");
    let last = of_work.last().unwrap();
    assert_eq!(last.total.unwrap_or(0), last.done, "{of_work:?}");
    if total.is_some() {
        assert_eq!(last.total, total);
    }
}

#[test]
fn long_calls_tell_how_far_they_are() -> Result<()> {
    let (token, told) = listening();
    let folder = common::TestFolder::new();
    let lines: Vec<String> = common::pairs().into_iter().map(|(source, _)| source).collect();
    let bpe = TokenizerOptions::new(280).kind("byte-bpe").soft_limit(true);
    Tokenizer::train_cancellable(&lines, &bpe, &token)?;
    expect(&told, Work::GatherText, Some(300));
    let corpus = common::corpus();
    let small = TokenizerOptions::new(120).soft_limit(true);
    let tokenizer = corpus.train_tokenizer_cancellable(&small, &token)?;
    expect(&told, Work::LearnVocabulary, None);
    let file = folder.join("pairs.tsv");
    std::fs::write(&file, "a\tb\n".repeat(100)).unwrap();
    Corpus::load_tsv_cancellable(&file, &token)?;
    expect(&told, Work::ReadText, Some(400));
    Corpus::open_cancellable(&[&file], &CorpusOptions::new(), &token)?;
    expect(&told, Work::ReadText, Some(400));
    evaluate_cancellable(&lines, &[&lines], None, &EvaluationOptions::new(), &token)?;
    expect(&told, Work::Evaluate, Some(300));

    let model = common::model(&tokenizer);
    model.translate(
        &tokenizer,
        &lines[..9],
        &TranslateOptions::new().max_length(3).cancel(&token),
    )?;
    expect(&told, Work::Translate, Some(9));
    common::model(&tokenizer).quantize(&QuantizeOptions::new().cancel(&token))?;
    expect(&told, Work::Compress, None);
    let directory = folder.join("exported");
    let (format, weights) = (ExportFormat::HfPegasus, ExportWeights::ByFormat);
    model.export_cancellable(Some(&tokenizer), format, weights, &directory, &token)?;
    expect(&told, Work::ConvertWeights, None);
    Model::import_cancellable(&ContextOptions::new(), &directory, &token)?;
    expect(&told, Work::ConvertWeights, None);

    let mut trainer = Trainer::builder(model, &tokenizer, &corpus)
        .valid(&corpus)
        .options(common::options())
        .cancel(&token)
        .build()?;
    expect(&told, Work::EncodeText, Some(300));
    trainer.validate()?;
    expect(&told, Work::Translate, Some(300));
    token.without_progress();
    trainer.validate()?;
    assert!(told.lock().unwrap().is_empty());
    assert_eq!(Arc::strong_count(&told), 1); // the closure is gone
    Ok(())
}

/// `Break` ends the call and leaves the token set; a panic continues in the caller as well.
#[test]
fn a_closure_ends_the_call() -> Result<()> {
    let lines: Vec<String> = common::pairs().into_iter().map(|(source, _)| source).collect();
    let options = EvaluationOptions::new();
    let token = CancelToken::new();
    let call = || evaluate_cancellable(&lines, &[&lines], None, &options, &token);
    token.on_progress(|_| ControlFlow::Break(()));
    assert_eq!(call().unwrap_err().code(), ErrorCode::Cancelled);
    assert!(token.is_cancelled());
    token.reset();
    token.on_progress(|progress| match progress.total {
        Some(total) if total == progress.done => panic!("at the end"),
        _ => ControlFlow::Continue(()),
    });
    let payload = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"at the end"));
    assert_eq!(call().unwrap_err().code(), ErrorCode::Cancelled); // by the token; the panic is over
    token.reset();
    token.without_progress();
    assert!((call()?.bleu.score - 100.0).abs() < 1e-6);
    Ok(())
}

/// The panic continues in the call that it was in, also if that call fails for another reason.
#[test]
fn a_panic_is_not_left_to_a_later_call() {
    let token = CancelToken::new();
    token.on_progress(|_| panic!("as it begins"));
    let missing = common::TestFolder::new().join("missing.tsv");
    let load = || Corpus::load_tsv_cancellable(&missing, &token).map(|_| ());
    let payload = catch_unwind(AssertUnwindSafe(load)).unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&"as it begins"));
    token.reset();
    token.without_progress();
    assert_eq!(load().unwrap_err().code(), ErrorCode::NotFound);
}

/// The closure does not run again in the call that it has ended. With nothing to learn, the work is done as it begins.
#[test]
fn a_closure_is_not_told_after_its_panic() {
    let (token, calls) = (CancelToken::new(), Arc::new(Mutex::new(0)));
    let counted = calls.clone();
    token.on_progress(move |progress| {
        if progress.work == Work::LearnVocabulary {
            *counted.lock().unwrap() += 1;
            panic!("as it begins");
        }
        ControlFlow::Continue(())
    });
    let options = TokenizerOptions::new(280).kind("byte-bpe").soft_limit(true);
    let train = || Tokenizer::train_cancellable(&["a"], &options, &token).map(|_| ());
    assert!(catch_unwind(AssertUnwindSafe(train)).is_err());
    assert_eq!(*calls.lock().unwrap(), 1);
}

/// A closure that uses the model at work, here or on another thread, gets an error and does not hang.
#[test]
fn a_closure_cannot_use_the_model_at_work() -> Result<()> {
    let corpus = common::corpus();
    let tokenizer = Arc::new(common::tokenizer(&corpus));
    let model = Arc::new(common::model(&tokenizer));
    let (token, codes) = (CancelToken::new(), Arc::new(Mutex::new(Vec::new())));
    let (in_closure, texts, kept) = (model.clone(), tokenizer.clone(), codes.clone());
    token.on_progress(move |_| {
        let translate = || {
            in_closure
                .translate(&texts, &["der Hund"], &TranslateOptions::new())
                .unwrap_err()
                .code()
        };
        let elsewhere = std::thread::scope(|scope| scope.spawn(translate).join().unwrap());
        kept.lock().unwrap().extend([translate(), elsewhere]);
        ControlFlow::Continue(())
    });
    model.translate(&tokenizer, &["der Baum"], &TranslateOptions::new().cancel(&token))?;
    let codes = codes.lock().unwrap();
    assert!(codes.len() >= 4 && codes.iter().all(|code| *code == ErrorCode::InvalidArgument));
    model.translate(&tokenizer, &["der Baum"], &TranslateOptions::new())?;
    Ok(())
}

/// A validation in a run: `Break` stops the run; a panic leaves the trainer usable.
#[test]
fn validations_of_a_run() -> Result<()> {
    let corpus = common::corpus();
    let tokenizer = common::tokenizer(&corpus);
    let token = CancelToken::new();
    let mut trainer = Trainer::builder(common::model(&tokenizer), &tokenizer, &corpus)
        .valid(&corpus)
        .options(common::options().valid_freq(Period::Updates(1)))
        .cancel(&token)
        .build()?;
    token.on_progress(|_| ControlFlow::Break(()));
    assert_eq!(trainer.run_updates(5, |_| ControlFlow::Continue(()))?, Stop::Cancelled);
    token.reset();
    token.on_progress(|_| panic!("in a validation"));
    let run = || trainer.step().map(|_| ());
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    token.reset();
    token.without_progress();
    assert_eq!(trainer.run_updates(1, |_| ControlFlow::Continue(()))?, Stop::Paused);
    Ok(())
}
