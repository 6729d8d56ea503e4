//! BLEU and chrF with their parts, intervals and a baseline.

use trafo_sys as sys;

use crate::cancel::CancelToken;
use crate::error::{Result, check};
use crate::handle::{check_abi, defaults, views};
use crate::names::named;
use crate::options::{from_flag, from_i64, options, same, to_count};
use crate::results::{Evaluation, filled};
use crate::text::{Tokenizer, expect_equal};
use crate::trainer_options::Metric;

macro_rules! evaluation_options {
    ($($fields:tt)*) => {
        options! {
            /// Settings of [`evaluate`].
            EvaluationOptions = trafo_evaluation_options, trafo_evaluation_options_init {
                /// The SentencePiece model of [`BleuTokenizer::Flores200`]. Default: none.
                #[cfg_attr(feature = "serde", serde(skip))]
                pub subwords: Option<Tokenizer> = |_| None;
            }
            $($fields)*
        }
    };
}

// The table in schema/evaluation.toml gives the enum and the fields.
include!("generated/evaluation.rs");

impl EvaluationOptions {
    /// sacreBLEU's defaults: tokenizer 13a, with case.
    pub fn new() -> Self {
        Self::default()
    }
    /// Counts the subwords of this SentencePiece model: [`BleuTokenizer::Flores200`].
    pub fn subwords(mut self, tokenizer: &Tokenizer) -> Self {
        self.tokenize = BleuTokenizer::Flores200;
        self.subwords = Some(tokenizer.clone());
        self
    }
    /// Valid as long as the options.
    fn to_raw(&self) -> sys::trafo_evaluation_options {
        let mut raw = defaults(sys::trafo_evaluation_options_init);
        self.write(&mut raw);
        if let Some(subwords) = &self.subwords {
            raw.tokenizer = subwords.as_ptr();
        }
        raw
    }
}

/// The corpus score by a metric that needs translations, such as [`Metric::Ter`]. `references`: one or more sets with a
/// reference of every line.
///
/// ```
/// # fn main() -> trafo::Result<()> {
/// let score = trafo::metric_score(trafo::Metric::Ter, &["d e f a b c"], &[&["a b c d e f"]])?;
/// assert!((score - 100.0 / 6.0).abs() < 1e-9); // one shift for six words
/// # Ok(())
/// # }
/// ```
pub fn metric_score<H: AsRef<str>, R: AsRef<str>>(
    metric: Metric,
    hypotheses: &[H],
    references: &[&[R]],
) -> Result<f64> {
    for set in references {
        expect_equal(
            "trafo::metric_score",
            "hypotheses",
            hypotheses.len(),
            "references",
            set.len(),
        )?;
    }
    check_abi()?;
    let h = views(hypotheses);
    let r: Vec<_> = references.iter().flat_map(|set| views(set)).collect();
    let mut score = 0.0;
    // SAFETY: the views are valid during the call.
    check(unsafe {
        sys::trafo_metric_score(
            metric.bit(),
            h.as_ptr(),
            r.as_ptr(),
            h.len(),
            references.len(),
            &mut score,
        )
    })?;
    Ok(score)
}

/// Corpus BLEU and chrF2 as sacreBLEU computes them, with their parts. `references` are one or more sets with a reference of
/// every line. `baseline`: other translations of the same lines, which are compared with paired bootstrap resampling.
///
/// ```
/// # fn main() -> trafo::Result<()> {
/// use trafo::{BleuTokenizer, EvaluationOptions, evaluate};
///
/// let options = EvaluationOptions::new().tokenize(BleuTokenizer::Zh);
/// let references = ["今天天气很好。"];
/// let result = evaluate(&["今天天气不好。"], &[&references], None, &options)?;
/// assert!(result.bleu.score > 20.0 && result.bleu_signature.contains("tok:zh"));
/// # Ok(())
/// # }
/// ```
pub fn evaluate<H: AsRef<str>, R: AsRef<str>>(
    hypotheses: &[H],
    references: &[&[R]],
    baseline: Option<&[H]>,
    options: &EvaluationOptions,
) -> Result<Evaluation> {
    evaluated(hypotheses, references, baseline, options, None)
}

