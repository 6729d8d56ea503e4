//! Generation from a decoder-only model, token by token.

use std::fmt;
use std::path::Path;
use std::ptr;

use trafo_sys as sys;

use crate::cancel::CancelToken;
use crate::enums::FinishReason;
use crate::error::{Result, check};
use crate::handle::{RawGenerator, defaults, path_view, slice, view, view_to_string, views};
use crate::ids::{id_views, optional};
use crate::model::Model;
use crate::options::{from_i64, to_i64};
use crate::results::filled;
use crate::text::Tokenizer;
use crate::translation::TranslateOptions;

/// Settings of a generation.
#[must_use]
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct GenerationOptions {
    /// Of these, [`max_length`](TranslateOptions::max_length) (0: as far as the model has positions), `min_length`,
    /// `n_best` (samples of each prompt), the penalties, `no_repeat_ngram_size`, `word_scores`, `sampling`, `begin_source`,
    /// `end_source` and `cancel` are used. Without sampling each token is the most probable one. Default: those of
    /// translations.
    pub decoding: TranslateOptions,
    /// Texts that end a sequence, also where tokens divide them. The sequence's text ends before the one that is complete
    /// first. Default: none.
    pub stop: Vec<String>,
    /// Tokens that end a sequence, beside the model's own. Default: none.
    pub stop_tokens: Vec<i32>,
    /// Tokens that are never generated. Default: none.
    pub banned_tokens: Vec<i32>,
    /// Numbers that are added to the logits of tokens, each token once (OpenAI's `logit_bias`). Default: none.
    pub logit_bias: Vec<(i32, f64)>,
    /// A JSON Schema: only texts of JSON values that it allows are generated, and then an end. `true` allows every value.
    /// `docs/guide/generating.md` lists the keys that a schema may have. Default: none, any text.
    pub json_schema: Option<String>,
    /// How many of the most probable tokens of each step [`GenerationPiece::alternatives`] has (OpenAI's `top_logprobs`).
    /// Default 0.
    pub alternatives: usize,
    /// How many tokens the draft model ([`Generator::load_draft`]) proposes in a step, at most; 0 to 64. Default 0: none.
    pub draft_tokens: usize,
}

impl GenerationOptions {
    /// The most probable tokens, to an end of the text or of the model's positions.
    pub fn new() -> Self {
        Self::default()
    }
    /// Lengths, penalties and sampling.
    pub fn decoding(mut self, decoding: TranslateOptions) -> Self {
        self.decoding = decoding;
        self
    }
    /// Texts that end a sequence.
    pub fn stop<S: Into<String>>(mut self, stop: impl IntoIterator<Item = S>) -> Self {
        self.stop = stop.into_iter().map(Into::into).collect();
        self
    }
    /// Tokens that end a sequence.
    pub fn stop_tokens(mut self, tokens: &[i32]) -> Self {
        self.stop_tokens = tokens.to_vec();
        self
    }
    /// Tokens that are never generated.
    pub fn banned_tokens(mut self, tokens: &[i32]) -> Self {
        self.banned_tokens = tokens.to_vec();
        self
    }
    /// Tokens, and what is added to their logits.
    pub fn logit_bias(mut self, bias: &[(i32, f64)]) -> Self {
        self.logit_bias = bias.to_vec();
        self
    }
    /// A JSON Schema that texts follow.
    pub fn json_schema(mut self, schema: impl Into<String>) -> Self {
        self.json_schema = Some(schema.into());
        self
    }
    /// How many of the most probable tokens of each step the pieces have.
    pub fn alternatives(mut self, alternatives: usize) -> Self {
        self.alternatives = alternatives;
        self
    }
    /// How many tokens the draft model proposes in a step, at most.
    pub fn draft_tokens(mut self, draft_tokens: usize) -> Self {
        self.draft_tokens = draft_tokens;
        self
    }
    /// Calls with both structs of C, which are valid during the call.
    fn with_raw<T>(
        &self,
        call: impl FnOnce(
            *const sys::trafo_translate_options,
            *const sys::trafo_generation_options,
        ) -> T,
    ) -> T {
        let stop = views(&self.stop);
        let bias = |&(token, bias): &(i32, f64)| sys::trafo_token_bias { token, reserved: 0, bias };
        let logit_bias: Vec<_> = self.logit_bias.iter().map(bias).collect();
        let mut raw = defaults(sys::trafo_generation_options_init);
        (raw.stop, raw.stop_count) = (stop.as_ptr(), stop.len());
        (raw.stop_tokens, raw.stop_token_count) =
            (self.stop_tokens.as_ptr(), self.stop_tokens.len());
        (raw.banned_tokens, raw.banned_token_count) =
            (self.banned_tokens.as_ptr(), self.banned_tokens.len());
        (raw.logit_bias, raw.logit_bias_count) = (logit_bias.as_ptr(), logit_bias.len());
        if let Some(schema) = &self.json_schema {
            raw.json_schema = view(schema);
        }
        raw.alternatives = to_i64(self.alternatives);
        raw.draft_tokens = to_i64(self.draft_tokens);
        call(&self.decoding.to_raw(), &raw)
    }
}

