//! Models for other programs, and back.

mod common;

use trafo::{
    AdapterOptions, CancelToken, ContextOptions, ErrorCode, ExportFormat, ExportWeights, Model,
    ModelConfig, PruneOptions, Tokenizer, Trainer, TranslateOptions,
};

#[test]
fn exported_models_come_back() -> trafo::Result<()> {
    let folder = common::TestFolder::new();
    let tokenizer = common::tokenizer(&common::corpus());
    let config =
        ModelConfig::preset("tiny", tokenizer.vocabulary()?)?.encoder_layers(1).decoder_layers(1);
    let directory = folder.join("marian");
    let pre = Model::new(&config, 3)?;
    let error = pre
        .export(&tokenizer, ExportFormat::HfMarian, ExportWeights::ByFormat, &directory)
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported);
    assert!(error.message().contains("pre-norm"), "{error}");

    let post = Model::new(&config.pre_norm(false), 3)?;
    assert_eq!(
        post.export(&tokenizer, ExportFormat::HfMarian, ExportWeights::ByFormat, &directory)?,
        0.0
    );
    let error = post
        .export(&tokenizer, ExportFormat::CTranslate2, ExportWeights::Int8, &directory)
        .unwrap_err();
    assert!(error.message().contains("not an empty directory"), "{error}");

    let imported = Model::import(&ContextOptions::new(), &directory)?;
    assert_eq!(imported.note, "");
    let lines = ["der kleine Hund sieht den Baum"];
    let options = TranslateOptions::new().beam(2).max_length(8);
    let theirs = imported.tokenizer.expect("it was written with the model");
    assert_eq!(
        post.translate(&tokenizer, &lines, &options)?[0].text(),
        imported.model.translate(&theirs, &lines, &options)?[0].text()
    );
    let error = Model::import(&ContextOptions::new(), folder.path()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    Ok(())
}

fn score(model: &Model, tokenizer: &Tokenizer) -> trafo::Result<f64> {
    let scores = model.score(tokenizer, &["der kleine Hund"], &["the small dog"])?;
    Ok(scores[0].log_probability)
}

#[test]
fn adapters_are_trained_stored_and_merged() -> trafo::Result<()> {
    let folder = common::TestFolder::new();
    let corpus = common::corpus();
    let tokenizer = common::tokenizer(&corpus);
    let config =
        ModelConfig::preset("tiny", tokenizer.vocabulary()?)?.encoder_layers(1).decoder_layers(1);
    let mut base = Model::new(&config, 3)?;
    let before = score(&base, &tokenizer)?;
    let error = base.add_adapter(&AdapterOptions::new(4).targets(&["head"])).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("'head'"), "{error}");

    let mut model = Model::new(&config, 3)?;
    model.add_adapter(&AdapterOptions::new(4).alpha(32.0).targets(&["query", "down"]).seed(2))?;
    assert_eq!(score(&model, &tokenizer)?, before);
    let mut trainer =
        Trainer::builder(model, &tokenizer, &corpus).options(common::options()).build()?;
    for _ in 0..4 {
        trainer.step()?;
    }
    let model = trainer.into_model();
    let trained = score(&model, &tokenizer)?;
    assert!((trained - before).abs() > 1e-6);
    model.save_adapter(folder.join("adapter"))?;
    base.load_adapter(folder.join("adapter"))?;
    assert_eq!(score(&base, &tokenizer)?, trained);
    base.merge_adapter()?;
    assert!((score(&base, &tokenizer)? - trained).abs() < 1e-3);
    base.unmerge_adapter()?;
    assert_eq!(score(&base, &tokenizer)?, trained);
    base.remove_adapter()?;
    assert_eq!(score(&base, &tokenizer)?, before);

    let mut other = Model::new(&config.width(64), 3)?;
    let error = other.load_adapter(folder.join("adapter")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("width"), "{error}");
    Ok(())
}

#[test]
fn a_pruned_model_takes_the_place_of_the_whole_one() -> trafo::Result<()> {
    let corpus = common::corpus();
    let tokenizer = common::tokenizer(&corpus);
    let config =
        ModelConfig::preset("tiny", tokenizer.vocabulary()?)?.encoder_layers(2).decoder_layers(2);
    let mut model = Model::new(&config, 3)?;
    let (whole, before) = (model.parameter_count()?, score(&model, &tokenizer)?);
    let error =
        model.prune(&tokenizer, &corpus, &PruneOptions::new().ffn_shares(0.5, 2.0)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("decoder_ffn_share"), "{error}");
    let token = CancelToken::new();
    token.cancel();
    let options = PruneOptions::new().ffn_shares(0.25, 0.5).head_shares(0.5, 0.5).layers(1, 1);
    let error = model.prune(&tokenizer, &corpus, &options.clone().cancel(&token)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled);
    assert_eq!((model.parameter_count()?, score(&model, &tokenizer)?), (whole, before));

    model.prune(&tokenizer, &corpus, &options)?;
    assert!(model.parameter_count()? < whole);
    assert_ne!(score(&model, &tokenizer)?, before);
    let mut trainer =
        Trainer::builder(model, &tokenizer, &corpus).options(common::options()).build()?;
    trainer.step()?;
    Ok(())
}
