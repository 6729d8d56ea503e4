// Written by scripts/generate_options.py from schema/structs.toml: change that.
/// Settings of a tokenizer's training.
///
/// ```
/// let options = trafo::TokenizerOptions::new(500).bpe(true);
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default, deny_unknown_fields))]
pub struct TokenizerOptions {
    /// Tokens: special, byte and learned ones. Default 8000.
    pub vocabulary: usize,
    /// Share of the characters that become tokens, 0.98 to 1. Default 1.
    pub character_coverage: f64,
    /// Whether it learns by byte-pair encoding; otherwise it learns a unigram model. Default false.
    pub bpe: bool,
    /// Whether unknown characters are spelled in byte tokens; otherwise they become `<unk>`. Default false.
    pub byte_fallback: bool,
    /// Whether the vocabulary may be smaller if the text has too few subwords. Default false.
    pub soft_limit: bool,
    /// The normal form of text. Default [`Normalization::NmtNfkc`].
    pub normalization: Normalization,
    /// Texts without white space that are one token each, wherever they are, and not normalised.
    pub user_symbols: Vec<String>,
    /// A kind by its name, such as "sentencepiece". docs/guide/vocabularies.md lists the kinds and the fields that each
    /// takes; the other fields keep their defaults. Default sentencepiece.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub kind: Option<String>,
}
impl TokenizerOptions {
    /// Share of the characters that become tokens, 0.98 to 1. Default 1.
    pub fn character_coverage(mut self, character_coverage: f64) -> Self {
        self.character_coverage = character_coverage;
        self
    }
    /// Whether it learns by byte-pair encoding; otherwise it learns a unigram model. Default false.
    pub fn bpe(mut self, bpe: bool) -> Self {
        self.bpe = bpe;
        self
    }
    /// Whether unknown characters are spelled in byte tokens; otherwise they become `<unk>`. Default false.
    pub fn byte_fallback(mut self, byte_fallback: bool) -> Self {
        self.byte_fallback = byte_fallback;
        self
    }
    /// Whether the vocabulary may be smaller if the text has too few subwords. Default false.
    pub fn soft_limit(mut self, soft_limit: bool) -> Self {
        self.soft_limit = soft_limit;
        self
    }
    /// The normal form of text. Default [`Normalization::NmtNfkc`].
    pub fn normalization(mut self, normalization: Normalization) -> Self {
        self.normalization = normalization;
        self
    }
    /// A kind by its name, such as "sentencepiece". docs/guide/vocabularies.md lists the kinds and the fields that each
    /// takes; the other fields keep their defaults. Default sentencepiece.
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }
    /// Points to `user_symbols`, the views of the option.
    pub(crate) fn to_raw(&self, user_symbols: &[sys::trafo_string_view]) -> sys::trafo_tokenizer_options {
        let mut raw = defaults(sys::trafo_tokenizer_options_init);
        raw.vocabulary = to_i64(self.vocabulary);
        raw.character_coverage = self.character_coverage;
        raw.bpe = self.bpe.into();
        raw.byte_fallback = self.byte_fallback.into();
        raw.soft_limit = self.soft_limit.into();
        raw.normalization = self.normalization.as_raw();
        raw.user_symbols = user_symbols.as_ptr();
        raw.user_symbol_count = user_symbols.len();
        if let Some(kind) = &self.kind {
            raw.kind = view(kind);
        }
        raw
    }
}
impl Default for TokenizerOptions {
    fn default() -> Self {
        let raw = defaults(sys::trafo_tokenizer_options_init);
        TokenizerOptions {
            vocabulary: from_i64(raw.vocabulary),
            character_coverage: raw.character_coverage,
            bpe: raw.bpe != 0,
            byte_fallback: raw.byte_fallback != 0,
            soft_limit: raw.soft_limit != 0,
            normalization: Normalization::NmtNfkc,
            user_symbols: Vec::new(),
            kind: None,
        }
    }
}
