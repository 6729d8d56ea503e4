// Package demo has the corpus of examples/demo, whose C++ is compiled into the program.
package demo

// #cgo CXXFLAGS: -std=c++20
// #include <stdlib.h>
// int demo_write(char *folder);
import "C"

import (
	"unsafe"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
)

// Write writes train.de, train.en, test.de and test.en into a folder, which is made if it is missing.
func Write(folder string) error {
	text := C.CString(folder)
	defer C.free(unsafe.Pointer(text))
	if C.demo_write(text) != 0 {
		return fault.New(fault.Unavailable, "the demo corpus cannot be written to %s", folder)
	}
	return nil
}
