//! The model of a run directory as the service wants it.

use std::error::Error;
use std::path::Path;

use trafo::{ContextOptions, DType, Device, Hypothesis, Model, Tokenizer, TranslateOptions};

use crate::serving::batcher;

/// Settings that lines must share to be translated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Search {
    pub beam: usize,
    pub n_best: usize,
}

/// Gives the hypotheses of every line.
pub type Translator = batcher::Translator<Search, Vec<Hypothesis>>;

pub fn open(run: &Path, device: Device) -> Result<Translator, Box<dyn Error>> {
    let path = trafo::find_model(run)?;
    let tokenizer = Tokenizer::load(run)?;
    let gpu = device != Device::Cpu && Device::cuda_devices().is_ok();
    let precision = if gpu { DType::BF16 } else { DType::F32 };
    let mut model = Model::load_as(&ContextOptions::new().device(device), path, precision)?;
    model.prepare_inference()?;
    Ok(Box::new(move |lines, how: Search, cancel| {
        let options = TranslateOptions::new().beam(how.beam).n_best(how.n_best).cancel(cancel);
        let (found, truncated) = model.translate_counted(&tokenizer, lines, &options)?;
        Ok((found.into_iter().map(|line| line.hypotheses).collect(), truncated))
    }))
}
