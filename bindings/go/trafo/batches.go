package trafo

// #include <stdlib.h>
// #include "trafo.h"
//
// int32_t trafoGoBatch(uintptr_t handle, int64_t index, trafo_batch *out);
// void trafoGoFreeBatches(uintptr_t handle);
//
// static int32_t trafo_go_batch(void *handle, int64_t index, trafo_batch *out) {
//   return trafoGoBatch((uintptr_t)handle, index, out);
// }
// static void trafo_go_free_batches(void *handle) { trafoGoFreeBatches((uintptr_t)handle); }
// static trafo_error *trafo_go_set_batches(trafo_trainer *trainer, uintptr_t handle) {
//   return trafo_trainer_set_batches(trainer, trafo_go_batch, (void *)handle, trafo_go_free_batches);
// }
import "C"

import (
	"fmt"
	"runtime/cgo"
	"unsafe"
)

// EOS is the id of </s>, the end of a text, in vocabularies that are trained here. [Tokenizer.Special] has it
// for every vocabulary.
const EOS int32 = C.TRAFO_TOKEN_EOS

// Batch is pairs of token ids that are trained on together: what the encoder reads (a decoder-lm:
// what comes first and is not to be learnt) and what is to be predicted. Ids come from
// [Tokenizer.Encode]; nothing is added to them. Where texts end with </s>, each row ends with its id, [EOS], and a
// row that is a piece of a longer text has none. The empty source of a decoder-lm is </s>: the target is plain
// text; a nil Source: all are empty.
type Batch struct {
	Source, Target [][]int32
}

// side is one side of a batch in C's memory, which the engine looks at after the call.
type side struct {
	ids, lengths *C.int32_t
	width        int
}

func (s *side) forget() {
	C.free(unsafe.Pointer(s.ids))
	C.free(unsafe.Pointer(s.lengths))
	*s = side{}
}

func (s *side) fill(rows [][]int32) {
	s.forget()
	for _, row := range rows {
		s.width = max(s.width, len(row))
	}
	const size = C.size_t(unsafe.Sizeof(C.int32_t(0)))
	s.ids = (*C.int32_t)(C.calloc(C.size_t(len(rows)*s.width)+1, size))
	s.lengths = (*C.int32_t)(C.calloc(C.size_t(len(rows))+1, size))
	ids := unsafe.Slice((*int32)(s.ids), len(rows)*s.width)
	lengths := unsafe.Slice((*int32)(s.lengths), len(rows))
	for i, row := range rows {
		copy(ids[i*s.width:], row)
		lengths[i] = int32(len(row))
	}
}

type batchBody struct {
	core           *core
	function       func(index int64) (Batch, error)
	source, target side
}

//export trafoGoBatch
func trafoGoBatch(handle C.uintptr_t, index C.int64_t, out *C.trafo_batch) C.int32_t {
	b := cgo.Handle(handle).Value().(*batchBody)
	var batch Batch
	var met pending
	if !attempt(b.core, &met, func() (err error) {
		batch, err = b.function(int64(index))
		if batch.Source == nil {
			batch.Source = make([][]int32, len(batch.Target))
		}
		if err == nil && len(batch.Source) != len(batch.Target) {
			err = fmt.Errorf("%d sources, %d targets", len(batch.Source), len(batch.Target))
		}
		return err
	}) {
		b.core.pending = met
		return 1
	}
	b.source.fill(batch.Source)
	b.target.fill(batch.Target)
	out.sentences = C.int64_t(len(batch.Source))
	out.source, out.source_width, out.source_lengths = b.source.ids, C.int64_t(b.source.width), b.source.lengths
	out.target, out.target_width, out.target_lengths = b.target.ids, C.int64_t(b.target.width), b.target.lengths
	return 0
}

//export trafoGoFreeBatches
func trafoGoFreeBatches(handle C.uintptr_t) {
	b := cgo.Handle(handle).Value().(*batchBody)
	b.source.forget()
	b.target.forget()
	cgo.Handle(handle).Delete()
}

// SetBatches trains on batches of next instead of the corpus's from the next call on; there are no
// epochs then. index counts the micro-batches of the run from 0; the same index must give the same
// batch for a run to continue bitwise. It is called on the goroutine that trains and must not use the
// engine. Not part of checkpoints. An error of next is the error of the call that trains, what is no
// batch of the model ErrInvalidArgument; the next call asks for it again. A nil next is the corpus
// again, from where it was.
func (t *Trainer) SetBatches(next func(index int64) (Batch, error)) error {
	return t.in("Trainer.SetBatches", func() *C.trafo_error {
		if next == nil {
			return C.trafo_trainer_set_batches(t.ptr, nil, nil, nil)
		}
		return C.trafo_go_set_batches(t.ptr, C.uintptr_t(cgo.NewHandle(&batchBody{core: t.c.core, function: next})))
	})
}
