//! Token ids in place of text.

mod common;

use common::{TestFolder, corpus, model, options, pairs, tokenizer, weights};
use trafo::{
    Architecture, Batch, Corpus, ErrorCode, LongLines, Model, ModelConfig, Result, SpecialTokens,
    Tokenizer, Trainer, TranslateOptions,
};

/// A text and its end.
fn row(tokenizer: &Tokenizer, text: &str) -> Vec<i32> {
    let mut ids = tokenizer.encode(text).unwrap();
    ids.push(tokenizer.special().eos);
    ids
}

fn three(tokenizer: &Tokenizer) -> ([Vec<String>; 2], [Vec<Vec<i32>>; 2]) {
    let (sources, targets): (Vec<_>, Vec<_>) = pairs().into_iter().step_by(70).take(3).unzip();
    let ids =
        [&sources, &targets].map(|side| side.iter().map(|text| row(tokenizer, text)).collect());
    ([sources, targets], ids)
}

#[test]
fn ids_give_what_text_gives() -> Result<()> {
    let tokenizer = tokenizer(&corpus());
    let mut model = model(&tokenizer);
    let ([sources, targets], [source_ids, target_ids]) = three(&tokenizer);
    assert_eq!(model.special_tokens()?, None);
    let options = TranslateOptions::new().beam(2).max_length(12);
    let unknown = model.translate_ids(None, &source_ids, &options).unwrap_err();
    assert_eq!(unknown.code(), ErrorCode::InvalidArgument);
    model.set_special_tokens(&tokenizer.special(), &[7])?;
    assert_eq!(model.special_tokens()?, Some((tokenizer.special(), vec![7])));
    model.set_special_tokens(&tokenizer.special(), &[])?;

    let text = model.translate(&tokenizer, &sources, &options)?;
    assert_eq!(model.translate_ids(Some(&tokenizer), &source_ids, &options)?, text);
    let alone = model.translate_ids(None, &source_ids, &options)?;
    for (a, b) in text.iter().zip(&alone) {
        assert_eq!((a.score(), &a.hypotheses[0].tokens), (b.score(), &b.hypotheses[0].tokens));
        assert_eq!(b.text(), "");
    }
    let begun: Vec<_> = target_ids.iter().map(|ids| ids[..2].to_vec()).collect();
    let continued = model.translate_ids_with_prefixes(None, &source_ids, &begun, &options)?;
    assert!(continued.iter().zip(&begun).all(|(t, b)| t.hypotheses[0].tokens.starts_with(b)));

    let forced = model.force_decode(&tokenizer, &sources, &targets, &options)?;
    let same = model.force_decode_ids(Some(&tokenizer), &source_ids, &target_ids, &options)?;
    assert_eq!(forced, same);
    assert_eq!(model.hidden_states_ids(&source_ids)?, model.hidden_states(&tokenizer, &sources)?);
    assert_eq!(
        model.logits_ids(None, &source_ids, &target_ids)?,
        model.logits(&tokenizer, &sources, &targets)?
    );
    let open = model.open();
    let (logits, labels) = open.logits_ids(None, &source_ids, &target_ids)?;
    let (expected, same_labels) = open.logits(&tokenizer, &sources, &targets)?;
    assert_eq!(logits.to_vec::<f32>()?, expected.to_vec::<f32>()?);
    assert_eq!(labels.to_vec::<i32>()?, same_labels.to_vec::<i32>()?);
    let states = open.hidden_states_ids(&source_ids)?.0.to_vec::<f32>()?;
    assert_eq!(states, open.hidden_states(&tokenizer, &sources)?.0.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn training_needs_no_text() -> Result<()> {
    let tokenizer = tokenizer(&corpus());
    let special = tokenizer.special();
    let trained = |mut trainer: Trainer| -> Result<Vec<u32>> {
        for _ in 0..3 {
            trainer.step()?;
        }
        Ok(weights(&trainer.into_model()))
    };
    let text = corpus();
    let of_text =
        Trainer::builder(model(&tokenizer), &tokenizer, &text).options(options()).build()?;
    let expected = trained(of_text)?;

    let mut to_train = model(&tokenizer);
    let ids = pairs().into_iter().map(|(s, t)| (row(&tokenizer, &s), row(&tokenizer, &t)));
    let ids = Corpus::from_ids(ids)?;
    assert_eq!(ids.info().pairs, pairs().len());
    assert_eq!(ids.pair(0).unwrap_err().code(), ErrorCode::InvalidArgument);
    to_train.set_special_tokens(&special, &[])?;
    let of_ids = Trainer::builder_for_ids(to_train, Some(&ids)).options(options()).build()?;
    assert_eq!(trained(of_ids)?, expected);

    // Batches need no corpus at all.
    let mut own = model(&tokenizer);
    own.set_special_tokens(&special, &[])?;
    let mut trainer = Trainer::builder_for_ids(own, None).options(options()).build()?;
    assert_eq!(trainer.step().unwrap_err().code(), ErrorCode::InvalidArgument);
    let ([..], [sources, targets]) = three(&tokenizer);
    trainer.set_batches(move |_| {
        let pairs = sources.iter().zip(&targets);
        Some(pairs.fold(Batch::new(), |batch, (s, t)| batch.pair(s.clone(), t.clone())))
    })?;
    assert!(trainer.step()?.loss > 0.0);
    Ok(())
}

/// Windows over a text: each of its tokens is learned, and scored, once.
#[test]
fn long_texts_become_windows() -> Result<()> {
    let tokenizer = tokenizer(&corpus());
    let special = tokenizer.special();
    let text: Vec<i32> = (0..99).map(|i| 5 + i % 50).chain([special.eos]).collect();
    let texts = Corpus::from_ids([(vec![], text)])?;
    let config = ModelConfig::new(tokenizer.vocabulary())
        .architecture(Architecture::DecoderLm)
        .decoder_layers(1)
        .width(32)
        .ffn_width(64)
        .heads(2)
        .max_positions(30);
    let train = |mut model: Model, options| -> Result<i64> {
        model.set_special_tokens(&special, &[])?;
        let mut trainer = Trainer::builder_for_ids(model, Some(&texts)).options(options).build()?;
        Ok(trainer.step()?.labels)
    };
    let windows = options().long_lines(LongLines::Window).window_stride(20);
    assert_eq!(train(Model::new(&config, 7)?, windows.clone())?, 100);
    let dropped = train(Model::new(&config, 7)?, options()).unwrap_err();
    assert!(dropped.to_string().contains("1 are longer than 30"), "{dropped}");
    let encoder = train(model(&tokenizer), windows).unwrap_err();
    assert!(encoder.to_string().contains("decoder-lm"), "{encoder}");

    let lm = Model::new(&config, 7)?;
    let lines = [["the small dog sees the tree"; 20].join(" ")];
    let score = |options: &TranslateOptions| lm.score_text(&tokenizer, &lines, options);
    let tokens = tokenizer.encode(&lines[0])?.len() + 1;
    let cut = score(&TranslateOptions::new())?;
    assert_eq!(cut[0].hypotheses[0].tokens.len(), 30);
    let whole = score(&TranslateOptions::new().window_stride(10))?;
    assert_eq!(whole[0].hypotheses[0].tokens.len(), tokens);
    assert_eq!("window".parse::<LongLines>()?, LongLines::Window);
    Ok(())
}

#[test]
fn a_model_keeps_its_special_tokens() -> Result<()> {
    let folder = TestFolder::new();
    let mut model = model(&tokenizer(&corpus()));
    let tokens = SpecialTokens { unk: -1, bos: Some(5), eos: 6, pad: None };
    model.set_special_tokens(&tokens, &[8, 9])?;
    let path = folder.join("model.safetensors");
    model.save(&path)?;
    assert_eq!(Model::load(&path)?.special_tokens()?, Some((tokens, vec![8, 9])));
    let outside = SpecialTokens { eos: -1, ..tokens };
    assert_eq!(
        model.set_special_tokens(&outside, &[]).unwrap_err().code(),
        ErrorCode::InvalidArgument
    );
    Ok(())
}

#[test]
fn special_tokens_in_text_by_choice() -> Result<()> {
    let plain = tokenizer(&corpus());
    let parsing = plain.parse_special()?;
    let text = "der alte Hund</s>";
    assert!(!plain.encode(text)?.contains(&Tokenizer::EOS));
    assert_eq!(parsing.encode(text)?, row(&plain, "der alte Hund"));
    Ok(())
}

#[test]
fn a_vocabulary_without_languages_refuses_them() {
    let error = tokenizer(&corpus()).with_languages("eng_Latn", "deu_Latn").unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("has no languages"), "{error}");
}
