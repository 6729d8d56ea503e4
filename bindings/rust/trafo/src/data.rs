//! Corpora larger than memory, monolingual text, preference pairs, mixtures.
use std::path::Path;

use trafo_sys as sys;

use crate::cancel::CancelToken;
use crate::embed::tell_pairs;
use crate::enums::CorpusFormat;
use crate::error::{Result, check};
use crate::handle::{check_abi, defaults, path_text, path_view};
use crate::options::{from_i64, to_i64};
use crate::text::{Corpus, Tokenizer};

// The table in schema/structs.toml gives the options.
include!("generated/corpus_options.rs");

impl Corpus {
    /// Two files of equal line count; or one file of JSON lines or TSV, or one of text or of token ids (of llm.c, nanoGPT
    /// or Megatron) if the options say so. Files that stay on disk must not change while they are trained on.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: &CorpusOptions) -> Result<Self> {
        Self::opened(paths, options, None)
    }
    /// The same, ended with `Cancelled` when the token is set.
    pub fn open_cancellable<P: AsRef<Path>>(
        paths: &[P],
        options: &CorpusOptions,
        token: &CancelToken,
    ) -> Result<Self> {
        Self::opened(paths, options, Some(token))
    }
    fn opened<P: AsRef<Path>>(
        paths: &[P],
        options: &CorpusOptions,
        token: Option<&CancelToken>,
    ) -> Result<Self> {
        check_abi()?;
        let paths: Vec<_> = paths.iter().map(|path| path_text(path.as_ref())).collect();
        let (raw, cancel) = (options.to_raw(), CancelToken::raw(token));
        // SAFETY: paths, options and the token are valid during the call.
        Self::make(|out| unsafe {
            sys::trafo_corpus_open(paths.as_ptr(), paths.len(), &raw, cancel, out)
        })
    }
    /// Writes text without a source as a file of token ids that [`Corpus::open`] reads, in the format
    /// [`LlmC`](CorpusFormat::LlmC), [`NanoGpt`](CorpusFormat::NanoGpt) or [`Megatron`](CorpusFormat::Megatron), whose
    /// path is `NAME.bin` and which also has `NAME.idx`: the ids of each text and the tokenizer's end, the
    /// [`document_end`](CorpusOptions::document_end) to read it with. Gives the numbers of documents and of tokens that
    /// it has written.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument): the corpus has no text, pairs, preferences or
    /// conversations; another format. [`Unsupported`](crate::ErrorCode::Unsupported): the vocabulary is too large for
    /// nanoGPT (65,536 tokens), the text for llm.c (2^31 - 1). After an error the path has what it had before.
    pub fn write_ids(
        &self,
        tokenizer: &Tokenizer,
        format: CorpusFormat,
        path: impl AsRef<Path>,
    ) -> Result<(usize, usize)> {
        self.written(tokenizer, format, path.as_ref(), None)
    }
    /// The same, ended with `Cancelled` when the token is set.
    pub fn write_ids_cancellable(
        &self,
        tokenizer: &Tokenizer,
        format: CorpusFormat,
        path: impl AsRef<Path>,
        token: &CancelToken,
    ) -> Result<(usize, usize)> {
        self.written(tokenizer, format, path.as_ref(), Some(token))
    }
    fn written(
        &self,
        tokenizer: &Tokenizer,
        format: CorpusFormat,
        path: &Path,
        token: Option<&CancelToken>,
    ) -> Result<(usize, usize)> {
        let (data, length) = path_view(path);
        let (mut documents, mut tokens) = (0, 0);
        // SAFETY: handles, path and token are valid during the call, and so are the outputs.
        let result = check(unsafe {
            sys::trafo_corpus_write_ids(
                self.as_ptr(),
                tokenizer.as_ptr(),
                format.as_raw(),
                data,
                length,
                CancelToken::raw(token),
                &mut documents,
                &mut tokens,
            )
        });
        tell_pairs(&self.sources, result)?;
        Ok((from_i64(documents), from_i64(tokens)))
    }
    /// One corpus of several: an epoch has every pair of each as often as its weight says; 0.25 is a quarter of them,
    /// another one each epoch.
    ///
    /// ```
    /// use trafo::Corpus;
    /// # fn main() -> trafo::Result<()> {
    /// let a = Corpus::from_pairs([("ein Haus", "a house")])?;
    /// let b = Corpus::from_pairs([("ein Baum", "a tree"), ("zwei", "two")])?;
    /// assert_eq!(Corpus::mix(&[(&a, 3.0), (&b, 1.0)])?.info().pairs, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn mix(corpora: &[(&Corpus, f64)]) -> Result<Self> {
        check_abi()?;
        let handles: Vec<_> = corpora.iter().map(|(corpus, _)| corpus.as_ptr()).collect();
        let weights: Vec<_> = corpora.iter().map(|&(_, weight)| weight).collect();
        let sources = corpora.iter().flat_map(|(corpus, _)| corpus.sources.clone()).collect();
        // SAFETY: both arrays are as long as said and valid during the call.
        let mixed = Self::make(|out| unsafe {
            sys::trafo_corpus_mix(handles.as_ptr(), weights.as_ptr(), handles.len(), out)
        })?;
        Ok(mixed.with_sources(sources))
    }
    /// Takes pairs out, chosen by a hash of their text, with all copies of them: the rest, and what was taken.
    pub fn hold_out(&self, count: usize) -> Result<(Self, Self)> {
        let mut held = std::ptr::null_mut();
        // SAFETY: both outputs are valid; after a success both handles are ours.
        let rest = Self::make(|out| unsafe {
            sys::trafo_corpus_hold_out(self.as_ptr(), to_i64(count), out, &mut held)
        });
        let rest = tell_pairs(&self.sources, rest)?;
        let held = Self::make(|out| {
            // SAFETY: `out` is valid, and the handle came from the library.
            unsafe { *out = held };
            std::ptr::null_mut()
        })?;
        Ok((rest.with_sources(self.sources.clone()), held.with_sources(self.sources.clone())))
    }
}
