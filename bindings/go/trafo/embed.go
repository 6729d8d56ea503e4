package trafo

// #include <stdlib.h>
// #include "trafo.h"
//
// int32_t trafoGoWrite(uintptr_t handle, uint8_t *data, size_t bytes);
// int32_t trafoGoRead(uintptr_t handle, uint8_t *data, size_t capacity, size_t *count);
// double trafoGoRate(uintptr_t handle, int64_t update, double scheduled);
// int32_t trafoGoPair(uintptr_t handle, int64_t index, trafo_string_view *source, trafo_string_view *target);
// void trafoGoFree(uintptr_t handle);
// void trafoGoFreePairs(uintptr_t handle);
//
// static int32_t trafo_go_write(void *handle, const uint8_t *data, size_t bytes) {
//   return trafoGoWrite((uintptr_t)handle, (uint8_t *)data, bytes);
// }
// static int32_t trafo_go_read(void *handle, uint8_t *data, size_t capacity, size_t *count) {
//   return trafoGoRead((uintptr_t)handle, data, capacity, count);
// }
// static double trafo_go_rate(void *handle, int64_t update, double scheduled) {
//   return trafoGoRate((uintptr_t)handle, update, scheduled);
// }
// static int32_t trafo_go_pair(void *handle, int64_t index, trafo_string_view *source, trafo_string_view *target) {
//   return trafoGoPair((uintptr_t)handle, index, source, target);
// }
// static void trafo_go_free_handle(void *handle) { trafoGoFree((uintptr_t)handle); }
// static void trafo_go_free_pairs(void *handle) { trafoGoFreePairs((uintptr_t)handle); }
//
// static trafo_error *trafo_go_model_write(const trafo_model *model, uintptr_t handle) {
//   return trafo_model_write(model, trafo_go_write, (void *)handle);
// }
// static trafo_error *trafo_go_model_read(trafo_context *context, uintptr_t handle, int32_t precision,
//                                         trafo_model **out) {
//   return trafo_model_read(context, trafo_go_read, (void *)handle, precision, out);
// }
// static trafo_error *trafo_go_tokenizer_write(const trafo_tokenizer *tokenizer, uintptr_t handle) {
//   return trafo_tokenizer_write(tokenizer, trafo_go_write, (void *)handle);
// }
// static trafo_error *trafo_go_trainer_write(trafo_trainer *trainer, uintptr_t handle) {
//   return trafo_trainer_write(trainer, trafo_go_write, (void *)handle);
// }
// static trafo_error *trafo_go_trainer_read(trafo_trainer *trainer, uintptr_t handle) {
//   return trafo_trainer_read(trainer, trafo_go_read, (void *)handle);
// }
// static trafo_error *trafo_go_set_rate(trafo_trainer *trainer, uintptr_t handle) {
//   if (!handle) return trafo_trainer_set_rate(trainer, NULL, NULL, NULL);
//   return trafo_trainer_set_rate(trainer, trafo_go_rate, (void *)handle, trafo_go_free_handle);
// }
// static trafo_error *trafo_go_pairs(int64_t pairs, uint64_t identity, uintptr_t handle, trafo_corpus **out) {
//   return trafo_corpus_from_function(pairs, identity, trafo_go_pair, (void *)handle, trafo_go_free_pairs, out);
// }
import "C"

import (
	"errors"
	"io"
	"math"
	"runtime/cgo"
	"sync"
	"unsafe"
)

// stream is a reader or writer for the length of one call, and what it has met.
type stream struct {
	w    io.Writer
	r    io.Reader
	met  pending
	core *core // that the call is in; nil: none
}

// attempt runs the program's own code, whose errors and panics must not cross C. k is what the call is in, which
// waits for it; it may be nil. False: met has an error.
func attempt(k *core, met *pending, f func() error) (done bool) {
	if k != nil {
		defer k.leaveFor()()
		defer k.supplier.Store(k.supplier.Swap(thread()))
	}
	defer func() {
		if value := recover(); value != nil {
			*met = pending{panicked: true, value: value}
		}
	}()
	*met = pending{err: f()}
	return met.err == nil
}

func (s *stream) write(data []byte) error {
	n, err := s.w.Write(data)
	if err == nil && n < len(data) {
		err = io.ErrShortWrite
	}
	return err
}

