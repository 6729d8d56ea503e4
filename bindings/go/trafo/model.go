package trafo

// #include "trafo.h"
import "C"

import (
	"context"
	"runtime"
	"unsafe"
)

// TiedLayers is the most layers of a stack that shares parameters.
const TiedLayers = C.TRAFO_TIED_LAYERS

func layersFromC(c *[TiedLayers]C.uint8_t) (layers [TiedLayers]uint8) {
	for i, number := range c {
		layers[i] = uint8(number)
	}
	return layers
}

func layersToC(layers *[TiedLayers]uint8) (c [TiedLayers]C.uint8_t) {
	for i, number := range layers {
		c[i] = C.uint8_t(number)
	}
	return c
}

// DefaultModelConfig gives the defaults: 6+6 layers, width 512, FFN 2048, 8 heads, dropout 0.1.
func DefaultModelConfig() ModelConfig {
	var c C.trafo_model_config
	mustInit(C.trafo_model_config_init(&c, C.sizeof_trafo_model_config))
	return modelConfig(&c)
}

// Preset gives the shape of a model by task, for example "small" (docs/reference/generated/options.md lists the presets). Vocabulary is the usual
// size of a new vocabulary. The error of another name lists the names.
func Preset(name string) (ModelConfig, error) {
	var c C.trafo_model_config
	mustInit(C.trafo_model_config_init(&c, C.sizeof_trafo_model_config))
	data, length := chars(name)
	if err := check(C.trafo_model_config_preset(&c, data, length)); err != nil {
		return ModelConfig{}, err
	}
	return modelConfig(&c), nil
}

// ReadModelConfig gives the configuration of a model.safetensors, whose weights are not read.
func ReadModelConfig(path string) (ModelConfig, error) {
	var c C.trafo_model_config
	data, length := chars(path)
	if err := check(C.trafo_model_read_config(data, length, &c, C.sizeof_trafo_model_config)); err != nil {
		return ModelConfig{}, err
	}
	return modelConfig(&c), nil
}

func modelConfig(c *C.trafo_model_config) ModelConfig {
	var config ModelConfig
	config.fromC(c)
	return config
}

func (o *ModelConfig) c() *C.trafo_model_config {
	c := new(C.trafo_model_config)
	mustInit(C.trafo_model_config_init(c, C.sizeof_trafo_model_config))
	o.toC(c)
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
		m = c.adoptModel(out)
		return nil
	})
	return m, err
}

func (c *Context) adoptModel(ptr *C.trafo_model) *Model {
	m := &Model{c: c, ptr: ptr}
	m.cleanup = runtime.AddCleanup(m, abandoned.run, abandoned{c.core, func() { C.trafo_model_free(ptr) }})
	return m
}

// NewModel makes a model with parameters drawn from seed.
func (c *Context) NewModel(config ModelConfig, seed uint64) (*Model, error) {
	return c.model("Context.NewModel", func(ptr *C.trafo_context, out **C.trafo_model) *C.trafo_error {
		return C.trafo_model_new(ptr, config.c(), C.uint64_t(seed), out)
	})
}

