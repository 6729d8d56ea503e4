//! The base model: its directory, and how a small one is trained from the demo corpus.
//!
//! A directory of a base has a model and a vocabulary as a run directory or `translate-train import` leaves them, and two
//! sets of sentence pairs, one sentence a line: `replay.source` and `replay.target` are learned again in every round,
//! `regression.source` and `regression.target` are never learned and show what a version has forgotten.

use std::fs;
use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use trafo::{
    ContextOptions, Corpus, Device, EventKind, Model, ModelConfig, Period, Schedule, Tokenizer,
    TokenizerOptions, Trainer, TrainerOptions, find_model, find_vocabulary,
};

use crate::fault::{Fault, Result, io};
use crate::frame::Frame;
use crate::hash;
use crate::versions::Pair;

/// Most pairs of the regression set that are measured.
const MOST_REGRESSION: usize = 400;
/// File of a base with the names of two languages.
const LANGUAGES: &str = "languages";

/// How a model computes.
#[derive(Clone, Copy, Debug)]
pub struct Engine {
    pub device: Device,
    /// 0 is one for each core.
    pub threads: usize,
    /// Share of the time while models with share 1 compute.
    pub share: f64,
}

impl Engine {
    pub fn options(self) -> ContextOptions {
        ContextOptions::new().device(self.device).threads(self.threads).background_share(self.share)
    }
}

pub struct Base {
    model: PathBuf,
    pub frame: Frame,
    pub replay: Vec<Pair>,
    pub regression: Vec<Pair>,
    /// Of model, vocabulary, both sets, and the chat template and the languages if there are any.
    pub hash: String,
}

impl Base {
    pub fn open(folder: &Path) -> Result<Self> {
        let model = find_model(folder)?;
        let vocabulary = find_vocabulary(folder)?;
        let sets = ["replay.source", "replay.target", "regression.source", "regression.target"];
        let sets = sets.map(|name| folder.join(name));
        let mut tokenizer = Tokenizer::load(&vocabulary)?;
        let languages = read_languages(&folder.join(LANGUAGES))?;
        if let Some([source, target]) = &languages {
            tokenizer = tokenizer.with_languages(source, target)?;
        }
        let frame = Frame::of_file(tokenizer, &model)?;
        let replay = read_pairs(&sets[0], &sets[1])?;
        let mut regression = read_pairs(&sets[2], &sets[3])?;
        regression.truncate(MOST_REGRESSION);
        let files: Vec<_> = [model.clone(), vocabulary].into_iter().chain(sets).collect();
        let mut hash = hash::of_files(&files)?;
        if let Some(template) = &frame.template {
            hash = hash::hex(hash::of_texts(&[&hash, template]));
        }
        if let Some([source, target]) = &languages {
            hash = hash::hex(hash::of_texts(&[&hash, source, target]));
        }
        Ok(Base { hash, model, frame, replay, regression })
    }

    /// A model to add an adapter to.
    pub fn load(&self, engine: Engine) -> Result<Model> {
        Ok(Model::load_on(&engine.options(), &self.model)?)
    }

    /// A model to translate with, and to make others of by [`Model::with_adapter`].
    pub fn load_to_serve(&self, engine: Engine) -> Result<Model> {
        let mut model = self.load(engine)?;
        model.prepare_inference()?;
        Ok(model)
    }
}

/// The languages of a multilingual base such as NLLB-200: two names with a space between; none without the file.
fn read_languages(path: &Path) -> Result<Option<[String; 2]>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(io(path))?,
    };
    let names: Vec<_> = text.split_whitespace().map(String::from).collect();
    let found = names.len();
    names.try_into().map(Some).map_err(|_| {
        Fault::Invalid(format!(
            "{}: it has {found} names, it must have two, of the source's and the target's language",
            path.display()
        ))
    })
}

fn read_lines(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).map_err(|error| {
        Fault::Invalid(format!(
            "{}: {error}; a base has replay.source, replay.target, regression.source and regression.target",
            path.display()
        ))
    })?;
    Ok(text.lines().map(String::from).collect())
}

/// Pairs of two files of equal line count without empty lines.
pub fn read_pairs(source: &Path, target: &Path) -> Result<Vec<Pair>> {
    let (sources, targets) = (read_lines(source)?, read_lines(target)?);
    if sources.len() != targets.len() || sources.is_empty() {
        return Err(Fault::Invalid(format!(
            "{} has {} lines and {} has {}: they must be as many, and at least one",
            source.display(),
            sources.len(),
            target.display(),
            targets.len()
        )));
    }
    for (path, lines) in [(source, &sources), (target, &targets)] {
        if let Some(index) = lines.iter().position(|line| line.trim().is_empty()) {
            return Err(Fault::Invalid(format!(
                "{}:{}: the line is empty",
                path.display(),
                index + 1
            )));
        }
    }
    Ok(sources.into_iter().zip(targets).collect())
}

/// How a base is trained.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Computes the training.
    pub device: Device,
    pub vocabulary: usize,
    pub layers: usize,
    pub width: usize,
    pub learning_rate: f64,
    pub warmup: usize,
    pub updates: usize,
    pub batch_tokens: usize,
    /// Pairs of the training text that become the replay set.
    pub replay: usize,
}

