//! The ops, as methods of `Tensor`.

use std::ops::{Add, Div, Mul, Range, Sub};
use std::ptr;

use trafo_sys as sys;

use crate::context::{Context, to_i64};
use crate::error::{Result, check};
use crate::handle::defaults;
use crate::tensor::{DType, Tensor, rank};

/// Dropout addressed by (seed, step, site, element): the same address gives the same mask on every device, and again in
/// backward and in recomputation.
///
/// ```
/// use trafo::Dropout;
///
/// // Of update 17, the third place in the network that drops.
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
    /// The place in the network.
    pub site: u32,
}

impl Dropout {
    /// At step 0, site 0.
    pub fn new(p: f32, seed: u64) -> Self {
        Dropout { p, seed, step: 0, site: 0 }
    }
    /// The same at another address.
    pub fn at(mut self, step: u32, site: u32) -> Self {
        self.step = step;
        self.site = site;
        self
    }
    fn to_raw(self) -> sys::trafo_dropout {
        sys::trafo_dropout {
            p: self.p,
            step: self.step,
            site: self.site,
            reserved: 0,
            seed: self.seed,
        }
    }
}

/// Activation functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// The tanh form.
    Gelu,
    /// `x * sigmoid(x)`
    Silu,
}

impl Activation {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            Activation::Relu => sys::TRAFO_RELU,
            Activation::Gelu => sys::TRAFO_GELU,
            Activation::Silu => sys::TRAFO_SILU,
        }
    }
}

/// Settings of [`Tensor::softmax_with`].
#[derive(Clone, Copy, Debug)]
pub struct SoftmaxOptions<'a> {
    scale: f64,
    causal: bool,
    padding_mask: Option<&'a Tensor>,
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

/// Settings of [`Tensor::attention`].
#[derive(Clone, Copy, Debug)]
pub struct AttentionOptions {
    heads: usize,
    head_dim: usize,
    columns: (usize, usize, usize),
    scale: f64,
    causal: bool,
    dropout: Option<Dropout>,
}

impl AttentionOptions {
    /// `heads` of `head_dim` columns each, full attention, scaled by `1 / sqrt(head_dim)`.
    pub fn new(heads: usize, head_dim: usize) -> Self {
        AttentionOptions {
            heads,
            head_dim,
            columns: (0, 0, 0),
            scale: 0.0,
            causal: false,
            dropout: None,
        }
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
    fn to_raw(self) -> sys::trafo_attention_options {
        let mut raw = defaults(sys::trafo_attention_options_init);
        raw.heads = to_i64(self.heads);
        raw.head_dim = to_i64(self.head_dim);
        raw.q_column = to_i64(self.columns.0);
        raw.k_column = to_i64(self.columns.1);
        raw.v_column = to_i64(self.columns.2);
        raw.scale = self.scale;
        raw.causal = self.causal.into();
        if let Some(dropout) = self.dropout {
            raw.dropout = dropout.to_raw();
        }
        raw
    }
}

/// How losses of rows are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduction {
    /// One loss for each row.
    None,
    /// Their sum.
    Sum,
    /// Their sum over the sum of the weights that are not ignored.
    Mean,
}

/// Settings of [`Tensor::cross_entropy`] and [`Tensor::linear_cross_entropy`].
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropyOptions<'a> {
    label_smoothing: f64,
    ignore_label: i32,
    reduction: Reduction,
    weights: Option<&'a Tensor>,
}

