//go:build cgo

package trafo

import (
	"runtime"
	"sync"
)

// shared is a C object that any number of goroutines may read at once; closing waits for them.
type shared[P comparable] struct {
	lock    sync.RWMutex
	ptr     P // zero once closed
	cleanup runtime.Cleanup
}

// hold opens the object for a call; release it afterwards.
func (s *shared[P]) hold(origin, what string) (ptr P, err error) {
	s.lock.RLock()
	if s.ptr == *new(P) {
		s.lock.RUnlock()
		return s.ptr, closed(origin, what)
	}
	return s.ptr, nil
}

func (s *shared[P]) release() { s.lock.RUnlock() }

func (s *shared[P]) close(free func(P)) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.ptr != *new(P) {
		s.cleanup.Stop()
		free(s.ptr)
		s.ptr = *new(P)
	}
}
