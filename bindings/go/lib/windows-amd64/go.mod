module github.com/trafo-engine/trafo-go-lib/windows-amd64

go 1.24
