package trafo

// #include "trafo.h"
import "C"

// Dropout zeroes elements with probability P, 0 <= P < 1, and scales the others by 1/(1-P). The mask
// belongs to its address, (Seed, Step, ID, element): the same address gives the same mask.
type Dropout struct {
	P    float32
	Seed uint64
	Step uint32
	ID   uint32 // which dropout of the model
}

func (d *Dropout) c() *C.trafo_dropout {
	if d == nil {
		return nil
	}
	return &C.trafo_dropout{p: C.float(d.P), step: C.uint32_t(d.Step), dropout_id: C.uint32_t(d.ID), seed: C.uint64_t(d.Seed)}
}

// Activation is a function of one element.
type Activation int32

// The activations. GELU is its tanh form, GELUErf the exact one.
const (
	ReLU    Activation = C.TRAFO_RELU
	GELU    Activation = C.TRAFO_GELU
	SiLU    Activation = C.TRAFO_SILU
	GELUErf Activation = C.TRAFO_GELU_ERF
)

// Dropout applies a mask to x.
func (c *Context) Dropout(x *Tensor, dropout Dropout) (*Tensor, error) {
	return c.op1("Context.Dropout", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_dropout(ptr, x.handle(), dropout.c(), out)
	}, x)
}

// EmbeddingOptions are the parts of Embedding that may be left out.
type EmbeddingOptions struct {
	Scale         float64 // 0: 1
	PaddingID     *int    // tokens with this id give the table no gradient; nil: none
	Positions     *Tensor // [T] Int32, together with PositionTable [P,C]
	PositionTable *Tensor
	Dropout       *Dropout
}

// Embedding is dropout(scale * table[ids] + position_table[positions]): ids [T] Int32, table [V,C].
// options may be nil.
func (c *Context) Embedding(ids, table *Tensor, options *EmbeddingOptions) (*Tensor, error) {
	var o EmbeddingOptions
	if options != nil {
		o = *options
	}
	if o.Scale == 0 {
		o.Scale = 1
	}
	return c.op1("Context.Embedding", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		var filled C.trafo_embedding_options
		if e := C.trafo_embedding_options_init(&filled, C.sizeof_trafo_embedding_options); e != nil {
			return e
		}
		filled.scale, filled.positions, filled.position_table = C.double(o.Scale), o.Positions.handle(), o.PositionTable.handle()
		if o.PaddingID != nil {
			filled.padding_id = C.int64_t(*o.PaddingID)
		}
		if o.Dropout != nil {
			filled.dropout = *o.Dropout.c()
		}
		return C.trafo_op_embedding(ptr, ids.handle(), table.handle(), &filled, out)
	}, ids, table, o.Positions, o.PositionTable)
}

// SinusoidalPositions is the table [positions, width] of arXiv 1706.03762, sines first, then
// cosines; width is even.
func (c *Context) SinusoidalPositions(positions, width int, dtype DType) (*Tensor, error) {
	return c.op1("Context.SinusoidalPositions", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_sinusoidal_positions(ptr, C.int64_t(positions), C.int64_t(width), C.int32_t(dtype), out)
	})
}

// LayerNorm normalises the last dimension; gamma and beta are [C].
func (c *Context) LayerNorm(x, gamma, beta *Tensor, epsilon float64) (*Tensor, error) {
	return c.op1("Context.LayerNorm", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_layer_norm(ptr, x.handle(), gamma.handle(), beta.handle(), C.double(epsilon), out)
	}, x, gamma, beta)
}

// RMSNorm is x / sqrt(mean(x^2) + epsilon) * gamma over the last dimension; gamma is [C].
func (c *Context) RMSNorm(x, gamma *Tensor, epsilon float64) (*Tensor, error) {
	return c.op1("Context.RMSNorm", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_rms_norm(ptr, x.handle(), gamma.handle(), C.double(epsilon), out)
	}, x, gamma)
}