/// The text and the numbers that a token adds to a sequence.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GenerationPiece {
    /// The number of the sequence.
    pub sequence: usize,
    /// Whole characters that no later token changes. It may be empty: a token can be a part of a character, or the text may
    /// become a stop string.
    pub text: String,
    /// The token, also the one that ends the sequence, which has no text. `None`: no token was allowed to follow.
    pub token: Option<i32>,
    /// Why the sequence ends, in its last piece.
    pub finish: Option<FinishReason>,
    /// With [`TranslateOptions::word_scores`]: the natural log-probability that the model gives to the token, before
    /// penalties, biases, bans and temperature.
    pub log_probability: Option<f64>,
    /// The most probable tokens in place of this one and their log-probabilities, the most probable first
    /// ([`GenerationOptions::alternatives`]).
    pub alternatives: Vec<(i32, f64)>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of them, those whose keys and values were taken from an earlier sequence.
    pub cached_tokens: usize,
    /// Tokens that were generated so far, the one that ends the sequence included.
    pub generated_tokens: usize,
    /// Tokens that the draft model has proposed so far.
    pub drafted_tokens: usize,
    /// Of them, those that were generated.
    pub accepted_tokens: usize,
}

/// Continues texts with a decoder-only model.
///
/// A generator keeps the keys and values of what it has read. A prompt that begins like a sequence that has ended, such as a
/// conversation with a further message, is not computed from its beginning again. It may outlive the model, move to another
/// thread, and be one of several of the same model, whose steps take turns.
///
/// ```
/// use trafo::{GenerationOptions, Generator, Model, ModelConfig, Sampling, Tokenizer, TranslateOptions};
/// # use trafo::{Architecture, TokenizerOptions};
///
/// # fn main() -> trafo::Result<()> {
/// # let text = ["eins zwei drei", "vier fünf sechs"];
/// # let tokenizer = Tokenizer::train(&text, &TokenizerOptions::new(60).soft_limit(true))?;
/// # let config = ModelConfig::preset("tiny", tokenizer.vocabulary())?.architecture(Architecture::DecoderLm);
/// # let mut model = Model::new(&config, 1)?;
/// model.prepare_inference()?;
/// let mut generator = Generator::new(&model, &tokenizer, 1)?;
/// let sampling = Sampling::new().temperature(0.7).top_p(0.9).seed(3);
/// let decoding = TranslateOptions::new().max_length(20).sampling(sampling);
/// let options = GenerationOptions::new().decoding(decoding).stop(["\n\n"]);
/// for piece in generator.generate(&["eins zwei"], &options)? {
///     print!("{}", piece?.text);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Generator {
    raw: RawGenerator,
}

// SAFETY: trafo.h: every handle may move between threads, and calls that use one context are serialised. The generator owns
// its handle, and C keeps what it uses of the model.
unsafe impl Send for Generator {}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generator").finish_non_exhaustive()
    }
}

