package trafo

// #include <stdlib.h>
// #include "trafo.h"
import "C"

import "unsafe"

// chars points at a string's bytes for the length of a call.
func chars(s string) (*C.char, C.size_t) {
	if len(s) == 0 {
		return nil, 0
	}
	return (*C.char)(unsafe.Pointer(unsafe.StringData(s))), C.size_t(len(s))
}

// first points at the first element of a slice for the length of a call.
func first[T any](s []T) *T { return unsafe.SliceData(s) }

// viewAt is element i of an array made by views.
func viewAt(array *C.trafo_string_view, i int) C.trafo_string_view {
	return unsafe.Slice(array, i+1)[i]
}

// weightedArrays makes room for handles and weights of a call in C memory; free it.
func weightedArrays(count int) (handles []*C.trafo_corpus, weights []C.double, free func()) {
	if count == 0 {
		return nil, nil, func() {}
	}
	const size = unsafe.Sizeof((*C.trafo_corpus)(nil))
	memory := C.malloc(C.size_t(uintptr(count) * (size + unsafe.Sizeof(C.double(0)))))
	handles = unsafe.Slice((**C.trafo_corpus)(memory), count)
	weights = unsafe.Slice((*C.double)(unsafe.Add(memory, uintptr(count)*size)), count)
	return handles, weights, func() { C.free(memory) }
}

// views is an array of string views. An array of pointers to Go memory must not be passed to C, so
// the array and a copy of the bytes live in C memory; free it.
func views(lines []string) (array *C.trafo_string_view, free func()) {
	if len(lines) == 0 {
		return nil, func() {}
	}
	bytes := 0
	for _, line := range lines {
		bytes += len(line)
	}
	const size = unsafe.Sizeof(C.trafo_string_view{})
	memory := C.malloc(C.size_t(uintptr(len(lines))*size + uintptr(bytes)))
	array = (*C.trafo_string_view)(memory)
	views := unsafe.Slice(array, len(lines))
	text := unsafe.Slice((*byte)(unsafe.Add(memory, uintptr(len(lines))*size)), bytes)
	for i, line := range lines {
		views[i] = C.trafo_string_view{data: (*C.char)(unsafe.Pointer(unsafe.SliceData(text))), length: C.size_t(len(line))}
		text = text[copy(text, line):]
	}
	return array, func() { C.free(memory) }
}

// viewed copies what a string view shows.
func viewed(v C.trafo_string_view) string {
	return string(unsafe.Slice((*byte)(unsafe.Pointer(v.data)), v.length))
}

// takeString copies a string that came out, and frees it.
func takeString(s *C.char, length C.size_t) string {
	defer C.trafo_string_free(s)
	return string(unsafe.Slice((*byte)(unsafe.Pointer(s)), length))
}

// takeCString is takeString for strings without NUL bytes.
func takeCString(s *C.char) string {
	if s == nil {
		return ""
	}
	defer C.trafo_string_free(s)
	return C.GoString(s)
}
