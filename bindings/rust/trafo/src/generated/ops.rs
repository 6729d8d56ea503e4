// Written by scripts/generate_options.py from schema/ops.toml: change that.
/// Activations of feed-forward layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// max(x, 0).
    Relu,
    /// GELU, tanh form.
    Gelu,
    /// x sigmoid(x), also called swish.
    Silu,
    /// GELU, exact: x Phi(x) with the error function.
    GeluErf,
}
impl Activation {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            Activation::Relu => sys::TRAFO_RELU,
            Activation::Gelu => sys::TRAFO_GELU,
            Activation::Silu => sys::TRAFO_SILU,
            Activation::GeluErf => sys::TRAFO_GELU_ERF,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_GELU => Activation::Gelu,
            sys::TRAFO_SILU => Activation::Silu,
            sys::TRAFO_GELU_ERF => Activation::GeluErf,
            _ => Activation::Relu,
        }
    }
}
named! { Activation:
    Relu = "relu",
    Gelu = "gelu",
    Silu = "silu" | "swish",
    GeluErf = "gelu_erf" | "gelu-erf",
}
/// How two elements are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Comparison {
    /// a == b.
    Equal,
    /// a != b.
    NotEqual,
    /// a < b.
    Less,
    /// a <= b.
    LessEqual,
    /// a > b.
    Greater,
    /// a >= b.
    GreaterEqual,
}
impl Comparison {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            Comparison::Equal => sys::TRAFO_EQUAL,
            Comparison::NotEqual => sys::TRAFO_NOT_EQUAL,
            Comparison::Less => sys::TRAFO_LESS,
            Comparison::LessEqual => sys::TRAFO_LESS_EQUAL,
            Comparison::Greater => sys::TRAFO_GREATER,
            Comparison::GreaterEqual => sys::TRAFO_GREATER_EQUAL,
        }
    }
}
/// How the losses of rows become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduction {
    /// One loss for each row.
    None,
    /// Their sum.
    Sum,
    /// Their sum over the sum of the weights that are not ignored.
    #[default]
    Mean,
}
impl Reduction {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            Reduction::None => sys::TRAFO_REDUCE_NONE,
            Reduction::Sum => sys::TRAFO_REDUCE_SUM,
            Reduction::Mean => sys::TRAFO_REDUCE_MEAN,
        }
    }
}

