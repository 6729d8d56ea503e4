package trafo

// #include "trafo.h"
import "C"

import (
	"slices"
	"strings"
)

// Parameters are the tensors of an own network by their names, in the order in which they were added. One goroutine at a
// time.
type Parameters struct {
	c       *Context
	names   []string
	tensors map[string]*Tensor
}

// Loaded is what Parameters.Load has found.
type Loaded struct {
	Missing    []string // parameters that the file has not: they are as before
	Unexpected []string // tensors of the file that are no parameters
}

// NewParameters makes an empty list of parameters.
func (c *Context) NewParameters() *Parameters {
	return &Parameters{c: c, tensors: map[string]*Tensor{}}
}

// Add adds a tensor, which no scope closes from here on. ErrInvalidArgument: the name is taken, or the tensor is of
// another context.
func (p *Parameters) Add(name string, tensor *Tensor) error {
	const origin = "Parameters.Add"
	if tensor == nil {
		return closed(origin, "tensor "+name)
	}
	if p.tensors[name] != nil {
		return refuse(origin, "name: %q is taken", name)
	}
	if tensor.c != p.c {
		return refuse(origin, "name: %q is a tensor of another context", name)
	}
	p.c.Keep(tensor)
	p.names = append(p.names, name)
	p.tensors[name] = tensor
	return nil
}

// Get gives the tensor of a name, or nil.
func (p *Parameters) Get(name string) *Tensor { return p.tensors[name] }

// Names are the names in the order in which they were added.
func (p *Parameters) Names() []string { return slices.Clone(p.names) }

// Tensors are the tensors in that order, as optimizers take them.
func (p *Parameters) Tensors() []*Tensor {
	tensors := make([]*Tensor, len(p.names))
	for i, name := range p.names {
		tensors[i] = p.tensors[name]
	}
	return tensors
}

// Save writes them to a safetensors file with checksums, which appears whole or not at all.
func (p *Parameters) Save(path string) error { return p.c.SaveTensors(path, p.tensors) }

// Load copies the tensors of a safetensors file into the parameters of their names. ErrShapeMismatch: one has another
// shape or element type; nothing has changed then.
func (p *Parameters) Load(path string) (Loaded, error) {
	var loaded Loaded
	inFile, err := TensorNames(path)
	if err != nil {
		return loaded, err
	}
	var found []string
	var tensors []*Tensor
	for _, name := range p.names {
		if slices.Contains(inFile, name) {
			found, tensors = append(found, name), append(tensors, p.tensors[name])
		} else {
			loaded.Missing = append(loaded.Missing, name)
		}
	}
	for _, name := range inFile {
		if p.tensors[name] == nil {
			loaded.Unexpected = append(loaded.Unexpected, name)
		}
	}
	array, free := views(found)
	defer free()
	err = p.c.op("Parameters.Load", func(ptr *C.trafo_context) *C.trafo_error {
		data, length := chars(path)
		handles := handlesOf(tensors)
		return C.trafo_tensors_read(ptr, data, length, array, first(handles), C.size_t(len(handles)))
	}, tensors...)
	if err != nil {
		return Loaded{}, err
	}
	return loaded, nil
}

// Close closes the tensors.
func (p *Parameters) Close() {
	for _, tensor := range p.tensors {
		tensor.Close()
	}
}

// TensorNames are the names of the tensors in a safetensors file, in ascending order.
func TensorNames(path string) ([]string, error) {
	data, length := chars(path)
	var out *C.char
	var bytes C.size_t
	if err := check(C.trafo_tensors_list(data, length, &out, &bytes)); err != nil {
		return nil, err
	}
	defer C.trafo_string_free(out)
	list := C.GoStringN(out, C.int(bytes))
	return strings.Split(list, "\x00")[:strings.Count(list, "\x00")], nil
}
