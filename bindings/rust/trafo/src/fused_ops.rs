//! The ops that transformers are made of, as methods of `Tensor`.

use std::ptr;

use trafo_sys as sys;

use crate::context::{Context, to_i64};
use crate::error::{Result, check};
use crate::op_options::{
    Activation, AttentionOptions, CrossEntropyOptions, Dropout, EmbeddingOptions, OptionalDropout,
    SoftmaxOptions, optional,
};
use crate::tensor::Tensor;

// SAFETY of every call below: handles are live, or NULL or freed and then refused by the library; arrays are valid for
// the lengths that go with them; options and outputs are valid during the call, which keeps none of them.

/// # Parts of transformers
impl Tensor {
    /// Called on the table `[V,C]`: `dropout(scale * table[ids] + position_table[positions])`. `ids` is `[T]` of `i32`.
    pub fn embedding(&self, ids: &Tensor, options: &EmbeddingOptions<'_>) -> Result<Tensor> {
        let context = self.context();
        let options = options.to_raw();
        Self::make(context, |out| unsafe {
            sys::trafo_op_embedding(context.as_ptr(), ids.as_ptr(), self.as_ptr(), &options, out)
        })
    }
    /// Over the last dimension; `gamma`, `beta` are `[C]`.
    pub fn layer_norm(&self, gamma: &Tensor, beta: &Tensor, epsilon: f64) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_layer_norm(
                context.as_ptr(),
                self.as_ptr(),
                gamma.as_ptr(),
                beta.as_ptr(),
                epsilon,
                out,
            )
        })
    }
    /// `x / sqrt(mean(x^2) + epsilon) * gamma` over the last dimension; `gamma` is `[C]`.
    pub fn rms_norm(&self, gamma: &Tensor, epsilon: f64) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_rms_norm(context.as_ptr(), self.as_ptr(), gamma.as_ptr(), epsilon, out)
        })
    }
    /// `sum = residual + dropout(x)` and `normed`, its RMS norm, in one pass; gives `(sum, normed)`.
    pub fn residual_rms_norm(
        &self,
        residual: &Tensor,
        gamma: &Tensor,
        epsilon: f64,
        dropout: Option<Dropout>,
    ) -> Result<(Tensor, Tensor)> {
        let context = self.context();
        let dropout = OptionalDropout::new(dropout);
        make_pair(context, |sum, normed| unsafe {
            sys::trafo_op_residual_rms_norm(
                context.as_ptr(),
                self.as_ptr(),
                residual.as_ptr(),
                gamma.as_ptr(),
                epsilon,
                dropout.as_ptr(),
                sum,
                normed,
            )
        })
    }
    /// Rotary position embedding of `heads` heads: pairs `(i, i + head_dim / 2)` are rotated by
    /// `position * theta^(-2i / head_dim)`. With `kv_heads` 0, `self` is `[T, heads * head_dim]` and all heads are rotated.
    /// Else `self` is the packed projection of queries, keys and values, `[T, (heads + 2 kv_heads) * head_dim]`: queries and
    /// keys are rotated, values are copied. The result has the shape of `self`.
    pub fn rotary(
        &self,
        positions: &Tensor,
        heads: usize,
        kv_heads: usize,
        head_dim: usize,
        theta: f64,
    ) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_rotary(
                context.as_ptr(),
                self.as_ptr(),
                positions.as_ptr(),
                to_i64(heads),
                to_i64(kv_heads),
                to_i64(head_dim),
                theta,
                out,
            )
        })
    }
    /// `silu(a) * b` for `[a, b]` in the last dimension, `[.., 2F]` to `[.., F]`.
    pub fn swiglu(&self) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_swiglu(context.as_ptr(), self.as_ptr(), out)
        })
    }
    /// Over the last dimension.
    pub fn softmax(&self) -> Result<Tensor> {
        self.softmax_with(&SoftmaxOptions::new())
    }
    /// Over the last dimension of `[batch, heads, queries, keys]` or fewer dimensions, scaled and masked. A row with every
    /// key hidden is zeros.
    pub fn softmax_with(&self, options: &SoftmaxOptions<'_>) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_softmax(
                context.as_ptr(),
                self.as_ptr(),
                options.scale,
                options.causal.into(),
                optional(options.padding_mask),
                out,
            )
        })
    }
    /// Scaled dot-product attention over packed sequences, called on the queries `[Tq, ..]`; `k` and `v` are `[Tk, ..]`
    /// and may be the same tensor, at other columns. Rows of sequence `b` are `cu_seqlens[b] .. cu_seqlens[b+1]`; both
    /// tensors are `[B+1]` of `i32`. The result is `[Tq, heads * head_dim]`.
    ///
    /// ```
    /// use trafo::{AttentionOptions, Context};
    /// # fn main() -> trafo::Result<()> {
    /// let context = Context::new()?;
    /// // Queries, keys and values of five tokens, side by side: sequences of two and of three tokens.
    /// let qkv = context.tensor(&[0.5f32; 5 * 3 * 8], &[5, 3 * 8])?;
    /// let sequences = context.tensor(&[0, 2, 5], &[3])?;
    /// let options = AttentionOptions::new(2, 4).columns(0, 8, 16).causal(true);
    /// let y = qkv.attention(&qkv, &qkv, &sequences, &sequences, &options)?;
    /// assert_eq!(y.shape(), [5, 8]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn attention(
        &self,
        k: &Tensor,
        v: &Tensor,
        cu_seqlens_q: &Tensor,
        cu_seqlens_k: &Tensor,
        options: &AttentionOptions<'_>,
    ) -> Result<Tensor> {
        let context = self.context();
        let options = options.to_raw();
        Self::make(context, |out| unsafe {
            sys::trafo_op_attention(
                context.as_ptr(),
                self.as_ptr(),
                k.as_ptr(),
                v.as_ptr(),
                cu_seqlens_q.as_ptr(),
                cu_seqlens_k.as_ptr(),
                &options,
                out,
            )
        })
    }
    /// `dropout(activation(x + bias))` in one pass; `bias` is `[C]`.
    pub fn bias_act_dropout(
        &self,
        bias: Option<&Tensor>,
        activation: Activation,
        dropout: Option<Dropout>,
    ) -> Result<Tensor> {
        let context = self.context();
        let dropout = OptionalDropout::new(dropout);
        Self::make(context, |out| unsafe {
            sys::trafo_op_bias_act_dropout(
                context.as_ptr(),
                self.as_ptr(),
                optional(bias),
                activation.as_raw(),
                dropout.as_ptr(),
                out,
            )
        })
    }
    /// `residual + dropout(x + bias)` in one pass; `bias` is `[C]`.
    pub fn bias_dropout_residual(
        &self,
        bias: Option<&Tensor>,
        residual: &Tensor,
        dropout: Option<Dropout>,
    ) -> Result<Tensor> {
        let context = self.context();
        let dropout = OptionalDropout::new(dropout);
        Self::make(context, |out| unsafe {
            sys::trafo_op_bias_dropout_residual(
                context.as_ptr(),
                self.as_ptr(),
                optional(bias),
                residual.as_ptr(),
                dropout.as_ptr(),
                out,
            )
        })
    }
    /// `sum = residual + dropout(x + bias)` and `normed = layer_norm(sum)` in one pass; gives `(sum, normed)`.
    pub fn bias_dropout_residual_norm(
        &self,
        bias: Option<&Tensor>,
        residual: &Tensor,
        gamma: &Tensor,
        beta: &Tensor,
        epsilon: f64,
        dropout: Option<Dropout>,
    ) -> Result<(Tensor, Tensor)> {
        let context = self.context();
        let dropout = OptionalDropout::new(dropout);
        make_pair(context, |sum, normed| unsafe {
            sys::trafo_op_bias_dropout_residual_norm(
                context.as_ptr(),
                self.as_ptr(),
                optional(bias),
                residual.as_ptr(),
                gamma.as_ptr(),
                beta.as_ptr(),
                epsilon,
                dropout.as_ptr(),
                sum,
                normed,
            )
        })
    }
}

