//go:build cgo && trafo_dlopen

package trafo

// The library is loaded at the first call (dlopen.c), and the functions of trafo.h call it (dlopen.generated.c). The build needs no
// library, but a C compiler: the package takes 38 structs, the constants and 12 callbacks from trafo.h. A loader without cgo, such as
// purego, would need each of them declared a second time in Go, with the layouts of every system.

// #cgo linux LDFLAGS: -ldl -lpthread
import "C"