// ResidualRMSNorm is sum = residual + dropout(x) and normed = RMS norm of sum, in one pass; dropout
// may be nil.
func (c *Context) ResidualRMSNorm(x, residual, gamma *Tensor, epsilon float64, dropout *Dropout) (sum, normed *Tensor, err error) {
	return c.op2("Context.ResidualRMSNorm", func(ptr *C.trafo_context, sum, normed **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_residual_rms_norm(ptr, x.handle(), residual.handle(), gamma.handle(),
			C.double(epsilon), dropout.c(), sum, normed)
	}, x, residual, gamma)
}

// Rotary rotates the pairs (i, i + headDim/2) of a head by position * theta^(-2i/headDim). With
// kvHeads 0, x is [T, heads*headDim] and all heads are rotated. Else x is the packed projection of
// queries, keys and values, [T, (heads + 2*kvHeads)*headDim]: queries and keys are rotated, values
// are copied. The result has the shape of x.
func (c *Context) Rotary(x, positions *Tensor, heads, kvHeads, headDim int, theta float64) (*Tensor, error) {
	return c.op1("Context.Rotary", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_rotary(ptr, x.handle(), positions.handle(), C.int64_t(heads), C.int64_t(kvHeads),
			C.int64_t(headDim), C.double(theta), out)
	}, x, positions)
}

// SwiGLU is silu(a) * b for x = [a, b], [.., 2F] to [.., F].
func (c *Context) SwiGLU(x *Tensor) (*Tensor, error) {
	return c.op1("Context.SwiGLU", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_swiglu(ptr, x.handle(), out)
	}, x)
}

// SoftmaxOptions are the parts of Softmax that may be left out.
type SoftmaxOptions struct {
	Scale       float64 // 0: 1
	Causal      bool    // key j is hidden from query i when j > i + keys - queries
	PaddingMask *Tensor // [batch, keys] Int32, non-zero: hidden
}

// Softmax is softmax(scale * x) over the last dimension of x [batch, heads, queries, keys], or fewer
// dimensions. A row whose keys are all hidden is zeros. options may be nil.
func (c *Context) Softmax(x *Tensor, options *SoftmaxOptions) (*Tensor, error) {
	var o SoftmaxOptions
	if options != nil {
		o = *options
	}
	if o.Scale == 0 {
		o.Scale = 1
	}
	return c.op1("Context.Softmax", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_softmax(ptr, x.handle(), C.double(o.Scale), cBool(o.Causal), o.PaddingMask.handle(), out)
	}, x, o.PaddingMask)
}

// AttentionOptions describe the heads; only HeadDim must be set.
type AttentionOptions struct {
	Heads                     int // 0: 1
	KVHeads                   int // heads of k and v, a divisor of Heads (grouped-query attention); 0: Heads
	HeadDim                   int
	QColumn, KColumn, VColumn int     // first of the Heads * HeadDim columns of q, KVHeads * HeadDim of k and v
	Scale                     float64 // 0: 1 / sqrt(HeadDim)
	Causal                    bool
	Dropout                   *Dropout // on the probabilities
	// [batch, heads, queries, keys], of which each may be 1; queries and keys of the longest sequences.
	// Int32: what is not 0 is masked. Of the type of q: added to the scaled scores; it gets a gradient,
	// and -infinity masks. A query whose keys are all masked gives zeros. With a mask the scores of all
	// heads are stored. nil: none.
	Mask *Tensor
}

