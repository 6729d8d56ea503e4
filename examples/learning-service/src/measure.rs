//! Measurement of a version, and the decision whether it is served.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use trafo::{CancelToken, Model, TranslateOptions, bleu, chrf};

use crate::fault::Result;
use crate::frame::Frame;
use crate::settings::Bounds;
use crate::store::Term;
use crate::versions::Pair;

/// Lines that are translated together, between two pauses.
const CHUNK: usize = 16;
/// Most sentences of each kind that are measured.
const MOST: usize = 300;

/// The sentences that versions are measured on.
pub struct Sets<'a> {
    pub held: &'a [Pair],
    pub regression: &'a [Pair],
    /// Sources with a term in them, learned ones among them: a term must be right everywhere.
    pub with_terms: Vec<&'a str>,
    pub terms: &'a [Term],
}

impl<'a> Sets<'a> {
    pub fn new(
        held: &'a [Pair],
        train: &'a [Pair],
        regression: &'a [Pair],
        terms: &'a [Term],
    ) -> Self {
        let has_term = |source: &&str| terms.iter().any(|(term, _)| contains_words(source, term));
        let sources = held.iter().chain(train.iter().rev()).map(|pair| pair.0.as_str());
        let with_terms = sources.filter(has_term).take(MOST).collect();
        Sets { held: &held[..held.len().min(MOST)], regression, with_terms, terms }
    }
}

/// Scores are 0 to 100.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub held_chrf: f64,
    pub held_bleu: f64,
    /// Held-out corrections that are translated word for word.
    pub held_exact: usize,
    pub held_count: usize,
    pub regression_bleu: f64,
    pub terms_right: usize,
    pub terms_count: usize,
    /// Tokens of all translations.
    pub tokens: usize,
    /// Wall time of all translations. It decides nothing, because it is different in every run.
    pub milliseconds: f64,
}

/// Figures and the translations of the held-out corrections.
pub struct Measured {
    pub figures: Figures,
    pub held: Vec<String>,
}

/// Translates the sets. `pause` is called between two parts of the work with the time that the part took.
pub fn measure(
    model: &Model,
    frame: &Frame,
    sets: &Sets<'_>,
    beam: usize,
    cancel: &CancelToken,
    pause: &mut dyn FnMut(std::time::Duration),
) -> Result<Measured> {
    let mut lines: Vec<&str> = sets.held.iter().map(|pair| pair.0.as_str()).collect();
    lines.extend(sets.regression.iter().map(|pair| pair.0.as_str()));
    lines.extend(&sets.with_terms);
    let options = TranslateOptions::new().beam(beam).cancel(cancel);
    let (mut texts, mut tokens, mut milliseconds) = (Vec::new(), 0, 0.0);
    for chunk in lines.chunks(CHUNK) {
        let began = Instant::now();
        for translation in frame.translate(model, chunk, &options)?.0 {
            tokens += translation.hypotheses[0].tokens.len();
            texts.push(translation.text().to_string());
        }
        milliseconds += began.elapsed().as_secs_f64() * 1e3;
        pause(began.elapsed());
    }
    let (held, rest) = texts.split_at(sets.held.len());
    let (regression, with_terms) = rest.split_at(sets.regression.len());
    let targets = |pairs: &[Pair]| pairs.iter().map(|pair| pair.1.clone()).collect::<Vec<_>>();
    let held_targets = targets(sets.held);
    let (terms_right, terms_count) = count_terms(&sets.with_terms, with_terms, sets.terms);
    let figures = Figures {
        held_chrf: chrf(held, &held_targets)?.score,
        held_bleu: bleu(held, &held_targets, false)?.score,
        held_exact: held.iter().zip(&held_targets).filter(|(said, right)| said == right).count(),
        held_count: held.len(),
        regression_bleu: bleu(regression, &targets(sets.regression), false)?.score,
        terms_right,
        terms_count,
        tokens,
        milliseconds,
    };
    Ok(Measured { figures, held: held.to_vec() })
}