impl Generator {
    /// A generator of a model after [`Model::prepare_inference`]. The KV cache of `kept_sequences` ended sequences stays, the
    /// newest ones.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorCode::Unsupported): the model has an encoder.
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument): it is not prepared, or was trained with another vocabulary.
    pub fn new(model: &Model, tokenizer: &Tokenizer, kept_sequences: usize) -> Result<Self> {
        Self::make(model, Some(tokenizer), kept_sequences)
    }
    /// The same without a tokenizer: prompts are ids, and pieces have no text. The special tokens are those that the model
    /// knows.
    pub fn for_ids(model: &Model, kept_sequences: usize) -> Result<Self> {
        Self::make(model, None, kept_sequences)
    }
    fn make(model: &Model, tokenizer: Option<&Tokenizer>, kept: usize) -> Result<Self> {
        // SAFETY: the handles are live.
        let raw = RawGenerator::make(|out| unsafe {
            sys::trafo_generator_new(model.as_ptr(), optional(tokenizer), to_i64(kept), out)
        })?;
        Ok(Generator { raw })
    }

    /// Loads a draft model, for speculative decoding: it proposes the tokens of sequences that are started with
    /// [`draft_tokens`](GenerationOptions::draft_tokens), and the generator's model reads those of a step in one pass. Tokens,
    /// texts and log-probabilities are the same as without it; on a GPU rounding may, in rare cases, change a token. `path` is
    /// a `model.safetensors`, or the directory of a run, of a smaller model of the same vocabulary. It computes in the
    /// precision of the generator's model, and replaces a draft model that was loaded.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorCode::Unsupported): it has an encoder.
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument): it was trained with another vocabulary.
    pub fn load_draft(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the handle is live and exclusive, the path is valid during the call.
        check(unsafe { sys::trafo_generator_load_draft(self.raw.as_ptr(), data, length) })
    }

    /// Adds sequences that continue the prompts, `n_best` of each, and returns the number of the first one; the others
    /// follow, prompt by prompt. Sequences that are in flight go on beside them. An empty prompt is the token in front of
    /// texts.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument): a prompt leaves no position of the model for a token, or an
    /// option is out of range. Nothing is added then.
    pub fn start<S: AsRef<str>>(
        &mut self,
        prompts: &[S],
        options: &GenerationOptions,
    ) -> Result<usize> {
        let (prompts, mut first) = (views(prompts), 0);
        // SAFETY: the handle is live and exclusive; views and options are valid during the call.
        check(options.with_raw(|decoding, more| unsafe {
            sys::trafo_generator_start(
                self.raw.as_ptr(),
                prompts.as_ptr(),
                prompts.len(),
                decoding,
                more,
                &mut first,
            )
        }))?;
        Ok(from_i64(first))
    }
    /// The same with token ids, such as [`Tokenizer::encode_chat`] gives. Nothing is added to a row, and none may be empty.
    pub fn start_ids<R: AsRef<[i32]>>(
        &mut self,
        prompts: &[R],
        options: &GenerationOptions,
    ) -> Result<usize> {
        let (prompts, mut first) = (id_views(prompts), 0);
        // SAFETY: as above.
        check(options.with_raw(|decoding, more| unsafe {
            sys::trafo_generator_start_ids(
                self.raw.as_ptr(),
                prompts.as_ptr(),
                prompts.len(),
                decoding,
                more,
                &mut first,
            )
        }))?;
        Ok(from_i64(first))
    }

    /// The next piece; `None` if no sequence is left. If each sequence has given its piece of a step, the next step computes
    /// a token of all sequences in flight, and the prompts of new ones.
    ///
    /// # Errors
    /// [`Cancelled`](crate::ErrorCode::Cancelled): the token was set before a step; the sequences stay as they are.
    /// [`NonFinite`](crate::ErrorCode::NonFinite): logits are NaN or infinite; all sequences have ended.
    pub fn next_piece(&mut self, cancel: Option<&CancelToken>) -> Result<Option<GenerationPiece>> {
        let handle = self.raw.as_ptr();
        // SAFETY: the handles are live, this one is exclusive; the output has the size that is told.
        let raw: sys::trafo_generation_piece = filled(|out, size| unsafe {
            sys::trafo_generator_next(handle, CancelToken::raw(cancel), out, size)
        })?;
        if raw.sequence < 0 {
            return Ok(None);
        }
        let (mut tokens, mut scores, mut count) = (ptr::null(), ptr::null(), 0);
        // SAFETY: the outputs are valid. The text and the arrays are borrowed until the next call on the generator, and copied
        // here.
        unsafe {
            check(sys::trafo_generator_get_alternatives(
                handle,
                &mut tokens,
                &mut scores,
                &mut count,
            ))?;
            let (tokens, scores) = (slice(tokens, count), slice(scores, count));
            Ok(Some(GenerationPiece {
                sequence: from_i64(raw.sequence),
                text: view_to_string(&raw.text),
                token: (raw.token >= 0).then_some(raw.token),
                finish: (raw.finished != 0).then(|| FinishReason::from_raw(raw.finish)),
                log_probability: (!raw.log_probability.is_nan()).then_some(raw.log_probability),
                alternatives: tokens.iter().copied().zip(scores.iter().copied()).collect(),
                prompt_tokens: from_i64(raw.prompt_tokens),
                cached_tokens: from_i64(raw.cached_tokens),
                generated_tokens: from_i64(raw.generated_tokens),
                drafted_tokens: from_i64(raw.drafted_tokens),
                accepted_tokens: from_i64(raw.accepted_tokens),
            }))
        }
    }

    /// Ends a sequence, which has no further pieces. A sequence that has ended is passed over.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument): there is no sequence of this number.
    pub fn end(&mut self, sequence: usize) -> Result<()> {
        // SAFETY: the handle is live and exclusive.
        check(unsafe { sys::trafo_generator_end(self.raw.as_ptr(), to_i64(sequence)) })
    }

    /// Starts sequences and iterates over their pieces. Sequences that do not finish end with the iterator.
    ///
    /// # Errors
    /// As [`start`](Self::start); the iterator gives those of [`next_piece`](Self::next_piece) and ends.
    pub fn generate<S: AsRef<str>>(
        &mut self,
        prompts: &[S],
        options: &GenerationOptions,
    ) -> Result<Pieces<'_>> {
        let first = self.start(prompts, options)?;
        Ok(Pieces::new(self, first, prompts.len(), options))
    }
    /// The same with token ids.
    pub fn generate_ids<R: AsRef<[i32]>>(
        &mut self,
        prompts: &[R],
        options: &GenerationOptions,
    ) -> Result<Pieces<'_>> {
        let first = self.start_ids(prompts, options)?;
        Ok(Pieces::new(self, first, prompts.len(), options))
    }
}

