// Package shared has the files that the service in Go and the service in Rust share: the page, the
// description of the HTTP interface and the migrations of the database.
package shared

import (
	"embed"
	"fmt"
	"io/fs"
)

//go:embed page.html
var Page string

//go:embed openapi.json
var OpenAPI string

//go:embed migrations
var files embed.FS

// Migrations gives the SQL that brings a database from the version of its index to the next one.
func Migrations() []string {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		panic(err) // the pattern is well formed
	}
	migrations := make([]string, len(names))
	for i := range names {
		text, err := files.ReadFile(fmt.Sprintf("migrations/%d.sql", i+1))
		if err != nil {
			panic(err) // a number is left out: no program with this fault starts
		}
		migrations[i] = string(text)
	}
	return migrations
}
