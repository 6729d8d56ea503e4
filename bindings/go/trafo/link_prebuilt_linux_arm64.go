//go:build cgo && !trafo_pkgconfig && !trafo_system && !trafo_dlopen

package trafo

import _ "github.com/trafo-engine/trafo-go-lib/linux-arm64"
