//! Contexts in the background, whose training gives way to translation.

mod common;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{corpus, model, options, tokenizer, weights};
use trafo::{ContextOptions, ErrorCode, Model, ModelConfig, Result, Trainer, TranslateOptions};

#[test]
fn training_in_the_background_gives_the_same_weights_beside_translation() -> Result<()> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let train = |share: f64| -> Result<Vec<u32>> {
        let mut model = model(&tokenizer);
        model.set_threads(2)?;
        model.set_background_share(share)?;
        let mut trainer = Trainer::builder(model, &tokenizer, &corpus)
            .options(options().after_updates(3))
            .build()?;
        trainer.run(|_| ControlFlow::Continue(()))?;
        Ok(weights(&trainer.into_model()))
    };
    let alone = train(1.0)?;
    let ended = AtomicBool::new(false);
    let beside = std::thread::scope(|scope| {
        scope.spawn(|| {
            let serving = model(&tokenizer);
            while !ended.load(Ordering::Acquire) {
                serving.translate(&tokenizer, &["a b c"], &TranslateOptions::new()).unwrap();
            }
        });
        let weights = train(0.2);
        ended.store(true, Ordering::Release);
        weights
    })?;
    assert_eq!(alone, beside);

    let mut model = model(&tokenizer);
    for share in [0.0, -0.5, 1.01, f64::NAN] {
        let error = model.set_background_share(share).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{share}");
        let error = Model::new_on(
            &ContextOptions::new().background_share(share),
            &ModelConfig::preset("tiny", tokenizer.vocabulary())?,
            1,
        );
        assert!(error.unwrap_err().to_string().contains("background_share"), "{share}");
    }
    Ok(())
}
