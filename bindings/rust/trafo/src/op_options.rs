//! Settings of ops.

use std::ptr;

use trafo_sys as sys;

use crate::handle::defaults;
use crate::ops::Reduction;
use crate::options::to_i64;
use crate::tensor::Tensor;

/// Dropout addressed by (seed, step, id, element): the same address gives the same mask on every device, and again in
/// backward and in recomputation.
///
/// ```
/// use trafo::Dropout;
///
/// // Of update 17, dropout 3 of the network.
/// let dropout = Dropout::new(0.1, 42).at(17, 3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability of zeroing, `0 <= p < 1`.
    pub p: f32,
    /// Seed of the run.
    pub seed: u64,
    /// The update.
    pub step: u32,
    /// Which dropout of the network.
    pub id: u32,
}

impl Dropout {
    /// At step 0, id 0.
    pub fn new(p: f32, seed: u64) -> Self {
        Dropout { p, seed, step: 0, id: 0 }
    }
    /// The same at another address.
    #[must_use]
    pub fn at(mut self, step: u32, id: u32) -> Self {
        self.step = step;
        self.id = id;
        self
    }
    pub(crate) fn to_raw(self) -> sys::trafo_dropout {
        sys::trafo_dropout {
            p: self.p,
            step: self.step,
            dropout_id: self.id,
            reserved: 0,
            seed: self.seed,
        }
    }
}

/// Settings of [`Tensor::softmax_with`].
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct SoftmaxOptions<'a> {
    pub(crate) scale: f64,
    pub(crate) causal: bool,
    pub(crate) padding_mask: Option<&'a Tensor>,
}

impl<'a> SoftmaxOptions<'a> {
    /// No scale, no mask.
    pub fn new() -> Self {
        SoftmaxOptions { scale: 1.0, causal: false, padding_mask: None }
    }
    /// softmax(scale * x)
    pub fn scale(mut self, scale: f64) -> Self {
        self.scale = scale;
        self
    }
    /// Hides key `j` from query `i` when `j > i + keys - queries`.
    pub fn causal(mut self, causal: bool) -> Self {
        self.causal = causal;
        self
    }
    /// `[batch, keys]` of `i32`, non-zero is hidden.
    pub fn padding_mask(mut self, mask: &'a Tensor) -> Self {
        self.padding_mask = Some(mask);
        self
    }
}

impl Default for SoftmaxOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// Settings of [`Tensor::embedding`].
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingOptions<'a> {
    scale: f64,
    padding_id: Option<usize>,
    positions: Option<(&'a Tensor, &'a Tensor)>,
    dropout: Option<Dropout>,
}

impl<'a> EmbeddingOptions<'a> {
    /// No scale, no padding, no positions, no dropout.
    pub fn new() -> Self {
        EmbeddingOptions { scale: 1.0, padding_id: None, positions: None, dropout: None }
    }
    /// Multiplies the rows of the table.
    pub fn scale(mut self, scale: f64) -> Self {
        self.scale = scale;
        self
    }
    /// Tokens with this id give the table no gradient.
    pub fn padding_id(mut self, id: usize) -> Self {
        self.padding_id = Some(id);
        self
    }
    /// Adds rows of another table `[P,C]`; `positions` is `[T]` of `i32`.
    pub fn positions(mut self, positions: &'a Tensor, table: &'a Tensor) -> Self {
        self.positions = Some((positions, table));
        self
    }
    /// On the sum.
    pub fn dropout(mut self, dropout: Dropout) -> Self {
        self.dropout = Some(dropout);
        self
    }
    pub(crate) fn to_raw(self) -> sys::trafo_embedding_options {
        let mut raw = defaults(sys::trafo_embedding_options_init);
        raw.scale = self.scale;
        if let Some(id) = self.padding_id {
            raw.padding_id = to_i64(id);
        }
        raw.positions = optional(self.positions.map(|p| p.0));
        raw.position_table = optional(self.positions.map(|p| p.1));
        if let Some(dropout) = self.dropout {
            raw.dropout = dropout.to_raw();
        }
        raw
    }
}

impl Default for EmbeddingOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// Settings of [`Tensor::attention`].
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct AttentionOptions<'a> {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    columns: (usize, usize, usize),
    scale: f64,
    causal: bool,
    dropout: Option<Dropout>,
    mask: Option<&'a Tensor>,
}

