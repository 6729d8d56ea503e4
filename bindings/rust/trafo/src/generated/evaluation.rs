// Written by scripts/generate_options.py from schema/evaluation.toml: change that.
/// How BLEU cuts a line into words: tokenizers of sacreBLEU, with the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BleuTokenizer {
    /// That of mteval-v13a: ASCII punctuation is set apart. For languages with spaces.
    Mteval13a,
    /// Words are separated by white space.
    None,
    /// Every Chinese character is a word, the rest as in 13a. For Chinese.
    Zh,
    /// That of mteval-v14: punctuation and symbols of every script are set apart.
    Intl,
    /// Every code point is a word. For Japanese, Thai and others without spaces.
    Char,
    /// Subwords of a SentencePiece model that the user gives, usually the FLORES-200 model (spBLEU).
    Flores200,
    /// Japanese words as MeCab finds them with IPADIC. Both have to be installed.
    JaMecab,
}
impl BleuTokenizer {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            BleuTokenizer::Mteval13a => sys::TRAFO_TOKENIZE_13A,
            BleuTokenizer::None => sys::TRAFO_TOKENIZE_NONE,
            BleuTokenizer::Zh => sys::TRAFO_TOKENIZE_ZH,
            BleuTokenizer::Intl => sys::TRAFO_TOKENIZE_INTL,
            BleuTokenizer::Char => sys::TRAFO_TOKENIZE_CHAR,
            BleuTokenizer::Flores200 => sys::TRAFO_TOKENIZE_FLORES200,
            BleuTokenizer::JaMecab => sys::TRAFO_TOKENIZE_JA_MECAB,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_TOKENIZE_NONE => BleuTokenizer::None,
            sys::TRAFO_TOKENIZE_ZH => BleuTokenizer::Zh,
            sys::TRAFO_TOKENIZE_INTL => BleuTokenizer::Intl,
            sys::TRAFO_TOKENIZE_CHAR => BleuTokenizer::Char,
            sys::TRAFO_TOKENIZE_FLORES200 => BleuTokenizer::Flores200,
            sys::TRAFO_TOKENIZE_JA_MECAB => BleuTokenizer::JaMecab,
            _ => BleuTokenizer::Mteval13a,
        }
    }
}
named! { BleuTokenizer:
    Mteval13a = "13a" | "mteval_13a",
    None = "none",
    Zh = "zh",
    Intl = "intl",
    Char = "char" | "character",
    Flores200 = "flores200",
    JaMecab = "ja-mecab" | "ja_mecab",
}
evaluation_options! {
    /// How BLEU cuts lines into words. Scores are comparable only where it is the same. Default
    /// [`BleuTokenizer::Mteval13a`].
    tokenize: BleuTokenizer = BleuTokenizer::as_raw, BleuTokenizer::from_raw;
    /// Whether BLEU is computed without case. chrF keeps it. Default false.
    lowercase: bool = i32::from, from_flag;
    /// Whether lines are resampled for the mean and the 95 % interval of both scores. With a baseline they always are.
    /// Default false.
    confidence: bool = i32::from, from_flag;
    /// Number of bootstrap samples. Each sample draws as many lines as the corpus has, with replacement. Default 1000.
    resamples: usize = to_count, from_i64;
    /// Seed of the resampling. The same seed draws the same lines for every system and both scores. Default 12345.
    seed: u64 = same, same;
}
