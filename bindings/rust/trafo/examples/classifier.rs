//! Sorts texts into classes: one linear layer on the encoder of a trained translation model.
//!
//!     cargo run --release --example classifier RUN TRAIN.tsv TEST.tsv
//!
//! RUN: a run directory of translate-train. A line of a file: a text, a tab, its class (0, 1, ..).

use std::path::Path;

use trafo::*;

/// A text and its class.
pub type Labelled = (String, i32);

/// Learns from `train`; the share of `test` that is sorted as it should be.
pub fn run(run: &Path, train: &[Labelled], test: &[Labelled]) -> Result<f64> {
    let tokenizer = Tokenizer::load(run)?;
    let model = Model::load_run(run, RunModel::Best)?.open();
    let context = model.context();
    // A vector for each text, the mean of its encoder states, and its class. The encoder stays as it is.
    let vectors = |texts: &[Labelled]| -> Result<(Tensor, Tensor)> {
        let (lines, classes): (Vec<_>, Vec<_>) =
            texts.iter().map(|(t, c)| (t.as_str(), *c)).unzip();
        let (states, bounds) = model.hidden_states(&tokenizer, &lines)?;
        let means = states.segment_mean(&bounds)?.detach()?;
        Ok((means, context.tensor(&classes, &[classes.len()])?))
    };
    let (x, classes) = vectors(train)?;
    let count = 1 + train.iter().map(|(_, class)| *class as usize).max().unwrap_or(0);
    let width = x.shape()[1];
    let weight = context.parameter(&vec![0f32; count * width], &[count, width])?;
    let bias = context.parameter(&vec![0f32; count], &[count])?;
    let mut optimizer = AdamW::new(context, &[&weight, &bias], &AdamWOptions::default())?;
    for _ in 0..300 {
        let logits = x.linear(&weight, Some(&bias))?;
        logits.cross_entropy(&classes, &CrossEntropyOptions::new())?.0.backward()?;
        optimizer.step(0.05)?;
    }
    let (x, classes) = vectors(test)?;
    let found = x.linear(&weight, Some(&bias))?.argmax(1, false)?;
    let right = found.compare(&classes, Comparison::Equal)?.to_vec::<i32>()?;
    Ok(right.iter().sum::<i32>() as f64 / right.len() as f64)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, train, test] = &arguments[..] else {
        panic!("classifier RUN TRAIN.tsv TEST.tsv")
    };
    let read = |file: &str| -> Vec<Labelled> {
        let text = std::fs::read_to_string(file).expect("the file can be read");
        let parts =
            text.lines().map(|line| line.rsplit_once('\t').expect("a text, a tab, a class"));
        parts.map(|(text, class)| (text.to_owned(), class.parse().expect("a class"))).collect()
    };
    println!("{:.1} % right", 100.0 * run(Path::new(directory), &read(train), &read(test))?);
    Ok(())
}
