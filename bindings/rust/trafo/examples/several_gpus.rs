//! Trains a translation model on several GPUs, a thread for each.
//!
//!     cargo run --release --example several_gpus RUN SOURCE.de TARGET.en [DEVICE ...]
//!
//! RUN: where the run goes. DEVICE: cuda:0, cuda:1 or cpu, one for each rank; without any, all GPUs of this host. The
//! same run may go on with another number of devices: its files have the same bits.

use std::ops::ControlFlow;
use std::path::Path;

use trafo::{
    ContextOptions, Corpus, Device, EventKind, Group, GroupId, Model, ModelConfig, Result,
    TokenizerOptions, Trainer, TrainerOptions,
};

/// Trains with one rank on each device. Rank 0 writes the run directory.
pub fn run(
    devices: &[Device],
    corpus: &Corpus,
    config: &ModelConfig,
    options: &TrainerOptions,
    directory: &Path,
) -> Result<()> {
    let tokenizer = corpus.train_tokenizer(&TokenizerOptions::new(8000).soft_limit(true))?;
    let config = &config.clone().vocabulary(tokenizer.vocabulary());
    // GPUs of one process copy from each other. NCCL is for several processes.
    let id = GroupId::local()?;
    let rank = &|number: usize| {
        // A model and its trainer stay on the thread that made them.
        let context = ContextOptions::new().device(devices[number]);
        let model = Model::new_on(&context, config, 1)?;
        let group = Group::join(&model, &id, number as i32, devices.len() as i32)?;
        let mut trainer = Trainer::builder(model, &tokenizer, corpus)
            .options(options.clone())
            .run_directory(directory)
            .group(&group)
            .build()?;
        trainer.run(|event| {
            if number == 0 && event.kind == EventKind::Log {
                println!("update {}, loss {:.3}", event.update, event.loss);
            }
            ControlFlow::Continue(())
        })
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..devices.len()).map(|i| scope.spawn(move || rank(i))).collect();
        ranks.into_iter().try_for_each(|rank| rank.join().expect("no rank panics").map(drop))
    })?;
    tokenizer.save(directory)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, source, target, named @ ..] = &arguments[..] else {
        panic!("several_gpus RUN SOURCE.de TARGET.en [DEVICE ...]")
    };
    let mut devices = named.iter().map(|name| name.parse()).collect::<Result<Vec<Device>>>()?;
    if devices.is_empty() {
        devices = (0..Device::cuda_devices()?.len()).map(|i| Device::Cuda(i as i32)).collect();
    }
    let corpus = Corpus::load(source, target)?;
    // As many parts of an update as GPUs of the first start; later starts may have fewer.
    let options = TrainerOptions::new().lanes(devices.len()).after_updates(1000);
    run(&devices, &corpus, &ModelConfig::preset("small", 8000)?, &options, Path::new(directory))
}
