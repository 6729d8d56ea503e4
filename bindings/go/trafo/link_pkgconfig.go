//go:build cgo && trafo_pkgconfig

package trafo

// #cgo pkg-config: trafo
import "C"
