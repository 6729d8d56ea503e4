package trafo

// #include "trafo.h"
//
// // What every version of DLPack begins with; cgo cannot call a pointer to a function.
// typedef struct {
//   uint32_t major, minor;
//   void *manager_ctx;
//   void (*deleter)(void *self);
// } trafo_go_managed;
//
// static void trafo_go_free_managed(void *managed) {
//   trafo_go_managed *m = managed;
//   if (m && m->deleter) m->deleter(managed);
// }
import "C"

import "unsafe"

// CopyMode says what [Context.TensorFromDLPack] does with the memory.
type CopyMode int32

// The copy modes. CopyNever makes memory that cannot be shared an error that says why.
const (
	CopyIfNeeded CopyMode = C.TRAFO_COPY_IF_NEEDED
	CopyNever    CopyMode = C.TRAFO_COPY_NEVER
	CopyAlways   CopyMode = C.TRAFO_COPY_ALWAYS
)

// TensorFromDLPack makes a leaf over the memory of another library's tensor, a
// DLManagedTensorVersioned of DLPack 1.x. It takes the tensor: the deleter is called once, when the
// last tensor that uses the memory is closed, or at once if the elements were copied. After an error
// the tensor is still the caller's. The contents of the struct must be true, it must be C's memory,
// and elements that a GPU computes must be complete.
func (c *Context) TensorFromDLPack(managed unsafe.Pointer, mode CopyMode) (*Tensor, error) {
	return c.tensor("Context.TensorFromDLPack", func(ptr *C.trafo_context, out **C.trafo_tensor) *C.trafo_error {
		return C.trafo_tensor_from_dlpack(ptr, (*C.struct_DLManagedTensorVersioned)(managed), C.int32_t(mode), out)
	})
}

// ToDLPack lends the tensor's memory to another library as a DLManagedTensorVersioned, which keeps
// it alive until its deleter is called ([FreeDLPack] does so). Both sides see what is written; no
// gradient flows through. On CUDA it waits until the elements are there.
func (t *Tensor) ToDLPack() (unsafe.Pointer, error) {
	var managed *C.struct_DLManagedTensorVersioned
	err := t.in("Tensor.ToDLPack", func() *C.trafo_error {
		return C.trafo_tensor_to_dlpack(t.ptr, &managed)
	})
	return unsafe.Pointer(managed), err
}

// FreeDLPack calls the deleter of a DLManagedTensorVersioned that nobody has taken.
func FreeDLPack(managed unsafe.Pointer) { C.trafo_go_free_managed(managed) }
