package trafo

// #include "trafo.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
)

// ErrClosed is in the chain of the error of every call on an object that was closed.
var ErrClosed = errors.New("trafo: object is closed")

// Error makes a Code an error, by its name, as "SHAPE_MISMATCH":
//
//	if errors.Is(err, trafo.ErrShapeMismatch) { ... }
func (c Code) Error() string { return C.GoString(C.trafo_error_code_name(C.int32_t(c))) }

// Error is what every failing call returns; get it with errors.As.
type Error struct {
	Code    Code
	Origin  string // the op or function that refused
	Message string // what was wrong and what would be right
	// Field is the argument or option that was wrong, such as "width", by its name in C. The message
	// begins with it. Empty: the error is of no single one.
	Field string

	causes []error
}

// Error is "SHAPE_MISMATCH in matmul: what was wrong".
func (e *Error) Error() string {
	return fmt.Sprintf("trafo: %s in %s: %s", e.Code.Error(), e.Origin, e.Message)
}

// Unwrap gives the code, then what caused the failure on this side: the error of a context or of a
// callback.
func (e *Error) Unwrap() []error { return append([]error{e.Code}, e.causes...) }

// takeError turns an error of the C ABI into one of Go and frees it.
func takeError(e *C.trafo_error) *Error {
	if e == nil {
		return nil
	}
	defer C.trafo_error_free(e)
	return &Error{
		Code:    Code(C.trafo_error_code(e)),
		Origin:  C.GoString(C.trafo_error_origin(e)),
		Message: C.GoString(C.trafo_error_message(e)),
		Field:   C.GoString(C.trafo_error_field(e)),
	}
}

// check is takeError for results that are returned: a nil *Error must not become a non-nil error.
func check(e *C.trafo_error) error {
	if e == nil {
		return nil
	}
	return takeError(e)
}

func refuse(origin, format string, args ...any) error {
	return &Error{Code: ErrInvalidArgument, Origin: origin, Message: fmt.Sprintf(format, args...)}
}

func closed(origin, what string) error {
	return &Error{Code: ErrInvalidArgument, Origin: origin, Message: what + " is closed or was never opened",
		causes: []error{ErrClosed}}
}

// cancelled is the error of work that a context ended before the engine began with it.
func cancelled(ctx context.Context, origin string) error {
	return causedBy(&Error{Code: ErrCancelled, Origin: origin, Message: "cancelled before it began"}, ctx)
}

// causedBy notes the end of the context, and its cause, as the cause of the error.
func causedBy(e *Error, ctx context.Context) *Error {
	err := ctx.Err()
	if err == nil {
		return e
	}
	e.Message += ": " + err.Error()
	e.causes = append(e.causes, err)
	if cause := context.Cause(ctx); cause != err {
		e.Message += " (" + cause.Error() + ")"
		e.causes = append(e.causes, cause)
	}
	return e
}
