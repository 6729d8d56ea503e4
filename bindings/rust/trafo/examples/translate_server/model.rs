//! The model of a run directory as the service wants it.

use std::error::Error;
use std::path::{Path, PathBuf};

use trafo::{ContextOptions, DType, Device, Model, Tokenizer, TranslateOptions};

use crate::batcher::Translator;

/// The best checkpoint by BLEU, else the latest, as `translate-train` takes it.
fn checkpoint(run: &Path) -> Option<PathBuf> {
    ["best-bleu", "latest"].iter().find_map(|pointer| {
        let update = std::fs::read_to_string(run.join(pointer)).ok()?;
        Some(run.join("ckpt").join(update.trim()).join("model.safetensors"))
    })
}

pub fn open(run: &Path, device: Device) -> Result<Translator, Box<dyn Error>> {
    let path = checkpoint(run).ok_or_else(|| format!("{} has no checkpoint", run.display()))?;
    let tokenizer = Tokenizer::load(run.join("vocab.spm"))?;
    let gpu = device != Device::Cpu && Device::cuda_devices().is_ok();
    let precision = if gpu { DType::BF16 } else { DType::F32 };
    let mut model = Model::load_as(&ContextOptions::new().device(device), path, precision)?;
    model.prepare_inference()?;
    Ok(Box::new(move |lines, how, cancel| {
        let options = TranslateOptions::new().beam(how.beam).n_best(how.n_best).cancel(cancel);
        let (found, truncated) = model.translate_counted(&tokenizer, lines, &options)?;
        Ok((found.into_iter().map(|line| line.hypotheses).collect(), truncated))
    }))
}
