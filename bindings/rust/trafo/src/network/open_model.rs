//! Models whose hidden states and logits are tensors of own networks.

use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::ptr;
use std::rc::Rc;

use trafo_sys as sys;

use crate::context::{Context, ContextInner};
use crate::error::{Result, check};
use crate::handle::{RawModel, path_view, views};
use crate::model::Model;
use crate::network::tensor::Tensor;
use crate::text::{Tokenizer, expect_equal};

/// Recorded while the context records.
pub(crate) const RECORDED: i32 = 1;

/// A model in a [`Context`], as [`Model::open`] makes it: hidden states and logits are tensors there, recorded with what an
/// own network computes of them, so that [`Tensor::backward`] reaches the parameters of the model.
///
/// Like its tensors it stays on the thread that opened it. [`close`](OpenModel::close) makes a [`Model`] of it again, which
/// translates, trains and moves between threads.
///
/// ```
/// use trafo::{AdamW, AdamWOptions, Corpus, CrossEntropyOptions, Model, ModelConfig, Tensor, TokenizerOptions};
/// # fn main() -> trafo::Result<()> {
/// let corpus = Corpus::from_pairs([("ein Haus", "a house"), ("ein Baum", "a tree")])?;
/// let tokenizer = corpus.train_tokenizer(&TokenizerOptions::new(40).soft_limit(true))?;
/// let config = ModelConfig::preset("tiny", tokenizer.vocabulary())?.encoder_layers(1).decoder_layers(1);
/// let model = Model::new(&config, 1)?.open();
/// let parameters = model.parameters()?;
/// let tensors: Vec<&Tensor> = parameters.iter().map(|(_, tensor)| tensor).collect();
/// let mut optimizer = AdamW::new(model.context(), &tensors, &AdamWOptions::default())?;
/// for _ in 0..3 {
///     let (logits, labels) = model.logits(&tokenizer, &["ein Haus"], &["a house"])?;
///     logits.cross_entropy(&labels, &CrossEntropyOptions::new())?.0.backward()?;
///     optimizer.step(1e-3)?;
/// }
/// drop((optimizer, parameters));
/// let model = model.close().expect("no tensor of it is left");
/// # Ok(())
/// # }
/// ```
pub struct OpenModel {
    raw: RawModel,
    context: Context,
}

impl Model {
    /// Opens the model for own networks: the context that it computes in becomes one to make tensors in.
    #[must_use]
    pub fn open(self) -> OpenModel {
        let (raw, context) = self.into_raw();
        let interruption = RefCell::new(None);
        OpenModel { raw, context: Context(Rc::new(ContextInner { raw: context, interruption })) }
    }
}

impl OpenModel {
    /// The context of the model and of its tensors.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The parameters with their names, in the order of the file: tensors on the memory of the model, not copies.
    pub fn parameters(&self) -> Result<Vec<(String, Tensor)>> {
        let (mut count, mut elements) = (0, 0);
        // SAFETY: the handle is live, the outputs are valid.
        check(unsafe {
            sys::trafo_model_get_parameter_count(self.raw.as_ptr(), &mut count, &mut elements)
        })?;
        (0..count).map(|index| self.parameter(index)).collect()
    }

    fn parameter(&self, index: i64) -> Result<(String, Tensor)> {
        let mut name = ptr::null();
        // SAFETY: the handle is live, the outputs are valid; the name is borrowed from the model.
        let tensor = Tensor::make(&self.context, |out| unsafe {
            sys::trafo_model_get_parameter(self.raw.as_ptr(), index, &mut name, out)
        })?;
        // SAFETY: the call above has succeeded and given a text that ends with a zero.
        let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_string_lossy().into_owned();
        Ok((name, tensor))
    }

