// go_reference writes the reference of a Go package as one page of HTML, from its comments.
//
//	go run scripts/go_reference.go FOLDER IMPORT_PATH OUTPUT.html
//
// It fails if an exported name has no comment.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"html"
	"log"
	"os"
	"path/filepath"
	"strings"
)

type page struct {
	bytes.Buffer
	files   *token.FileSet
	of      *doc.Package
	missing []string
}

// comment writes a doc comment; what has none is noted.
func (p *page) comment(name, text string) {
	if strings.TrimSpace(text) == "" {
		p.missing = append(p.missing, name)
		return
	}
	p.Write(p.of.HTML(text))
}

func (p *page) code(node ast.Node) {
	var source bytes.Buffer
	if err := format.Node(&source, p.files, node); err != nil {
		log.Fatal(err)
	}
	fmt.Fprintf(p, "<pre>%s</pre>\n", html.EscapeString(source.String()))
}

func (p *page) functions(level int, of string, functions []*doc.Func) {
	for _, f := range functions {
		name := f.Name
		if of != "" && f.Recv != "" {
			name = of + "." + f.Name
		}
		title := name
		if f.Recv != "" {
			title = fmt.Sprintf("(%s) %s", f.Recv, f.Name)
		}
		fmt.Fprintf(p, "<h%d id=%q>func %s</h%d>\n", level, name, html.EscapeString(title), level)
		p.code(f.Decl)
		p.comment(name, f.Doc)
	}
}

func (p *page) values(values []*doc.Value) {
	for _, v := range values {
		p.code(v.Decl) // the comments of the names are in it
		if v.Doc != "" {
			p.Write(p.of.HTML(v.Doc))
		}
	}
}

func (p *page) write(path string) {
	fmt.Fprintf(p, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>package %s</title>\n%s", p.of.Name, style)
	fmt.Fprintf(p, "<h1>package %s</h1>\n<pre>import %q</pre>\n", p.of.Name, path)
	p.comment("package "+p.of.Name, p.of.Doc)
	p.WriteString("<h2>Index</h2>\n<ul>\n")
	entry := func(name string) { fmt.Fprintf(p, "<li><a href=\"#%s\">%s</a>\n", name, name) }
	for _, f := range p.of.Funcs {
		entry(f.Name)
	}
	for _, t := range p.of.Types {
		entry(t.Name)
		p.WriteString("<ul>\n")
		for _, f := range t.Funcs {
			entry(f.Name)
		}
		for _, f := range t.Methods {
			entry(t.Name + "." + f.Name)
		}
		p.WriteString("</ul>\n")
	}
	p.WriteString("</ul>\n<h2>Constants</h2>\n")
	p.values(p.of.Consts)
	p.WriteString("<h2>Variables</h2>\n")
	p.values(p.of.Vars)
	p.WriteString("<h2>Functions</h2>\n")
	p.functions(3, "", p.of.Funcs)
	p.WriteString("<h2>Types</h2>\n")
	for _, t := range p.of.Types {
		fmt.Fprintf(p, "<h3 id=%q>type %s</h3>\n", t.Name, t.Name)
		p.code(t.Decl)
		p.comment(t.Name, t.Doc)
		p.values(t.Consts)
		p.values(t.Vars)
		p.functions(4, "", t.Funcs)
		p.functions(4, t.Name, t.Methods)
	}
}

const style = `<style>
body { font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }
pre { background: #f4f4f4; padding: .6em; overflow-x: auto }
h3, h4 { margin-top: 2em }
</style>
`

func main() {
	log.SetFlags(0)
	log.SetPrefix("go_reference: ")
	if len(os.Args) != 4 {
		log.Fatal("usage: go run scripts/go_reference.go FOLDER IMPORT_PATH OUTPUT.html")
	}
	folder, path, output := os.Args[1], os.Args[2], os.Args[3]
	context := build.Default
	context.CgoEnabled = true
	found, err := context.ImportDir(folder, 0)
	if err != nil {
		log.Fatal(err)
	}
	p := &page{files: token.NewFileSet()}
	var files []*ast.File
	for _, name := range append(found.GoFiles, found.CgoFiles...) {
		file, err := parser.ParseFile(p.files, filepath.Join(folder, name), nil, parser.ParseComments)
		if err != nil {
			log.Fatal(err)
		}
		files = append(files, file)
	}
	if p.of, err = doc.NewFromFiles(p.files, files, path); err != nil {
		log.Fatal(err)
	}
	p.write(path)
	if len(p.missing) > 0 {
		log.Fatalf("no comment: %s", strings.Join(p.missing, ", "))
	}
	if err := os.WriteFile(output, p.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}