/// Terms that are in the sources, and how many of them are translated as they must be.
fn count_terms(sources: &[&str], translations: &[String], terms: &[Term]) -> (usize, usize) {
    let (mut right, mut count) = (0, 0);
    for (source, translation) in sources.iter().zip(translations) {
        for (_, target) in terms.iter().filter(|(term, _)| contains_words(source, term)) {
            count += 1;
            right += usize::from(contains_words(translation, target));
        }
    }
    (right, count)
}

/// Whether `text` has `words` in it, not as a part of other words, in upper or lower case.
pub fn contains_words(text: &str, words: &str) -> bool {
    let (text, words) = (text.to_lowercase(), words.to_lowercase());
    !words.is_empty()
        && text.match_indices(&words).any(|(at, found)| {
            let before = text[..at].chars().next_back();
            let after = text[at + found.len()..].chars().next();
            ![before, after].into_iter().flatten().any(char::is_alphanumeric)
        })
}

/// Why the candidate is not served; none: it is better. `base`: the figures of the base on the same sets, so that small
/// losses do not add up over versions.
pub fn refusal(
    candidate: &Figures,
    current: &Figures,
    base: &Figures,
    bounds: &Bounds,
) -> Option<String> {
    if candidate.held_chrf <= current.held_chrf {
        return Some(format!(
            "it is no better on the held-out corrections: chrF {:.2}, and {:.2} now",
            candidate.held_chrf, current.held_chrf
        ));
    }
    if candidate.regression_bleu < base.regression_bleu - bounds.regression_loss {
        return Some(format!(
            "it forgets: BLEU {:.2} on the regression set, and {:.2} of the base; {:.2} may be lost",
            candidate.regression_bleu, base.regression_bleu, bounds.regression_loss
        ));
    }
    if candidate.terms_right < current.terms_right {
        return Some(format!(
            "it has fewer terms right: {} of {}, and {} now",
            candidate.terms_right, candidate.terms_count, current.terms_right
        ));
    }
    if candidate.tokens as f64 > current.tokens as f64 * bounds.length {
        return Some(format!(
            "it would be slow: {} tokens for the measured sentences, and {} now",
            candidate.tokens, current.tokens
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        Figures {
            held_chrf: 50.0,
            held_bleu: 40.0,
            held_exact: 1,
            held_count: 4,
            regression_bleu: 60.0,
            terms_right: 3,
            terms_count: 4,
            tokens: 1000,
            milliseconds: 1.0,
        }
    }

    #[test]
    fn a_version_is_refused_for_each_reason() {
        let bounds = Bounds { regression_loss: 0.5, length: 1.5 };
        let now = figures();
        let better = Figures { held_chrf: 51.0, ..figures() };
        let why = |candidate: &Figures| refusal(candidate, &now, &now, &bounds);
        assert_eq!(why(&better), None);
        assert!(why(&now).unwrap().contains("no better"));
        let candidate = Figures { regression_bleu: 59.4, ..better.clone() };
        assert!(why(&candidate).unwrap().contains("forgets"));
        assert_eq!(why(&Figures { regression_bleu: 59.6, ..better.clone() }), None);
        assert!(why(&Figures { terms_right: 2, ..better.clone() }).unwrap().contains("terms"));
        assert!(why(&Figures { tokens: 1501, ..better.clone() }).unwrap().contains("slow"));
    }

    #[test]
    fn terms_are_words_and_not_parts_of_words() {
        assert!(contains_words("Das ist der Tisch.", "tisch"));
        assert!(!contains_words("Das ist der Tischler.", "Tisch"));
        assert!(!contains_words("ein Nachtisch", "tisch"));
        assert!(contains_words("ein Nachtisch, ein Tisch", "Tisch"));
        let terms = [("Tisch".to_string(), "desk".to_string())];
        let translations = ["a desk".to_string(), "a table".to_string(), "a desk".to_string()];
        assert_eq!(count_terms(&["ein Tisch", "Tisch", "Hut"], &translations, &terms), (1, 2));
    }
}
