//! Tokenizers, parallel corpora and metrics.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;

use trafo_sys as sys;

use crate::cancel::CancelToken;
use crate::embed::{FirstFailure, tell_pairs};
use crate::enums::Normalization;
use crate::error::{Error, ErrorCode, Result, check, infallible};
use crate::handle::{
    OutString, RawCorpus, RawTokenizer, check_abi, defaults, empty_view, path_view, slice, view,
    view_to_string, views,
};
use crate::options::{from_i64, to_i64};
use crate::results::{CorpusInfo, SpecialTokens, always_filled};

// The table in schema/structs.toml gives the options and most of their setters.
include!("generated/tokenizer_options.rs");

impl SpecialTokens {
    pub(crate) fn to_raw(self) -> sys::trafo_special_tokens {
        sys::trafo_special_tokens {
            unk: self.unk,
            bos: self.bos.unwrap_or(-1),
            eos: self.eos,
            pad: self.pad.unwrap_or(-1),
        }
    }
}

impl TokenizerOptions {
    /// A unigram model of `vocabulary` subwords that covers every character of the text.
    pub fn new(vocabulary: usize) -> Self {
        TokenizerOptions { vocabulary, ..Self::default() }
    }
    /// Texts without white space that are one token each, wherever they are, and not normalised.
    pub fn user_symbols<S: Into<String>>(mut self, symbols: impl IntoIterator<Item = S>) -> Self {
        self.user_symbols = symbols.into_iter().map(Into::into).collect();
        self
    }
}

/// The vocabulary file in the directory of a run or a model. `NotFound`: it has no vocabulary.
pub fn find_vocabulary(directory: impl AsRef<Path>) -> Result<PathBuf> {
    check_abi()?;
    let (data, length) = path_view(directory.as_ref());
    let mut found = OutString::new();
    // SAFETY: the path is valid during the call.
    check(unsafe { sys::trafo_find_vocabulary(data, length, &mut found.data) })?;
    Ok(found.to_c_text().into())
}

/// Turns text into token ids and back. Clones are the same tokenizer; threads may share it.
///
/// ```
/// use trafo::{Tokenizer, TokenizerOptions};
/// # fn main() -> trafo::Result<()> {
/// let lines = ["a small house", "a small tree", "the house", "the tall tree"];
/// let tokenizer = Tokenizer::train(&lines, &TokenizerOptions::new(40).soft_limit(true))?;
/// let ids = tokenizer.encode("the small house")?;
/// assert_eq!(tokenizer.decode(&ids)?, "the small house");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tokenizer(Arc<RawTokenizer>);

/// Equal if one is a clone of the other.
impl PartialEq for Tokenizer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

// SAFETY: trafo.h: a const handle may be used by several threads at once, and every call on a tokenizer but the last
// free takes a const handle.
unsafe impl Send for RawTokenizer {}
// SAFETY: see above.
unsafe impl Sync for RawTokenizer {}

impl Tokenizer {
    /// Id of the token for unknown text, in SentencePiece vocabularies that are trained here, as the ids below. Others may
    /// have others: see [`special`](Tokenizer::special).
    pub const UNK: i32 = sys::TRAFO_TOKEN_UNK;
    /// Id of the beginning of a sentence.
    pub const BOS: i32 = sys::TRAFO_TOKEN_BOS;
    /// Id of the end of a sentence.
    pub const EOS: i32 = sys::TRAFO_TOKEN_EOS;
    /// Id of padding.
    pub const PAD: i32 = sys::TRAFO_TOKEN_PAD;