/// # Element by element
///
/// Operands broadcast as in NumPy. A mask is int32, such as comparisons give; where it is not 0 it holds. NaN stays
/// NaN.
impl Tensor {
    /// `a + b`, with NumPy broadcasting. Also `&a + &b`.
    pub fn add(&self, other: &Tensor) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_add(context, x, other.as_ptr(), out) })
    }
    /// `a - b`, with NumPy broadcasting. Also `&a - &b`.
    pub fn sub(&self, other: &Tensor) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_subtract(context, x, other.as_ptr(), out) })
    }
    /// `a * b` by elements, with NumPy broadcasting. Also `&a * &b`.
    pub fn mul(&self, other: &Tensor) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_multiply(context, x, other.as_ptr(), out) })
    }
    /// `a / b` by elements, with NumPy broadcasting. Also `&a / &b`.
    pub fn div(&self, other: &Tensor) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_divide(context, x, other.as_ptr(), out) })
    }
    /// `factor * x`. Also `&x * factor`.
    pub fn scale(&self, factor: f64) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_scale(context, x, factor, out) })
    }
    /// `x + amount`. Also `&x + amount`.
    pub fn shift(&self, amount: f64) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_shift(context, x, amount, out) })
    }
    /// e to the power of each element.
    pub fn exp(&self) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_exp(context, x, out) })
    }
    /// The natural logarithm of each element.
    pub fn log(&self) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_log(context, x, out) })
    }
    /// The square root of each element.
    pub fn sqrt(&self) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_sqrt(context, x, out) })
    }
    /// The hyperbolic tangent of each element.
    pub fn tanh(&self) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_tanh(context, x, out) })
    }
    /// `1 / (1 + exp(-x))` of each element.
    pub fn sigmoid(&self) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_sigmoid(context, x, out) })
    }
    /// `|x|`; the gradient at 0 is 0.
    pub fn abs(&self) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_abs(context, x, out) })
    }
    /// The sine of each element, in radians.
    pub fn sin(&self) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_sin(context, x, out) })
    }
    /// The cosine of each element, in radians.
    pub fn cos(&self) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_cos(context, x, out) })
    }
    /// The error function: 2 / sqrt(pi) times the integral of `exp(-t^2)` from 0 to x.
    pub fn erf(&self) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_erf(context, x, out) })
    }
    /// The exact GELU, `x (1 + erf(x / sqrt(2))) / 2`.
    pub fn gelu_erf(&self) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_gelu_erf(context, x, out) })
    }
    /// An activation of each element.
    pub fn activation(&self, activation: Activation) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_activation(context, x, activation.as_raw(), out) })
    }
    /// `x^exponent`; NaN for negative `x` with an exponent that is no integer.
    pub fn powf(&self, exponent: f64) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_power(context, x, exponent, out) })
    }
    /// `min(max(x, low), high)`, low <= high; the gradient of an element outside is 0.
    pub fn clamp(&self, low: f64, high: f64) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_clamp(context, x, low, high, out) })
    }
    /// The larger of two elements; the gradient of equal elements is divided in half.
    pub fn maximum(&self, other: &Tensor) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_maximum(context, x, other.as_ptr(), out) })
    }
    /// The smaller of two elements; the gradient of equal elements is divided in half.
    pub fn minimum(&self, other: &Tensor) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_minimum(context, x, other.as_ptr(), out) })
    }
    /// `a^b`.
    pub fn pow(&self, other: &Tensor) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_pow(context, x, other.as_ptr(), out) })
    }
    /// An int32 tensor: 1 where the comparison of `self` with `other` holds, else 0. Both have one type; int32 is
    /// allowed. No gradient.
    pub fn compare(&self, other: &Tensor, comparison: Comparison) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_compare(context, x, other.as_ptr(), comparison.as_raw(), out) })
    }
    /// [`compare`](Tensor::compare) with a number.
    pub fn compare_number(&self, number: f64, comparison: Comparison) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_compare_number(context, x, number, comparison.as_raw(), out) })
    }
    /// `a` where `self` is not 0, else `b`; int32 is allowed. The operand that is not chosen affects neither values nor
    /// gradients.
    pub fn choose(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_where(context, x, a.as_ptr(), b.as_ptr(), out) })
    }
    /// `value` where `mask` is not 0, else `self`; int32 is allowed.
    pub fn masked_fill(&self, mask: &Tensor, value: f64) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_masked_fill(context, x, mask.as_ptr(), value, out) })
    }
    /// `x [.., rows, columns]` with 0 in place of the elements `[i, j]` above the diagonal: `j - i > diagonal`.
    pub fn tril(&self, diagonal: i64) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_tril(context, x, diagonal, out) })
    }
    /// [`tril`](Tensor::tril) below the diagonal: `j - i < diagonal`.
    pub fn triu(&self, diagonal: i64) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_triu(context, x, diagonal, out) })
    }
    /// Zeroes elements and scales the others by `1 / (1 - p)`.
    pub fn dropout(&self, dropout: Dropout) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_dropout(context, x, &dropout.to_raw(), out) })
    }
    /// Between float32, float64, bfloat16 and int32. To int32 it rounds towards zero; a value outside becomes the
    /// nearest int32, NaN becomes 0; it has no gradient.
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_cast(context, x, dtype.as_raw(), out) })
    }
}

