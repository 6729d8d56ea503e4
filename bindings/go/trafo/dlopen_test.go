//go:build cgo && trafo_dlopen

package trafo_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/trafo-engine/trafo/bindings/go/trafo"
)

// A process loads one library, so each case is a process.
const withoutLibrary = "TRAFO_TEST_WITHOUT_LIBRARY"

func TestALibraryThatCannotBeLoadedIsTheErrorOfTheCall(t *testing.T) {
	if os.Getenv(withoutLibrary) != "" {
		callWithoutLibrary()
	}
	if runtime.GOOS != "linux" {
		t.Skip("the libraries of this test are made by cc for Linux")
	}
	folder := t.TempDir()
	library := func(name, source string) string {
		path := filepath.Join(folder, name)
		compile := exec.Command("cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path)
		compile.Stdin = strings.NewReader(source)
		if output, err := compile.CombinedOutput(); err != nil {
			t.Fatalf("cc: %v\n%s", err, output)
		}
		return path
	}
	missing := filepath.Join(folder, "libtrafo.so.0")
	for _, c := range []struct{ path, code, says string }{
		{missing, "NOT_FOUND", "cannot be loaded (" + missing + ": cannot open shared object file: No such file or directory); set TRAFO_LIBRARY"},
		{library("other.so", "int f(void) { return 0; }"), "NOT_FOUND", "is not a libtrafo: it has no trafo_abi_version; set TRAFO_LIBRARY"},
		{library("newer.so", "int trafo_abi_version(void) { return 7; }"), "VERSION", "has version 7 of the C ABI, this program was built for version 0; set TRAFO_LIBRARY"},
		{library("older.so", "int trafo_abi_version(void) { return 0; }"), "VERSION", "is older than this program: it has no trafo_version; set TRAFO_LIBRARY"},
	} {
		self := exec.Command(os.Args[0], "-test.run=^TestALibraryThatCannotBeLoadedIsTheErrorOfTheCall$")
		self.Env = append(os.Environ(), "TRAFO_LIBRARY="+c.path, withoutLibrary+"=1")
		output, err := self.CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(output)), "\n")
		want := "trafo: " + c.code + " in dlopen: " + c.path + " " + c.says
		if err != nil || len(lines) != 5 {
			t.Errorf("%s: %v\n%s", c.path, err, output)
			continue
		}
		for _, line := range lines {
			if !strings.HasPrefix(line, want) {
				t.Errorf("%s: %q does not begin with %q", c.path, line, want)
			}
		}
	}
}

// callWithoutLibrary prints the error of each call, and ends the process.
func callWithoutLibrary() {
	_ = trafo.DefaultTrainerOptions() // has no error to return
	_, opened := trafo.NewContext()
	_, preset := trafo.Preset("tiny")
	_, corpus := trafo.NewCorpus([]string{"a"}, []string{"b"})
	_, loaded := trafo.LoadTokenizer("vocab.spm")
	_, _, bleu := trafo.BLEU([]string{"a"}, []string{"b"}, false)
	for _, err := range []error{opened, preset, corpus, loaded, bleu} {
		if !errors.Is(err, trafo.ErrNotFound) && !errors.Is(err, trafo.ErrVersion) || trafo.Version() != "" {
			fmt.Println("wrong:", err, trafo.Version())
			os.Exit(1)
		}
		fmt.Println(err)
	}
	os.Exit(0)
}
