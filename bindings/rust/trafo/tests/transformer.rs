//! A transformer from ops alone has the gradients of the built-in model with the same weights.

mod common;

use std::collections::HashMap;

use common::{corpus, pairs, tokenizer};
use trafo::{
    AttentionOptions, Context, ContextOptions, CrossEntropyOptions, DType, EmbeddingOptions, Model,
    ModelConfig, Result, Schedule, Tensor, Tokenizer, Trainer, TrainerOptions,
};

/// An encoder-decoder with weights that have the names of the built-in model's. Rows of tokens lie one after another,
/// without padding.
struct OwnTransformer {
    context: Context,
    config: ModelConfig,
    weights: HashMap<String, Tensor>,
}

/// The rows between two blocks: the residual stream, and what the next block reads.
struct Rows {
    hidden: Tensor,
    input: Tensor,
}

/// One side of a batch.
#[derive(Default)]
struct Side {
    ids: Vec<i32>,
    positions: Vec<i32>,
    ends: Vec<i32>,
}

impl Side {
    fn push(&mut self, ids: &[i32]) {
        if self.ends.is_empty() {
            self.ends.push(0);
        }
        self.ids.extend_from_slice(ids);
        self.positions.extend(0..ids.len() as i32);
        self.ends.push(self.ids.len() as i32);
    }
    fn tensors(&self, context: &Context) -> Result<SideTensors> {
        let column = |values: &[i32]| context.tensor(values, &[values.len()]);
        Ok(SideTensors {
            ids: column(&self.ids)?,
            positions: column(&self.positions)?,
            ends: column(&self.ends)?,
        })
    }
}

struct SideTensors {
    ids: Tensor,
    positions: Tensor,
    ends: Tensor,
}

impl OwnTransformer {
    fn weight(&self, name: &str) -> &Tensor {
        &self.weights[name]
    }
    fn linear(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let bias = self.weight(&format!("{name}.bias"));
        x.linear(self.weight(&format!("{name}.weight")), Some(bias))
    }
    fn norm(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let (gamma, beta) = (format!("{name}.weight"), format!("{name}.bias"));
        x.layer_norm(self.weight(&gamma), self.weight(&beta), self.config.norm_epsilon)
    }
    fn start(&self, side: &SideTensors, first: &str) -> Result<Rows> {
        let width = self.config.width;
        let table =
            self.context.sinusoidal_positions(self.config.max_positions, width, DType::F32)?;
        let options =
            EmbeddingOptions::new().scale((width as f64).sqrt()).positions(&side.positions, &table);
        let x = self.weight("embedding.weight").embedding(&side.ids, &options)?;
        let input = if self.config.pre_norm { self.norm(&x, first)? } else { x.clone() };
        Ok(Rows { hidden: x, input })
    }
    /// Ends a block: the residual, and the norm of the block that follows (pre-norm) or of this one.
    fn add_norm(&self, output: &Tensor, rows: &Rows, following: &str, own: &str) -> Result<Rows> {
        let sum = rows.hidden.add(output)?;
        if self.config.pre_norm {
            let input = self.norm(&sum, following)?;
            return Ok(Rows { hidden: sum, input });
        }
        let normed = self.norm(&sum, own)?;
        Ok(Rows { hidden: normed.clone(), input: normed })
    }
    fn self_attention(
        &self,
        x: &Tensor,
        side: &SideTensors,
        causal: bool,
        name: &str,
    ) -> Result<Tensor> {
        let width = self.config.width;
        let qkv = self.linear(x, &format!("{name}.qkv"))?;
        let options = self.heads().columns(0, width, 2 * width).causal(causal);
        let mixed = qkv.attention(&qkv, &qkv, &side.ends, &side.ends, &options)?;
        self.linear(&mixed, &format!("{name}.output"))
    }
    fn heads(&self) -> AttentionOptions<'_> {
        let heads = self.config.heads;
        AttentionOptions::new(heads, self.config.width / heads)
    }
    fn feed_forward(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let up = self.linear(x, &format!("{name}.up"))?;
        self.linear(&up.activation(self.config.activation)?, &format!("{name}.down"))
    }

    /// The mean for each label.
    fn loss(
        &self,
        source: &SideTensors,
        target: &SideTensors,
        labels: &Tensor,
        smoothing: f64,
    ) -> Result<Tensor> {
        let following = |side: &str, i: usize, layers: usize| {
            if i + 1 == layers {
                format!("{side}.norm")
            } else {
                format!("{side}.{}.attention_norm", i + 1)
            }
        };
        let mut rows = self.start(source, "encoder.0.attention_norm")?;
        let layers = self.config.encoder_layers;
        for i in 0..layers {
            let name = |part: &str| format!("encoder.{i}.{part}");
            let x = self.self_attention(&rows.input, source, false, &name("attention"))?;
            rows = self.add_norm(&x, &rows, &name("ffn_norm"), &name("attention_norm"))?;
            let x = self.feed_forward(&rows.input, &name("ffn"))?;
            rows = self.add_norm(&x, &rows, &following("encoder", i, layers), &name("ffn_norm"))?;
        }
        // Keys and values of every layer's cross-attention come from one GEMM.
        let kv = self.linear(&rows.input, "decoder.cross_kv")?;
        rows = self.start(target, "decoder.0.attention_norm")?;
        let (layers, width) = (self.config.decoder_layers, self.config.width);
        for i in 0..layers {
            let name = |part: &str| format!("decoder.{i}.{part}");
            let x = self.self_attention(&rows.input, target, true, &name("attention"))?;
            rows = self.add_norm(&x, &rows, &name("cross_norm"), &name("attention_norm"))?;
            let query = self.linear(&rows.input, &name("cross.query"))?;
            let options = self.heads().columns(0, 2 * i * width, (2 * i + 1) * width);
            let mixed = query.attention(&kv, &kv, &target.ends, &source.ends, &options)?;
            let x = self.linear(&mixed, &name("cross.output"))?;
            rows = self.add_norm(&x, &rows, &name("ffn_norm"), &name("cross_norm"))?;
            let x = self.feed_forward(&rows.input, &name("ffn"))?;
            rows = self.add_norm(&x, &rows, &following("decoder", i, layers), &name("ffn_norm"))?;
        }
        let bias = self.weight("output.bias");
        let logits = rows.input.linear(self.weight("embedding.weight"), Some(bias))?;
        let options = CrossEntropyOptions::new().label_smoothing(smoothing);
        Ok(logits.cross_entropy(labels, &options)?.0)
    }
}

