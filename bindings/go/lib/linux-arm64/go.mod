module github.com/trafo-engine/trafo-go-lib/linux-arm64

go 1.24
