package trafo

// #include <stdint.h>
// #include "trafo.h"
//
// int32_t trafoGoProgress(uintptr_t handle, int32_t work, int64_t done, int64_t total);
//
// static int32_t trafo_go_progress(void *handle, int32_t work, int64_t done, int64_t total) {
//   return trafoGoProgress((uintptr_t)handle, work, done, total);
// }
// static trafo_error *trafo_go_set_progress(trafo_cancel *cancel, uintptr_t handle) {
//   return trafo_cancel_set_progress(cancel, trafo_go_progress, (void *)handle, NULL);
// }
import "C"

import (
	"context"
	"runtime/cgo"
)

// Progress is how far a call is.
type Progress struct {
	Work  Work  // which says what the numbers count
	Done  int64 // how much of it is done
	Total int64 // of how much; 0 as long as that is unknown
}

type progressKey struct{}

// WithProgress has calls that are given the context tell how far they are: when a piece of work begins, when it ends, and
// at most every 100 ms between. f is called on the goroutine of the call. Its error ends the call with ErrCancelled and
// that error. It cannot use the Context that is at work, nor wait for a goroutine that does: their calls are refused. A run
// tells of its validations, not of its updates. Trainers of a group tell only while they are made.
func WithProgress(ctx context.Context, f func(Progress) error) context.Context {
	return context.WithValue(ctx, progressKey{}, f)
}

// progressBody is a function of WithProgress on its way through C, for one call.
type progressBody struct {
	core     *core // that the call is in; nil: none
	function func(Progress) error
	met      pending
}

// progressOf is nil where ctx has no function.
func progressOf(ctx context.Context, k *core) *progressBody {
	if f, _ := ctx.Value(progressKey{}).(func(Progress) error); f != nil {
		return &progressBody{core: k, function: f}
	}
	return nil
}

// during runs f with a token that has the function. What the function has met is what the call tells.
func (b *progressBody) during(token *C.trafo_cancel, f func() *C.trafo_error) (*C.trafo_error, error) {
	handle := cgo.NewHandle(b)
	defer handle.Delete()
	if err := check(C.trafo_go_set_progress(token, C.uintptr_t(handle))); err != nil {
		return nil, err
	}
	failure := f()
	if !b.met.panicked && b.met.err == nil {
		return failure, nil
	}
	e := takeError(failure)
	var left pending // of another function in the same call, such as onEvent
	if b.core != nil {
		left, b.core.pending = b.core.pending, pending{}
	}
	if left.panicked {
		panic(left.value)
	}
	if b.met.panicked {
		panic(b.met.value)
	}
	if e == nil { // of a step whose update was done
		e = &Error{Code: ErrCancelled, Origin: "WithProgress", Message: "cancelled by the caller"}
	}
	for _, err := range []error{b.met.err, left.err} {
		if err != nil {
			e.Message += ": " + err.Error()
			e.causes = append(e.causes, err)
		}
	}
	return nil, e
}

//export trafoGoProgress
func trafoGoProgress(handle C.uintptr_t, work C.int32_t, done, total C.int64_t) C.int32_t {
	b := cgo.Handle(handle).Value().(*progressBody)
	var met pending
	if b.met.panicked || b.met.err != nil { // the call is ending
		return 1
	}
	if !attempt(b.core, &met, func() error { return b.function(Progress{Work(work), int64(done), int64(total)}) }) {
		b.met = met
		return 1
	}
	return 0
}
