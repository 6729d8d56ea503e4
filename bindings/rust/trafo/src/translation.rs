use std::fmt;
use std::path::Path;
use std::sync::Arc;

use trafo_sys as sys;

use crate::cancel::CancelToken;
use crate::context::to_i64;
use crate::enums::FinishReason;
use crate::error::{Result, check};
use crate::handle::{RawShortlist, defaults, path_view, views};
use crate::text::{Tokenizer, expect_equal};

/// Settings of [`Model::translate`](crate::Model::translate).
#[must_use]
#[derive(Clone, Debug)]
pub struct TranslateOptions {
    pub(crate) raw: sys::trafo_translate_options,
    pub(crate) cancel: Option<CancelToken>,
    shortlist: Option<Shortlist>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $to:expr;)*) => {
        impl TranslateOptions {
            $(
                $(#[$doc])*
                pub fn $name(mut self, $name: $type) -> Self {
                    let to: fn($type) -> _ = $to;
                    self.raw.$name = to($name);
                    self
                }
            )*
        }
    };
}

// The table in schema/decoding.toml gives the setters and Sampling.
include!("generated/translation.rs");

fn same<T>(value: T) -> T {
    value
}

impl TranslateOptions {
    /// Beam 5, one translation a line.
    pub fn new() -> Self {
        TranslateOptions {
            raw: defaults(sys::trafo_translate_options_init),
            cancel: None,
            shortlist: None,
        }
    }
    /// Draws every token instead of searching; [`n_best`](Self::n_best) is how many translations are drawn of a line.
    /// The drawn tokens depend only on the seed, the number of the line and the place in it.
    pub fn sampling(mut self, sampling: Sampling) -> Self {
        sampling.write(&mut self.raw);
        self
    }
    /// Chooses among few tokens: the first of the vocabulary and the best translations of every source subword, each up to
    /// 100 by default.
    pub fn shortlist(mut self, shortlist: &Shortlist) -> Self {
        self.raw.shortlist = shortlist.0.as_ptr();
        self.shortlist = Some(shortlist.clone());
        self
    }
    /// How many of either; see [`shortlist`](Self::shortlist).
    pub fn shortlist_sizes(mut self, first: usize, best: usize) -> Self {
        self.raw.shortlist_first = to_i64(first);
        self.raw.shortlist_best = to_i64(best);
        self
    }
    /// Ends the work with the error [`Cancelled`](crate::ErrorCode::Cancelled) when the token is set.
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }
}

impl Default for TranslateOptions {
    fn default() -> Self {
        Self::new()
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
// SAFETY: the only pointer in it belongs to the shortlist that is beside it.
unsafe impl Send for TranslateOptions {}
// SAFETY: see above.
unsafe impl Sync for TranslateOptions {}

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
        expect_equal("Shortlist::learn", "sources", source.len(), "targets", target.len())?;
        let (s, t) = (views(source), views(target));
        let (handle, count, best) = (tokenizer.as_ptr(), s.len(), to_i64(best));
        // SAFETY: the handle is live, the views are valid during the call.
        Ok(Shortlist(Arc::new(RawShortlist::make(|out| unsafe {
            sys::trafo_shortlist_learn(handle, s.as_ptr(), t.as_ptr(), count, best, out)
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
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.weights.chunks_exact(self.source_tokens)
    }
    /// The source token of the largest weight, for each row.
    pub fn hard(&self) -> Vec<usize> {
        let best = |row: &[f32]| {
            (1..row.len()).fold(0, |best, s| if row[s] > row[best] { s } else { best })
        };
        self.rows().map(best).collect()
    }
}

/// Result of one line.
#[derive(Clone, Debug, PartialEq)]
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
    pub fn text(&self) -> &str {
        self.hypotheses.first().map_or("", |h| &h.text)
    }
    /// The best hypothesis' score.
    pub fn score(&self) -> f64 {
        self.hypotheses.first().map_or(0.0, |h| h.score)
    }
}

impl fmt::Display for Translation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}
