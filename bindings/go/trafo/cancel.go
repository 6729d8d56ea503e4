package trafo

// #include "trafo.h"
import "C"

import (
	"context"
	"errors"
)

// cancellable runs f with a token that is set when ctx ends and has the function of WithProgress; NULL for a context that
// can do neither. k is what the call is in; it may be nil.
func cancellable(ctx context.Context, k *core, f func(cancel *C.trafo_cancel) *C.trafo_error) (*C.trafo_error, error) {
	progress := progressOf(ctx, k)
	if ctx.Done() == nil && progress == nil {
		return f(nil), nil
	}
	var token *C.trafo_cancel
	if err := check(C.trafo_cancel_new(&token)); err != nil {
		return nil, err
	}
	defer C.trafo_cancel_free(token)
	done, joined := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(joined)
		select {
		case <-ctx.Done():
			// The token is alive until this goroutine is joined, the only way to fail.
			C.trafo_error_free(C.trafo_cancel_set(token))
		case <-done:
		}
	}()
	// The watcher is gone before the token is freed: a late one would set what is no more.
	defer func() { close(done); <-joined }()
	if progress != nil {
		return progress.during(token, func() *C.trafo_error { return f(token) })
	}
	return f(token), nil
}

// cancellable is the same of who holds the token, with the outcome of the call.
func (k *core) cancellable(ctx context.Context, f func(cancel *C.trafo_cancel) *C.trafo_error) error {
	failure, err := cancellable(ctx, k, f)
	if err != nil {
		return err
	}
	return withContext(ctx, k.finish(failure), false)
}

// cancellableCall is cancellable for a call that uses no Context.
func cancellableCall(ctx context.Context, origin string, f func(cancel *C.trafo_cancel) *C.trafo_error) error {
	if ctx.Err() != nil {
		return cancelled(ctx, origin)
	}
	failure, err := cancellable(ctx, nil, f)
	if err != nil {
		return err
	}
	return withContext(ctx, check(failure), false)
}

// withContext adds the end of ctx to an error that it caused.
func withContext(ctx context.Context, err error, otherwise bool) error {
	var e *Error
	if otherwise || !errors.As(err, &e) || e.Code != ErrCancelled {
		return err
	}
	return causedBy(e, ctx)
}

func stopped(err error) StopReason {
	if errors.Is(err, ErrCancelled) {
		return StopCancelled
	}
	return StopNone
}