// Attention is scaled dot-product attention over packed sequences: q [Tq, ..], k and v [Tk, ..],
// which may be one tensor at different columns; the rows of sequence b are cuSeqlens[b] to
// cuSeqlens[b+1] ([B+1] Int32). -> [Tq, Heads * HeadDim].
func (c *Context) Attention(q, k, v, cuSeqlensQ, cuSeqlensK *Tensor, options AttentionOptions) (*Tensor, error) {
	return c.op1("Context.Attention", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		var o C.trafo_attention_options
		if e := C.trafo_attention_options_init(&o, C.sizeof_trafo_attention_options); e != nil {
			return e
		}
		if options.Heads != 0 {
			o.heads = C.int64_t(options.Heads)
		}
		o.kv_heads, o.head_dim = C.int64_t(options.KVHeads), C.int64_t(options.HeadDim)
		o.q_column, o.k_column, o.v_column = C.int64_t(options.QColumn), C.int64_t(options.KColumn), C.int64_t(options.VColumn)
		o.scale, o.causal, o.mask = C.double(options.Scale), cBool(options.Causal), options.Mask.handle()
		if options.Dropout != nil {
			o.dropout = *options.Dropout.c()
		}
		return C.trafo_op_attention(ptr, q.handle(), k.handle(), v.handle(), cuSeqlensQ.handle(), cuSeqlensK.handle(), &o, out)
	}, q, k, v, cuSeqlensQ, cuSeqlensK, options.Mask)
}

// Activate applies an activation to every element.
func (c *Context) Activate(x *Tensor, activation Activation) (*Tensor, error) {
	return c.op1("Context.Activate", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_activation(ptr, x.handle(), C.int32_t(activation), out)
	}, x)
}

// BiasActDropout is dropout(activation(x + bias)); bias [C] and dropout may be nil.
func (c *Context) BiasActDropout(x, bias *Tensor, activation Activation, dropout *Dropout) (*Tensor, error) {
	return c.op1("Context.BiasActDropout", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_bias_act_dropout(ptr, x.handle(), bias.handle(), C.int32_t(activation), dropout.c(), out)
	}, x, bias)
}

// BiasDropoutResidual is residual + dropout(x + bias); bias [C] and dropout may be nil.
func (c *Context) BiasDropoutResidual(x, bias, residual *Tensor, dropout *Dropout) (*Tensor, error) {
	return c.op1("Context.BiasDropoutResidual", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_bias_dropout_residual(ptr, x.handle(), bias.handle(), residual.handle(), dropout.c(), out)
	}, x, bias, residual)
}

// BiasDropoutResidualNorm is sum = residual + dropout(x + bias) and normed = layer norm of sum, in
// one pass; bias and dropout may be nil.
func (c *Context) BiasDropoutResidualNorm(x, bias, residual, gamma, beta *Tensor, epsilon float64, dropout *Dropout) (sum, normed *Tensor, err error) {
	return c.op2("Context.BiasDropoutResidualNorm", func(ptr *C.trafo_context, sum, normed **C.trafo_tensor) *C.trafo_error {
		return C.trafo_op_bias_dropout_residual_norm(ptr, x.handle(), bias.handle(), residual.handle(),
			gamma.handle(), beta.handle(), C.double(epsilon), dropout.c(), sum, normed)
	}, x, bias, residual, gamma, beta)
}

// Reduction is how the losses of all labels become one.
type Reduction int32

// The reductions. They are C's plus 1: the zero value is the default, ReduceMean.
const (
	ReduceNone Reduction = C.TRAFO_REDUCE_NONE + 1
	ReduceSum  Reduction = C.TRAFO_REDUCE_SUM + 1
	ReduceMean Reduction = C.TRAFO_REDUCE_MEAN + 1 // over the weights that are not ignored
)

// CrossEntropyOptions refine the loss. In a literal, zero fields have their defaults; to ignore the label
// 0, begin with DefaultCrossEntropyOptions, whose fields are taken as they are.
type CrossEntropyOptions struct {
	LabelSmoothing float64   // mass spread over all classes; default 0
	IgnoreLabel    int32     // default -100
	Reduction      Reduction // default ReduceMean
	Weights        *Tensor   // [T], one for each label, or nil: all 1. No gradient
	// [V], or nil: all 1. The term of class v in a row's loss is multiplied by the weight of v, and a row
	// counts with the weight of its label. No gradient. LinearCrossEntropy takes them without smoothing only.
	ClassWeights *Tensor
	ChunkBytes   int64 // logits that LinearCrossEntropy holds at a time; default 0: it chooses

	explicit bool // made by the library: fields that are zero are meant
}

