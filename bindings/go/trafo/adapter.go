package trafo

// #include "trafo.h"
import "C"

import "strings"

// AdapterOptions is what AddAdapter adds: y = x W^T + Alpha / Rank (x A^T) B^T in the linear layers
// that are its targets.
type AdapterOptions struct {
	Rank  int
	Alpha float64 // 0: 2 Rank
	// Of "query", "key", "value", "output", "gate", "up" and "down", as far as the model has them; "qkv"
	// in place of the first three in GPT-2 and ModernBERT, "gate_up" in place of gate and up in ModernBERT.
	// None: all.
	Targets []string
	Seed    uint64 // of the initial A
}

// AddAdapter freezes the model and adds a trainable LoRA adapter, which changes nothing before it is
// trained. ErrInvalidArgument: there is an adapter already, or a rank, an alpha or a target that
// cannot be.
func (m *Model) AddAdapter(options AdapterOptions) error {
	alpha := options.Alpha
	if alpha == 0 {
		alpha = 2 * float64(options.Rank)
	}
	return m.in("Model.AddAdapter", func() *C.trafo_error {
		data, length := chars(strings.Join(options.Targets, ","))
		return C.trafo_model_add_adapter(m.ptr, C.int64_t(options.Rank), C.double(alpha), data, length, C.uint64_t(options.Seed))
	})
}

// LoadAdapter adds the adapter in a directory of SaveAdapter or of PEFT. ErrInvalidArgument, naming
// what differs: it is of another base.
func (m *Model) LoadAdapter(directory string) error {
	return m.in("Model.LoadAdapter", func() *C.trafo_error {
		data, length := chars(directory)
		return C.trafo_model_load_adapter(m.ptr, data, length)
	})
}

// WithAdapter makes another model, which computes as m would with the adapter in such a directory: any number of
// adapters serve over one base, and a request chooses its model. The new model has memory for its adapter alone; the
// other weights, quantized ones too, are the memory of m, which stays until the last of them is closed. Both are
// prepared for inference, and calls on them are serialised. ErrInvalidArgument: m is not prepared with
// PrepareInference, or has an adapter; otherwise as LoadAdapter.
func (m *Model) WithAdapter(directory string) (adapted *Model, err error) {
	err = m.in("Model.WithAdapter", func() *C.trafo_error {
		data, length := chars(directory)
		var out *C.trafo_model
		if e := C.trafo_model_with_adapter(m.ptr, data, length, &out); e != nil {
			return e
		}
		adapted = m.c.adoptModel(out)
		return nil
	})
	return adapted, err
}

// SaveAdapter writes the adapter to a directory that PEFT reads, in place of one that is there.
func (m *Model) SaveAdapter(directory string) error {
	return m.in("Model.SaveAdapter", func() *C.trafo_error {
		data, length := chars(directory)
		return C.trafo_model_save_adapter(m.ptr, data, length)
	})
}

// MergeAdapter adds the adapter to the weights: the model computes as fast as without one. The earlier
// weights stay in memory until RemoveAdapter.
func (m *Model) MergeAdapter() error {
	return m.in("Model.MergeAdapter", func() *C.trafo_error { return C.trafo_model_merge_adapter(m.ptr) })
}

// UnmergeAdapter gives the model the weights before MergeAdapter, bit for bit, and the adapter
// beside them.
func (m *Model) UnmergeAdapter() error {
	return m.in("Model.UnmergeAdapter", func() *C.trafo_error { return C.trafo_model_unmerge_adapter(m.ptr) })
}

// RemoveAdapter drops the adapter; one that is merged stays in the weights. The parameters stay frozen:
// see Unfreeze.
func (m *Model) RemoveAdapter() error {
	return m.in("Model.RemoveAdapter", func() *C.trafo_error { return C.trafo_model_remove_adapter(m.ptr) })
}
