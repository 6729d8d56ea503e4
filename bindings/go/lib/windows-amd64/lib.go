//go:build cgo && windows && amd64

// Package lib links libtrafo.a, the engine of the package trafo, into programs for Windows on x86-64. The
// package trafo imports it.
package lib

// The program needs no DLL but the system's.

// #cgo CFLAGS: -I${SRCDIR}
// #cgo LDFLAGS: ${SRCDIR}/libtrafo.a -static -lstdc++ -lbcrypt
// #if !__has_include("libtrafo.a")
// #error "there is no libtrafo.a: in a checkout of Trafo run scripts/go-modules.sh windows-amd64, or link another with -tags trafo_system"
// #endif
import "C"