    /// Trains on lines of text.
    pub fn train<S: AsRef<str>>(lines: &[S], options: &TokenizerOptions) -> Result<Self> {
        Self::train_until(lines, options, None)
    }
    /// The same, ended with the error [`Cancelled`](ErrorCode::Cancelled) when the token is set. SentencePiece cannot be
    /// stopped once it has read the lines: its training goes on unseen, and the next one, like the end of the process, waits
    /// for it.
    pub fn train_cancellable<S: AsRef<str>>(
        lines: &[S],
        options: &TokenizerOptions,
        token: &CancelToken,
    ) -> Result<Self> {
        Self::train_until(lines, options, Some(token))
    }
    fn train_until<S: AsRef<str>>(
        lines: &[S],
        options: &TokenizerOptions,
        token: Option<&CancelToken>,
    ) -> Result<Self> {
        check_abi()?;
        let (lines, symbols) = (views(lines), views(&options.user_symbols));
        let options = options.to_raw(&symbols);
        // SAFETY: the views are valid during the call.
        Self::make(|out| unsafe {
            let cancel = CancelToken::raw(token);
            sys::trafo_tokenizer_train(lines.as_ptr(), lines.len(), &options, cancel, out)
        })
    }
    /// Reads the file of a tokenizer, whose content tells its kind, or the one that [`find_vocabulary`] finds in a directory.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        check_abi()?;
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the path is valid during the call.
        Self::make(|out| unsafe { sys::trafo_tokenizer_load(data, length, out) })
    }
    /// Reads the bytes of such a file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        check_abi()?;
        // SAFETY: the bytes are valid during the call.
        Self::make(|out| unsafe {
            sys::trafo_tokenizer_load_buffer(bytes.as_ptr(), bytes.len(), out)
        })
    }
    pub(crate) fn make(
        call: impl FnOnce(*mut *mut sys::trafo_tokenizer) -> *mut sys::trafo_error,
    ) -> Result<Self> {
        Ok(Tokenizer(Arc::new(RawTokenizer::make(call)?)))
    }
    /// Writes the file of the tokenizer, whole or not at all. In a directory that is there, it gets the name that
    /// [`find_vocabulary`] looks for.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the path is valid during the call.
        check(unsafe { sys::trafo_tokenizer_save(self.as_ptr(), data, length) })
    }
    /// Its kind, by the names of [`TokenizerOptions::kind`].
    #[must_use]
    pub fn kind(&self) -> String {
        let mut kind = ptr::null();
        // SAFETY: the output is valid; the text is static.
        unsafe {
            infallible(sys::trafo_tokenizer_get_kind(self.as_ptr(), &mut kind, ptr::null_mut()));
            CStr::from_ptr(kind).to_string_lossy().into_owned()
        }
    }
    /// Number of tokens, of targets if sources have another vocabulary.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        let mut count = 0;
        // SAFETY: `count` is valid.
        infallible(unsafe { sys::trafo_tokenizer_get_vocabulary(self.as_ptr(), &mut count) });
        from_i64(count)
    }
    /// Number of tokens of the vocabulary of sources, or 0 if they have that of targets. Only the kind `marian` may have two
    /// vocabularies. Then [`Tokenizer::encode`] returns ids of sources, and every other method is about ids of targets.
    #[must_use]
    pub fn source_vocabulary(&self) -> usize {
        let mut count = 0;
        // SAFETY: `count` is valid.
        infallible(unsafe {
            sys::trafo_tokenizer_get_source_vocabulary(self.as_ptr(), &mut count)
        });
        from_i64(count)
    }
    /// Ids of the special tokens.
    #[must_use]
    pub fn special(&self) -> SpecialTokens {
        // SAFETY: the handle is live; the struct is valid.
        let ids =
            always_filled(|ids, _| unsafe { sys::trafo_tokenizer_get_special(self.as_ptr(), ids) });
        SpecialTokens::from_raw(&ids)
    }
    /// Ids of a text, without `<s>` and `</s>`.
    pub fn encode(&self, text: &str) -> Result<Vec<i32>> {
        self.encoded(text, sys::trafo_tokenizer_encode)
    }
    /// The same of a text on the target side. A vocabulary of the kind `marian` may have a second model for it. A tokenizer
    /// of two languages begins it with the target language, where [`encode`](Self::encode) begins with the source language.
    pub fn encode_target(&self, text: &str) -> Result<Vec<i32>> {
        self.encoded(text, sys::trafo_tokenizer_encode_target)
    }
    fn encoded(
        &self,
        text: &str,
        encode: unsafe extern "C" fn(
            *const sys::trafo_tokenizer,
            *const c_char,
            usize,
            *mut *mut i32,
            *mut usize,
        ) -> *mut sys::trafo_error,
    ) -> Result<Vec<i32>> {
        let text = view(text);
        let (mut ids, mut count) = (ptr::null_mut(), 0);
        // SAFETY: text and outputs are valid; the ids are ours to free.
        unsafe {
            check(encode(self.as_ptr(), text.data, text.length, &mut ids, &mut count))?;
            let result = slice(ids, count).to_vec();
            sys::trafo_ids_free(ids);
            Ok(result)
        }
    }
    /// The text of ids.
    pub fn decode(&self, ids: &[i32]) -> Result<String> {
        let mut text = OutString::new();
        // SAFETY: ids and outputs are valid.
        check(unsafe {
            sys::trafo_tokenizer_decode(
                self.as_ptr(),
                ids.as_ptr(),
                ids.len(),
                &mut text.data,
                &mut text.length,
            )
        })?;
        Ok(text.to_text())
    }
    /// The token of an id.
    pub fn token(&self, id: i32) -> Result<String> {
        let mut text = OutString::new();
        // SAFETY: the outputs are valid.
        check(unsafe {
            sys::trafo_tokenizer_get_token(self.as_ptr(), id, &mut text.data, &mut text.length)
        })?;
        Ok(text.to_text())
    }
    pub(crate) fn as_ptr(&self) -> *const sys::trafo_tokenizer {
        self.0.as_ptr()
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("vocabulary", &self.vocabulary()).finish()
    }
}

