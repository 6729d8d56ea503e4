package trafo_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Without cgo, which is off by default when one compiles for another system, the package's own text is
// the only error.
func TestTheTextWithoutCgoIsTheOnlyError(t *testing.T) {
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("there is no go command on the PATH")
	}
	for _, system := range []string{"linux", "windows", "darwin", "freebsd"} {
		build := exec.Command(tool, "build", "-o", os.DevNull, ".")
		build.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
		output, err := build.CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(output)), "\n")
		if err == nil || len(lines) != 2 || !strings.Contains(lines[1], "package trafo needs cgo: set CGO_ENABLED=1") {
			t.Errorf("%s: %v\n%s", system, err, output)
		}
	}
}
