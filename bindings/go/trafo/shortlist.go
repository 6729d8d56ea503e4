package trafo

// #include "trafo.h"
import "C"

import (
	"context"
	"runtime"
)

// Shortlist says which subwords may translate which; with one, translation computes only the few rows
// of the output layer that its lines need. Goroutines may use it at once.
type Shortlist struct {
	shared shared[*C.trafo_shortlist]
}

func newShortlist(ptr *C.trafo_shortlist, e *C.trafo_error) (*Shortlist, error) {
	if err := check(e); err != nil {
		return nil, err
	}
	s := &Shortlist{}
	s.shared.ptr = ptr
	s.shared.cleanup = runtime.AddCleanup(s, func(ptr *C.trafo_shortlist) { C.trafo_shortlist_free(ptr) }, ptr)
	return s, nil
}

// LearnShortlist learns from pairs of lines with IBM model 1; best translations of each subword are
// kept, 0: 100. When ctx ends the error is ErrCancelled and the error of ctx.
func LearnShortlist(ctx context.Context, tokenizer *Tokenizer, source, target []string, best int64) (*Shortlist, error) {
	const origin = "LearnShortlist"
	if len(source) != len(target) {
		return nil, refuse(origin, "%d source lines, %d target lines: it learns from pairs", len(source), len(target))
	}
	handle, err := tokenizer.hold(origin)
	if err != nil {
		return nil, err
	}
	defer tokenizer.shared.release()
	sources, freeSources := views(source)
	defer freeSources()
	targets, freeTargets := views(target)
	defer freeTargets()
	var out *C.trafo_shortlist
	if err := cancellableCall(ctx, origin, func(cancel *C.trafo_cancel) *C.trafo_error {
		return C.trafo_shortlist_learn(handle, sources, targets, C.size_t(len(source)), C.int64_t(best), cancel, &out)
	}); err != nil {
		return nil, err
	}
	return newShortlist(out, nil)
}

// LoadShortlist reads lines "TARGET SOURCE PROBABILITY", subwords of the tokenizer, as Marian's lex.s2t.
func LoadShortlist(tokenizer *Tokenizer, path string) (*Shortlist, error) {
	handle, err := tokenizer.hold("LoadShortlist")
	if err != nil {
		return nil, err
	}
	defer tokenizer.shared.release()
	data, length := chars(path)
	var out *C.trafo_shortlist
	e := C.trafo_shortlist_load(handle, data, length, &out)
	return newShortlist(out, e)
}

// Save writes such a file whole or not at all.
func (s *Shortlist) Save(path string) error {
	ptr, err := s.hold("Shortlist.Save")
	if err != nil {
		return err
	}
	defer s.shared.release()
	data, length := chars(path)
	return check(C.trafo_shortlist_save(ptr, data, length))
}

func (s *Shortlist) hold(origin string) (*C.trafo_shortlist, error) {
	if s == nil {
		return nil, closed(origin, "the shortlist")
	}
	return s.shared.hold(origin, "the shortlist")
}

// Close frees it; closing twice is fine.
func (s *Shortlist) Close() error {
	if s != nil {
		s.shared.close(func(ptr *C.trafo_shortlist) { C.trafo_shortlist_free(ptr) })
	}
	return nil
}