/// Pairs of sentences. Clones are the same corpus; threads may share it.
///
/// ```
/// use trafo::Corpus;
/// # fn main() -> trafo::Result<()> {
/// let corpus = Corpus::from_pairs([("ein Haus", "a house"), ("ein Baum", "a tree")])?;
/// assert_eq!(corpus.info().pairs, 2);
/// assert_eq!(corpus.pair(1)?, ("ein Baum".to_string(), "a tree".to_string()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Corpus {
    raw: Arc<RawCorpus>,
    /// Of the closures that its pairs come from, if any.
    pub(crate) sources: Vec<FirstFailure>,
}

// SAFETY: trafo.h: a const handle may be used by several threads at once, and every call on a corpus but the last free
// takes a const handle.
unsafe impl Send for RawCorpus {}
// SAFETY: see above.
unsafe impl Sync for RawCorpus {}

impl Corpus {
    /// Two files of equal line count, plain or gzip. Errors name file, line and reason.
    pub fn load(source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<Self> {
        Self::loaded(source.as_ref(), target.as_ref(), None)
    }
    /// The same, ended with `Cancelled` when the token is set.
    pub fn load_cancellable(
        source: impl AsRef<Path>,
        target: impl AsRef<Path>,
        token: &CancelToken,
    ) -> Result<Self> {
        Self::loaded(source.as_ref(), target.as_ref(), Some(token))
    }
    fn loaded(source: &Path, target: &Path, token: Option<&CancelToken>) -> Result<Self> {
        check_abi()?;
        let (source, source_length) = path_view(source);
        let (target, target_length) = path_view(target);
        let cancel = CancelToken::raw(token);
        // SAFETY: the paths and the token are valid during the call.
        Self::make(|out| unsafe {
            sys::trafo_corpus_load(source, source_length, target, target_length, cancel, out)
        })
    }
    /// One file of `source TAB target` lines, plain or gzip; `-` is standard input.
    pub fn load_tsv(path: impl AsRef<Path>) -> Result<Self> {
        Self::loaded_tsv(path.as_ref(), None)
    }
    /// The same, ended with `Cancelled` when the token is set.
    pub fn load_tsv_cancellable(path: impl AsRef<Path>, token: &CancelToken) -> Result<Self> {
        Self::loaded_tsv(path.as_ref(), Some(token))
    }
    fn loaded_tsv(path: &Path, token: Option<&CancelToken>) -> Result<Self> {
        check_abi()?;
        let (data, length) = path_view(path);
        let cancel = CancelToken::raw(token);
        // SAFETY: the path and the token are valid during the call.
        Self::make(|out| unsafe { sys::trafo_corpus_load_tsv(data, length, cancel, out) })
    }
    /// Pairs in memory, checked like files.
    pub fn from_pairs<S, T>(pairs: impl IntoIterator<Item = (S, T)>) -> Result<Self>
    where
        S: AsRef<str>,
        T: AsRef<str>,
    {
        check_abi()?;
        let (sources, targets): (Vec<S>, Vec<T>) = pairs.into_iter().unzip();
        let (sources, targets) = (views(&sources), views(&targets));
        // SAFETY: the views are valid during the call: what `views` borrowed is shadowed, not dropped.
        Self::make(|out| unsafe {
            sys::trafo_corpus_new(sources.as_ptr(), targets.as_ptr(), sources.len(), out)
        })
    }
    /// Preference pairs in memory, for [`Objective::Dpo`](crate::Objective::Dpo), `Orpo` and `Kto`: a prompt, its chosen
    /// and its rejected answer. Checked like files.
    ///
    /// ```
    /// # fn main() -> trafo::Result<()> {
    /// let pairs = trafo::Corpus::from_preferences([("2 + 2 =", "4", "5")])?;
    /// assert_eq!(pairs.rejected(0)?, "5");
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_preferences<P, C, R>(pairs: impl IntoIterator<Item = (P, C, R)>) -> Result<Self>
    where
        P: AsRef<str>,
        C: AsRef<str>,
        R: AsRef<str>,
    {
        check_abi()?;
        let (mut prompts, mut chosen, mut rejected) = (Vec::new(), Vec::new(), Vec::new());
        for (prompt, better, worse) in pairs {
            prompts.push(prompt);
            chosen.push(better);
            rejected.push(worse);
        }
        let (prompts, chosen, rejected) = (views(&prompts), views(&chosen), views(&rejected));
        // SAFETY: the views are valid during the call: what `views` borrowed is shadowed, not dropped.
        Self::make(|out| unsafe {
            sys::trafo_corpus_new_preferences(
                prompts.as_ptr(),
                chosen.as_ptr(),
                rejected.as_ptr(),
                prompts.len(),
                out,
            )
        })
    }
    /// Labelled answers in memory, for [`Objective::Kto`](crate::Objective::Kto): a prompt, an answer, and whether that is
    /// desirable. In the corpus they are preference pairs with one answer: the other one is empty. Checked like files.
    ///
    /// ```
    /// # fn main() -> trafo::Result<()> {
    /// let answers = trafo::Corpus::from_labelled_answers([("2 + 2 =", "4", true), ("2 + 2 =", "5", false)])?;
    /// assert_eq!(answers.rejected(1)?, "5");
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_labelled_answers<P, A>(
        answers: impl IntoIterator<Item = (P, A, bool)>,
    ) -> Result<Self>
    where
        P: AsRef<str>,
        A: AsRef<str>,
    {
        check_abi()?;
        let (mut prompts, mut texts, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        for (prompt, text, desirable) in answers {
            prompts.push(prompt);
            texts.push(text);
            labels.push(i32::from(desirable));
        }
        let (prompts, texts) = (views(&prompts), views(&texts));
        // SAFETY: the views are valid during the call: what `views` borrowed is shadowed, not dropped.
        Self::make(|out| unsafe {
            sys::trafo_corpus_new_labelled(
                prompts.as_ptr(),
                texts.as_ptr(),
                labels.as_ptr(),
                prompts.len(),
                out,
            )
        })
    }
    pub(crate) fn make(
        call: impl FnOnce(*mut *mut sys::trafo_corpus) -> *mut sys::trafo_error,
    ) -> Result<Self> {
        Ok(Corpus { raw: Arc::new(RawCorpus::make(call)?), sources: Vec::new() })
    }
    pub(crate) fn with_sources(mut self, sources: Vec<FirstFailure>) -> Self {
        self.sources = sources;
        self
    }
    /// Counts of the text that was read.
    #[must_use]
    pub fn info(&self) -> CorpusInfo {
        // SAFETY: the handle is live; the struct is valid.
        let info =
            always_filled(|info, _| unsafe { sys::trafo_corpus_get_info(self.as_ptr(), info) });
        CorpusInfo::from_raw(&info)
    }
    /// Source and target of a pair. `InvalidArgument`: the corpus has token ids and no text.
    pub fn pair(&self, index: usize) -> Result<(String, String)> {
        let (mut source, mut target) = (empty_view(), empty_view());
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        // SAFETY: the outputs are valid; the views are borrowed from the corpus, which is alive.
        unsafe {
            let result =
                check(sys::trafo_corpus_get_pair(self.as_ptr(), index, &mut source, &mut target));
            tell_pairs(&self.sources, result)?;
            Ok((view_to_string(&source), view_to_string(&target)))
        }
    }
    /// The rejected answer of a preference pair, whose prompt and chosen answer [`Corpus::pair`] gives.
    /// `InvalidArgument`: the corpus has no preference pairs.
    pub fn rejected(&self, index: usize) -> Result<String> {
        let mut rejected = empty_view();
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        // SAFETY: the output is valid; the view is borrowed from the corpus, which is alive.
        unsafe {
            check(sys::trafo_corpus_get_rejected(self.as_ptr(), index, &mut rejected))?;
            Ok(view_to_string(&rejected))
        }
    }
    /// The line of a pair in its file, counted from 0, through all files one after the other where the corpus is a mix.
    /// Lines with an empty side are no pairs. Of held-out pairs and of pairs from a function it is the index.
    pub fn line(&self, index: usize) -> Result<usize> {
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        let mut line = 0;
        // SAFETY: the handle is live, the output is valid.
        check(unsafe { sys::trafo_corpus_get_line(self.as_ptr(), index, &mut line) })?;
        Ok(line as usize)
    }
    /// Trains one tokenizer on both sides together.
    pub fn train_tokenizer(&self, options: &TokenizerOptions) -> Result<Tokenizer> {
        self.train_tokenizer_until(options, None)
    }
    /// The same, ended as [`Tokenizer::train_cancellable`] is.
    pub fn train_tokenizer_cancellable(
        &self,
        options: &TokenizerOptions,
        token: &CancelToken,
    ) -> Result<Tokenizer> {
        self.train_tokenizer_until(options, Some(token))
    }
    fn train_tokenizer_until(
        &self,
        options: &TokenizerOptions,
        token: Option<&CancelToken>,
    ) -> Result<Tokenizer> {
        let symbols = views(&options.user_symbols);
        let options = options.to_raw(&symbols);
        // SAFETY: options are valid during the call.
        let result = Tokenizer::make(|out| unsafe {
            let cancel = CancelToken::raw(token);
            sys::trafo_corpus_train_tokenizer(self.as_ptr(), &options, cancel, out)
        });
        tell_pairs(&self.sources, result)
    }
    pub(crate) fn as_ptr(&self) -> *const sys::trafo_corpus {
        self.raw.as_ptr()
    }
}

impl fmt::Debug for Corpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Corpus").field("info", &self.info()).finish()
    }
}