impl<'a> CrossEntropyOptions<'a> {
    /// The mean over rows, no smoothing; rows with label -100 are ignored.
    pub fn new() -> Self {
        CrossEntropyOptions {
            label_smoothing: 0.0,
            ignore_label: -100,
            reduction: Reduction::Mean,
            weights: None,
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
    fn to_raw(self) -> sys::trafo_cross_entropy_options {
        let mut raw = defaults(sys::trafo_cross_entropy_options_init);
        raw.label_smoothing = self.label_smoothing;
        raw.ignore_label = self.ignore_label;
        raw.reduction = match self.reduction {
            Reduction::None => sys::TRAFO_REDUCE_NONE,
            Reduction::Sum => sys::TRAFO_REDUCE_SUM,
            Reduction::Mean => sys::TRAFO_REDUCE_MEAN,
        };
        raw.weights = optional(self.weights);
        raw
    }
}

impl Default for CrossEntropyOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

fn optional(tensor: Option<&Tensor>) -> *const sys::trafo_tensor {
    tensor.map_or(ptr::null(), |t| t.as_ptr())
}

/// An optional dropout as the pointer that the C call wants, valid as long as the holder.
struct OptionalDropout(Option<sys::trafo_dropout>);

impl OptionalDropout {
    fn new(dropout: Option<Dropout>) -> Self {
        OptionalDropout(dropout.map(Dropout::to_raw))
    }
    fn as_ptr(&self) -> *const sys::trafo_dropout {
        self.0.as_ref().map_or(ptr::null(), ptr::from_ref)
    }
}

// SAFETY of every call below: handles are live, or NULL or freed and then refused by the library; arrays are valid for
// the lengths that go with them; options and outputs are valid during the call, which keeps none of them.

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident = $function:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
            let context = self.context();
            Self::make(context, |out| unsafe {
                sys::$function(context.as_ptr(), self.as_ptr(), other.as_ptr(), out)
            })
        }
    )*};
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $function:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self) -> Result<Tensor> {
            let context = self.context();
            Self::make(context, |out| unsafe {
                sys::$function(context.as_ptr(), self.as_ptr(), out)
            })
        }
    )*};
}

macro_rules! over_dim {
    ($($(#[$doc:meta])* $name:ident = $function:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self, dim: i32, keep_dim: bool) -> Result<Tensor> {
            let context = self.context();
            Self::make(context, |out| unsafe {
                sys::$function(context.as_ptr(), self.as_ptr(), dim, keep_dim.into(), out)
            })
        }
    )*};
}

/// # Element by element
impl Tensor {
    binary! {
        /// Sum, with NumPy's broadcasting. Also `&a + &b`.
        add = trafo_op_add;
        /// Difference, with NumPy's broadcasting. Also `&a - &b`.
        sub = trafo_op_subtract;
        /// Product, with NumPy's broadcasting. Also `&a * &b`.
        mul = trafo_op_multiply;
        /// Quotient, with NumPy's broadcasting. Also `&a / &b`.
        div = trafo_op_divide;
    }
    unary! {
        /// e to the power of x.
        exp = trafo_op_exp;
        /// Natural logarithm.
        log = trafo_op_log;
        /// Square root.
        sqrt = trafo_op_sqrt;
        /// Hyperbolic tangent.
        tanh = trafo_op_tanh;
        /// `1 / (1 + exp(-x))`
        sigmoid = trafo_op_sigmoid;
    }
    /// `factor * x`. Also `&x * factor`.
    pub fn scale(&self, factor: f64) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_scale(context.as_ptr(), self.as_ptr(), factor, out)
        })
    }
    /// An activation function.
    pub fn activation(&self, activation: Activation) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_activation(context.as_ptr(), self.as_ptr(), activation.as_raw(), out)
        })
    }
    /// [`Activation::Relu`]
    pub fn relu(&self) -> Result<Tensor> {
        self.activation(Activation::Relu)
    }
    /// [`Activation::Gelu`]
    pub fn gelu(&self) -> Result<Tensor> {
        self.activation(Activation::Gelu)
    }
    /// [`Activation::Silu`]
    pub fn silu(&self) -> Result<Tensor> {
        self.activation(Activation::Silu)
    }
    /// Zeroes elements and scales the others by `1 / (1 - p)`.
    pub fn dropout(&self, dropout: Dropout) -> Result<Tensor> {
        let context = self.context();
        let dropout = dropout.to_raw();
        Self::make(context, |out| unsafe {
            sys::trafo_op_dropout(context.as_ptr(), self.as_ptr(), &dropout, out)
        })
    }
    /// Between `F32`, `F64` and `BF16`.
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_cast(context.as_ptr(), self.as_ptr(), dtype.as_raw(), out)
        })
    }
}

