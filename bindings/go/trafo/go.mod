module github.com/trafo-engine/trafo/bindings/go/trafo

go 1.24

require github.com/trafo-engine/trafo-go-lib/linux-amd64 v0.1.0

// In a checkout, the library that scripts/build.sh makes. Who takes this module from a proxy gets the module required above.
replace github.com/trafo-engine/trafo-go-lib/linux-amd64 => ../lib/linux-amd64
