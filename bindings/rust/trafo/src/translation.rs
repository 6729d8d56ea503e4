use std::fmt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use trafo_sys as sys;

use crate::cancel::CancelToken;
use crate::enums::FinishReason;
use crate::error::{Error, ErrorCode, Result, check};
use crate::handle::{
    RawShortlist, RawTranslations, defaults, empty_view, path_view, view_to_string, views,
};
use crate::options::{from_flag, from_i64, options, same, to_count, to_i64};
use crate::text::{Tokenizer, expect_equal};
use crate::trainer_options::FrameToken;

macro_rules! translate_options {
    ($($fields:tt)*) => {
        options! {
            /// Settings of [`Model::translate`](crate::Model::translate).
            TranslateOptions = trafo_translate_options, trafo_translate_options_init {
                /// Draws every token instead of searching. Default: none.
                pub sampling: Option<Sampling> =
                    |raw| from_flag(raw.sampling).then(|| Sampling::from_raw(raw));
                /// Ends the work when it is set. Default: none.
                #[cfg_attr(feature = "serde", serde(skip))]
                pub cancel: Option<CancelToken> = |_| None;
                /// Few tokens that are chosen among. Default: the whole vocabulary.
                #[cfg_attr(feature = "serde", serde(skip))]
                pub shortlist: Option<Shortlist> = |_| None;
            }
            $($fields)*
        }
    };
}

macro_rules! sampling {
    ($($fields:tt)*) => {
        options! {
            /// How [`TranslateOptions::sampling`] draws. The drawn tokens depend only on the model's probabilities, the
            /// seed, and the numbers of the line, the sample and the token.
            Sampling = trafo_translate_options, trafo_translate_options_init {}
            $($fields)*
        }
    };
}

// The table in schema/decoding.toml gives the fields.
include!("generated/translation.rs");

impl TranslateOptions {
    /// Beam 5, one translation a line.
    pub fn new() -> Self {
        Self::default()
    }
    /// Draws every token instead of searching; [`n_best`](Self::n_best) is how many translations are drawn of a line.
    /// The drawn tokens depend only on the seed, the number of the line and the place in it.
    pub fn sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = Some(sampling);
        self
    }
    /// Chooses among few tokens: the first of the vocabulary and the best translations of every source subword, each up to
    /// 100 by default.
    pub fn shortlist(mut self, shortlist: &Shortlist) -> Self {
        self.shortlist = Some(shortlist.clone());
        self
    }
    /// Ends the work with the error [`Cancelled`](crate::ErrorCode::Cancelled) when the token is set.
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }
    /// Valid as long as the options.
    pub(crate) fn to_raw(&self) -> sys::trafo_translate_options {
        let mut raw = defaults(sys::trafo_translate_options_init);
        self.write(&mut raw);
        if let Some(sampling) = &self.sampling {
            raw.sampling = 1;
            sampling.write(&mut raw);
        }
        if let Some(shortlist) = &self.shortlist {
            raw.shortlist = shortlist.0.as_ptr();
        }
        raw
    }
}

impl Sampling {
    /// Draws from the whole distribution, with seed 1.
    pub fn new() -> Self {
        Self::default()
    }
}

/// Which subwords may translate which; with one, translation computes only the few rows of the output layer that its lines
/// need. Clones share it.
#[derive(Clone)]
pub struct Shortlist(Arc<RawShortlist>);

// SAFETY: trafo.h: a const handle may be used by several threads at once, and every call on a shortlist but the last free
// takes a const handle.
unsafe impl Send for RawShortlist {}
// SAFETY: see above.
unsafe impl Sync for RawShortlist {}
/// Equal if one is a clone of the other.
impl PartialEq for Shortlist {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Shortlist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shortlist")
    }
}

impl Shortlist {
    /// Learns from pairs of lines with IBM model 1; `best` translations of each subword are kept.
    pub fn learn<S: AsRef<str>, T: AsRef<str>>(
        tokenizer: &Tokenizer,
        source: &[S],
        target: &[T],
        best: usize,
    ) -> Result<Self> {
        Self::learn_until(tokenizer, source, target, best, None)
    }
    /// The same, ended with the error [`Cancelled`](ErrorCode::Cancelled) when the token is set.
    pub fn learn_cancellable<S: AsRef<str>, T: AsRef<str>>(
        tokenizer: &Tokenizer,
        source: &[S],
        target: &[T],
        best: usize,
        token: &CancelToken,
    ) -> Result<Self> {
        Self::learn_until(tokenizer, source, target, best, Some(token))
    }
    fn learn_until<S: AsRef<str>, T: AsRef<str>>(
        tokenizer: &Tokenizer,
        source: &[S],
        target: &[T],
        best: usize,
        cancel: Option<&CancelToken>,
    ) -> Result<Self> {
        expect_equal("Shortlist::learn", "sources", source.len(), "targets", target.len())?;
        let (s, t) = (views(source), views(target));
        let (handle, count, best) = (tokenizer.as_ptr(), s.len(), to_i64(best));
        let cancel = CancelToken::raw(cancel);
        // SAFETY: the handle is live, the views are valid during the call.
        Ok(Shortlist(Arc::new(RawShortlist::make(|out| unsafe {
            sys::trafo_shortlist_learn(handle, s.as_ptr(), t.as_ptr(), count, best, cancel, out)
        })?)))
    }
    /// Reads lines `TARGET SOURCE PROBABILITY`, subwords of the tokenizer, as Marian's lex.s2t.
    pub fn load(tokenizer: &Tokenizer, path: impl AsRef<Path>) -> Result<Self> {
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the handle is live, the path is valid during the call.
        Ok(Shortlist(Arc::new(RawShortlist::make(|out| unsafe {
            sys::trafo_shortlist_load(tokenizer.as_ptr(), data, length, out)
        })?)))
    }
    /// Writes such a file, whole or not at all.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the handle is live, the path is valid during the call.
        check(unsafe { sys::trafo_shortlist_save(self.0.as_ptr(), data, length) })
    }
}

