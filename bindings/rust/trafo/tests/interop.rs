//! Models for other programs, and back.

mod common;

use trafo::{
    ContextOptions, ErrorCode, ExportFormat, ExportWeights, Model, ModelConfig, TranslateOptions,
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
