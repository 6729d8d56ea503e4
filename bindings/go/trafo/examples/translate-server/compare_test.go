package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestAnswersAreComparedWithABaseline(t *testing.T) {
	release := make(chan struct{})
	close(release)
	url, _ := start(t, t.Context(), testConfig(), held(release))
	folder := t.TempDir()
	lines, baseline := filepath.Join(folder, "lines.txt"), filepath.Join(folder, "answers.jsonl")
	check(t, os.WriteFile(lines, []byte(strings.Repeat("ein Hund\nzwei Häuser\n", 40)), 0o644))
	compare := func(arguments ...string) (status int, said string) {
		t.Helper()
		arguments = append([]string{"compare_answers.py", "--server", url, "--baseline", baseline}, arguments...)
		command := exec.Command("python3", arguments...)
		out, err := command.CombinedOutput()
		if command.ProcessState == nil {
			t.Fatal(err)
		}
		return command.ProcessState.ExitCode(), string(out)
	}
	expect := func(status int, says string, arguments ...string) {
		t.Helper()
		if got, said := compare(arguments...); got != status || !strings.Contains(said, says) {
			t.Errorf("%v: status %d, not %d, or no %q in:\n%s", arguments, got, status, says, said)
		}
	}
	expect(0, "80 answers written", "--write", lines)
	expect(0, "0 of 80 answers differ")

	// One answer of the baseline is another, one score, and one line none at all.
	content := string(value(os.ReadFile(baseline))(t))
	check(t, os.WriteFile(baseline, []byte(strings.Replace(content, "EIN HUND", "a dog", 1)), 0o644))
	expect(1, "baseline: a dog")
	expect(0, "1 of 80 answers differ (1.2 %), 0 more", "--allow", "0.02")
	check(t, os.WriteFile(baseline, []byte(strings.Replace(content, `"score": -1`, `"score": -2`, 1)), 0o644))
	expect(0, "0 of 80 answers differ (0.0 %), 1 more have another score")
	check(t, os.WriteFile(baseline, []byte(content+"{}\n"), 0o644))
	expect(1, "answers.jsonl:81: no line of a baseline")
	expect(2, "--allow is a share", "--allow", "2")
	check(t, os.WriteFile(lines, []byte("refused\n"), 0o644))
	expect(1, "answers 400: {\"error\"", "--write", lines)
}
