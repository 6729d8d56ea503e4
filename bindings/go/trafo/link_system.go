//go:build cgo && trafo_system && !trafo_dlopen

package trafo

// Where the library lies, and what a libtrafo.a needs, CGO_LDFLAGS says.

// #cgo LDFLAGS: -ltrafo
import "C"
