package hash

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/trafo-engine/trafo/examples/learning-service/go/fault"
)

func TestDigests(t *testing.T) {
	if Seed("ab", "c") == Seed("a", "bc") || Seed("ab", "c") != Seed("ab", "c") || Seed("a")>>63 != 0 {
		t.Error("lists of texts differ where their concatenations do not")
	}
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	if sum := Texts(); hex.EncodeToString(sum[:]) != empty {
		t.Error("not SHA-256")
	}
	path := filepath.Join(t.TempDir(), "x")
	if _, err := Files(path); fault.KindOf(err) != fault.NotFound {
		t.Error(err)
	}
	var sums [2]string
	for i, content := range []string{"x", "y"} {
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		sums[i], _ = Files(path)
	}
	if sums[0] == sums[1] || len(sums[0]) != 64 {
		t.Error(sums)
	}
}
