//! A model's states of texts, token by token.

use std::ops::Range;
use std::ptr;

use trafo_sys as sys;

use crate::error::{Result, check};
use crate::handle::{RawTensor, views};
use crate::model::Model;
use crate::text::{Tokenizer, expect_equal};

/// The hidden states of texts, one row for each token and for the end of each text.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HiddenStates {
    /// `[tokens, width]`, one text after the other.
    pub values: Vec<f32>,
    /// Elements of a row.
    pub width: usize,
    /// Text `i` has the rows `cu_seqlens[i]` to `cu_seqlens[i + 1] - 1`, as ops on packed sequences take them.
    pub cu_seqlens: Vec<i32>,
}

impl HiddenStates {
    /// The rows of text `index`.
    #[must_use]
    pub fn rows(&self, index: usize) -> Range<usize> {
        self.cu_seqlens[index] as usize..self.cu_seqlens[index + 1] as usize
    }
    /// The states of text `index`, `[tokens, width]`.
    #[must_use]
    pub fn text(&self, index: usize) -> &[f32] {
        let rows = self.rows(index);
        &self.values[rows.start * self.width..rows.end * self.width]
    }
}

/// The logits of target tokens.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Logits {
    /// `[tokens, vocabulary]`, one target after the other, each with its end.
    pub values: Vec<f32>,
    /// Elements of a row.
    pub vocabulary: usize,
    /// The token that each row predicts; -100 for the tokens of a source that a decoder-only model reads.
    pub labels: Vec<i32>,
}

/// A model's context is not the caller's, so nothing could use a record.
pub(crate) const NOT_RECORDED: i32 = 0;

pub(crate) type Pair = (*mut *mut sys::trafo_tensor, *mut *mut sys::trafo_tensor);

impl Model {
    /// The hidden states of texts: of the encoder, or of a decoder-only model's last layer before the output projection.
    /// One pass over all texts, without dropout, copied to the host. A text over the model's limit is an error. As tensors
    /// with gradients: [`OpenModel::hidden_states`](crate::OpenModel::hidden_states).
    pub fn hidden_states<S: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        texts: &[S],
    ) -> Result<HiddenStates> {
        let texts = views(texts);
        // SAFETY: the handles are live, the views are valid during the call, as are the outputs.
        let (values, width, cu_seqlens) = self.rows_and_ints(|(states, bounds)| unsafe {
            sys::trafo_model_hidden_states(
                self.as_ptr(),
                tokenizer.as_ptr(),
                texts.as_ptr(),
                texts.len(),
                NOT_RECORDED,
                states,
                bounds,
            )
        })?;
        Ok(HiddenStates { values, width, cu_seqlens })
    }

    /// The logits of every target token and of the end of each target, given its source and the target tokens before it.
    /// One pass over all pairs, without dropout, copied to the host. As tensors with gradients:
    /// [`OpenModel::logits`](crate::OpenModel::logits).
    pub fn logits<S: AsRef<str>, T: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        sources: &[S],
        targets: &[T],
    ) -> Result<Logits> {
        expect_equal("Model::logits", "sources", sources.len(), "targets", targets.len())?;
        let (sources, targets) = (views(sources), views(targets));
        // SAFETY: as above; both arrays have the length that is told.
        let (values, vocabulary, labels) = self.rows_and_ints(|(logits, labels)| unsafe {
            sys::trafo_model_logits(
                self.as_ptr(),
                tokenizer.as_ptr(),
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

    /// A matrix of floats and a vector of integers that one call makes: the matrix, its columns, the vector.
    pub(crate) fn rows_and_ints(
        &self,
        call: impl FnOnce(Pair) -> *mut sys::trafo_error,
    ) -> Result<(Vec<f32>, usize, Vec<i32>)> {
        let mut second = ptr::null_mut();
        let matrix = RawTensor::make(|first| call((first, &mut second)))?;
        let vector = RawTensor::make(|out| {
            // SAFETY: the call above has succeeded and given a handle, which moves to `out`.
            unsafe { *out = second };
            ptr::null_mut()
        })?;
        // A bfloat16 model's values are exact in float32.
        let single = RawTensor::make(|out| unsafe {
            sys::trafo_op_cast(self.context_ptr(), matrix.as_ptr(), sys::TRAFO_FLOAT32, out)
        })?;
        let shape = shape_of(&single)?;
        let mut values = vec![0f32; shape.iter().product()];
        let mut ints = vec![0i32; shape_of(&vector)?.iter().product()];
        // SAFETY: the handles are live, and the buffers have their sizes.
        unsafe {
            let bytes = size_of_val(&*values);
            check(sys::trafo_tensor_read(single.as_ptr(), values.as_mut_ptr().cast(), bytes))?;
            let bytes = size_of_val(&*ints);
            check(sys::trafo_tensor_read(vector.as_ptr(), ints.as_mut_ptr().cast(), bytes))?;
        }
        Ok((values, shape[1], ints))
    }
}

fn shape_of(tensor: &RawTensor) -> Result<Vec<usize>> {
    let (mut shape, mut rank) = ([0i64; 2], 0);
    // SAFETY: the handle is live, the outputs are valid.
    check(unsafe {
        sys::trafo_tensor_get_shape(tensor.as_ptr(), shape.as_mut_ptr(), 2, &mut rank)
    })?;
    Ok(shape[..rank as usize].iter().map(|&size| size as usize).collect())
}
