//go:build cgo && !trafo_pkgconfig && !trafo_system && !trafo_dlopen

package trafo

// The engine of this module goes into the program, with all libraries that it needs, except the C and C++ runtimes.
import _ "github.com/trafo-engine/trafo-go-lib/linux-amd64"
