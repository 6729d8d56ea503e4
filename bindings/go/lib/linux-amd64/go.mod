module github.com/trafo-engine/trafo-go-lib/linux-amd64

go 1.24
