//go:build cgo && linux && amd64

package lib

// Libraries of the system that the libtrafo.a of scripts/build.sh needs. scripts/go-modules.sh leaves this file out of the module.

// #cgo LDFLAGS: -lsentencepiece_train -lsentencepiece -lhwy -lz
import "C"
