//! Work on token ids in place of text, with or without a tokenizer.

use std::path::Path;
use std::ptr;

use trafo_sys as sys;

use crate::cancel::CancelToken;
use crate::enums::{ExportFormat, ExportWeights};
use crate::error::{ErrorCode, Result, check};
use crate::handle::{RawTranslations, check_abi, slice};
use crate::model::Model;
use crate::network::open_model::{OpenModel, RECORDED};
use crate::network::states::{HiddenStates, Logits, NOT_RECORDED};
use crate::network::tensor::Tensor;
use crate::results::SpecialTokens;
use crate::text::{Corpus, Tokenizer, expect_equal};
use crate::translation::{TranslateOptions, Translation, read_lines};

/// Views of `rows`, valid as long as they are.
pub(crate) fn id_views<R: AsRef<[i32]>>(rows: &[R]) -> Vec<sys::trafo_ids_view> {
    let view = |ids: &[i32]| sys::trafo_ids_view { ids: ids.as_ptr(), count: ids.len() };
    rows.iter().map(|row| view(row.as_ref())).collect()
}

pub(crate) fn optional(tokenizer: Option<&Tokenizer>) -> *const sys::trafo_tokenizer {
    tokenizer.map_or(ptr::null(), Tokenizer::as_ptr)
}

impl Model {
    /// Translates rows of token ids. The model reads them as they are: nothing is added. A row ends with `eos`, unless
    /// [`TranslateOptions::end_source`] says otherwise; an empty one gives an empty translation. Without a tokenizer, the special
    /// tokens are those that the model knows ([`set_special_tokens`](Self::set_special_tokens)), and hypotheses have
    /// [`tokens`](crate::Hypothesis::tokens) and no text. `InvalidArgument`: an id is not in the vocabulary.
    pub fn translate_ids<R: AsRef<[i32]>>(
        &self,
        tokenizer: Option<&Tokenizer>,
        rows: &[R],
        options: &TranslateOptions,
    ) -> Result<Vec<Translation>> {
        self.ids_translated(tokenizer, rows, None, options)
    }
    /// The same with the first tokens of each translation, which may be none.
    pub fn translate_ids_with_prefixes<R: AsRef<[i32]>, P: AsRef<[i32]>>(
        &self,
        tokenizer: Option<&Tokenizer>,
        rows: &[R],
        prefixes: &[P],
        options: &TranslateOptions,
    ) -> Result<Vec<Translation>> {
        const ORIGIN: &str = "Model::translate_ids_with_prefixes";
        expect_equal(ORIGIN, "rows", rows.len(), "prefixes", prefixes.len())?;
        self.ids_translated(tokenizer, rows, Some(id_views(prefixes)), options)
    }
    fn ids_translated<R: AsRef<[i32]>>(
        &self,
        tokenizer: Option<&Tokenizer>,
        rows: &[R],
        prefixes: Option<Vec<sys::trafo_ids_view>>,
        options: &TranslateOptions,
    ) -> Result<Vec<Translation>> {
        let rows = id_views(rows);
        let cancel = options.cancel.as_ref().map_or(ptr::null(), CancelToken::as_ptr);
        // SAFETY: the handles are live; views, which are equally many, and options are valid during the call.
        let result = RawTranslations::make(|out| unsafe {
            sys::trafo_translate_ids(
                self.as_ptr(),
                optional(tokenizer),
                rows.as_ptr(),
                prefixes.as_ref().map_or(ptr::null(), Vec::as_ptr),
                rows.len(),
                &options.to_raw(),
                cancel,
                out,
            )
        })?;
        read_lines(&result, rows.len())
    }

    /// [`force_decode`](Self::force_decode) of token ids, to which nothing is added: every token of a target is scored, and
    /// `eos` only where it is the last one. The empty source of a decoder-only model is `eos`, so that the target is plain
    /// text. The tokenizer as for [`translate_ids`](Self::translate_ids).
    pub fn force_decode_ids<S: AsRef<[i32]>, T: AsRef<[i32]>>(
        &self,
        tokenizer: Option<&Tokenizer>,
        sources: &[S],
        targets: &[T],
        options: &TranslateOptions,
    ) -> Result<Vec<Translation>> {
        expect_equal(
            "Model::force_decode_ids",
            "sources",
            sources.len(),
            "targets",
            targets.len(),
        )?;
        let (sources, targets) = (id_views(sources), id_views(targets));
        let cancel = options.cancel.as_ref().map_or(ptr::null(), CancelToken::as_ptr);
        // SAFETY: as above.
        let result = RawTranslations::make(|out| unsafe {
            sys::trafo_force_decode_ids(
                self.as_ptr(),
                optional(tokenizer),
                sources.as_ptr(),
                targets.as_ptr(),
                sources.len(),
                &options.to_raw(),
                cancel,
                out,
            )
        })?;
        read_lines(&result, sources.len())
    }

