//! Encoders: a head for labels, training, vectors, labels, and the way to transformers and back.

mod common;

use trafo::{
    Architecture, ContextOptions, Corpus, EncoderHead, ErrorCode, ExportFormat, ExportWeights,
    FrameToken, Metric, Model, ModelConfig, Objective, Pooling, Trainer,
};

const TEXTS: [(&str, &str); 4] = [
    ("der kleine Hund", "animal"),
    ("die alte Katze", "animal"),
    ("ein Haus", "thing"),
    ("ein roter Baum", "thing"),
];

fn encoder(vocabulary: usize) -> trafo::Result<Model> {
    let config = ModelConfig::preset("tiny", vocabulary)?
        .architecture(Architecture::Encoder)
        .decoder_layers(1)
        .pre_norm(false)
        .token_types(2)
        .dropout(0.0);
    Model::new(&config, 3)
}

#[test]
fn an_encoder_learns_labels() -> trafo::Result<()> {
    let folder = common::TestFolder::new();
    let tokenizer = common::tokenizer(&common::corpus());
    let corpus = Corpus::from_pairs(TEXTS)?;
    let mut model = encoder(tokenizer.vocabulary())?;
    assert_eq!(
        model.classify(&tokenizer, &["ein Hund"]).unwrap_err().code(),
        ErrorCode::Unsupported
    );
    assert!(model.labels()?.is_empty());
    model.set_head(EncoderHead::Sequence, &["animal", "thing"], 1)?;
    assert_eq!(model.labels()?, ["animal", "thing"]);
    let error = model.set_head(EncoderHead::Token, &["a", "a"], 1).unwrap_err();
    assert!(error.message().contains("twice"), "{error}");

    let options = common::options()
        .objective(Objective::Classification)
        .begin_source(FrameToken::On)
        .learning_rate(1e-2)
        .valid_metrics(&[Metric::Accuracy])
        .after_updates(60);
    let mut trainer =
        Trainer::builder(model, &tokenizer, &corpus).valid(&corpus).options(options).build()?;
    trainer.run(|_| std::ops::ControlFlow::Continue(()))?;
    let model = trainer.into_model();
    let texts: Vec<&str> = TEXTS.iter().map(|(text, _)| *text).collect();
    let labels = model.labels()?;
    let found = model.classify(&tokenizer, &texts)?;
    assert_eq!((found.labels, found.values.len()), (2, 8));
    assert_eq!(found.cu_seqlens, [0, 1, 2, 3, 4]);
    for (row, (text, label)) in found.values.chunks(2).zip(TEXTS) {
        assert_eq!(labels[usize::from(row[1] > row[0])], label, "{text}");
    }
    let pairs = model.classify_pairs(&tokenizer, &texts, &texts)?;
    assert_ne!(pairs.values, found.values);
    assert!(model.classify_pairs(&tokenizer, &texts, &texts[1..]).is_err());
    let types: [&[i32]; 1] = [&[0, 0, 1]];
    let of_ids = model.classify_ids(&[[4, 5, 2]], &types)?;
    assert_ne!(of_ids.values, model.classify_ids::<_, [i32; 0]>(&[[4, 5, 2]], &[])?.values);

    let directory = folder.join("bert");
    model.export(&tokenizer, ExportFormat::HfBert, ExportWeights::ByFormat, &directory)?;
    let again = Model::import(&ContextOptions::new(), &directory)?;
    assert_eq!(again.model.labels()?, ["animal", "thing"]);
    let tokenizer = again.tokenizer.expect("the directory has one");
    assert_eq!(again.model.classify(&tokenizer, &texts)?.values, found.values);
    Ok(())
}

#[test]
fn texts_have_vectors() -> trafo::Result<()> {
    let tokenizer = common::tokenizer(&common::corpus());
    let model = encoder(tokenizer.vocabulary())?;
    let texts = ["der kleine Hund", "ein Haus"];
    let states = model.hidden_states(&tokenizer, &texts)?;
    let means = model.embed(&tokenizer, &texts, Pooling::Mean, false)?;
    let firsts = model.embed(&tokenizer, &texts, Pooling::First, false)?;
    let units = model.embed(&tokenizer, &texts, Pooling::Mean, true)?;
    assert_eq!(means.width, states.width);
    for text in 0..2 {
        let rows = states.text(text);
        let count = rows.len() / states.width;
        let vector = |all: &[f32]| all[text * states.width..(text + 1) * states.width].to_vec();
        assert_eq!(vector(&firsts.values), rows[..states.width]);
        let length = vector(&means.values).iter().map(|x| x * x).sum::<f32>().sqrt();
        for column in 0..states.width {
            let sum: f32 = (0..count).map(|row| rows[row * states.width + column]).sum();
            assert!((vector(&means.values)[column] - sum / count as f32).abs() < 1e-5);
            let unit = vector(&units.values)[column];
            assert!((unit * length - vector(&means.values)[column]).abs() < 1e-5);
        }
    }
    let open = model.open();
    let tensor = open.embed(&tokenizer, &texts, Pooling::Mean, false)?;
    assert_eq!(tensor.shape(), [2, means.width]);
    Ok(())
}