/// [`evaluate`], ended with `Cancelled` when the token is set.
pub fn evaluate_cancellable<H: AsRef<str>, R: AsRef<str>>(
    hypotheses: &[H],
    references: &[&[R]],
    baseline: Option<&[H]>,
    options: &EvaluationOptions,
    token: &CancelToken,
) -> Result<Evaluation> {
    evaluated(hypotheses, references, baseline, options, Some(token))
}

fn evaluated<H: AsRef<str>, R: AsRef<str>>(
    hypotheses: &[H],
    references: &[&[R]],
    baseline: Option<&[H]>,
    options: &EvaluationOptions,
    token: Option<&CancelToken>,
) -> Result<Evaluation> {
    const ORIGIN: &str = "trafo::evaluate";
    for set in references {
        expect_equal(ORIGIN, "hypotheses", hypotheses.len(), "references", set.len())?;
    }
    if let Some(lines) = baseline {
        expect_equal(ORIGIN, "hypotheses", hypotheses.len(), "baseline lines", lines.len())?;
    }
    check_abi()?;
    let h = views(hypotheses);
    let r: Vec<_> = references.iter().flat_map(|set| views(set)).collect();
    let b = baseline.map(views);
    let others = b.as_ref().map_or(std::ptr::null(), std::vec::Vec::as_ptr);
    // SAFETY: views, options and the token are valid during the call; the struct has the size that is told.
    let raw = filled(|raw, size| unsafe {
        sys::trafo_evaluate(
            h.as_ptr(),
            r.as_ptr(),
            h.len(),
            references.len(),
            others,
            &options.to_raw(),
            CancelToken::raw(token),
            raw,
            size,
        )
    })?;
    Ok(Evaluation::from_raw(&raw))
}

/// BLEU and chrF2 of one translation by itself, 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SentenceScore {
    /// Orders longer than the translation are left out.
    pub bleu: f64,
    /// chrF2.
    pub chrf: f64,
}

/// BLEU and chrF2 of every translation by itself against its one reference, as sacreBLEU's sentence scores. They choose among
/// translations of a line; their mean is no corpus score. Of the options, the tokenizer and the case are used.
///
/// ```
/// # fn main() -> trafo::Result<()> {
/// use trafo::{EvaluationOptions, sentence_scores};
///
/// let n_best = ["A dog is running.", "A dog runs."];
/// let scores = sentence_scores(&n_best, &["A dog runs."; 2], &EvaluationOptions::new())?;
/// assert!(scores[0].bleu < scores[1].bleu && scores[1].bleu > 99.9);
/// # Ok(())
/// # }
/// ```
pub fn sentence_scores<H: AsRef<str>, R: AsRef<str>>(
    hypotheses: &[H],
    references: &[R],
    options: &EvaluationOptions,
) -> Result<Vec<SentenceScore>> {
    const ORIGIN: &str = "trafo::sentence_scores";
    expect_equal(ORIGIN, "hypotheses", hypotheses.len(), "references", references.len())?;
    check_abi()?;
    let (h, r) = (views(hypotheses), views(references));
    let (mut bleu, mut chrf) = (vec![0.0; h.len()], vec![0.0; h.len()]);
    // SAFETY: views, options and both arrays, one element a line, are valid during the call.
    check(unsafe {
        sys::trafo_sentence_scores(
            h.as_ptr(),
            r.as_ptr(),
            h.len(),
            &options.to_raw(),
            bleu.as_mut_ptr(),
            chrf.as_mut_ptr(),
        )
    })?;
    Ok(bleu.into_iter().zip(chrf).map(|(bleu, chrf)| SentenceScore { bleu, chrf }).collect())
}
