//go:build cgo

package trafo

import (
	"runtime"
	"sync"
)

// shared is a C object that any number of goroutines may read at once. Closing it ends it for new
// calls; the last call that has it frees it. Nothing waits, so a call may hold it more than once.
type shared[P comparable] struct {
	lock    sync.Mutex
	ptr     P // zero once closed
	users   int
	free    func() // what the last user has to do; nil: it is open, or free
	cleanup runtime.Cleanup
}

// hold opens the object for a call; release it afterwards.
func (s *shared[P]) hold(origin, what string) (ptr P, err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.ptr == *new(P) {
		return s.ptr, closed(origin, what)
	}
	s.users++
	return s.ptr, nil
}

func (s *shared[P]) release() {
	s.lock.Lock()
	s.users--
	s.freeUnlock()
}

func (s *shared[P]) close(free func(P)) {
	s.lock.Lock()
	if ptr := s.ptr; ptr != *new(P) {
		s.cleanup.Stop()
		s.ptr = *new(P)
		s.free = func() { free(ptr) }
	}
	s.freeUnlock()
}

// freeUnlock frees what is closed and not used, after unlocking: C may call the program's own code.
func (s *shared[P]) freeUnlock() {
	var free func()
	if s.users == 0 {
		free, s.free = s.free, nil
	}
	s.lock.Unlock()
	if free != nil {
		free()
	}
}
