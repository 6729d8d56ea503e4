module github.com/trafo-engine/trafo/bindings/go/trafo

go 1.24