/// One text that the model proposes.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Hypothesis {
    /// The text.
    pub text: String,
    /// Log-probability, normalised by length.
    pub score: f64,
    /// Why it ends.
    pub finish: FinishReason,
    /// Its tokens, ids of the vocabulary without `</s>`.
    pub tokens: Vec<i32>,
    /// With [`TranslateOptions::word_scores`]: the natural log-probability of each token, then of `</s>`. They sum to the
    /// log-probability. A hypothesis that was cut off at its longest length has none of `</s>`.
    pub word_scores: Vec<f64>,
    /// With [`TranslateOptions::alignment`]: none for an empty line.
    pub alignment: Option<Alignment>,
}

/// How much each token of a hypothesis attends to each source token.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Alignment {
    weights: Vec<f32>,
    source_tokens: usize,
}

impl Alignment {
    pub(crate) fn new(weights: &[f32], source_tokens: usize) -> Option<Self> {
        (source_tokens > 0).then(|| Alignment { weights: weights.to_vec(), source_tokens })
    }
    /// For each token that has a word score, its weights over the source tokens that were translated, `</s>` included. They
    /// sum to 1.
    #[must_use]
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.weights.chunks_exact(self.source_tokens)
    }
    /// The source token of the largest weight, for each row.
    #[must_use]
    pub fn hard(&self) -> Vec<usize> {
        let best = |row: &[f32]| {
            (1..row.len()).fold(0, |best, s| if row[s] > row[best] { s } else { best })
        };
        self.rows().map(best).collect()
    }
}

/// Result of one line.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Translation {
    /// The best first; never empty.
    pub hypotheses: Vec<Hypothesis>,
    /// Tokens of the source line, `</s>` included.
    pub source_tokens: usize,
    /// How many of them were translated: fewer where it was cut.
    pub used_tokens: usize,
}

impl Translation {
    /// The best hypothesis' text.
    #[must_use]
    pub fn text(&self) -> &str {
        self.hypotheses.first().map_or("", |h| &h.text)
    }
    /// The best hypothesis' score.
    #[must_use]
    pub fn score(&self) -> f64 {
        self.hypotheses.first().map_or(0.0, |h| h.score)
    }
}

impl fmt::Display for Translation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

pub(crate) fn read_lines(translations: &RawTranslations, lines: usize) -> Result<Vec<Translation>> {
    (0..lines).map(|i| read_line(translations, i)).collect()
}

/// A borrowed array of C; NULL is empty.
///
/// # Safety
/// `data` has `count` elements that stay valid while the result is used, or `count` is 0.
unsafe fn lent<'a, T>(data: *const T, count: usize) -> &'a [T] {
    // SAFETY: promised by the caller.
    if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, count) } }
}

fn read_hypothesis(
    translations: &RawTranslations,
    index: usize,
    rank: usize,
) -> Result<Hypothesis> {
    let handle = translations.as_ptr();
    let (mut text, mut score) = (empty_view(), 0.0);
    let (mut ids, mut id_count) = (ptr::null(), 0);
    let (mut scores, mut score_count) = (ptr::null(), 0);
    let (mut weights, mut targets, mut sources) = (ptr::null(), 0, 0);
    // SAFETY: the handle is live, the outputs are valid; views and arrays are borrowed from the handle and copied here.
    unsafe {
        check(sys::trafo_translations_get(handle, index, rank, &mut text, &mut score))?;
        check(sys::trafo_translations_get_tokens(handle, index, rank, &mut ids, &mut id_count))?;
        check(sys::trafo_translations_get_word_scores(
            handle,
            index,
            rank,
            &mut scores,
            &mut score_count,
        ))?;
        check(sys::trafo_translations_get_alignment(
            handle,
            index,
            rank,
            &mut weights,
            &mut targets,
            &mut sources,
        ))?;
        let mut finish = 0;
        check(sys::trafo_translations_get_finish(handle, index, rank, &mut finish))?;
        Ok(Hypothesis {
            text: view_to_string(&text),
            finish: FinishReason::from_raw(finish),
            score,
            tokens: lent(ids, id_count).to_vec(),
            word_scores: lent(scores, score_count).to_vec(),
            alignment: Alignment::new(lent(weights, targets * sources), sources),
        })
    }
}

fn read_line(translations: &RawTranslations, index: usize) -> Result<Translation> {
    let mut count = 0;
    // SAFETY: the handle is live, the output is valid.
    check(unsafe { sys::trafo_translations_get_count(translations.as_ptr(), index, &mut count) })?;
    let mut hypotheses = Vec::with_capacity(count);
    for rank in 0..count {
        hypotheses.push(read_hypothesis(translations, index, rank)?);
    }
    if hypotheses.is_empty() {
        return Err(Error::new(
            ErrorCode::Internal,
            "Model::translate",
            format!("line {} has no hypothesis", index + 1),
        ));
    }
    let (mut tokens, mut used) = (0, 0);
    // SAFETY: the handle is live, the outputs are valid.
    check(unsafe {
        sys::trafo_translations_get_source(translations.as_ptr(), index, &mut tokens, &mut used)
    })?;
    let (source_tokens, used_tokens) = (from_i64(tokens), from_i64(used));
    Ok(Translation { hypotheses, source_tokens, used_tokens })
}
