//! Trains an imported model on pairs of sentences. Meanwhile the best model so far translates the lines of standard input.
//!
//!     cargo run --release --example serve_while_training opus-mt-de-en customer.de customer.en
//!
//! The first argument is a directory of a MarianMT model. A second start resumes the run in the directory `run`.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use trafo::{
    ContextOptions, Corpus, EventKind, Model, Period, RunModel, Tokenizer, Trainer, TrainerOptions,
    TranslateOptions,
};

fn serve(current: &Mutex<Arc<Model>>, tokenizer: &Tokenizer) {
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let model = current.lock().unwrap().clone();
        match model.translate(tokenizer, &[line], &TranslateOptions::new()) {
            Ok(translations) => println!("{}", translations[0]),
            Err(error) => eprintln!("{error}"),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, source, target] = &arguments[..] else {
        panic!("serve_while_training DIRECTORY SOURCE TARGET")
    };
    let imported = Model::import(&ContextOptions::new(), directory)?;
    let tokenizer = imported.tokenizer.ok_or("the directory has no tokenizer")?;
    imported.model.save("start.safetensors")?;
    let current = Mutex::new(Arc::new(Model::load("start.safetensors")?)); // a second context
    let (train, valid) = Corpus::load(source, target)?.hold_out(200)?; // 200 pairs
    let every = Period::Updates(250);
    let options = TrainerOptions::new().learning_rate(2e-5).warmup(100).after_updates(2000);
    let mut trainer = Trainer::builder(imported.model, &tokenizer, &train)
        .valid(&valid)
        .options(options.valid_freq(every).save_freq(every))
        .run_directory("run")
        .build()?;
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&current, &tokenizer));
        trainer.run(|event| {
            if matches!(event.kind, EventKind::Saved { .. }) {
                match Model::load_run("run", RunModel::Best) {
                    Ok(model) => *current.lock().unwrap() = Arc::new(model),
                    Err(error) => eprintln!("{error}"),
                }
            }
            ControlFlow::Continue(())
        })
    })?;
    Ok(())
}
