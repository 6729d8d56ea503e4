//go:build cgo && !trafo_pkgconfig

package trafo

// The engine goes into the program; the file named here is what scripts/build.sh makes. -ltrafo's
// archive is given by its path, so that a missing one is an error that names it.

// #cgo CFLAGS: -I${SRCDIR}/../../../capi/include
// #cgo LDFLAGS: ${SRCDIR}/../../../build/release/libtrafo.a
// #cgo LDFLAGS: -lsentencepiece_train -lsentencepiece -lhwy -lz -lstdc++ -lm -lpthread
import "C"
