//go:build cgo && !(linux && (amd64 || arm64)) && !(windows && amd64) && !trafo_pkgconfig && !trafo_system && !trafo_dlopen

package trafo

// The compiler prints this text.
var _ int = "there is no prebuilt libtrafo for this system: build it, then -tags trafo_pkgconfig links an installed one, -tags trafo_system the one that CGO_LDFLAGS=-L... names, -tags trafo_dlopen loads one at run time"