    /// [`hidden_states`](Self::hidden_states) of rows of token ids, to which nothing is added; none is empty.
    pub fn hidden_states_ids<R: AsRef<[i32]>>(&self, rows: &[R]) -> Result<HiddenStates> {
        let rows = id_views(rows);
        // SAFETY: the handle is live, the views are valid during the call, as are the outputs.
        let (values, width, cu_seqlens) = self.rows_and_ints(|(states, bounds)| unsafe {
            sys::trafo_model_hidden_states_ids(
                self.as_ptr(),
                rows.as_ptr(),
                rows.len(),
                NOT_RECORDED,
                states,
                bounds,
            )
        })?;
        Ok(HiddenStates { values, width, cu_seqlens })
    }

    /// [`logits`](Self::logits) of token ids, as [`force_decode_ids`](Self::force_decode_ids) takes them.
    pub fn logits_ids<S: AsRef<[i32]>, T: AsRef<[i32]>>(
        &self,
        tokenizer: Option<&Tokenizer>,
        sources: &[S],
        targets: &[T],
    ) -> Result<Logits> {
        expect_equal("Model::logits_ids", "sources", sources.len(), "targets", targets.len())?;
        let (sources, targets) = (id_views(sources), id_views(targets));
        // SAFETY: as above; both arrays have the length that is told.
        let (values, vocabulary, labels) = self.rows_and_ints(|(logits, labels)| unsafe {
            sys::trafo_model_logits_ids(
                self.as_ptr(),
                optional(tokenizer),
                sources.as_ptr(),
                targets.as_ptr(),
                sources.len(),
                NOT_RECORDED,
                logits,
                labels,
            )
        })?;
        Ok(Logits { values, vocabulary, labels })
    }

    /// The special tokens that the model knows, and the further tokens that end a generated text. None: it knows none, as a
    /// new model and one that was trained with a tokenizer.
    pub fn special_tokens(&self) -> Result<Option<(SpecialTokens, Vec<i32>)>> {
        let mut raw = sys::trafo_special_tokens { unk: -1, bos: -1, eos: -1, pad: -1 };
        let (mut ends, mut count) = (ptr::null(), 0);
        // SAFETY: the handle is live, the outputs are valid; the ends are borrowed from the model and copied.
        let result = check(unsafe {
            sys::trafo_model_get_special_tokens(self.as_ptr(), &mut raw, &mut ends, &mut count)
        });
        match result {
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error),
            // SAFETY: the call above has succeeded.
            Ok(()) => {
                Ok(Some((SpecialTokens::from_raw(&raw), unsafe { slice(ends, count) }.to_vec())))
            }
        }
    }
    /// Tells the model the special tokens of its vocabulary, so that it works on token ids without a tokenizer;
    /// [`save`](Self::save) keeps them, and an [`import`](Self::import) knows those of its directory. `further_ends` end a
    /// generated text as `eos` does. `unk` may be -1. `InvalidArgument`: an id is not in the vocabulary.
    pub fn set_special_tokens(
        &mut self,
        tokens: &SpecialTokens,
        further_ends: &[i32],
    ) -> Result<()> {
        // SAFETY: the handle is live, the arguments are valid during the call.
        check(unsafe {
            sys::trafo_model_set_special_tokens(
                self.as_ptr(),
                &tokens.to_raw(),
                further_ends.as_ptr(),
                further_ends.len(),
            )
        })
    }

    /// [`export`](Self::export) without a tokenizer, for [`ExportFormat::HfGpt2`], [`ExportFormat::HfLlama`] and
    /// [`ExportFormat::HfCompressed`]: the directory has no tokenizer, and the special tokens that the model knows.
    pub fn export_without_tokenizer(
        &self,
        format: ExportFormat,
        weights: ExportWeights,
        directory: impl AsRef<Path>,
    ) -> Result<f64> {
        self.exported(None, format, weights, directory.as_ref(), None)
    }
}

