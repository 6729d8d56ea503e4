// Package fault has the reasons why something was not done, as clients get them.
package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// Kind says who can mend it.
type Kind int

const (
	Internal    Kind = iota // it failed on this side
	Invalid                 // the request is wrong
	NotFound                // there is no such thing
	Conflict                // it contradicts the stored state
	Damaged                 // files of an adapter are missing, or are not those that the database knows
	Limit                   // a limit is reached
	Unavailable             // the service cannot do it now
	Hopeless                // the same work would fail in the same way again
)

var statuses = map[Kind]int{
	Internal: http.StatusInternalServerError, Invalid: http.StatusBadRequest, NotFound: http.StatusNotFound,
	Conflict: http.StatusConflict, Damaged: http.StatusConflict, Limit: http.StatusTooManyRequests,
	Unavailable: http.StatusServiceUnavailable, Hopeless: http.StatusInternalServerError,
}

// Status is the status of HTTP.
func (k Kind) Status() int { return statuses[k] }

// Fault is an error with its kind.
type Fault struct {
	Kind    Kind
	Message string
}

func (f *Fault) Error() string { return f.Message }

// New makes a fault.
func New(kind Kind, format string, args ...any) error {
	return &Fault{kind, fmt.Sprintf(format, args...)}
}

// IO is an error of the file system, whose message has the path.
func IO(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return New(Internal, "%v", err)
	}
	return New(Unavailable, "%v", err) // a full disk, no file descriptors
}

// KindOf is the kind of a Fault or of an error of the engine.
func KindOf(err error) Kind {
	var fault *Fault
	if errors.As(err, &fault) {
		return fault.Kind
	}
	for _, of := range []struct {
		code trafo.Code
		kind Kind
	}{
		{trafo.ErrInvalidArgument, Invalid}, {trafo.ErrNotFound, NotFound}, {trafo.ErrNonFinite, Hopeless},
		{trafo.ErrIO, Unavailable}, {trafo.ErrOutOfMemory, Unavailable}, {trafo.ErrOutOfDeviceMemory, Unavailable},
	} {
		if errors.Is(err, of.code) {
			return of.kind
		}
	}
	return Internal
}