// DefaultCrossEntropyOptions gives the defaults.
func DefaultCrossEntropyOptions() CrossEntropyOptions {
	return CrossEntropyOptions{IgnoreLabel: -100, Reduction: ReduceMean, explicit: true}
}

// filled gives the options with the defaults that a literal leaves out.
func (o *CrossEntropyOptions) filled() CrossEntropyOptions {
	if o == nil {
		return DefaultCrossEntropyOptions()
	}
	result := *o
	setDefault(&result.Reduction, ReduceMean)
	if !o.explicit {
		setDefault(&result.IgnoreLabel, -100)
	}
	return result
}

func (o *CrossEntropyOptions) fill(c *C.trafo_cross_entropy_options) *C.trafo_error {
	if e := C.trafo_cross_entropy_options_init(c, C.sizeof_trafo_cross_entropy_options); e != nil {
		return e
	}
	c.label_smoothing, c.ignore_label = C.double(o.LabelSmoothing), C.int32_t(o.IgnoreLabel)
	c.reduction, c.weights = C.int32_t(o.Reduction-1), o.Weights.handle()
	c.class_weights = o.ClassWeights.handle()
	return nil
}

// CrossEntropy compares logits [T,V] with labels [T] Int32 -> loss [1] or [T], and nll, the same
// without smoothing, which has no gradient. options may be nil.
func (c *Context) CrossEntropy(logits, labels *Tensor, options *CrossEntropyOptions) (loss, nll *Tensor, err error) {
	o := options.filled()
	return c.op2("Context.CrossEntropy", func(ptr *C.trafo_context, loss, nll **C.trafo_tensor) *C.trafo_error {
		var filled C.trafo_cross_entropy_options
		if e := o.fill(&filled); e != nil {
			return e
		}
		return C.trafo_op_cross_entropy(ptr, logits.handle(), labels.handle(), &filled, loss, nll)
	}, logits, labels, o.Weights, o.ClassWeights)
}

// SoftCrossEntropy is the cross-entropy of logits [T,V] and class probabilities [T,V], such as a
// teacher's, which may want a gradient -> [1] or [T]. Smoothing e makes them (1-e)*targets + e/V;
// IgnoreLabel has no meaning; a mean is divided by the sum of the row weights, without them by T.
// options may be nil.
func (c *Context) SoftCrossEntropy(logits, targets *Tensor, options *CrossEntropyOptions) (*Tensor, error) {
	o := options.filled()
	return c.op1("Context.SoftCrossEntropy", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		var filled C.trafo_cross_entropy_options
		if e := o.fill(&filled); e != nil {
			return e
		}
		return C.trafo_op_soft_cross_entropy(ptr, logits.handle(), targets.handle(), &filled, out)
	}, logits, targets, o.Weights, o.ClassWeights)
}

// LinearCrossEntropy is CrossEntropy of Linear(x, weight, bias), without ever holding all logits: x
// [T,C], weight [V,C], bias [V] or nil; the reduction is a sum or a mean.
func (c *Context) LinearCrossEntropy(x, weight, bias, labels *Tensor, options *CrossEntropyOptions) (loss, nll *Tensor, err error) {
	o := options.filled()
	return c.op2("Context.LinearCrossEntropy", func(ptr *C.trafo_context, loss, nll **C.trafo_tensor) *C.trafo_error {
		var filled C.trafo_cross_entropy_options
		if e := o.fill(&filled); e != nil {
			return e
		}
		return C.trafo_op_linear_cross_entropy(ptr, x.handle(), weight.handle(), bias.handle(), labels.handle(), &filled, C.int64_t(o.ChunkBytes), loss, nll)
	}, x, weight, bias, labels, o.Weights, o.ClassWeights)
}
