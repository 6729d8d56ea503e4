//! A model whose tensors take part in an own network.

mod common;

use common::{TestFolder, corpus, model, tokenizer};
use trafo::{
    AdamW, AdamWOptions, CrossEntropyOptions, ErrorCode, Model, OpenModel, Reduction, Result,
    Tensor, Tokenizer, TranslateOptions,
};

const SOURCES: [&str; 3] =
    ["der kleine Hund sieht den Baum", "der alte Stein", "der rote Vogel sucht den Tisch"];
const TARGETS: [&str; 3] =
    ["the small dog sees the tree", "the old stone", "the red bird seeks the table"];

fn loss_of(model: &OpenModel, tokenizer: &Tokenizer) -> Result<Tensor> {
    let (logits, labels) = model.logits(tokenizer, &SOURCES, &TARGETS)?;
    let sum = CrossEntropyOptions::new().reduction(Reduction::Sum);
    Ok(logits.cross_entropy(&labels, &sum)?.0)
}

#[test]
fn gradients_of_logits_are_slopes_of_the_loss() -> Result<()> {
    let tokenizer = tokenizer(&corpus());
    let model = model(&tokenizer);
    let scores = model.score(&tokenizer, &SOURCES, &TARGETS)?;
    let wanted: f64 = -scores.iter().map(|score| score.log_probability).sum::<f64>();
    let model = model.open();
    let loss = loss_of(&model, &tokenizer)?;
    assert!((loss.item()? - wanted).abs() < 1e-4 * wanted, "{} {wanted}", loss.item()?);
    loss.backward()?;
    for (name, parameter) in model.parameters()? {
        let slopes = parameter.grad()?.unwrap_or_else(|| panic!("{name}")).to_vec::<f32>()?;
        let steepest =
            (0..slopes.len()).max_by(|&a, &b| slopes[a].abs().total_cmp(&slopes[b].abs()));
        let steepest = steepest.expect("a parameter has elements");
        if slopes[steepest].abs() < 0.05 {
            continue; // the slope would be lost in the rounding of the loss
        }
        let values = parameter.to_vec::<f32>()?;
        let at = |value: f32| -> Result<f64> {
            let mut moved = values.clone();
            moved[steepest] = value;
            parameter.write(&moved)?;
            model.context().no_grad(|| loss_of(&model, &tokenizer))?.item()
        };
        let step = 0.01;
        let slope =
            (at(values[steepest] + step)? - at(values[steepest] - step)?) / (2.0 * step as f64);
        at(values[steepest])?;
        let given = f64::from(slopes[steepest]);
        assert!((slope - given).abs() < 0.05 * given.abs() + 0.02, "{name}: {slope} {given}");
    }
    Ok(())
}

// An encoder is trained through a layer of an own network, and the model translates differently afterwards.
#[test]
fn a_model_is_trained_through_its_hidden_states() -> Result<()> {
    let tokenizer = tokenizer(&corpus());
    let folder = TestFolder::new();
    let model = model(&tokenizer).open();
    let context = model.context().clone();
    let encoder: Vec<(String, Tensor)> =
        model.parameters()?.into_iter().filter(|(name, _)| name.starts_with("encoder.")).collect();
    assert!(!encoder.is_empty());
    let before = encoder[0].1.to_vec::<f32>()?;
    let (states, bounds) = model.hidden_states(&tokenizer, &SOURCES)?;
    let width = states.shape()[1];
    assert_eq!(bounds.to_vec::<i32>()?.last().copied(), Some(states.shape()[0] as i32));
    let weight = context.parameter(&vec![0f32; 3 * width], &[3, width])?;
    let classes = context.tensor(&[0, 1, 2], &[3])?;
    let mut trained: Vec<&Tensor> = encoder.iter().map(|(_, tensor)| tensor).collect();
    trained.push(&weight);
    let mut optimizer = AdamW::new(&context, &trained, &AdamWOptions::default())?;
    let mut losses = Vec::new();
    for _ in 0..30 {
        let (states, bounds) = model.hidden_states(&tokenizer, &SOURCES)?;
        let logits = states.segment_mean(&bounds)?.linear(&weight, None)?;
        let loss = logits.cross_entropy(&classes, &CrossEntropyOptions::new())?.0;
        losses.push(loss.item()?);
        loss.backward()?;
        optimizer.step(0.01)?;
    }
    assert!((losses[0] - 3f64.ln()).abs() < 1e-5 && losses[29] < 0.1, "{losses:?}");
    assert_ne!(encoder[0].1.to_vec::<f32>()?, before);
    model.save(folder.join("model.safetensors"))?;

    // While tensors live, it stays; then it leaves the thread with what it has learnt.
    let model = model.close().expect_err("tensors of it live");
    drop((optimizer, encoder, weight, classes, states, bounds, context));
    let model = model.close().expect("nothing of it lives");
    let loaded = Model::load(folder.join("model.safetensors"))?;
    let (a, b) = std::thread::spawn(move || {
        let options = TranslateOptions::new().beam(1).max_length(8);
        let of = |model: &Model| model.translate(&tokenizer, &SOURCES, &options);
        Ok::<_, trafo::Error>((of(&model)?, of(&loaded)?))
    })
    .join()
    .expect("the thread ends")?;
    assert_eq!(a, b);
    Ok(())
}

#[test]
fn open_models_refuse() -> Result<()> {
    let tokenizer = tokenizer(&corpus());
    let model = model(&tokenizer).open();
    let none: [&str; 0] = [];
    let refused = [
        model.hidden_states(&tokenizer, &none).unwrap_err(),
        model.hidden_states(&tokenizer, &["Hund ".repeat(200)]).unwrap_err(),
        model.logits(&tokenizer, &SOURCES, &TARGETS[..2]).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    }
    // Ops without recording leave no gradient.
    let states = model.context().no_grad(|| model.hidden_states(&tokenizer, &SOURCES))?.0;
    assert!(states.sum()?.backward().is_err());
    Ok(())
}
