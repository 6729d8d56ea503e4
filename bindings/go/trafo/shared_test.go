package trafo

import (
	"errors"
	"testing"
)

// A call may hold an object twice, as a trainer whose corpora are one, whoever closes it meanwhile.
func TestSharedObjectsAreFreedByTheirLastUser(t *testing.T) {
	freed := 0
	s := shared[int]{ptr: 7}
	if ptr, err := s.hold("here", "it"); ptr != 7 || err != nil {
		t.Fatal(ptr, err)
	}
	if _, err := s.hold("here", "it"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.close(func(ptr int) { freed += ptr })
	}
	if _, err := s.hold("here", "it"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	s.release()
	if freed != 0 {
		t.Error("freed under its user")
	}
	s.release()
	if freed != 7 {
		t.Errorf("freed %d", freed)
	}
}
