// Written by scripts/generate_options.py from schema/structs.toml: change that.
/// How [`Corpus::open`] reads files.
///
/// ```
/// let options = trafo::CorpusOptions::new().memory_bytes(64 << 20).unpack_directory("/var/tmp");
/// ```
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default, deny_unknown_fields))]
pub struct CorpusOptions {
    /// Bytes. A larger file (gzip: larger than a quarter of it) stays on disk and is read as batches need it, with 16
    /// bytes of memory a pair. So does a corpus whose pairs take more once they are unpacked, with 72 bytes a pair
    /// beside their text. Does not change training. 0: all text stays on disk. Default 256 MiB.
    pub memory_bytes: usize,
    /// Directory for gzip files and standard input that stay on disk: they are unpacked into unnamed files. It is
    /// created if missing. Empty: the system's directory for temporary files.
    pub unpack_directory: std::path::PathBuf,
    /// Files of llm.c and nanoGPT: the token that ends a document, such as 50256 of GPT-2. Without it a file is one
    /// document.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub document_end: Option<usize>,
    /// Whether it is one file of text without a source, for a decoder-lm. The members of JSON lines say it themselves.
    /// Default false.
    pub monolingual: bool,
    /// Whether it is preferences for DPO, ORPO or KTO: three files of prompts, chosen and rejected answers, or one file
    /// of JSON lines or of TSV with three columns. Default false.
    pub preferences: bool,
    /// Format of the files. Default [`CorpusFormat::Auto`].
    pub format: CorpusFormat,
}
impl CorpusOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }
    /// Bytes. A larger file (gzip: larger than a quarter of it) stays on disk and is read as batches need it, with 16
    /// bytes of memory a pair. So does a corpus whose pairs take more once they are unpacked, with 72 bytes a pair
    /// beside their text. Does not change training. 0: all text stays on disk. Default 256 MiB.
    pub fn memory_bytes(mut self, memory_bytes: usize) -> Self {
        self.memory_bytes = memory_bytes;
        self
    }
    /// Directory for gzip files and standard input that stay on disk: they are unpacked into unnamed files. It is
    /// created if missing. Empty: the system's directory for temporary files.
    pub fn unpack_directory(mut self, unpack_directory: impl AsRef<Path>) -> Self {
        self.unpack_directory = unpack_directory.as_ref().to_owned();
        self
    }
    /// Files of llm.c and nanoGPT: the token that ends a document, such as 50256 of GPT-2. Without it a file is one
    /// document.
    pub fn document_end(mut self, document_end: usize) -> Self {
        self.document_end = Some(document_end);
        self
    }
    /// Whether it is one file of text without a source, for a decoder-lm. The members of JSON lines say it themselves.
    /// Default false.
    pub fn monolingual(mut self, monolingual: bool) -> Self {
        self.monolingual = monolingual;
        self
    }
    /// Whether it is preferences for DPO, ORPO or KTO: three files of prompts, chosen and rejected answers, or one file
    /// of JSON lines or of TSV with three columns. Default false.
    pub fn preferences(mut self, preferences: bool) -> Self {
        self.preferences = preferences;
        self
    }
    /// Format of the files. Default [`CorpusFormat::Auto`].
    pub fn format(mut self, format: CorpusFormat) -> Self {
        self.format = format;
        self
    }
    pub(crate) fn to_raw(&self) -> sys::trafo_corpus_options {
        let mut raw = defaults(sys::trafo_corpus_options_init);
        raw.memory_bytes = to_i64(self.memory_bytes);
        raw.unpack_directory = path_text(&self.unpack_directory);
        if let Some(document_end) = self.document_end {
            raw.document_end = to_i64(document_end);
        }
        raw.monolingual = self.monolingual.into();
        raw.preferences = self.preferences.into();
        raw.format = self.format.as_raw();
        raw
    }
}
impl Default for CorpusOptions {
    fn default() -> Self {
        let raw = defaults(sys::trafo_corpus_options_init);
        CorpusOptions {
            memory_bytes: from_i64(raw.memory_bytes),
            unpack_directory: Default::default(),
            document_end: None,
            monolingual: raw.monolingual != 0,
            preferences: raw.preferences != 0,
            format: CorpusFormat::Auto,
        }
    }
}