    /// The model's states of every token of the texts and of the end of each text: states `[T, width]` of the encoder, or of
    /// a decoder-only model's last layer before the output projection, and `cu_seqlens` `[texts + 1]`. Text `i` has the rows
    /// `cu_seqlens[i]` to `cu_seqlens[i + 1] - 1`, as [`Tensor::segment_mean`] and [`Tensor::attention`] take them. One pass
    /// over all texts, without dropout, recorded unless [`Context::no_grad`] runs. A model that is prepared for inference
    /// records nothing. `InvalidArgument`: no texts, or one that is too long.
    pub fn hidden_states<S: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        texts: &[S],
    ) -> Result<(Tensor, Tensor)> {
        let texts = views(texts);
        // SAFETY: the handles are live, the views are valid during the call, as are the outputs.
        self.two_tensors(|model, states, bounds| unsafe {
            sys::trafo_model_hidden_states(
                model,
                tokenizer.as_ptr(),
                texts.as_ptr(),
                texts.len(),
                RECORDED,
                states,
                bounds,
            )
        })
    }

    /// The logits `[T, vocabulary]` of every target token and of the end of each target, given its source and the target
    /// tokens before it, and the tokens that they predict: labels `[T]`, as [`Tensor::cross_entropy`] takes them. In a
    /// decoder-only model the tokens of the sources are rows as well, with the label -100, which is ignored. One pass,
    /// recorded like [`hidden_states`](OpenModel::hidden_states), with its errors.
    pub fn logits<S: AsRef<str>, T: AsRef<str>>(
        &self,
        tokenizer: &Tokenizer,
        sources: &[S],
        targets: &[T],
    ) -> Result<(Tensor, Tensor)> {
        expect_equal("OpenModel::logits", "sources", sources.len(), "targets", targets.len())?;
        let (sources, targets) = (views(sources), views(targets));
        // SAFETY: as above; both arrays have the length that is told.
        self.two_tensors(|model, logits, labels| unsafe {
            sys::trafo_model_logits(
                model,
                tokenizer.as_ptr(),
                sources.as_ptr(),
                targets.as_ptr(),
                sources.len(),
                RECORDED,
                logits,
                labels,
            )
        })
    }

    pub(crate) fn one_tensor(
        &self,
        call: impl FnOnce(*mut sys::trafo_model, *mut *mut sys::trafo_tensor) -> *mut sys::trafo_error,
    ) -> Result<Tensor> {
        Tensor::make(&self.context, |out| call(self.raw.as_ptr(), out))
    }

    pub(crate) fn two_tensors(
        &self,
        call: impl FnOnce(
            *mut sys::trafo_model,
            *mut *mut sys::trafo_tensor,
            *mut *mut sys::trafo_tensor,
        ) -> *mut sys::trafo_error,
    ) -> Result<(Tensor, Tensor)> {
        let (mut first, mut second) = (ptr::null_mut(), ptr::null_mut());
        check(call(self.raw.as_ptr(), &mut first, &mut second))?;
        // SAFETY: a successful call gives two handles. Both are adopted before one of them can fail the call.
        let (first, second) =
            unsafe { (Tensor::adopt(&self.context, first), Tensor::adopt(&self.context, second)) };
        Ok((first?, second?))
    }

    /// Writes the file, whole or not at all.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let (data, length) = path_view(path.as_ref());
        // SAFETY: the handle is live, the path is valid during the call.
        check(unsafe { sys::trafo_model_save(self.raw.as_ptr(), data, length) })
    }

    /// A separate model again, with the weights as they are now. While a clone of the context, a tensor or an optimizer of
    /// it lives, or a region or an op of the program is recorded, the model cannot leave the thread: the error gives it
    /// back, still open.
    pub fn close(self) -> std::result::Result<Model, OpenModel> {
        let OpenModel { raw, context } = self;
        // A recorded closure of this thread has a weak handle.
        if Rc::strong_count(&context.0) > 1 || Rc::weak_count(&context.0) > 0 {
            return Err(OpenModel { raw, context });
        }
        let inner = Rc::into_inner(context.0).expect("no other handle on the context");
        Ok(Model::from_raw(raw, inner.raw))
    }
}

impl fmt::Debug for OpenModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenModel").finish_non_exhaustive()
    }
}
