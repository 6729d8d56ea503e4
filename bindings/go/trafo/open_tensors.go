package trafo

// #include "trafo.h"
import "C"

import (
	"runtime"
	"weak"
)

// tensors are the open tensors of a context, without keeping them alive. The collector does not see their memory
// and would not hurry for tensors that the program has forgotten, so they drive it.
type tensors struct {
	open  map[*C.trafo_tensor]weak.Pointer[Tensor]
	bytes int // of the open ones
	fresh int // of those that were made since the collector was last driven, and are open
}

// Memory of new tensors that makes the collector run: a run takes a millisecond or more.
const mostFresh = 128 << 20

func (t *tensors) add(tensor *Tensor) {
	t.open[tensor.ptr] = weak.Make(tensor)
	t.bytes += tensor.bytes()
	t.fresh += tensor.bytes()
	// At most as much is forgotten as is in use, or mostFresh.
	if t.fresh > max(mostFresh, t.bytes/2) {
		t.fresh = 0
		runtime.GC()
	}
}

// closed forgets a tensor that the program has closed or handed over.
func (t *tensors) closed(ptr *C.trafo_tensor, bytes int) {
	t.collected(ptr, bytes)
	t.fresh = max(0, t.fresh-bytes)
}

// collected forgets a tensor that the collector has found.
func (t *tensors) collected(ptr *C.trafo_tensor, bytes int) {
	delete(t.open, ptr)
	t.bytes -= bytes
}

func (t *tensors) closeAll() {
	for _, reference := range t.open {
		if tensor := reference.Value(); tensor != nil {
			tensor.release()
		}
	}
}
