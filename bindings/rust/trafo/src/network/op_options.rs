//! Settings of ops.

use std::ptr;

use trafo_sys as sys;

use crate::handle::defaults;
use crate::network::ops::Reduction;
use crate::network::tensor::Tensor;
use crate::options::{from_i64, to_i64};

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
#[non_exhaustive]
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
    #[must_use]
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

// The table in schema/structs.toml gives the structs and most of their setters.
include!("../generated/embedding_options.rs");
include!("../generated/attention_options.rs");
include!("../generated/cross_entropy_options.rs");

impl<'a> EmbeddingOptions<'a> {
    /// Adds rows of another table `[P,C]`; `positions` is `[T]` of `i32`.
    pub fn positions(mut self, positions: &'a Tensor, table: &'a Tensor) -> Self {
        self.positions = Some(positions);
        self.position_table = Some(table);
        self
    }
}

impl AttentionOptions<'_> {
    /// `heads` of `head_dim` columns each, full attention, scaled by `1 / sqrt(head_dim)`.
    pub fn new(heads: usize, head_dim: usize) -> Self {
        AttentionOptions { heads, head_dim, ..Self::with_defaults() }
    }
    /// First columns of queries, keys and values, when they lie side by side in one tensor.
    pub fn columns(mut self, q: usize, k: usize, v: usize) -> Self {
        (self.q_column, self.k_column, self.v_column) = (q, k, v);
        self
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
