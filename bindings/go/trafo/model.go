package trafo

// #include "trafo.h"
import "C"

import (
	"context"
	"runtime"
)

// Architecture is the form of a model.
type Architecture int32

// The architectures.
const (
	EncoderDecoder Architecture = C.TRAFO_ENCODER_DECODER
	DecoderLM      Architecture = C.TRAFO_DECODER_LM // source <eos> target <eos> in one causal stream
)

// Norm is the norm of a DecoderLM.
type Norm int32

const (
	NormLayer Norm = C.TRAFO_NORM_LAYER
	NormRMS   Norm = C.TRAFO_NORM_RMS // without biases
)

// Positions says how a DecoderLM knows where a token stands.
type Positions int32

const (
	StandardPositions Positions = C.TRAFO_POSITIONS_STANDARD // learned; sinusoidal in an EncoderDecoder
	RotaryPositions   Positions = C.TRAFO_POSITIONS_ROTARY
)

// FeedForward is the form of the feed-forward blocks of a DecoderLM.
type FeedForward int32

const (
	PlainFFN  FeedForward = C.TRAFO_FFN_PLAIN
	SwiGLUFFN FeedForward = C.TRAFO_FFN_SWIGLU // with SiLU
)

// ModelConfig is the shape of a model; begin with DefaultModelConfig or Preset and set Vocabulary.
type ModelConfig struct {
	Architecture     Architecture
	Activation       Activation
	Vocabulary       int // pieces of the tokenizer
	EncoderLayers    int // not used by DecoderLM
	DecoderLayers    int
	Width            int
	FFNWidth         int
	Heads            int
	MaxPositions     int // longest sequence in tokens
	PreNorm          bool
	TiedEmbeddings   bool
	Dropout          float64
	AttentionDropout float64
	FFNDropout       float64
	NormEpsilon      float64
	DepthScaledInit  bool  // the initial weights of layer l are divided by the root of l, as deep models like it
	Precision        DType // what the model computes in: Float32; BFloat16 on CUDA. Not part of its file
	Norm             Norm
	Positions        Positions
	FFN              FeedForward
	NoBiases         bool    // products without biases
	KVHeads          int     // heads of keys and values, with RotaryPositions; 0: as many as Heads
	RopeTheta        float64 // of RotaryPositions; 0: 10000
}

// DefaultModelConfig gives the defaults: 6+6 layers, width 512, FFN 2048, 8 heads, dropout 0.1.
func DefaultModelConfig() ModelConfig {
	var c C.trafo_model_config
	mustInit(C.trafo_model_config_init(&c, C.sizeof_trafo_model_config))
	return modelConfig(&c)
}

// Preset gives a named shape: "tiny", "small", "iwslt", "base", "big", "lm", "gpt2" or "llama". The error of
// another name lists them.
func Preset(name string) (ModelConfig, error) {
	var c C.trafo_model_config
	mustInit(C.trafo_model_config_init(&c, C.sizeof_trafo_model_config))
	data, length := chars(name)
	if err := check(C.trafo_model_config_preset(&c, data, length)); err != nil {
		return ModelConfig{}, err
	}
	return modelConfig(&c), nil
}

func modelConfig(c *C.trafo_model_config) ModelConfig {
	config := ModelConfig{
		Architecture: Architecture(c.architecture), Activation: Activation(c.activation),
		Vocabulary:    int(c.vocabulary),
		EncoderLayers: int(c.encoder_layers), DecoderLayers: int(c.decoder_layers),
		Width: int(c.width), FFNWidth: int(c.ffn_width), Heads: int(c.heads), MaxPositions: int(c.max_positions),
		PreNorm: c.pre_norm != 0, TiedEmbeddings: c.tied_embeddings != 0,
		Dropout: float64(c.dropout), AttentionDropout: float64(c.attention_dropout),
		FFNDropout: float64(c.ffn_dropout), NormEpsilon: float64(c.norm_epsilon),
		Precision: DType(c.precision),
		Norm:      Norm(c.norm), Positions: Positions(c.positions), FFN: FeedForward(c.ffn),
		NoBiases: c.biases == 0, KVHeads: int(c.kv_heads),
		DepthScaledInit: c.depth_scaled_init != 0,
	}
	if config.Positions == RotaryPositions {
		config.RopeTheta = float64(c.rope_theta)
	}
	return config
}

