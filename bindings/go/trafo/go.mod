module github.com/trafo-engine/trafo/bindings/go/trafo

go 1.24

require (
	github.com/trafo-engine/trafo-go-lib/linux-amd64 v0.1.0
	github.com/trafo-engine/trafo-go-lib/linux-arm64 v0.1.0
	github.com/trafo-engine/trafo-go-lib/windows-amd64 v0.1.0
)

// In a checkout, the libraries that scripts/build.sh and scripts/go-modules.sh make. Who takes this module from a proxy gets the modules
// required above.
replace (
	github.com/trafo-engine/trafo-go-lib/linux-amd64 => ../lib/linux-amd64
	github.com/trafo-engine/trafo-go-lib/linux-arm64 => ../lib/linux-arm64
	github.com/trafo-engine/trafo-go-lib/windows-amd64 => ../lib/windows-amd64
)