/// # Reductions
///
/// A negative `dim` counts from the end; `keep_dim` leaves a dimension of size 1.
impl Tensor {
    /// The sum of all elements, `[1]`.
    pub fn sum(&self) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_sum(context, x, out) })
    }
    /// The mean of all elements, `[1]`.
    pub fn mean(&self) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_mean(context, x, out) })
    }
    /// The sum over one dimension.
    pub fn sum_dim(&self, dim: i32, keep_dim: bool) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_sum_dim(context, x, dim, keep_dim.into(), out) })
    }
    /// The mean over one dimension.
    pub fn mean_dim(&self, dim: i32, keep_dim: bool) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_mean_dim(context, x, dim, keep_dim.into(), out) })
    }
    /// The maximum over one dimension; the gradient goes to the first maximum.
    pub fn max_dim(&self, dim: i32, keep_dim: bool) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_max_dim(context, x, dim, keep_dim.into(), out) })
    }
    /// The sum over several dimensions, each given once; over all if none is given.
    pub fn sum_dims(&self, dims: &[i32], keep_dim: bool) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_sum_dims(context, x, dims.as_ptr(), dims.len(), keep_dim.into(), out) })
    }
    /// The mean over several dimensions, given as for [`sum_dims`](Tensor::sum_dims).
    pub fn mean_dims(&self, dims: &[i32], keep_dim: bool) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_mean_dims(context, x, dims.as_ptr(), dims.len(), keep_dim.into(), out) })
    }
    /// The maximum over several dimensions, given as for [`sum_dims`](Tensor::sum_dims); the gradient goes to the first
    /// one.
    pub fn max_dims(&self, dims: &[i32], keep_dim: bool) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_max_dims(context, x, dims.as_ptr(), dims.len(), keep_dim.into(), out) })
    }
    /// The minimum over several dimensions, given as for [`sum_dims`](Tensor::sum_dims); the gradient goes to the first
    /// one.
    pub fn min_dims(&self, dims: &[i32], keep_dim: bool) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_min_dims(context, x, dims.as_ptr(), dims.len(), keep_dim.into(), out) })
    }
    /// An int32 tensor: the number along `dim` of the largest element, the first of equal ones; NaN counts as largest.
    pub fn argmax(&self, dim: i32, keep_dim: bool) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_argmax(context, x, dim, keep_dim.into(), out) })
    }
    /// [`argmax`](Tensor::argmax) of the smallest element; NaN counts as smallest.
    pub fn argmin(&self, dim: i32, keep_dim: bool) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_argmin(context, x, dim, keep_dim.into(), out) })
    }
}

/// # Along dimensions
///
/// A negative `dim` counts from the end. An element of an index out of range is INVALID_ARGUMENT on the CPU. A GPU
/// cannot report it: `gather` gives NaN (-1 in int32), `scatter` and `scatter_add` make the first element along `dim`
/// NaN.
impl Tensor {
    /// The `k` largest elements along `dim`, largest first, and their numbers (int32), equal ones by lower number. `1
    /// <= k <= size`.
    pub fn top_k(&self, k: usize, dim: i32) -> Result<(Tensor, Tensor)> {
        self.op_of_two(|context, x, values, ids| unsafe { sys::trafo_op_top_k(context, x, to_i64(k), dim, values, ids) })
    }
    /// `y_i = x_0 + .. + x_i` along `dim`; int32 is allowed.
    pub fn cumsum(&self, dim: i32) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_cumsum(context, x, dim, out) })
    }
    /// `self` at each place p of `index`, with the place along `dim` replaced by the index's element. The index is
    /// int32, has the rank of `self` and is in no other dimension larger; the result has its shape.
    pub fn gather(&self, dim: i32, index: &Tensor) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_gather(context, x, dim, index.as_ptr(), out) })
    }
    /// `self` with each element of `src` added at the place that [`gather`](Tensor::gather) reads for it; `src` has the
    /// shape of `index`.
    pub fn scatter_add(&self, dim: i32, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_scatter_add(context, x, dim, index.as_ptr(), src.as_ptr(), out) })
    }
    /// [`scatter_add`](Tensor::scatter_add) with the elements put there; of several for one place the last in row-major
    /// order stays.
    pub fn scatter(&self, dim: i32, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_scatter(context, x, dim, index.as_ptr(), src.as_ptr(), out) })
    }
    /// The mean of the rows of each packed sequence: `x [T, ..]` and `cu_seqlens [B + 1]` int32 to `[B, ..]`, zeros for
    /// a sequence without rows. Sequence b has the rows `cu_seqlens[b]` to `cu_seqlens[b + 1] - 1`. Sums are made in
    /// float32, of float64 in float64. INVALID_ARGUMENT: `cu_seqlens` does not rise from 0 to T.
    pub fn segment_mean(&self, cu_seqlens: &Tensor) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_segment_mean(context, x, cu_seqlens.as_ptr(), out) })
    }
}