impl<'a> AttentionOptions<'a> {
    /// `heads` of `head_dim` columns each, full attention, scaled by `1 / sqrt(head_dim)`.
    pub fn new(heads: usize, head_dim: usize) -> Self {
        AttentionOptions {
            heads,
            kv_heads: 0,
            head_dim,
            columns: (0, 0, 0),
            scale: 0.0,
            causal: false,
            dropout: None,
            mask: None,
        }
    }
    /// Heads of keys and values, a divisor of `heads` (grouped-query attention): query head `h` reads
    /// head `h / (heads / kv_heads)`. 0, the default: as many as `heads`.
    pub fn kv_heads(mut self, kv_heads: usize) -> Self {
        self.kv_heads = kv_heads;
        self
    }
    /// First columns of queries, keys and values, when they lie side by side in one tensor.
    pub fn columns(mut self, q: usize, k: usize, v: usize) -> Self {
        self.columns = (q, k, v);
        self
    }
    /// Another scale.
    pub fn scale(mut self, scale: f64) -> Self {
        self.scale = scale;
        self
    }
    /// Hides the future.
    pub fn causal(mut self, causal: bool) -> Self {
        self.causal = causal;
        self
    }
    /// On the probabilities.
    pub fn dropout(mut self, dropout: Dropout) -> Self {
        self.dropout = Some(dropout);
        self
    }
    /// `[batch, heads, queries, keys]`, of which each may be 1; queries and keys of the longest sequences. Of `i32`: what
    /// is not 0 is masked. Of the type of the queries: added to the scaled scores; it gets a gradient, and negative
    /// infinity masks. A query whose keys are all masked gives zeros. With a mask the scores of all heads are stored.
    pub fn mask(mut self, mask: &'a Tensor) -> Self {
        self.mask = Some(mask);
        self
    }
    pub(crate) fn to_raw(self) -> sys::trafo_attention_options {
        let mut raw = defaults(sys::trafo_attention_options_init);
        raw.heads = to_i64(self.heads);
        raw.kv_heads = to_i64(self.kv_heads);
        raw.head_dim = to_i64(self.head_dim);
        raw.q_column = to_i64(self.columns.0);
        raw.k_column = to_i64(self.columns.1);
        raw.v_column = to_i64(self.columns.2);
        raw.scale = self.scale;
        raw.causal = self.causal.into();
        raw.mask = optional(self.mask);
        if let Some(dropout) = self.dropout {
            raw.dropout = dropout.to_raw();
        }
        raw
    }
}

/// Settings of [`Tensor::cross_entropy`], [`Tensor::soft_cross_entropy`] and [`Tensor::linear_cross_entropy`].
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropyOptions<'a> {
    label_smoothing: f64,
    ignore_label: i32,
    reduction: Reduction,
    weights: Option<&'a Tensor>,
    class_weights: Option<&'a Tensor>,
}

impl<'a> CrossEntropyOptions<'a> {
    /// The mean over rows, no smoothing; rows with label -100 are ignored.
    pub fn new() -> Self {
        CrossEntropyOptions {
            label_smoothing: 0.0,
            ignore_label: -100,
            reduction: Reduction::Mean,
            weights: None,
            class_weights: None,
        }
    }
    /// Mass spread over all classes.
    pub fn label_smoothing(mut self, mass: f64) -> Self {
        self.label_smoothing = mass;
        self
    }
    /// The label of rows that do not count.
    pub fn ignore_label(mut self, label: i32) -> Self {
        self.ignore_label = label;
        self
    }
    /// How rows are put together.
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }
    /// A weight for each row, of the logits' type. Gets no gradient.
    pub fn weights(mut self, weights: &'a Tensor) -> Self {
        self.weights = Some(weights);
        self
    }
    /// A weight for each class, `[V]` of the logits' type: the term of class `v` in a row's loss is multiplied by the
    /// weight of `v`, and a row counts with the weight of its label. Gets no gradient.
    /// [`linear_cross_entropy`](Tensor::linear_cross_entropy) takes them without smoothing only.
    pub fn class_weights(mut self, weights: &'a Tensor) -> Self {
        self.class_weights = Some(weights);
        self
    }
    pub(crate) fn to_raw(self) -> sys::trafo_cross_entropy_options {
        let mut raw = defaults(sys::trafo_cross_entropy_options_init);
        raw.label_smoothing = self.label_smoothing;
        raw.ignore_label = self.ignore_label;
        raw.reduction = self.reduction.as_raw();
        raw.weights = optional(self.weights);
        raw.class_weights = optional(self.class_weights);
        raw
    }
}

impl Default for CrossEntropyOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) fn optional(tensor: Option<&Tensor>) -> *const sys::trafo_tensor {
    tensor.map_or(ptr::null(), |t| t.as_ptr())
}

/// An optional dropout as the pointer that the C call wants, valid as long as the holder.
pub(crate) struct OptionalDropout(Option<sys::trafo_dropout>);

impl OptionalDropout {
    pub(crate) fn new(dropout: Option<Dropout>) -> Self {
        OptionalDropout(dropout.map(Dropout::to_raw))
    }
    pub(crate) fn as_ptr(&self) -> *const sys::trafo_dropout {
        self.0.as_ref().map_or(ptr::null(), ptr::from_ref)
    }
}