impl Recipe {
    /// The settings of scripts/demo.sh.
    pub fn demo() -> Self {
        Recipe {
            device: Device::Cpu,
            vocabulary: 1000,
            layers: 2,
            width: 128,
            learning_rate: 3e-3,
            warmup: 150,
            updates: 1200,
            batch_tokens: 1024,
            replay: 12000,
        }
    }
}

/// Trains a base into `folder`, which is there as a whole or not at all. An interrupted call is resumed by the next one.
/// `progress` gets the update.
pub fn train(
    folder: &Path,
    pairs: &[Pair],
    regression: &[Pair],
    recipe: &Recipe,
    mut progress: impl FnMut(i64),
) -> Result<()> {
    let work = folder.with_extension("training");
    let made = work.join("made");
    fs::create_dir_all(&made).map_err(io(&made))?;
    let corpus = Corpus::from_pairs(pairs.iter().cloned())?;
    let tokenizer =
        corpus.train_tokenizer(&TokenizerOptions::new(recipe.vocabulary).soft_limit(true))?;
    let config = ModelConfig::preset("tiny", tokenizer.vocabulary())?
        .encoder_layers(recipe.layers)
        .decoder_layers(recipe.layers)
        .width(recipe.width)
        .ffn_width(2 * recipe.width)
        .heads(4)
        .dropout(0.05);
    let options = TrainerOptions::new()
        .learning_rate(recipe.learning_rate)
        .schedule(Schedule::Linear)
        .schedule_updates(recipe.updates)
        .warmup(recipe.warmup)
        .batch_tokens(recipe.batch_tokens)
        .after_updates(recipe.updates)
        .save_freq(Period::Updates(200))
        .keep_last(1);
    let context = ContextOptions::new().device(recipe.device);
    let model = Model::new_on(&context, &config, 1)?;
    let mut trainer = Trainer::builder(model, &tokenizer, &corpus)
        .options(options)
        .run_directory(work.join("run"))
        .build()?;
    trainer.run(|event| {
        if event.kind == EventKind::Log {
            progress(event.update);
        }
        ControlFlow::Continue(())
    })?;
    trainer.into_model().save(made.join("model.safetensors"))?;
    tokenizer.save(&made)?;
    write_pairs(&made, "replay", &pairs[..recipe.replay.min(pairs.len())])?;
    write_pairs(&made, "regression", regression)?;
    sync(&made)?;
    fs::rename(&made, folder).map_err(io(folder))?;
    sync(folder.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new(".")))?;
    fs::remove_dir_all(&work).map_err(io(&work))
}

/// Has the names of a directory's files on disk.
fn sync(directory: &Path) -> Result<()> {
    fs::File::open(directory).and_then(|file| file.sync_all()).map_err(io(directory))
}

fn write_pairs(folder: &Path, name: &str, pairs: &[Pair]) -> Result<()> {
    let (sources, targets): (Vec<_>, Vec<_>) = pairs.iter().cloned().unzip();
    for (side, lines) in [("source", sources), ("target", targets)] {
        let path = folder.join(format!("{name}.{side}"));
        let written = fs::File::create(&path).and_then(|mut file| {
            file.write_all((lines.join("\n") + "\n").as_bytes())?;
            file.sync_all()
        });
        written.map_err(io(&path))?;
    }
    Ok(())
}

/// The pairs of the demo corpus: those to train on, and 500 that are not among them.
pub fn demo_corpus(folder: &Path) -> Result<(Vec<Pair>, Vec<Pair>)> {
    fs::create_dir_all(folder).map_err(io(folder))?;
    let program = Path::new(env!("DEMO_CORPUS"));
    let status = Command::new(program).arg(folder).status().map_err(io(program))?;
    if !status.success() {
        return Err(Fault::Internal(format!("{} ended with {status}", program.display())));
    }
    let file = |name: &str| folder.join(name);
    let train = read_pairs(&file("train.de"), &file("train.en"))?;
    Ok((train, read_pairs(&file("test.de"), &file("test.en"))?))
}

/// Trains the demo's base into `folder`.
pub fn train_demo(folder: &Path, device: Device, progress: impl FnMut(i64)) -> Result<()> {
    let (pairs, test) = demo_corpus(&folder.with_extension("training").join("corpus"))?;
    let regression = &test[..MOST_REGRESSION.min(test.len())];
    let recipe = Recipe { device, ..Recipe::demo() };
    train(folder, &pairs, regression, &recipe, progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_two_names_or_none() {
        let folder = std::env::temp_dir().join(format!("languages-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(LANGUAGES);
        assert_eq!(read_languages(&path).unwrap(), None);
        fs::write(&path, "deu_Latn eng_Latn\n").unwrap();
        assert_eq!(read_languages(&path).unwrap().unwrap(), ["deu_Latn", "eng_Latn"]);
        fs::write(&path, "deu_Latn").unwrap();
        let refused = read_languages(&path).unwrap_err().to_string();
        assert!(refused.contains("it has 1 names"), "{refused}");
        fs::remove_dir_all(folder).unwrap();
    }
}