/// # Shapes
impl Tensor {
    /// The same elements in another shape. One dimension may be -1: it is inferred.
    pub fn reshape(&self, shape: &[i64]) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_reshape(context, x, shape.as_ptr(), rank(shape), out) })
    }
    /// Swaps two dimensions; a view.
    pub fn transpose(&self, dim0: i32, dim1: i32) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_transpose(context, x, dim0, dim1, out) })
    }
    /// Dimension i of the result is dimension `dims[i]` of `self`, each given once; a view.
    pub fn permute(&self, dims: &[i32]) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_permute(context, x, dims.as_ptr(), dims.len(), out) })
    }
    /// Repeats dimensions of size 1, and new ones in front, to `shape`; -1 keeps the size. A view.
    pub fn expand(&self, shape: &[i64]) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_expand(context, x, shape.as_ptr(), rank(shape), out) })
    }
    /// The elements of a range of one dimension, without its end; a view.
    pub fn slice(&self, dim: i32, range: Range<usize>) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_slice(context, x, dim, to_i64(range.start), to_i64(range.end), out) })
    }
}
impl Context {
    /// The tensors one after the other along a dimension; all other dimensions must be equal.
    pub fn concat(&self, tensors: &[&Tensor], dim: i32) -> Result<Tensor> {
        Tensor::make(self, |out| unsafe { sys::trafo_op_concat(self.as_ptr(), pointers(tensors).as_ptr(), tensors.len(), dim, out) })
    }
}

/// # Products
impl Tensor {
    /// `[m,k] x [k,n]`, or batched `[..,m,k] x [..,k,n]`, whose leading dimensions broadcast; a vector `[k]` is a row
    /// on the left and a column on the right. `transpose_self` and `transpose_other` swap the last two dimensions of an
    /// input.
    pub fn matmul_with(&self, other: &Tensor, transpose_self: bool, transpose_other: bool) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_matmul(context, x, other.as_ptr(), transpose_self.into(), transpose_other.into(), out) })
    }
    /// `x W^T + bias`: `x [.., in]`, `weight [out, in]`, `bias [out]`.
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_linear(context, x, weight.as_ptr(), optional(bias), out) })
    }
}

/// # Parts of transformers
impl Tensor {
    /// Called on `table`: `dropout(scale * table[ids] + position_table[positions])`: `ids [T]` int32, `table [V,C]` to
    /// `[T,C]`.
    pub fn embedding(&self, ids: &Tensor, options: &EmbeddingOptions<'_>) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_embedding(context, ids.as_ptr(), x, &options.to_raw(), out) })
    }
    /// Layer norm over the last dimension; gamma and beta are `[C]`.
    pub fn layer_norm(&self, gamma: &Tensor, beta: &Tensor, epsilon: f64) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_layer_norm(context, x, gamma.as_ptr(), beta.as_ptr(), epsilon, out) })
    }
    /// `x / sqrt(mean(x^2) + epsilon) * gamma` over the last dimension; gamma is `[C]`.
    pub fn rms_norm(&self, gamma: &Tensor, epsilon: f64) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_rms_norm(context, x, gamma.as_ptr(), epsilon, out) })
    }
    /// `sum = residual + dropout(x)` and `normed = rms_norm(sum)`, in one pass.
    pub fn residual_rms_norm(&self, residual: &Tensor, gamma: &Tensor, epsilon: f64, dropout: Option<Dropout>) -> Result<(Tensor, Tensor)> {
        self.op_of_two(|context, x, sum, normed| unsafe { sys::trafo_op_residual_rms_norm(context, x, residual.as_ptr(), gamma.as_ptr(), epsilon, OptionalDropout::new(dropout).as_ptr(), sum, normed) })
    }
    /// Rotary position embedding: pairs `(i, i + head_dim / 2)` of a head are rotated by `position * theta^(-2i /
    /// head_dim)`. `positions` is `[T]` int32. With `kv_heads` 0, `self` is `[T, heads * head_dim]`, and all heads are
    /// rotated. Else `self` is the packed projection of queries, keys and values, `[T, (heads + 2 kv_heads) *
    /// head_dim]`: queries and keys are rotated, values are copied. The result has the shape of `self`.
    pub fn rotary(&self, positions: &Tensor, heads: usize, kv_heads: usize, head_dim: usize, theta: f64) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_rotary(context, x, positions.as_ptr(), to_i64(heads), to_i64(kv_heads), to_i64(head_dim), theta, out) })
    }
    /// `silu(a) * b` for `x = [a, b]`, `[.., 2F]` to `[.., F]`.
    pub fn swiglu(&self) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_swiglu(context, x, out) })
    }
    /// Scaled dot-product attention over packed sequences, to `[Tq, heads * head_dim]`. `q [Tq, ..]`, k and v `[Tk,
    /// ..]`; one tensor may serve as all three, at different columns. Query head h reads head `h / (heads / kv_heads)`
    /// of k and v. `cu_seqlens_q` and `cu_seqlens_k` are `[B+1]` int32: the tokens of sequence b are rows
    /// `cu_seqlens[b]` to `cu_seqlens[b+1] - 1`.
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
    pub fn attention(&self, k: &Tensor, v: &Tensor, cu_seqlens_q: &Tensor, cu_seqlens_k: &Tensor, options: &AttentionOptions<'_>) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_attention(context, x, k.as_ptr(), v.as_ptr(), cu_seqlens_q.as_ptr(), cu_seqlens_k.as_ptr(), &options.to_raw(), out) })
    }
    /// `dropout(activation(x + bias))` in one pass; bias is `[C]`.
    pub fn bias_act_dropout(&self, bias: Option<&Tensor>, activation: Activation, dropout: Option<Dropout>) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_bias_act_dropout(context, x, optional(bias), activation.as_raw(), OptionalDropout::new(dropout).as_ptr(), out) })
    }
    /// `residual + dropout(x + bias)` in one pass; bias is `[C]`.
    pub fn bias_dropout_residual(&self, bias: Option<&Tensor>, residual: &Tensor, dropout: Option<Dropout>) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_bias_dropout_residual(context, x, optional(bias), residual.as_ptr(), OptionalDropout::new(dropout).as_ptr(), out) })
    }
    /// `sum = residual + dropout(x + bias)` and `normed = layer_norm(sum)`, in one pass.
    pub fn bias_dropout_residual_norm(&self, bias: Option<&Tensor>, residual: &Tensor, gamma: &Tensor, beta: &Tensor, epsilon: f64, dropout: Option<Dropout>) -> Result<(Tensor, Tensor)> {
        self.op_of_two(|context, x, sum, normed| unsafe { sys::trafo_op_bias_dropout_residual_norm(context, x, optional(bias), residual.as_ptr(), gamma.as_ptr(), beta.as_ptr(), epsilon, OptionalDropout::new(dropout).as_ptr(), sum, normed) })
    }
}