/// A metric of a whole corpus.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MetricScore {
    /// 0 to 100.
    pub score: f64,
    /// How it was computed, in sacreBLEU's notation.
    pub signature: String,
}

/// Corpus BLEU as sacreBLEU computes it by default: 13a tokenisation, exponential smoothing.
///
/// ```
/// # fn main() -> trafo::Result<()> {
/// let bleu = trafo::bleu(&["the cat sat on the mat"], &["the cat sat on the mat"], false)?;
/// assert_eq!(bleu.score.round(), 100.0);
/// # Ok(())
/// # }
/// ```
pub fn bleu<H: AsRef<str>, R: AsRef<str>>(
    hypotheses: &[H],
    references: &[R],
    lowercase: bool,
) -> Result<MetricScore> {
    expect_equal("trafo::bleu", "hypotheses", hypotheses.len(), "references", references.len())?;
    check_abi()?;
    let (h, r) = (views(hypotheses), views(references));
    metric(|score, signature| unsafe {
        // SAFETY: the views are valid during the call.
        sys::trafo_bleu(h.as_ptr(), r.as_ptr(), h.len(), lowercase.into(), score, signature)
    })
}

/// Corpus chrF2 as sacreBLEU computes it by default.
pub fn chrf<H: AsRef<str>, R: AsRef<str>>(
    hypotheses: &[H],
    references: &[R],
) -> Result<MetricScore> {
    expect_equal("trafo::chrf", "hypotheses", hypotheses.len(), "references", references.len())?;
    check_abi()?;
    let (h, r) = (views(hypotheses), views(references));
    metric(|score, signature| unsafe {
        // SAFETY: the views are valid during the call.
        sys::trafo_chrf(h.as_ptr(), r.as_ptr(), h.len(), score, signature)
    })
}

fn metric(
    call: impl FnOnce(*mut f64, *mut *mut std::ffi::c_char) -> *mut sys::trafo_error,
) -> Result<MetricScore> {
    let mut score = 0.0;
    let mut signature = OutString::new();
    check(call(&mut score, &mut signature.data))?;
    Ok(MetricScore { score, signature: signature.to_c_text() })
}

pub(crate) fn expect_equal(
    origin: &str,
    left_name: &str,
    left: usize,
    right_name: &str,
    right: usize,
) -> Result<()> {
    if left == right {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::InvalidArgument,
        origin,
        format!("there must be as many {left_name} as {right_name}, got {left} and {right}"),
    ))
}