func (s *stream) read(data []byte) (n int, err error) {
	for range 100 {
		n, err = s.r.Read(data)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// during runs a call that uses the stream; what the stream has met is what the call tells.
func (s *stream) during(origin string, call func(handle C.uintptr_t) error) error {
	handle := cgo.NewHandle(s)
	defer handle.Delete()
	err := call(C.uintptr_t(handle))
	if s.met.panicked {
		panic(s.met.value)
	}
	if s.met.err != nil {
		return &Error{Code: ErrIO, Origin: origin, Message: s.met.err.Error(), causes: []error{s.met.err}}
	}
	return err
}

//export trafoGoWrite
func trafoGoWrite(handle C.uintptr_t, data *C.uint8_t, bytes C.size_t) C.int32_t {
	s := cgo.Handle(handle).Value().(*stream)
	if !attempt(s.core, &s.met, func() error { return s.write(unsafe.Slice((*byte)(data), bytes)) }) {
		return 1
	}
	return 0
}

//export trafoGoRead
func trafoGoRead(handle C.uintptr_t, data *C.uint8_t, capacity C.size_t, count *C.size_t) C.int32_t {
	s := cgo.Handle(handle).Value().(*stream)
	if !attempt(s.core, &s.met, func() error {
		n, err := s.read(unsafe.Slice((*byte)(data), capacity))
		*count = C.size_t(n)
		return err
	}) {
		return 1
	}
	return 0
}

// WriteModel writes the bytes of [Model.Save].
func (m *Model) WriteModel(w io.Writer) error {
	const origin = "Model.WriteModel"
	s := &stream{w: w}
	return s.during(origin, func(handle C.uintptr_t) error {
		return m.in(origin, func() *C.trafo_error {
			s.core = m.c.core
			return C.trafo_go_model_write(m.ptr, handle)
		})
	})
}

// ReadModel makes a model from such bytes, read to their end.
func (c *Context) ReadModel(r io.Reader) (*Model, error) { return c.ReadModelAs(r, Float32) }

// ReadModelAs is ReadModel for a model that computes in precision: Float32 or, on CUDA, BFloat16.
func (c *Context) ReadModelAs(r io.Reader, precision DType) (m *Model, err error) {
	const origin = "Context.ReadModelAs"
	s := &stream{r: r}
	err = s.during(origin, func(handle C.uintptr_t) error {
		m, err = c.model(origin, func(ptr *C.trafo_context, out **C.trafo_model) *C.trafo_error {
			s.core = c.core
			return C.trafo_go_model_read(ptr, handle, C.int32_t(precision), out)
		})
		return err
	})
	return m, err
}

// WriteState writes what a checkpoint in a run directory holds: weights, moments, position in the
// data, counters.
func (t *Trainer) WriteState(w io.Writer) error {
	const origin = "Trainer.WriteState"
	s := &stream{w: w}
	return s.during(origin, func(handle C.uintptr_t) error {
		return t.in(origin, func() *C.trafo_error {
			s.core = t.c.core
			return C.trafo_go_trainer_write(t.ptr, handle)
		})
	})
}

// ReadState gives the trainer and its model what such bytes hold; it goes on bitwise as the one that
// wrote them would have. Model, tokenizer, corpus and options must be the ones of that trainer.
func (t *Trainer) ReadState(r io.Reader) error {
	const origin = "Trainer.ReadState"
	s := &stream{r: r}
	return s.during(origin, func(handle C.uintptr_t) error {
		return t.in(origin, func() *C.trafo_error {
			s.core = t.c.core
			return C.trafo_go_trainer_read(t.ptr, handle)
		})
	})
}

// rateBody is a rate on its way through C, which asks on the thread that is in the engine.
type rateBody struct {
	core *core
	rate func(update int64, scheduled float64) float64
}

//export trafoGoRate
func trafoGoRate(handle C.uintptr_t, update C.int64_t, scheduled C.double) C.double {
	b := cgo.Handle(handle).Value().(*rateBody)
	rate := math.NaN() // refused by the engine
	var met pending
	if !attempt(b.core, &met, func() error {
		rate = b.rate(int64(update), float64(scheduled))
		return nil
	}) {
		b.core.pending = met
	}
	return C.double(rate)
}

// SetRate asks rate for the learning rate of every update from the next on, given what the options'
// schedule says. It is asked for updates ahead and more than once, so it must depend on its
// arguments alone; a run that is continued needs the same. A rate that is negative or not finite is
// ErrInvalidArgument from the call that trains. rate must not use the engine; nil is the options'
// schedule again.
func (t *Trainer) SetRate(rate func(update int64, scheduled float64) float64) error {
	return t.in("Trainer.SetRate", func() *C.trafo_error {
		var handle cgo.Handle
		if rate != nil {
			handle = cgo.NewHandle(&rateBody{t.c.core, rate})
		}
		return C.trafo_go_set_rate(t.ptr, C.uintptr_t(handle))
	})
}

// pairBody keeps the current pair in C's memory, which the engine looks at after the call.
type pairBody struct {
	function       func(index int64) (source, target string, err error)
	source, target *C.char

	lock  sync.Mutex
	first pending // failure that no call has told yet: batches are asked for ahead
}

// note keeps a failure for the call that fails by it.
func (p *pairBody) note(met pending) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.first == (pending{}) {
		p.first = met
	}
}

func (p *pairBody) take() pending {
	p.lock.Lock()
	defer p.lock.Unlock()
	first := p.first
	p.first = pending{}
	return first
}

// told adds what functions of pairs have met to the error of a call that failed by one of them, and
// continues its panic.
func told(sources []*pairBody, err error) error {
	e, ok := err.(*Error)
	if !ok || e.Code != ErrIO || e.Origin != "trafo_pair_fn" {
		return err
	}
	for _, source := range sources {
		met := source.take()
		if met.panicked {
			panic(met.value)
		}
		if met.err != nil {
			e.Message += ": " + met.err.Error()
			e.causes = append(e.causes, met.err)
		}
	}
	return e
}

func (p *pairBody) forget() {
	C.free(unsafe.Pointer(p.source))
	C.free(unsafe.Pointer(p.target))
	p.source, p.target = nil, nil
}

//export trafoGoPair
func trafoGoPair(handle C.uintptr_t, index C.int64_t, source, target *C.trafo_string_view) C.int32_t {
	p := cgo.Handle(handle).Value().(*pairBody)
	var s, t string
	var met pending
	if !attempt(nil, &met, func() (err error) {
		s, t, err = p.function(int64(index))
		return err
	}) {
		p.note(met)
		return 1
	}
	p.forget()
	p.source, p.target = C.CString(s), C.CString(t)
	source.data, source.length = p.source, C.size_t(len(s))
	target.data, target.length = p.target, C.size_t(len(t))
	return 0
}

//export trafoGoFreePairs
func trafoGoFreePairs(handle C.uintptr_t) {
	cgo.Handle(handle).Value().(*pairBody).forget()
	cgo.Handle(handle).Delete()
}

// NewCorpusFunc makes a corpus of pairs that function gives when batches need them, in every epoch
// again. The same index must give the same pair for a run to continue bitwise; identity represents
// the pairs in checkpoints. An error ends the call that needed the pair: with ErrIO, and the error in
// its chain; a panic continues there. The call may be made again. The function is called on threads
// of the engine, one call at a time, and must not use the engine or its own corpus. It must not wait
// for a goroutine that reads the corpus: that goroutine waits until the function returns.
func NewCorpusFunc(pairs int64, identity uint64, function func(index int64) (source, target string, err error)) (*Corpus, error) {
	if function == nil {
		return nil, refuse("NewCorpusFunc", "function is nil")
	}
	var out *C.trafo_corpus
	body := &pairBody{function: function}
	e := C.trafo_go_pairs(C.int64_t(pairs), C.uint64_t(identity), C.uintptr_t(cgo.NewHandle(body)), &out)
	return newCorpus(out, e, body)
}

// WriteModel writes the bytes of [Tokenizer.Save].
func (t *Tokenizer) WriteModel(w io.Writer) error {
	return (&stream{w: w}).during("Tokenizer.WriteModel", func(handle C.uintptr_t) error {
		return t.in("Tokenizer.WriteModel", func(ptr *C.trafo_tokenizer) *C.trafo_error {
			return C.trafo_go_tokenizer_write(ptr, handle)
		})
	})
}
