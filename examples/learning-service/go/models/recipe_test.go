package models

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trafo-engine/trafo/examples/learning-service/go/demo"
)

// small trains few updates of the demo's base.
func small() Recipe {
	r := Demo("cpu")
	r.Width, r.Updates, r.Warmup, r.BatchTokens, r.Vocabulary = 32, 4, 2, 256, 400
	return r
}

func TestABaseIsTrainedAsAWholeOrNotAtAll(t *testing.T) {
	folder, other := filepath.Join(t.TempDir(), "base"), filepath.Join(t.TempDir(), "base")
	recipe := small()
	if err := recipe.TrainDemo(folder, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	base, err := OpenBase(folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(base.Replay) != 12000 || len(base.Regression) != 400 || base.Replay[0] == base.Regression[0] {
		t.Error(len(base.Replay), len(base.Regression))
	}
	if _, err := os.Stat(training(folder)); !os.IsNotExist(err) {
		t.Error("checkpoints are left:", err)
	}
	// A call that was interrupted after the last update.
	corpus := filepath.Join(training(other), "corpus")
	if err := demo.Write(corpus); err != nil {
		t.Fatal(err)
	}
	pairs, err := readPairs(filepath.Join(corpus, "train.de"), filepath.Join(corpus, "train.en"))
	if err != nil {
		t.Fatal(err)
	}
	run, made := filepath.Join(training(other), "run"), filepath.Join(training(other), "made")
	if err := os.MkdirAll(made, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := recipe.trainModel(run, made, pairs, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenBase(other); err == nil {
		t.Error("a base is there before its training has ended")
	}
	if err := recipe.TrainDemo(other, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	if resumed, err := OpenBase(other); err != nil || resumed.Hash != base.Hash {
		t.Error("the resumed training has other bytes", err)
	}
	// The demo's vocabulary has no language codes, and a pair of languages has two.
	for content, wanted := range map[string]string{"deu_Latn eng_Latn": "deu_Latn", "deu_Latn\n": "it has 1 names"} {
		if err := os.WriteFile(filepath.Join(other, languagesFile), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenBase(other); err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("%q: %v", content, err)
		}
	}
}

func TestABaseWithoutAFolderToWriteToIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	recipe := small()
	if err := recipe.TrainDemo(filepath.Join(file, "base"), func(int64) {}); err == nil {
		t.Error("a file was taken for a folder")
	}
}