/// # Reductions
impl Tensor {
    unary! {
        /// Over everything, shape `[1]`.
        sum = trafo_op_sum;
        /// Over everything, shape `[1]`.
        mean = trafo_op_mean;
    }
    over_dim! {
        /// Over one dimension, negative counts from the end; `keep_dim` leaves a 1 in its place.
        sum_dim = trafo_op_sum_dim;
        /// Over one dimension, negative counts from the end; `keep_dim` leaves a 1 in its place.
        mean_dim = trafo_op_mean_dim;
        /// Over one dimension, negative counts from the end. The gradient goes to the first maximum.
        max_dim = trafo_op_max_dim;
    }
}

/// # Shapes
impl Tensor {
    /// The same elements in another shape; one dimension may be -1 and is inferred.
    pub fn reshape(&self, shape: &[i64]) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_reshape(context.as_ptr(), self.as_ptr(), shape.as_ptr(), rank(shape), out)
        })
    }
    /// Swaps two dimensions; a view.
    pub fn transpose(&self, dim0: i32, dim1: i32) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_transpose(context.as_ptr(), self.as_ptr(), dim0, dim1, out)
        })
    }
    /// `x[.., range, ..]` in dimension `dim`; a view.
    pub fn slice(&self, dim: i32, range: Range<usize>) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_slice(
                context.as_ptr(),
                self.as_ptr(),
                dim,
                to_i64(range.start),
                to_i64(range.end),
                out,
            )
        })
    }
}

impl Context {
    /// Puts tensors one after another along dimension `dim`.
    pub fn concat(&self, tensors: &[&Tensor], dim: i32) -> Result<Tensor> {
        let raw: Vec<*const sys::trafo_tensor> =
            tensors.iter().map(|t| t.as_ptr().cast_const()).collect();
        Tensor::make(self, |out| unsafe {
            sys::trafo_op_concat(self.as_ptr(), raw.as_ptr(), raw.len(), dim, out)
        })
    }
}

/// # Products
impl Tensor {
    /// `[m,k] x [k,n]`, or batched `[b,m,k] x [b,k,n]`.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        self.matmul_with(other, false, false)
    }
    /// The same with the last two dimensions of an input swapped.
    pub fn matmul_with(
        &self,
        other: &Tensor,
        transpose_self: bool,
        transpose_other: bool,
    ) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_matmul(
                context.as_ptr(),
                self.as_ptr(),
                other.as_ptr(),
                transpose_self.into(),
                transpose_other.into(),
                out,
            )
        })
    }
    /// `x W^T + bias`: `x [.., in]`, `weight [out, in]`, `bias [out]`.
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let context = self.context();
        Self::make(context, |out| unsafe {
            sys::trafo_op_linear(
                context.as_ptr(),
                self.as_ptr(),
                weight.as_ptr(),
                optional(bias),
                out,
            )
        })
    }
}

/// # Parts of transformers
impl Tensor {
    /// Called on the table `[V,C]`: `dropout(scale * table[ids] + position_table[positions])`. `ids` is `[T]` of `i32`;
    /// `positions` is a pair of `[T]` of `i32` and the position table `[P,C]`.
    pub fn embedding(
        &self,
        ids: &Tensor,
        scale: f64,
        positions: Option<(&Tensor, &Tensor)>,
        dropout: Option<Dropout>,
    ) -> Result<Tensor> {
        let context = self.context();
        let dropout = OptionalDropout::new(dropout);
        Self::make(context, |out| unsafe {
            sys::trafo_op_embedding(
                context.as_ptr(),
                ids.as_ptr(),
                self.as_ptr(),
                scale,
                optional(positions.map(|p| p.0)),
                optional(positions.map(|p| p.1)),
                dropout.as_ptr(),
                out,
            )
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
        options: &AttentionOptions,
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
    /// `cross_entropy(x W^T + bias)` in chunks, without ever holding all logits: `x [T,C]`, `weight [V,C]`, `bias [V]`.
    /// `chunk_bytes` of logits are held at a time, 0 for the default. Not for [`Reduction::None`].
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

macro_rules! operator {
    ($($trait:ident $method:ident;)*) => {$(
        impl $trait<&Tensor> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, other: &Tensor) -> Result<Tensor> {
                Tensor::$method(self, other)
            }
        }
    )*};
}
operator! {
    Add add;
    Sub sub;
    Mul mul;
    Div div;
}

impl Mul<f64> for &Tensor {
    type Output = Result<Tensor>;
    fn mul(self, factor: f64) -> Result<Tensor> {
        self.scale(factor)
    }
}
