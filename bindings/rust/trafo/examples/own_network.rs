//! A network of one's own, from tensors and ops: one attention block that reads a sequence of digits and learns to write
//! it backwards, position by position, which no layer can do that does not look around.
//!
//!     cargo run --release --example own_network [DEVICE]
//!
//! DEVICE: auto (the default: CUDA where there is one), cpu, cuda or cuda:N.

use trafo::{
    Activation, AdamW, AdamWOptions, AttentionOptions, Context, ContextOptions,
    CrossEntropyOptions, DType, Device, Dropout, EmbeddingOptions, Result, Tensor,
};

const DIGITS: usize = 10;
const LENGTH: usize = 8;
const BATCH: usize = 32;
const WIDTH: usize = 48;
const HEADS: usize = 4;
const STEPS: u32 = 200;

/// A small generator of random numbers, so that every run is the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }
    /// Uniform in `-scale .. scale`.
    fn weights(&mut self, count: usize, scale: f32) -> Vec<f32> {
        (0..count).map(|_| (self.next() as f32 / (1u64 << 30) as f32 - 1.0) * scale).collect()
    }
}

struct Network {
    digits: Tensor,
    positions: Tensor,
    qkv: Tensor,
    attention_out: Tensor,
    attention_bias: Tensor,
    gamma: Tensor,
    beta: Tensor,
    up: Tensor,
    up_bias: Tensor,
    down: Tensor,
    out_bias: Tensor,
}

impl Network {
    fn new(context: &Context, random: &mut Random) -> Result<Self> {
        let mut matrix = |rows: usize, columns: usize| {
            let scale = (6.0 / (rows + columns) as f32).sqrt();
            context.parameter(&random.weights(rows * columns, scale), &[rows, columns])
        };
        let vector = |value: f32, size: usize| context.parameter(&vec![value; size], &[size]);
        Ok(Network {
            digits: matrix(DIGITS, WIDTH)?,
            positions: matrix(LENGTH, WIDTH)?,
            qkv: matrix(3 * WIDTH, WIDTH)?,
            attention_out: matrix(WIDTH, WIDTH)?,
            attention_bias: vector(0.0, WIDTH)?,
            gamma: vector(1.0, WIDTH)?,
            beta: vector(0.0, WIDTH)?,
            up: matrix(2 * WIDTH, WIDTH)?,
            up_bias: vector(0.0, 2 * WIDTH)?,
            down: matrix(WIDTH, 2 * WIDTH)?,
            out_bias: vector(0.0, DIGITS)?,
        })
    }

    fn parameters(&self) -> [&Tensor; 11] {
        [
            &self.digits,
            &self.positions,
            &self.qkv,
            &self.attention_out,
            &self.attention_bias,
            &self.gamma,
            &self.beta,
            &self.up,
            &self.up_bias,
            &self.down,
            &self.out_bias,
        ]
    }

    /// Logits `[tokens, DIGITS]` of sequences that lie one after another.
    fn forward(&self, input: &Input, dropout: Option<Dropout>) -> Result<Tensor> {
        let places = EmbeddingOptions::new().positions(&input.positions, &self.positions);
        let x = self.digits.embedding(&input.digits, &places)?;
        let qkv = x.linear(&self.qkv, None)?;
        let heads = AttentionOptions::new(HEADS, WIDTH / HEADS).columns(0, WIDTH, 2 * WIDTH);
        let attended = qkv
            .attention(&qkv, &qkv, &input.sequences, &input.sequences, &heads)?
            .linear(&self.attention_out, None)?;
        // The ops after a sublayer, in one pass: bias, dropout, residual and layer norm.
        let (x, normed) = attended.bias_dropout_residual_norm(
            Some(&self.attention_bias),
            &x,
            &self.gamma,
            &self.beta,
            1e-5,
            dropout,
        )?;
        let h = normed.linear(&self.up, None)?.bias_act_dropout(
            Some(&self.up_bias),
            Activation::Gelu,
            dropout.map(|d| d.at(d.step, 1)),
        )?;
        let x = x.add(&h.linear(&self.down, None)?)?;
        x.linear(&self.digits, Some(&self.out_bias)) // the table of digits serves as output layer, too
    }
}

struct Input {
    digits: Tensor,
    positions: Tensor,
    /// Where each sequence begins and ends.
    sequences: Tensor,
    labels: Tensor,
}

fn make_input(context: &Context, random: &mut Random) -> Result<Input> {
    let digits: Vec<i32> =
        (0..BATCH * LENGTH).map(|_| (random.next() % DIGITS as u64) as i32).collect();
    let labels: Vec<i32> = digits.chunks(LENGTH).flat_map(|s| s.iter().rev().copied()).collect();
    let positions: Vec<i32> = (0..BATCH * LENGTH).map(|i| (i % LENGTH) as i32).collect();
    let sequences: Vec<i32> = (0..=BATCH).map(|i| (i * LENGTH) as i32).collect();
    let tokens = BATCH * LENGTH;
    Ok(Input {
        digits: context.tensor(&digits, &[tokens])?,
        positions: context.tensor(&positions, &[tokens])?,
        sequences: context.tensor(&sequences, &[BATCH + 1])?,
        labels: context.tensor(&labels, &[tokens])?,
    })
}

/// Share of the digits of a new batch that are right.
pub fn run(device: Device) -> Result<f64> {
    let context = Context::with_options(&ContextOptions::new().device(device))?;
    println!("computing on {}", context.device());
    let mut random = Random(1);
    let network = Network::new(&context, &mut random)?;
    let options = AdamWOptions::new().beta2(0.999).clip_norm(1.0);
    let mut optimizer = AdamW::new(&context, &network.parameters(), &options)?;

    for step in 1..=STEPS {
        let input = make_input(&context, &mut random)?;
        let logits = network.forward(&input, Some(Dropout::new(0.05, 1).at(step, 0)))?;
        let (loss, _) = logits.cross_entropy(&input.labels, &CrossEntropyOptions::new())?;
        loss.backward()?;
        let norm = optimizer.step(3e-3 * f64::from(STEPS - step + 1) / f64::from(STEPS))?;
        if step % 25 == 0 || step == 1 {
            println!("step {step:3}  loss {:.4}  gradient norm {norm:.2}", loss.item()?);
        }
    }

    let input = make_input(&context, &mut random)?;
    let logits = context.no_grad(|| network.forward(&input, None))?;
    assert_eq!(logits.dtype(), DType::F32);
    let logits = logits.to_vec::<f32>()?;
    let digits = input.digits.to_vec::<i32>()?;
    let labels = input.labels.to_vec::<i32>()?;
    let written: Vec<i32> = logits
        .chunks(DIGITS)
        .map(|row| (0..DIGITS).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0) as i32)
        .collect();
    for sequence in 0..3 {
        let range = sequence * LENGTH..(sequence + 1) * LENGTH;
        println!("{:?}  ->  {:?}", &digits[range.clone()], &written[range]);
    }
    let right = written.iter().zip(&labels).filter(|(a, b)| a == b).count();
    println!("{right} of {} digits of a new batch are right", labels.len());
    Ok(right as f64 / labels.len() as f64)
}

fn main() -> Result<()> {
    run(std::env::args().nth(1).as_deref().unwrap_or("auto").parse()?).map(|_| ())
}
