module github.com/trafo-engine/trafo/examples/learning-service

go 1.24

require (
	github.com/mattn/go-sqlite3 v1.14.53
	github.com/trafo-engine/trafo/bindings/go/trafo v0.1.0
)

require (
	github.com/trafo-engine/trafo-go-lib/linux-amd64 v0.1.0 // indirect
	github.com/trafo-engine/trafo-go-lib/linux-arm64 v0.1.0 // indirect
	github.com/trafo-engine/trafo-go-lib/windows-amd64 v0.1.0 // indirect
)

// The engine of the checkout, and the library that scripts/build.sh makes.
replace (
	github.com/trafo-engine/trafo-go-lib/linux-amd64 => ../../bindings/go/lib/linux-amd64
	github.com/trafo-engine/trafo-go-lib/linux-arm64 => ../../bindings/go/lib/linux-arm64
	github.com/trafo-engine/trafo-go-lib/windows-amd64 => ../../bindings/go/lib/windows-amd64
	github.com/trafo-engine/trafo/bindings/go/trafo => ../../bindings/go/trafo
)