/// The pieces of the sequences of [`Generator::generate`], and of others that are in flight.
#[derive(Debug)]
pub struct Pieces<'a> {
    generator: &'a mut Generator,
    first: usize,
    count: usize,
    cancel: Option<CancelToken>,
    ended: bool,
}

impl<'a> Pieces<'a> {
    fn new(
        generator: &'a mut Generator,
        first: usize,
        prompts: usize,
        options: &GenerationOptions,
    ) -> Self {
        let count = prompts * options.decoding.n_best;
        let cancel = options.decoding.cancel.clone();
        Pieces { generator, first, count, cancel, ended: false }
    }
    /// The number of the first sequence that was started.
    #[must_use]
    pub fn first(&self) -> usize {
        self.first
    }
    /// The whole texts of the sequences that were started, prompt by prompt.
    ///
    /// # Errors
    /// Those of [`Generator::next_piece`].
    pub fn texts(mut self) -> Result<Vec<String>> {
        let (first, mut texts) = (self.first, vec![String::new(); self.count]);
        for piece in &mut self {
            let piece = piece?;
            let number = piece.sequence.checked_sub(first);
            if let Some(text) = number.and_then(|number| texts.get_mut(number)) {
                text.push_str(&piece.text);
            }
        }
        Ok(texts)
    }
}

impl Iterator for Pieces<'_> {
    type Item = Result<GenerationPiece>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let piece = self.generator.next_piece(self.cancel.as_ref()).transpose();
        self.ended = !matches!(piece, Some(Ok(_)));
        piece
    }
}

impl Drop for Pieces<'_> {
    fn drop(&mut self) {
        for sequence in self.first..self.first + self.count {
            // It cannot fail: the generator has given these numbers.
            drop(self.generator.end(sequence));
        }
    }
}