/// Source, target and labels of every pair.
fn batch(tokenizer: &Tokenizer) -> Result<(Side, Side, Vec<i32>)> {
    let (mut source, mut target, mut labels) = (Side::default(), Side::default(), Vec::new());
    for (german, english) in pairs() {
        source.push(&[tokenizer.encode(&german)?, vec![Tokenizer::EOS]].concat());
        let ids = tokenizer.encode(&english)?;
        target.push(&[vec![Tokenizer::BOS], ids.clone()].concat());
        labels.extend([ids, vec![Tokenizer::EOS]].concat());
    }
    Ok((source, target, labels))
}

fn compare(pre_norm: bool) -> Result<()> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let config = ModelConfig::new(tokenizer.vocabulary())
        .encoder_layers(2)
        .decoder_layers(2)
        .width(32)
        .ffn_width(64)
        .heads(2)
        .max_positions(64)
        .pre_norm(pre_norm)
        .tied_embeddings(true)
        .dropout(0.0)
        .attention_dropout(0.0)
        .ffn_dropout(0.0);
    let model = Model::new_on(&ContextOptions::new().threads(2), &config, 5)?;
    let context = Context::new()?;
    let mut weights = HashMap::new();
    let mut before = Vec::new();
    for parameter in model.parameters()? {
        let values = parameter.to_vec::<f32>()?;
        let mine = context.parameter(&values, parameter.shape())?;
        weights.insert(parameter.name().to_string(), mine);
        before.push(values);
    }

    // A step of AdamW tells the model's gradients: from moments of zero it changes a weight by
    // rate * g / (|g| + epsilon).
    const EPSILON: f64 = 0.5;
    const SMOOTHING: f64 = 0.1;
    let options = TrainerOptions::new()
        .learning_rate(1000.0)
        .warmup(0)
        .schedule(Schedule::Constant)
        .epsilon(EPSILON)
        .clip_norm(0.0)
        .label_smoothing(SMOOTHING)
        .max_length(60)
        .batch_tokens(100_000); // all in one batch
    let mut trainer = Trainer::builder(model, &tokenizer, &corpus).options(options).build()?;
    let step = trainer.step()?;

    let (source, target, labels) = batch(&tokenizer)?;
    assert_eq!(step.labels, labels.len() as i64);
    let own = OwnTransformer { context: context.clone(), config, weights };
    let loss = own.loss(
        &source.tensors(&context)?,
        &target.tensors(&context)?,
        &context.tensor(&labels, &[labels.len()])?,
        SMOOTHING,
    )?;
    assert!((loss.item()? - step.loss).abs() < 1e-5 * step.loss, "{} {}", loss.item()?, step.loss);
    loss.backward()?;

    let (mut squares, mut worst) = (0.0, 0.0f64);
    for (parameter, before) in trainer.model().parameters()?.iter().zip(&before) {
        let after = parameter.to_vec::<f32>()?;
        let mine = own.weight(parameter.name()).grad()?.unwrap().to_vec::<f32>()?;
        let (mut largest, mut difference) = (0.0f64, 0.0f64);
        for ((&g, &before), &after) in mine.iter().zip(before).zip(&after) {
            let d = (f64::from(before) - f64::from(after)) / step.learning_rate;
            let theirs = d * EPSILON / (1.0 - d.abs());
            largest = largest.max(theirs.abs());
            difference = difference.max((f64::from(g) - theirs).abs());
            squares += f64::from(g) * f64::from(g);
        }
        // float32: sums of a few hundred terms, in another order.
        let name = parameter.name();
        assert!(difference <= 1e-5 * largest + 1e-9, "{name}: off by {difference} of {largest}");
        if largest > 0.0 {
            worst = worst.max(difference / largest);
        }
    }
    let norm = f64::sqrt(squares);
    assert!((norm - step.grad_norm).abs() < 1e-5 * norm, "{norm} {}", step.grad_norm);
    println!("pre-norm {pre_norm}: off by at most {worst:.1e} of a tensor's largest gradient");
    Ok(())
}

#[test]
fn an_own_transformer_has_the_gradients_of_the_model() -> Result<()> {
    compare(true)?;
    compare(false)
}
