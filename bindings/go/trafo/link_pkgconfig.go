//go:build cgo && trafo_pkgconfig && !trafo_system && !trafo_dlopen

package trafo

// #cgo pkg-config: trafo
import "C"