impl OpenModel {
    /// [`hidden_states`](Self::hidden_states) of rows of token ids, to which nothing is added; none is empty.
    pub fn hidden_states_ids<R: AsRef<[i32]>>(&self, rows: &[R]) -> Result<(Tensor, Tensor)> {
        let rows = id_views(rows);
        // SAFETY: the handle is live, the views are valid during the call, as are the outputs.
        self.two_tensors(|model, states, bounds| unsafe {
            sys::trafo_model_hidden_states_ids(
                model,
                rows.as_ptr(),
                rows.len(),
                RECORDED,
                states,
                bounds,
            )
        })
    }
    /// [`logits`](Self::logits) of token ids, as [`Model::force_decode_ids`] takes them.
    pub fn logits_ids<S: AsRef<[i32]>, T: AsRef<[i32]>>(
        &self,
        tokenizer: Option<&Tokenizer>,
        sources: &[S],
        targets: &[T],
    ) -> Result<(Tensor, Tensor)> {
        expect_equal("OpenModel::logits_ids", "sources", sources.len(), "targets", targets.len())?;
        let (sources, targets) = (id_views(sources), id_views(targets));
        // SAFETY: as above; both arrays have the length that is told.
        self.two_tensors(|model, logits, labels| unsafe {
            sys::trafo_model_logits_ids(
                model,
                optional(tokenizer),
                sources.as_ptr(),
                targets.as_ptr(),
                sources.len(),
                RECORDED,
                logits,
                labels,
            )
        })
    }
}

impl Corpus {
    /// Pairs of token ids, which a trainer reads as they are: it adds no token and needs no tokenizer. A target should end
    /// with `eos`, which the model then learns to predict; a source of an encoder-decoder ends with it, too. An empty source
    /// is for a decoder-only model, which reads `eos` in its place: the target is plain text. Pairs with an empty target are
    /// left out. `InvalidArgument`: no pair is left, or an id is negative.
    ///
    /// ```
    /// use trafo::{Corpus, Metric, Model, ModelConfig, SpecialTokens, Trainer, TrainerOptions};
    /// # fn main() -> trafo::Result<()> {
    /// let corpus = Corpus::from_ids([(vec![5, 6, 2], vec![7, 2]), (vec![8, 2], vec![9, 5, 2])])?;
    /// let config = ModelConfig::preset("tiny", 10)?.encoder_layers(1).decoder_layers(1);
    /// let mut model = Model::new(&config, 1)?;
    /// model.set_special_tokens(&SpecialTokens { unk: 0, bos: Some(1), eos: 2, pad: Some(3) }, &[])?;
    /// let mut trainer = Trainer::builder_for_ids(model, Some(&corpus))
    ///     .options(TrainerOptions::new().batch_tokens(64))
    ///     .build()?;
    /// trainer.step()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_ids<S, T>(pairs: impl IntoIterator<Item = (S, T)>) -> Result<Self>
    where
        S: AsRef<[i32]>,
        T: AsRef<[i32]>,
    {
        check_abi()?;
        let (sources, targets): (Vec<S>, Vec<T>) = pairs.into_iter().unzip();
        let (source, target) = (id_views(&sources), id_views(&targets));
        // SAFETY: the views are valid during the call.
        Self::make(|out| unsafe {
            sys::trafo_corpus_new_ids(source.as_ptr(), target.as_ptr(), source.len(), out)
        })
    }
}

impl Tokenizer {
    /// The same vocabulary, for which the name of a special token in a text, such as `</s>` or `[INST]`, is that token, in
    /// [`encode`](Self::encode) and every call that takes a tokenizer and text. A SentencePiece model has its control
    /// tokens (user-defined ones are read in any text), a `tokenizer.json` the special tokens of its file, and a byte vocabulary
    /// none. Other tokenizers never make such a token of a text. Use it for texts of the program alone: in text of its users, a name would be a token as well.
    pub fn parse_special(&self) -> Result<Self> {
        // SAFETY: the handle is live, the output is valid.
        Self::make(|out| unsafe { sys::trafo_tokenizer_parse_special(self.as_ptr(), out) })
    }

    /// The same vocabulary for texts of two languages, as M2M100 and NLLB-200 have them: [`encode`](Self::encode) and every
    /// call that takes a tokenizer and text put the token of the source language in front of a source, and that of the
    /// target language in front of a target; a translation begins with it. A language is the name of a special token,
    /// such as `eng_Latn`, or what `__` surrounds in it, such as `en`.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument): the vocabulary has no such language; the message lists some.
    pub fn with_languages(&self, source: &str, target: &str) -> Result<Self> {
        // SAFETY: the handle is live, the texts are valid during the call, the output is valid.
        Self::make(|out| unsafe {
            sys::trafo_tokenizer_with_languages(
                self.as_ptr(),
                source.as_ptr().cast(),
                source.len(),
                target.as_ptr().cast(),
                target.len(),
                out,
            )
        })
    }
}
