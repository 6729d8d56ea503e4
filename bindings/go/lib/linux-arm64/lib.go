//go:build cgo && linux && arm64

// Package lib links libtrafo.a, the engine of the package trafo, into programs for Linux on 64-bit ARM. The
// package trafo imports it.
package lib

// #cgo CFLAGS: -I${SRCDIR}
// #cgo LDFLAGS: ${SRCDIR}/libtrafo.a -lstdc++ -lm -lpthread -ldl
// #if !__has_include("libtrafo.a")
// #error "there is no libtrafo.a: in a checkout of Trafo run scripts/go-modules.sh linux-arm64, or link another with -tags trafo_pkgconfig or trafo_system"
// #endif
import "C"
