//! How sentence pairs are read by the base: as a source and its target, or, by a decoder-only model with a chat template, as a
//! message of the user and the answer of the assistant.

use std::path::Path;

use trafo::{
    Architecture, Corpus, ErrorCode, FrameToken, Model, ModelConfig, Tokenizer, TranslateOptions,
    Translation,
};

use crate::fault::{Fault, Result};
use crate::versions::Pair;

/// Longest sequence that is learned, in tokens: the default of a trainer.
const LONGEST: usize = 256;

#[derive(Clone)]
pub struct Frame {
    pub tokenizer: Tokenizer,
    /// The template of conversations; none if pairs are not conversations.
    pub template: Option<String>,
    positions: usize,
}

impl Frame {
    /// Of a model with this configuration.
    pub fn new(tokenizer: Tokenizer, config: &ModelConfig) -> Result<Self> {
        let template = match tokenizer.chat_template() {
            _ if config.architecture != Architecture::DecoderLm => None,
            Err(error) if error.code() == ErrorCode::NotFound => None,
            template => Some(template?),
        };
        Ok(Frame { tokenizer, template, positions: config.max_positions })
    }

    pub fn of_file(tokenizer: Tokenizer, model: &Path) -> Result<Self> {
        Self::new(tokenizer, &ModelConfig::read(model)?)
    }

    /// Most tokens of a pair that is learned. Longer pairs are dropped.
    pub fn longest(&self) -> usize {
        LONGEST.min(self.positions)
    }

    pub fn corpus(&self, pairs: &[Pair]) -> Result<Corpus> {
        if self.template.is_none() {
            return Ok(Corpus::from_pairs(pairs.iter().cloned())?);
        }
        let turns = pairs.iter().map(|pair| self.turn(pair)).collect::<Result<Vec<_>>>()?;
        Ok(Corpus::from_ids(turns)?)
    }

    /// The tokens that an answer begins after, and those of the answer with its end.
    fn turn(&self, (message, answer): &Pair) -> Result<(Vec<i32>, Vec<i32>)> {
        let prompt = self.prompt(message)?;
        let turn = [("user", message), ("assistant", answer)];
        let whole = self.tokenizer.encode_chat(&turn, false)?;
        let end = whole.answers.iter().rposition(|&learned| learned).map_or(0, |last| last + 1);
        match whole.ids[..end].strip_prefix(&prompt[..]) {
            Some(answer) if !answer.is_empty() => Ok((prompt, answer.to_vec())),
            _ => Err(Fault::Invalid(format!(
                "by the chat template, the answer to {message:?} does not follow the prompt of an answer"
            ))),
        }
    }

    fn prompt(&self, message: &str) -> Result<Vec<i32>, trafo::Error> {
        Ok(self.tokenizer.encode_chat(&[("user", message)], true)?.ids)
    }

    /// The translations of lines, or the answers to them, and how many lines were cut.
    pub fn translate<S: AsRef<str>>(
        &self,
        model: &Model,
        lines: &[S],
        options: &TranslateOptions,
    ) -> Result<(Vec<Translation>, usize), trafo::Error> {
        if self.template.is_none() {
            return model.translate_counted(&self.tokenizer, lines, options);
        }
        let prompts = lines.iter().map(|line| self.prompt(line.as_ref()));
        let prompts = prompts.collect::<Result<Vec<_>, trafo::Error>>()?;
        let options = options.clone().end_source(FrameToken::Off);
        let found = model.translate_ids(Some(&self.tokenizer), &prompts, &options)?;
        let cut = found.iter().filter(|line| line.used_tokens < line.source_tokens).count();
        Ok((found, cut))
    }
}