func (m *ModelConfig) c() *C.trafo_model_config {
	c := new(C.trafo_model_config)
	mustInit(C.trafo_model_config_init(c, C.sizeof_trafo_model_config))
	c.architecture = C.int32_t(m.Architecture)
	c.activation = C.int32_t(m.Activation)
	c.vocabulary = C.int64_t(m.Vocabulary)
	c.encoder_layers = C.int64_t(m.EncoderLayers)
	c.decoder_layers = C.int64_t(m.DecoderLayers)
	c.width = C.int64_t(m.Width)
	c.ffn_width = C.int64_t(m.FFNWidth)
	c.heads = C.int64_t(m.Heads)
	c.max_positions = C.int64_t(m.MaxPositions)
	c.pre_norm = cBool(m.PreNorm)
	c.tied_embeddings = cBool(m.TiedEmbeddings)
	c.dropout = C.double(m.Dropout)
	c.attention_dropout = C.double(m.AttentionDropout)
	c.ffn_dropout = C.double(m.FFNDropout)
	c.norm_epsilon = C.double(m.NormEpsilon)
	c.depth_scaled_init = cBool(m.DepthScaledInit)
	c.precision = C.int32_t(m.Precision)
	c.norm = C.int32_t(m.Norm)
	c.positions = C.int32_t(m.Positions)
	c.ffn = C.int32_t(m.FFN)
	c.biases = cBool(!m.NoBiases)
	c.kv_heads = C.int64_t(m.KVHeads)
	if m.RopeTheta != 0 {
		c.rope_theta = C.double(m.RopeTheta)
	}
	return c
}

// Model is a transformer.
type Model struct {
	c       *Context
	ptr     *C.trafo_model
	cleanup runtime.Cleanup
}

func (c *Context) model(origin string, f func(ptr *C.trafo_context, out **C.trafo_model) *C.trafo_error) (m *Model, err error) {
	err = c.call(origin, func(ptr *C.trafo_context) *C.trafo_error {
		var out *C.trafo_model
		if e := f(ptr, &out); e != nil {
			return e
		}
		m = &Model{c: c, ptr: out}
		m.cleanup = runtime.AddCleanup(m, abandoned.run, abandoned{c.core, func() { C.trafo_model_free(out) }})
		return nil
	})
	return m, err
}

// NewModel makes a model with parameters drawn from seed.
func (c *Context) NewModel(config ModelConfig, seed uint64) (*Model, error) {
	return c.model("Context.NewModel", func(ptr *C.trafo_context, out **C.trafo_model) *C.trafo_error {
		return C.trafo_model_new(ptr, config.c(), C.uint64_t(seed), out)
	})
}

// LoadModel reads a model.safetensors written by Model.Save or by a training run.
func (c *Context) LoadModel(path string) (*Model, error) {
	return c.model("Context.LoadModel", func(ptr *C.trafo_context, out **C.trafo_model) *C.trafo_error {
		data, length := chars(path)
		return C.trafo_model_load(ptr, data, length, out)
	})
}

// LoadModelAs is LoadModel for a model that computes in precision: Float32 or, on CUDA, BFloat16.
func (c *Context) LoadModelAs(path string, precision DType) (*Model, error) {
	return c.model("Context.LoadModelAs", func(ptr *C.trafo_context, out **C.trafo_model) *C.trafo_error {
		data, length := chars(path)
		return C.trafo_model_load_as(ptr, data, length, C.int32_t(precision), out)
	})
}

func (m *Model) in(origin string, f func() *C.trafo_error) error {
	return m.within(context.Background(), origin, func() error { return m.c.core.finish(f()) })
}

// within runs f in the engine with the open model, unless ctx ends before its turn comes. What f
// locks is locked after the engine, everywhere: a callback, which is in the engine, may lock it too.
func (m *Model) within(ctx context.Context, origin string, f func() error) error {
	if m == nil || m.c == nil {
		return closed(origin, "the model")
	}
	nested, err := m.c.core.enterWith(ctx, origin)
	if err != nil {
		return err
	}
	defer m.c.core.leave(nested)
	if m.ptr == nil {
		return closed(origin, "the model")
	}
	defer runtime.KeepAlive(m)
	return f()
}

// LoadWeights gives the model the weights of a file that Save or a training run wrote, to train on
// from them; dropout and longest sequence may be others. The tokenizer, which may be nil, must be the
// one that a run has noted in the file. ErrInvalidArgument names what does not fit, and the tensor;
// the model is as before then.
func (m *Model) LoadWeights(tokenizer *Tokenizer, path string) error {
	const origin = "Model.LoadWeights"
	return m.within(context.Background(), origin, func() error {
		var pieces *C.trafo_tokenizer
		if tokenizer != nil {
			var err error
			if pieces, err = tokenizer.hold(origin); err != nil {
				return err
			}
			defer tokenizer.shared.release()
		}
		data, length := chars(path)
		return m.c.core.finish(C.trafo_model_load_weights(m.ptr, pieces, data, length))
	})
}

// AverageModels writes the mean of model files, added up in float64, to a file, whole or not at all.
// ErrInvalidArgument names the tensor or the setting in which one is not like the first.
func AverageModels(models []string, output string) error {
	paths, free := views(models)
	defer free()
	data, length := chars(output)
	return check(C.trafo_average_models(paths, C.size_t(len(models)), data, length))
}

// PrepareInference packs the weights for translation on the CPU, which takes as much memory again.
// Small batches are then translated up to twice as fast, and a translation does not depend on the
// batch it is in, not in a single bit. The weights cannot change any more: NewTrainer, LoadWeights
// and Parameters refuse the model from here on.
func (m *Model) PrepareInference() error {
	return m.in("Model.PrepareInference", func() *C.trafo_error { return C.trafo_model_prepare_inference(m.ptr) })
}

