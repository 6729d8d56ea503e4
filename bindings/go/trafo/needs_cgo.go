//go:build !cgo

package trafo

// The compiler prints this text: the package is a binding to a C library and cannot work without cgo.
var _ int = "package trafo needs cgo: set CGO_ENABLED=1 and install a C compiler (cross compiling: set CC as well)"
