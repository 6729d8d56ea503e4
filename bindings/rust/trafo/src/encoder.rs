//! Encoders: vectors and labels of texts, and their heads.

use std::ptr;

use trafo_sys as sys;

use crate::enums::Pooling;
use crate::error::{Result, check};
use crate::handle::{RawModel, RawTensor, views};
use crate::ids::id_views;
use crate::model::Model;
use crate::model_config::EncoderHead;
use crate::network::open_model::{OpenModel, RECORDED};
use crate::network::states::NOT_RECORDED;
use crate::network::tensor::Tensor;
use crate::text::{Tokenizer, expect_equal};

/// One vector for each text ([`Model::embed`]).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Embeddings {
    /// `[texts, width]`, one row after the other.
    pub values: Vec<f32>,
    /// Elements of a vector.
    pub width: usize,
}

/// The logits of an encoder's head for several texts ([`Model::classify`]).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LabelLogits {
    /// One row after the other: of each text, or of each word where the head is for tokens.
    pub values: Vec<f32>,
    /// Elements of a row: the labels, or the vocabulary of a head for masked tokens.
    pub labels: usize,
    /// Text `i` has the rows `cu_seqlens[i]` to `cu_seqlens[i + 1] - 1`.
    pub cu_seqlens: Vec<i32>,
}

