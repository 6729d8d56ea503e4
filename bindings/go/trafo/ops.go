package trafo

// #include "trafo.h"
import "C"

// Ops take tensors of their context, floating-point ones of one type, and give new tensors. A nil
// tensor is allowed only where a comment says so. ops.generated.go has the ops that schema/ops.toml
// describes; here are the others, and the options of ops.

// handlesOf is an array of C pointers for the length of a call; the caller is in the engine.
func handlesOf(tensors []*Tensor) []*C.trafo_tensor {
	handles := make([]*C.trafo_tensor, len(tensors))
	for i, tensor := range tensors {
		handles[i] = tensor.handle()
	}
	return handles
}

func cInts(numbers []int) []C.int32_t {
	result := make([]C.int32_t, len(numbers))
	for i, number := range numbers {
		result[i] = cInt(number)
	}
	return result
}

// MatMul is the product [m,k] x [k,n], or batched [..,m,k] x [..,k,n], whose leading dimensions broadcast.
// A vector is a row on the left and a column on the right.
func (c *Context) MatMul(a, b *Tensor) (*Tensor, error) {
	return c.MatMulTransposed(a, b, false, false)
}

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

// EmbeddingOptions are the parts of Embedding that may be left out.
type EmbeddingOptions struct {
	Scale         float64       // 0: 1
	PaddingID     Optional[int] // tokens with this id give the table no gradient; default: none
	Positions     *Tensor       // [T] Int32, together with PositionTable [P,C]
	PositionTable *Tensor
	Dropout       *Dropout
}

func (o *EmbeddingOptions) filled() EmbeddingOptions {
	var result EmbeddingOptions
	if o != nil {
		result = *o
	}
	setDefault(&result.Scale, 1)
	return result
}

func (o *EmbeddingOptions) tensors() []*Tensor { return []*Tensor{o.Positions, o.PositionTable} }

func (o *EmbeddingOptions) fill(c *C.trafo_embedding_options) *C.trafo_error {
	if e := C.trafo_embedding_options_init(c, C.sizeof_trafo_embedding_options); e != nil {
		return e
	}
	c.scale, c.positions, c.position_table = C.double(o.Scale), o.Positions.handle(), o.PositionTable.handle()
	if id, given := o.PaddingID.Get(); given {
		c.padding_id = C.int64_t(id)
	}
	if o.Dropout != nil {
		c.dropout = *o.Dropout.c()
	}
	return nil
}

// SinusoidalPositions is the table [positions, width] of arXiv 1706.03762, sines first, then
// cosines; width is even.
func (c *Context) SinusoidalPositions(positions, width int, dtype DType) (*Tensor, error) {
	return c.op1("Context.SinusoidalPositions", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_sinusoidal_positions(ptr, C.int64_t(positions), C.int64_t(width), C.int32_t(dtype), out)
	})
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
	Window                    int      // keys that a query attends to at most, with Causal: its last one and those before it; 0: all
	Dropout                   *Dropout // on the probabilities
	// [batch, heads, queries, keys], of which each may be 1; queries and keys of the longest sequences.
	// Int32: what is not 0 is masked. Of the type of q: added to the scaled scores; it gets a gradient,
	// and -infinity masks. A query whose keys are all masked gives zeros. With a mask the scores of all
	// heads are stored. nil: none.
	Mask *Tensor
}

func (o AttentionOptions) filled() AttentionOptions {
	setDefault(&o.Heads, 1)
	return o
}

func (o AttentionOptions) tensors() []*Tensor { return []*Tensor{o.Mask} }

func (o AttentionOptions) fill(c *C.trafo_attention_options) *C.trafo_error {
	if e := C.trafo_attention_options_init(c, C.sizeof_trafo_attention_options); e != nil {
		return e
	}
	c.heads, c.kv_heads, c.head_dim = C.int64_t(o.Heads), C.int64_t(o.KVHeads), C.int64_t(o.HeadDim)
	c.q_column, c.k_column, c.v_column = C.int64_t(o.QColumn), C.int64_t(o.KColumn), C.int64_t(o.VColumn)
	c.scale, c.causal, c.mask = C.double(o.Scale), cBool(o.Causal), o.Mask.handle()
	c.window = C.int64_t(o.Window)
	if o.Dropout != nil {
		c.dropout = *o.Dropout.c()
	}
	return nil
}

// CrossEntropyOptions refine the loss. Fields that are left out or zero have their defaults.
type CrossEntropyOptions struct {
	LabelSmoothing float64       // mass spread over all classes; default 0
	IgnoreLabel    Optional[int] // default -100
	Reduction      Reduction     // default ReduceMean
	Weights        *Tensor       // [T], one for each label, or nil: all 1. No gradient
	// [V], or nil: all 1. The term of class v in a row's loss is multiplied by the weight of v, and a row
	// counts with the weight of its label. No gradient. LinearCrossEntropy takes them without smoothing only.
	ClassWeights *Tensor
	ChunkBytes   int64 // logits that LinearCrossEntropy holds at a time; default 0: it chooses
}

// DefaultCrossEntropyOptions gives the defaults.
func DefaultCrossEntropyOptions() CrossEntropyOptions {
	return CrossEntropyOptions{IgnoreLabel: Some(-100), Reduction: ReduceMean}
}

// filled gives the options with the defaults that a literal leaves out.
func (o *CrossEntropyOptions) filled() CrossEntropyOptions {
	if o == nil {
		return DefaultCrossEntropyOptions()
	}
	result := *o
	setDefault(&result.Reduction, ReduceMean)
	result.IgnoreLabel = Some(o.IgnoreLabel.Or(-100))
	return result
}

func (o *CrossEntropyOptions) tensors() []*Tensor { return []*Tensor{o.Weights, o.ClassWeights} }

func (o *CrossEntropyOptions) fill(c *C.trafo_cross_entropy_options) *C.trafo_error {
	if e := C.trafo_cross_entropy_options_init(c, C.sizeof_trafo_cross_entropy_options); e != nil {
		return e
	}
	c.label_smoothing, c.ignore_label = C.double(o.LabelSmoothing), cInt(o.IgnoreLabel.value)
	c.reduction, c.weights = C.int32_t(o.Reduction-1), o.Weights.handle()
	c.class_weights = o.ClassWeights.handle()
	return nil
}
