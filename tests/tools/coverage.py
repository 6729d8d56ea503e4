#!/usr/bin/env python3
"""Line coverage of the engine and branch coverage of what reads untrusted data, by the C++ and C tests and the CLI's.

    tests/tools/coverage.py [--jobs N] [--no-run] [--gaps FILE] [--update-docs]

Compiles engine and C ABI with gcov's counters (build/coverage; the tests themselves come from the release build, relink.py), runs the
tests, and adds up gcov's counts: lines of engine/ and capi/src that have code, all instances of a template together; of branches those
that a condition of the source makes. gcov also counts, for every call, the branch to where an exception would go: those, which it marks
as "throw", are left out. --gaps writes the lines and branches that no test took. Exit status 1 below the targets.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import relink  # noqa: E402

ROOT = relink.ROOT
WORK = ROOT / "build" / "coverage"
DOCUMENT = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- table of tests/tools/coverage.py: begin -->", "<!-- table of tests/tools/coverage.py: end -->"
GROUPS = {
    "checkpoint": r"engine/io/(atomic_file|checkpoint_directory|checksum|descriptor|file_lock|file_system|manifest|temporary_name)\.|"
                  r"engine/train/(average|checkpoint_files|model_io|optimizer_io|run_directory|state)\.",
    "parsers": r"engine/io/safetensors|engine/core/(checked|json|overflow)|engine/interop/|engine/models/model_config|"
               r"engine/text/(corpus|disk_text|lexical_table|spm_fields|spm_model|text_corpus|tokenized_corpus|utf8)\.",
    "C ABI": r"capi/src/",
}
LINES_TARGET, BRANCHES_TARGET = 85, 95


def run(command, cwd):
    environment = dict(os.environ, LD_LIBRARY_PATH=str(WORK), TMPDIR=cwd)
    done = subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(f"{pathlib.Path(command[0]).name}: exit status {done.returncode}", flush=True)
    if done.returncode != 0:
        sys.exit(done.stdout.decode(errors="replace")[-3000:])


def run_tests():
    for data in (WORK / "objects").rglob("*.gcda"):
        data.unlink()
    release = relink.RELEASE / "tests"
    with tempfile.TemporaryDirectory(prefix="trafo-coverage-") as folder:
        for target in relink.TEST_PROGRAMS:
            run([str(WORK / target), "--gtest_brief=1"], folder)
        run([str(release / "capi" / "c_api_test")], folder)
        run([str(release / "capi" / "c_api_threads_test")], folder)
        run([str(release / "misuse_family")], folder)
        run([str(release / "cli" / "cli_tests"), "--gtest_brief=1"], folder)
        families = ROOT / "tests" / "reliability"
        for name in ("damaged_files", "corpus_table"):  # what else looks at readers
            for path in (families / f"{name}.py", families / f"{name}.sh"):
                if path.is_file():
                    run([str(path)], str(ROOT))


class Counts:
    """Of a file: line -> times taken, and (line, number of the branch) -> times taken."""

    def __init__(self):
        self.lines = collections.Counter()
        self.branches = collections.Counter()


def read_counts():
    files = collections.defaultdict(Counts)
    notes = sorted((WORK / "objects").rglob("*.gcno"))
    for note in notes:
        done = subprocess.run(["gcov", "--json-format", "--stdout", "--branch-probabilities", str(note)], cwd=relink.RELEASE,
                              capture_output=True, text=True)
        for document in done.stdout.splitlines():
            if not document.startswith("{"):
                continue
            for file in json.loads(document)["files"]:
                path = os.path.normpath(os.path.join(relink.RELEASE, file["file"]))
                if not path.startswith((str(ROOT / "engine") + "/", str(ROOT / "capi" / "src") + "/")):
                    continue
                counts = files[os.path.relpath(path, ROOT)]
                for line in file["lines"]:
                    number = line["line_number"]
                    counts.lines[number] += line["count"]
                    for index, branch in enumerate(branch for branch in line["branches"] if not branch["throw"]):
                        counts.branches[number, index] += branch["count"]
    return files


def share(counters):
    total = sum(len(counter) for counter in counters)
    taken = sum(1 for counter in counters for count in counter.values() if count > 0)
    return taken, total, 100.0 * taken / max(1, total)


def update_document(lines):
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    DOCUMENT.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description="Coverage of engine and C ABI.")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--no-run", action="store_true", help="take the counts that are there")
    parser.add_argument("--gaps", help="write what no test took into this file")
    parser.add_argument("--update-docs", action="store_true", help="write the table into docs/reliability.md")
    options = parser.parse_args()
    if not options.no_run:
        relink.build_release(options.jobs)
        relink.relink(lambda source, _: source.startswith(("engine/", "capi/src/")), WORK, options.jobs,
                      compile_flags=["-O0", "--coverage"], link_flags=["--coverage"])
        run_tests()
    files = read_counts()
    rows = [("engine and C ABI", "lines", share([counts.lines for counts in files.values()]), LINES_TARGET)]
    for name, pattern in GROUPS.items():
        group = [counts for path, counts in files.items() if re.match(pattern, path)]
        rows.append((name, "lines", share([counts.lines for counts in group]), None))
        rows.append((name, "branches", share([counts.branches for counts in group]), BRANCHES_TARGET))
    table = ["| part | what | taken | of | share | target |", "|---|---|---|---|---|---|"]
    missed = False
    for name, what, (taken, total, percent), target in rows:
        missed |= target is not None and percent < target
        table.append(f"| {name} | {what} | {taken:,} | {total:,} | {percent:.1f} % | {f'{target} %' if target else ''} |")
    print("\n".join(table))
    if options.gaps:
        with open(options.gaps, "w", encoding="utf-8") as out:
            for path in sorted(files):
                counts = files[path]
                lines = sorted(number for number, count in counts.lines.items() if count == 0)
                branches = sorted({number for (number, _), count in counts.branches.items() if count == 0} - set(lines))
                if lines or branches:
                    out.write(f"{path}: lines {lines}; branches of {branches}\n")
    if options.update_docs:
        update_document(table)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