impl Model {
    /// One vector for each text, of the hidden states of its tokens: their mean or the first one. With `normalize`, each is
    /// divided by its Euclidean norm. One pass over all texts, without dropout, copied to the host. A text over the model's
    /// limit is an error.
    pub fn embed<S: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        texts: &[S],
        pooling: Pooling,
        normalize: bool,
    ) -> Result<Embeddings> {
        let texts = views(texts);
        // SAFETY: the handles are live, the views are valid during the call, as is the output.
        let vectors = RawTensor::make(|out| unsafe {
            sys::trafo_model_embed(
                self.as_ptr(),
                tokenizer.as_ptr(),
                texts.as_ptr(),
                texts.len(),
                pooling.as_raw(),
                normalize.into(),
                NOT_RECORDED,
                out,
            )
        })?;
        let (mut shape, mut rank) = ([0i64; 2], 0);
        // SAFETY: the handle is live, the outputs are valid, and the buffer has the size of the tensor, which is float32.
        unsafe {
            check(sys::trafo_tensor_get_shape(vectors.as_ptr(), shape.as_mut_ptr(), 2, &mut rank))?;
            let mut values = vec![0f32; (shape[0] * shape[1]) as usize];
            let bytes = size_of_val(&*values);
            check(sys::trafo_tensor_read(vectors.as_ptr(), values.as_mut_ptr().cast(), bytes))?;
            Ok(Embeddings { values, width: shape[1] as usize })
        }
    }

    /// The logits of the head of an encoder: a row for each text, for each word (the first token of it; there is white space
    /// between words) of a head for tokens, or for each token of a head for masked tokens. One pass over all texts, without
    /// dropout, copied to the host. `Unsupported`: the model is no encoder with a head.
    pub fn classify<S: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        texts: &[S],
    ) -> Result<LabelLogits> {
        self.classified(tokenizer, &views(texts), ptr::null())
    }

    /// [`classify`](Self::classify) of pairs of texts, for a head for texts.
    pub fn classify_pairs<S: AsRef<str>, T: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        first: &[S],
        second: &[T],
    ) -> Result<LabelLogits> {
        const ORIGIN: &str = "Model::classify_pairs";
        expect_equal(ORIGIN, "first texts", first.len(), "second texts", second.len())?;
        let second = views(second);
        self.classified(tokenizer, &views(first), second.as_ptr())
    }

    fn classified(
        &self,
        tokenizer: &Tokenizer,
        texts: &[sys::trafo_string_view],
        second: *const sys::trafo_string_view,
    ) -> Result<LabelLogits> {
        // SAFETY: the handles are live, the views are valid during the call, as are the outputs; both arrays have the length
        // that is told.
        let (values, labels, cu_seqlens) = self.rows_and_ints(|(logits, bounds)| unsafe {
            sys::trafo_model_classify(
                self.as_ptr(),
                tokenizer.as_ptr(),
                texts.as_ptr(),
                second,
                texts.len(),
                NOT_RECORDED,
                logits,
                bounds,
            )
        })?;
        Ok(LabelLogits { values, labels, cu_seqlens })
    }

    /// [`classify`](Self::classify) of rows of token ids, to which nothing is added; a head for tokens gives a row for each.
    /// `types`: the token type of each token; empty: all are 0.
    pub fn classify_ids<R: AsRef<[i32]>, T: AsRef<[i32]>>(
        &self,
        rows: &[R],
        types: &[T],
    ) -> Result<LabelLogits> {
        if !types.is_empty() {
            expect_equal("Model::classify_ids", "rows", rows.len(), "types", types.len())?;
        }
        let (rows, types) = (id_views(rows), id_views(types));
        let types = if types.is_empty() { ptr::null() } else { types.as_ptr() };
        // SAFETY: as above.
        let (values, labels, cu_seqlens) = self.rows_and_ints(|(logits, bounds)| unsafe {
            sys::trafo_model_classify_ids(
                self.as_ptr(),
                rows.as_ptr(),
                types,
                rows.len(),
                NOT_RECORDED,
                logits,
                bounds,
            )
        })?;
        Ok(LabelLogits { values, labels, cu_seqlens })
    }

    /// The names of the labels of an encoder's head; none without such a head.
    pub fn labels(&self) -> Result<Vec<String>> {
        (0..self.config().labels)
            .map(|index| {
                let mut name = sys::trafo_string_view { data: ptr::null(), length: 0 };
                // SAFETY: the handle is live, the output is valid; the name is borrowed from the model.
                unsafe {
                    check(sys::trafo_model_get_label(self.as_ptr(), index as i64, &mut name))?;
                    let bytes = std::slice::from_raw_parts(name.data.cast(), name.length);
                    Ok(String::from_utf8_lossy(bytes).into_owned())
                }
            })
            .collect()
    }

    /// Gives the encoder another head. `labels`: different names for a head for texts or tokens; none for the others. Weights
    /// that the model does not have are drawn from `seed`. After an error it is as before. `InvalidArgument`: the model is no
    /// encoder, or has an adapter or int8 weights; names that do not fit the head.
    pub fn set_head<S: AsRef<str>>(
        &mut self,
        head: EncoderHead,
        labels: &[S],
        seed: u64,
    ) -> Result<()> {
        let labels = views(labels);
        let model = self.as_ptr();
        // SAFETY: the handle is live, the views are valid during the call. The new model is in the context of this one and
        // takes its place.
        let made = RawModel::make(|out| unsafe {
            let (names, count) = (labels.as_ptr(), labels.len());
            sys::trafo_model_with_head(model, head.as_raw(), names, count, seed, out)
        })?;
        self.replace(made);
        Ok(())
    }
}

impl OpenModel {
    /// [`Model::embed`] as a tensor `[texts, width]`, recorded like [`hidden_states`](OpenModel::hidden_states), with its
    /// errors.
    pub fn embed<S: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        texts: &[S],
        pooling: Pooling,
        normalize: bool,
    ) -> Result<Tensor> {
        let texts = views(texts);
        // SAFETY: as above.
        self.one_tensor(|model, out| unsafe {
            sys::trafo_model_embed(
                model,
                tokenizer.as_ptr(),
                texts.as_ptr(),
                texts.len(),
                pooling.as_raw(),
                normalize.into(),
                RECORDED,
                out,
            )
        })
    }

    /// [`Model::classify`] as tensors, logits and bounds, recorded like [`hidden_states`](OpenModel::hidden_states), with
    /// its errors.
    pub fn classify<S: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        texts: &[S],
    ) -> Result<(Tensor, Tensor)> {
        let texts = views(texts);
        // SAFETY: as above.
        self.two_tensors(|model, logits, bounds| unsafe {
            sys::trafo_model_classify(
                model,
                tokenizer.as_ptr(),
                texts.as_ptr(),
                ptr::null(),
                texts.len(),
                RECORDED,
                logits,
                bounds,
            )
        })
    }
}