/// # Losses
impl Tensor {
    /// Called on logits `[T,V]`, `labels` are `[T]` of `i32`; gives `(loss, nll)`: the loss, and the same without smoothing,
    /// which is never differentiated.
    pub fn cross_entropy(
        &self,
        labels: &Tensor,
        options: &CrossEntropyOptions<'_>,
    ) -> Result<(Tensor, Tensor)> {
        let context = self.context();
        let options = options.to_raw();
        make_pair(context, |loss, nll| unsafe {
            sys::trafo_op_cross_entropy(
                context.as_ptr(),
                self.as_ptr(),
                labels.as_ptr(),
                &options,
                loss,
                nll,
            )
        })
    }
    /// Cross-entropy of logits `[T,V]`, on which it is called, and class probabilities `[T,V]`, such as a teacher's. These may
    /// want a gradient. Smoothing `e` makes them `(1 - e) targets + e / V`; the label to be ignored has no meaning here; a
    /// mean is divided by the sum of the row weights, without them by `T`.
    pub fn soft_cross_entropy(
        &self,
        targets: &Tensor,
        options: &CrossEntropyOptions<'_>,
    ) -> Result<Tensor> {
        let context = self.context();
        let options = options.to_raw();
        Self::make(context, |out| unsafe {
            sys::trafo_op_soft_cross_entropy(
                context.as_ptr(),
                self.as_ptr(),
                targets.as_ptr(),
                &options,
                out,
            )
        })
    }
    /// `cross_entropy(x W^T + bias)` in chunks, without ever holding all logits: `x [T,C]`, `weight [V,C]`, `bias [V]`.
    /// `chunk_bytes` of logits are held at a time, 0 for the default. Not for [`Reduction::None`](crate::Reduction::None).
    pub fn linear_cross_entropy(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        labels: &Tensor,
        options: &CrossEntropyOptions<'_>,
        chunk_bytes: usize,
    ) -> Result<(Tensor, Tensor)> {
        let context = self.context();
        let options = options.to_raw();
        make_pair(context, |loss, nll| unsafe {
            sys::trafo_op_linear_cross_entropy(
                context.as_ptr(),
                self.as_ptr(),
                weight.as_ptr(),
                optional(bias),
                labels.as_ptr(),
                &options,
                to_i64(chunk_bytes),
                loss,
                nll,
            )
        })
    }
}

fn make_pair(
    context: &Context,
    call: impl FnOnce(*mut *mut sys::trafo_tensor, *mut *mut sys::trafo_tensor) -> *mut sys::trafo_error,
) -> Result<(Tensor, Tensor)> {
    let (mut first, mut second) = (ptr::null_mut(), ptr::null_mut());
    check(call(&mut first, &mut second))?;
    // Both are taken over before either result is looked at, so that none is lost.
    // SAFETY: a successful call gives two new handles.
    let (first, second) =
        unsafe { (Tensor::adopt(context, first), Tensor::adopt(context, second)) };
    Ok((first?, second?))
}