// NewModelLike is NewModel with the factors of Model.Factorize: a matrix that is two factors in the
// model.safetensors at path is two factors of the same rank in the new model, whose values do not come from the
// file. ErrInvalidArgument: config has no such matrix, or one that is too small for the rank.
func (c *Context) NewModelLike(config ModelConfig, seed uint64, path string) (*Model, error) {
	return c.model("Context.NewModelLike", func(ptr *C.trafo_context, out **C.trafo_model) *C.trafo_error {
		data, length := chars(path)
		return C.trafo_model_new_like(ptr, config.c(), C.uint64_t(seed), data, length, out)
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

// LoadModelInt8 is LoadModel with int8 weights, for translation and scoring on a CPU. The matrices are
// quantized while they are read, and no float copy of them is kept. Model.Save then writes a file about
// a quarter as large, which LoadModel reads as it is. ErrUnsupported: to train or export the model.
func (c *Context) LoadModelInt8(path string) (*Model, error) {
	return c.model("Context.LoadModelInt8", func(ptr *C.trafo_context, out **C.trafo_model) *C.trafo_error {
		data, length := chars(path)
		return C.trafo_model_load_int8(ptr, data, length, out)
	})
}

// FindModel is the file that path means where a model is asked for: the file itself, the
// model.safetensors in a directory, or of a run directory the best model; its newest checkpoint if none
// was judged or the best was not kept. ErrNotFound: there is no model.
func FindModel(path string) (string, error) {
	data, length := chars(path)
	var found *C.char
	if err := check(C.trafo_find_model(data, length, &found)); err != nil {
		return "", err
	}
	return takeCString(found), nil
}

// FindCheckpoint is the model file of a checkpoint of a run directory by its name: an update such as "1000",
// "latest", "best-bleu" (or another metric), or "averaged". ErrNotFound: there is no such directory, or no
// such checkpoint in it.
func FindCheckpoint(runDirectory, name string) (string, error) {
	data, length := chars(runDirectory)
	nameData, nameLength := chars(name)
	var found *C.char
	if err := check(C.trafo_find_checkpoint(data, length, nameData, nameLength, &found)); err != nil {
		return "", err
	}
	return takeCString(found), nil
}

// ListCheckpoints gives the updates of the checkpoints of a run directory, whole or damaged, in ascending
// order. A run resumes in a directory that has one. Empty: no checkpoint, or no such directory.
func ListCheckpoints(runDirectory string) ([]int64, error) {
	data, length := chars(runDirectory)
	var updates []int64
	for {
		var count C.int64_t
		to := (*C.int64_t)(unsafe.SliceData(updates))
		if err := check(C.trafo_list_checkpoints(data, length, to, C.int64_t(len(updates)), &count)); err != nil {
			return nil, err
		}
		if int(count) <= len(updates) {
			return updates[:count], nil
		}
		updates = make([]int64, count)
	}
}

// LoadRun loads a model of a run directory: of the best checkpoint by the first metric of validation, of
// the newest checkpoint, or the average. The model computes in precision: Float32 or, on CUDA, BFloat16.
// ErrNotFound says why the run has no such model. LoadTokenizer takes the directory of a run of
// translate-train; a run of a program has no vocabulary there, unless the program saved it.
func (c *Context) LoadRun(directory string, which RunModel, precision DType) (*Model, error) {
	return c.model("Context.LoadRun", func(ptr *C.trafo_context, out **C.trafo_model) *C.trafo_error {
		data, length := chars(directory)
		return C.trafo_model_load_run(ptr, data, length, C.int32_t(which), C.int32_t(precision), out)
	})
}

func (m *Model) in(origin string, f func() *C.trafo_error) error {
	return m.within(context.Background(), origin, func() error { return m.c.core.finish(f()) })
}

// within runs f in the engine with the open model, unless ctx ends before its turn comes. Locks of f
// are taken after the engine's, everywhere: a callback, which is in the engine, may lock it too.
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
		var handle *C.trafo_tokenizer
		if tokenizer != nil {
			var err error
			if handle, err = tokenizer.hold(origin); err != nil {
				return err
			}
			defer tokenizer.shared.release()
		}
		data, length := chars(path)
		return m.c.core.finish(C.trafo_model_load_weights(m.ptr, handle, data, length))
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

// CheckTokenizer checks that a tokenizer belongs to the model, as translating and scoring do.
// ErrInvalidArgument: it has another number of tokens, or the model was trained with another vocabulary.
func (m *Model) CheckTokenizer(tokenizer *Tokenizer) error {
	const origin = "Model.CheckTokenizer"
	return m.within(context.Background(), origin, func() error {
		handle, err := tokenizer.hold(origin)
		if err != nil {
			return err
		}
		defer tokenizer.shared.release()
		return m.c.core.finish(C.trafo_model_check_tokenizer(m.ptr, handle))
	})
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
			infos = append(infos, newParameterInfo(&c))
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
	nested, err := m.c.core.enter("Model.Close")
	if err != nil {
		return err
	}
	defer m.c.core.leave(nested)
	if m.ptr != nil {
		m.cleanup.Stop()
		C.trafo_model_free(m.ptr)
		m.ptr = nil
	}
	return nil
}