// Save writes the file whole or not at all.
func (m *Model) Save(path string) error {
	return m.in("Model.Save", func() *C.trafo_error {
		data, length := chars(path)
		return C.trafo_model_save(m.ptr, data, length)
	})
}

// Config gives the model's shape.
func (m *Model) Config() (ModelConfig, error) {
	var c C.trafo_model_config
	err := m.in("Model.Config", func() *C.trafo_error {
		return C.trafo_model_get_config(m.ptr, &c, C.sizeof_trafo_model_config)
	})
	if err != nil {
		return ModelConfig{}, err
	}
	return modelConfig(&c), nil
}

// Parameter is a named tensor of a model.
type Parameter struct {
	Name   string
	Tensor *Tensor // the parameter's own memory; closing it closes only this handle
}

// Parameters gives all tensors of the model.
func (m *Model) Parameters() (parameters []Parameter, err error) {
	err = m.in("Model.Parameters", func() *C.trafo_error {
		var tensors, elements C.int64_t
		if e := C.trafo_model_get_parameter_count(m.ptr, &tensors, &elements); e != nil {
			return e
		}
		for i := range tensors {
			var name *C.char
			var tensor *C.trafo_tensor
			if e := C.trafo_model_get_parameter(m.ptr, i, &name, &tensor); e != nil {
				return e
			}
			parameters = append(parameters, Parameter{C.GoString(name), m.c.adopt(tensor)})
		}
		return nil
	})
	return parameters, err
}

// ParameterInfo says how a parameter is trained.
type ParameterInfo struct {
	Name     string
	Group    string // "matrices", "norms_and_biases", or a group that the model has declared
	Elements int64
	DType    DType // of the values
	Frozen   bool
	// What learning rate and weight decay are multiplied with.
	LearningRateFactor, WeightDecayFactor float64
}

// ParameterInfos lists how the parameters are trained, in the order of the file.
func (m *Model) ParameterInfos() (infos []ParameterInfo, err error) {
	err = m.in("Model.ParameterInfos", func() *C.trafo_error {
		var tensors, elements C.int64_t
		if e := C.trafo_model_get_parameter_count(m.ptr, &tensors, &elements); e != nil {
			return e
		}
		for i := range tensors {
			var c C.trafo_parameter_info
			if e := C.trafo_model_get_parameter_info(m.ptr, i, &c, C.sizeof_trafo_parameter_info); e != nil {
				return e
			}
			infos = append(infos, ParameterInfo{
				C.GoString(c.name), C.GoString(c.group), int64(c.elements), DType(c.dtype), c.trainable == 0,
				float64(c.lr_factor), float64(c.weight_decay_factor),
			})
		}
		return nil
	})
	return infos, err
}

// Freeze freezes the parameters whose whole names match the pattern, and says how many match. Training
// does not change them, and takes no gradients, optimizer states and backward work for them. '*' stands
// for any characters, '?' for one: "encoder.*" and "*embedding.weight" leave the decoder to be trained.
// ErrNotFound: no name matches. ErrInvalidArgument: the model has a trainer, or tensors of its
// parameters are open. A run directory continues with the same parameters frozen.
func (m *Model) Freeze(pattern string) (int64, error) {
	var count C.int64_t
	err := m.in("Model.Freeze", func() *C.trafo_error {
		data, length := chars(pattern)
		return C.trafo_model_freeze(m.ptr, data, length, &count)
	})
	return int64(count), err
}

// Unfreeze makes the parameters whose names match trainable again, and says how many match.
func (m *Model) Unfreeze(pattern string) (int64, error) {
	var count C.int64_t
	err := m.in("Model.Unfreeze", func() *C.trafo_error {
		data, length := chars(pattern)
		return C.trafo_model_unfreeze(m.ptr, data, length, &count)
	})
	return int64(count), err
}

// SetUpdateFactors sets what learning rate and weight decay are multiplied with for the parameters whose
// names match, and says how many match. ErrInvalidArgument: a factor is negative or not finite.
func (m *Model) SetUpdateFactors(pattern string, learningRate, weightDecay float64) (int64, error) {
	var count C.int64_t
	err := m.in("Model.SetUpdateFactors", func() *C.trafo_error {
		data, length := chars(pattern)
		return C.trafo_model_set_update_factors(m.ptr, data, length, C.double(learningRate), C.double(weightDecay), &count)
	})
	return int64(count), err
}

// Size counts the model's parameters: numbers, not tensors.
func (m *Model) Size() (int64, error) {
	var tensors, elements C.int64_t
	err := m.in("Model.Size", func() *C.trafo_error {
		return C.trafo_model_get_parameter_count(m.ptr, &tensors, &elements)
	})
	return int64(elements), err
}

// Close frees the model; it may be called more than once. A trainer keeps what it needs of it.
func (m *Model) Close() error {
	if m == nil || m.c == nil {
		return nil
	}
	nested := m.c.core.enter()
	defer m.c.core.leave(nested)
	if m.ptr != nil {
		m.cleanup.Stop()
		C.trafo_model_free(m.ptr)
		m.ptr = nil
	}
	return nil
}