/// # Losses
impl Tensor {
    /// Cross-entropy of `logits [T,V]` and `labels [T]` int32: the loss `[1]`, or `[T]` without reduction, and `nll`,
    /// the same without smoothing, which has no gradient.
    pub fn cross_entropy(&self, labels: &Tensor, options: &CrossEntropyOptions<'_>) -> Result<(Tensor, Tensor)> {
        self.op_of_two(|context, x, loss, nll| unsafe { sys::trafo_op_cross_entropy(context, x, labels.as_ptr(), &options.to_raw(), loss, nll) })
    }
    /// Cross-entropy of `logits [T,V]` and class probabilities `[T,V]` of one dtype, such as a teacher's: `[1]`, or
    /// `[T]` without reduction. The targets may want a gradient. `label_smoothing` e makes them `(1 - e) targets + e /
    /// V`; `ignore_label` has no meaning; a mean is divided by the sum of the row weights, without them by T.
    pub fn soft_cross_entropy(&self, targets: &Tensor, options: &CrossEntropyOptions<'_>) -> Result<Tensor> {
        self.op(|context, x, out| unsafe { sys::trafo_op_soft_cross_entropy(context, x, targets.as_ptr(), &options.to_raw(), out) })
    }
    /// [`cross_entropy`](Tensor::cross_entropy) of `x W^T + bias` in chunks that never hold all logits. `x [T,C]`,
    /// `weight [V,C]`, `bias [V]`; the reduction is sum or mean. `chunk_bytes`: logits held at a time, 0 for the
    /// default.
    pub fn linear_cross_entropy(&self, weight: &Tensor, bias: Option<&Tensor>, labels: &Tensor, options: &CrossEntropyOptions<'_>, chunk_bytes: usize) -> Result<(Tensor, Tensor)> {
        self.op_of_two(|context, x, loss, nll| unsafe { sys::trafo_op_linear_cross_entropy(context, x, weight.as_ptr(), optional(bias), labels.as_ptr(), &options.to_raw(), to_i64(chunk_bytes), loss, nll) })
    }
}
