//go:build cgo && trafo_pkgconfig && !trafo_system

package trafo

// #cgo pkg-config: trafo
import "C"
