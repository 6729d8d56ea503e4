package trafo

// #include "trafo.h"
import "C"

import (
	"slices"
)

func (c *Context) random(origin string, dtype DType, shape []int, distribution C.int32_t, a, b float64, seed uint64) (*Tensor, error) {
	dims := toDims(shape)
	return c.op1(origin, func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_tensor_random(ptr, C.int32_t(dtype), first(dims), C.int32_t(len(dims)), distribution,
			C.double(a), C.double(b), C.uint64_t(seed), out)
	})
}

// RandomUniform makes a tensor with elements drawn evenly from low to high. A seed gives the same
// numbers on every device.
func (c *Context) RandomUniform(dtype DType, low, high float64, seed uint64, shape ...int) (*Tensor, error) {
	return c.random("Context.RandomUniform", dtype, shape, C.TRAFO_UNIFORM, low, high, seed)
}

// RandomNormal makes a tensor with elements drawn from a normal distribution. A seed gives the same
// numbers on every device.
func (c *Context) RandomNormal(dtype DType, mean, deviation float64, seed uint64, shape ...int) (*Tensor, error) {
	return c.random("Context.RandomNormal", dtype, shape, C.TRAFO_NORMAL, mean, deviation, seed)
}

// SaveTensors writes tensors with their names to a safetensors file with checksums, which appears whole
// or not at all.
func (c *Context) SaveTensors(path string, tensors map[string]*Tensor) error {
	const origin = "Context.SaveTensors"
	names := make([]string, 0, len(tensors))
	for name := range tensors {
		names = append(names, name)
	}
	slices.Sort(names)
	list := make([]*Tensor, len(names))
	for i, name := range names {
		if list[i] = tensors[name]; list[i] == nil {
			return closed(origin, "tensor "+name)
		}
	}
	array, free := views(names)
	defer free()
	return c.op(origin, func(ptr *C.trafo_context) *C.trafo_error {
		data, length := chars(path)
		handles := handlesOf(list)
		return C.trafo_tensors_save(ptr, data, length, array, first(handles), C.size_t(len(handles)))
	}, list...)
}

// LoadTensors reads the tensors of these names from a safetensors file. The file may have more.
func (c *Context) LoadTensors(path string, names ...string) (map[string]*Tensor, error) {
	array, free := views(names)
	defer free()
	tensors := make(map[string]*Tensor, len(names))
	err := c.op("Context.LoadTensors", func(ptr *C.trafo_context) *C.trafo_error {
		data, length := chars(path)
		handles := make([]*C.trafo_tensor, len(names))
		if e := C.trafo_tensors_load(ptr, data, length, array, C.size_t(len(names)), first(handles)); e != nil {
			return e
		}
		for i, name := range names {
			tensors[name] = c.adopt(handles[i])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tensors, nil
}

// ClipGradNorm scales the gradients of the parameters so that their common norm is at most maxNorm (0
// measures only), and gives the norm before. The parameters may belong to several optimizers. A norm
// that is not finite is ErrNonFinite and changes nothing.
func (c *Context) ClipGradNorm(maxNorm float64, parameters ...*Tensor) (norm float64, err error) {
	const origin = "Context.ClipGradNorm"
	if slices.Contains(parameters, nil) {
		return 0, closed(origin, "a parameter")
	}
	err = c.op(origin, func(ptr *C.trafo_context) *C.trafo_error {
		handles := handlesOf(parameters)
		var out C.double
		e := C.trafo_clip_grad_norm(ptr, first(handles), C.size_t(len(handles)), C.double(maxNorm), &out)
		norm = float64(out)
		return e
	}, parameters...)
	return norm, err
}

// SGD updates a group of parameters: v = momentum v + g + weightDecay p, p = p - learningRate v.
type SGD struct {
	c                     *Context
	parameters            []*Tensor
	velocities            []*Tensor
	momentum, weightDecay float64
}

// NewSGD makes an optimizer of tensors that want gradients. Unlike the parameters of an AdamW they must
// stay open.
func (c *Context) NewSGD(momentum, weightDecay float64, parameters ...*Tensor) (*SGD, error) {
	if slices.Contains(parameters, nil) {
		return nil, closed("Context.NewSGD", "a parameter")
	}
	s := &SGD{c: c, parameters: slices.Clone(parameters), momentum: momentum, weightDecay: weightDecay}
	for _, p := range parameters {
		velocity, err := c.Zeros(p.DType(), p.Shape()...)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.velocities = append(s.velocities, velocity)
	}
	return s, nil
}

// Step updates every parameter that has a gradient and zeroes the gradients.
func (s *SGD) Step(learningRate float64) error {
	return s.c.op("SGD.Step", func(ptr *C.trafo_context) *C.trafo_error {
		parameters, velocities := handlesOf(s.parameters), handlesOf(s.velocities)
		return C.trafo_sgd_step(ptr, first(parameters), first(velocities), C.size_t(len(parameters)),
			C.double(learningRate), C.double(s.momentum), C.double(s.weightDecay))
	}, append(slices.Clone(s.parameters), s.velocities...)...)
}

// Velocities are a tensor for each parameter, the whole state of the optimizer; Write restores one.
func (s *SGD) Velocities() []*Tensor { return s.velocities }

// Close frees the velocities.
func (s *SGD) Close() {
	for _, velocity := range s.velocities {
		velocity.Close()
	}
}
