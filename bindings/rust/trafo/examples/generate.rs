//! Answers a question with an imported chat model, and prints the answer as it comes.
//!
//!     cargo run --release --example generate MODEL QUESTION
//!
//! MODEL: a directory that `translate-train import` has written.

use std::io::Write;
use std::path::Path;

use trafo::{GenerationOptions, Generator, Model, Result, Sampling, Tokenizer, TranslateOptions};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, question] = &arguments[..] else { panic!("generate MODEL QUESTION") };
    let mut model = Model::load(Path::new(directory).join("model.safetensors"))?;
    let tokenizer = Tokenizer::load(directory)?;
    model.prepare_inference()?;
    let mut generator = Generator::new(&model, &tokenizer, 1)?;
    let sampling = Sampling::new().temperature(0.7).top_p(0.9);
    let options = GenerationOptions::new()
        .decoding(TranslateOptions::new().max_length(200).sampling(sampling))
        .stop(["\n\n"]);
    let prompt = tokenizer.encode_chat(&[("user", question)], true)?;
    for piece in generator.generate_ids(&[prompt.ids], &options)? {
        print!("{}", piece?.text);
        std::io::stdout().flush().expect("standard output is open");
    }
    println!();
    Ok(())
}
