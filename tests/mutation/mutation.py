#!/usr/bin/env python3
"""Suite 9: faults sown into a copy of our own code; the tests must catch every one.

    tests/mutation/mutation.py [--long] [--only ID...] [--jobs N]

The tables in mutation/*.toml have for each fault
  id, kind     what it is called and what sort of error it is
  file         where it is
  right        text that occurs exactly once in the file
  expression   the part of `right` that is wrong in the fault (default: all of it); once in `right`
  wrong        what stands there in the fault. A part that ends in ";" is a statement, any other an expression
  constant     true where the right text is in a constant expression, which the copy makes an ordinary one
  tests        the tests that ought to notice: BINARY, BINARY:GTEST_FILTER or save_faults:PART; if they do not, all binaries run

The copies of those files (build/mutation/tree) have both forms of every place and ask an environment variable which to take
(mutated_here.h); they are compiled once and linked with the other objects of the release build. The sources hold no trace of it.

Short form: every entry still fits its file, and a few faults run if the copy has been built. --long: builds the copies, runs the tests
without a fault, which must pass, and then with each. build/mutation/report.txt says which test caught what.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import relink  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
WORK = ROOT / "build" / "mutation"
TREE, REPORT = WORK / "tree", WORK / "report.txt"
BINARIES = {"unit_tests": "tests/unit_tests", "op_tests": "tests/op_tests", "train_tests": "tests/train_tests",
            "parity_tests": "tests/parity_tests", "c_api_test": "tests/capi/c_api_test", "misuse_suite": "tests/misuse_suite",
            "cli_tests": "tests/cli/cli_tests", "c_api_threads_test": "tests/capi/c_api_threads_test",
            "process_test": "tests/reliability/process_test", "save_faults": "tests/save_faults"}
# Programs of the release build that take the copy's library.
WITH_LIBRARY = {"c_api_test", "misuse_suite", "cli_tests", "c_api_threads_test", "process_test"}
# What stands behind the colon is an argument.
WITHOUT_GTEST = {"c_api_test", "misuse_suite", "c_api_threads_test", "process_test", "save_faults"}
HANDFUL = 5
SECONDS = 600  # a test that a fault keeps from ending has noticed it
INCLUDE = '#include "tests/mutation/mutation.h"\n'


def read_faults():
    faults = []
    for table in sorted((FOLDER / "mutations").glob("*.toml")):
        for fault in tomllib.loads(table.read_text(encoding="utf-8"))["fault"]:
            unknown = set(fault) - {"id", "kind", "file", "right", "expression", "wrong", "constant", "tests"}
            if unknown:
                sys.exit(f"{table.name}: {fault.get('id')} has unknown fields {sorted(unknown)}")
            faults.append(fault)
    names = [fault["id"] for fault in faults]
    for name in names:
        if names.count(name) > 1:
            sys.exit(f"there are two faults named {name}")
    for number, fault in enumerate(faults, 1):
        fault["number"] = number
    return faults


def place(fault, text):
    """(begin, end) of what changes in the text of its file, or a message."""
    right = fault["right"]
    if text.count(right) != 1:
        return None, f"`right` occurs {text.count(right)} times in {fault['file']}"
    part = fault.get("expression", right)
    if part != right and right.count(part) != 1:
        return None, f"`expression` occurs {right.count(part)} times in `right`"
    for entry in fault["tests"]:
        if entry.split(":")[0] not in BINARIES:
            return None, f"there is no test binary {entry}"
    begin = text.index(right) + right.index(part)
    return (begin, begin + len(part)), None


def both_forms(fault, part):
    number, wrong = fault["number"], fault["wrong"]
    if part.rstrip().endswith(";"):
        return f"if (trafo::mutated_here({number})) {{ {wrong} }} else {{ {part} }}"
    return f"(trafo::mutated_here({number}) ? ({wrong}) : ({part}))"


def without_constexpr(text, begin):
    """The constant expression that the place at `begin` belongs to as an ordinary one."""
    at = text.rindex("constexpr", 0, begin)
    return text[:at] + "const    " + text[at + len("constexpr"):]  # the same length


def mutated(faults, file):
    """The text of `file` with both forms of its faults; messages of those that do not fit."""
    text = (ROOT / file).read_text(encoding="utf-8")
    places, messages = [], []
    for fault in faults:
        span, message = place(fault, text)
        if message:
            messages.append((fault, message))
        else:
            places.append((span, fault))
    places.sort(key=lambda entry: entry[0])
    for (first, _), (second, fault) in zip(places, places[1:]):
        if second[0] < first[1]:
            messages.append((fault, "overlaps another fault"))
    for (begin, end), fault in reversed(places):
        if fault.get("constant"):
            text = without_constexpr(text, begin)
        text = text[:begin] + both_forms(fault, text[begin:end]) + text[end:]
    # A header keeps its guard in front.
    if "#pragma once" in text:
        text = text.replace("#pragma once\n", "#pragma once\n" + INCLUDE, 1)
    else:
        text = INCLUDE + text
    return text, messages


def by_file(faults):
    files = {}
    for fault in faults:
        files.setdefault(fault["file"], []).append(fault)
    return files


def check_table(faults):
    """Messages of the entries that no longer fit their files."""
    messages = []
    for file, group in by_file(faults).items():
        if not (ROOT / file).is_file():
            messages += [(fault, f"there is no file {file}") for fault in group]
        else:
            messages += mutated(group, file)[1]
    return messages


def write_tree(faults):
    """The changed files; one whose text stays the same keeps its time, so that building again is quick."""
    wanted = {file: mutated(group, file)[0] for file, group in by_file(faults).items()}
    for path in list(TREE.rglob("*")):
        if path.is_file() and str(path.relative_to(TREE)) not in wanted:
            path.unlink()
    for name, content in wanted.items():
        path = TREE / name
        if not path.is_file() or path.read_text(encoding="utf-8") != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")


def build(jobs):
    """Compiles what the changed files are part of, and links it with the other objects of the release build."""
    relink.build_release(jobs)
    changed = {str(path.relative_to(TREE)) for path in TREE.rglob("*") if path.is_file()}
    linked = ("engine/", "capi/", "tests/")
    relink.relink(lambda source, files: source.startswith(linked) and bool(files & changed), WORK, jobs, copies=TREE,
                  compile_flags=["-O1"])


def is_built(fault, faults):
    """Whether the copy has this fault, under its number, in the file as it is now."""
    path = TREE / fault["file"]
    group = [other for other in faults if other["file"] == fault["file"]]
    return path.is_file() and path.read_text(encoding="utf-8") == mutated(group, fault["file"])[0]


def run_tests(entry, number):
    """None if they pass, else what noticed."""
    binary, _, pattern = entry.partition(":")
    command = [str((relink.RELEASE if binary in WITH_LIBRARY else WORK) / BINARIES[binary])]
    if binary not in WITHOUT_GTEST:
        command.append("--gtest_brief=1")
        command.append("--gtest_fail_fast")
        if pattern:
            command.append(f"--gtest_filter={pattern}")
    elif pattern:
        command.append(pattern)
    environment = dict(os.environ, TRAFO_MUTATION=str(number), LD_LIBRARY_PATH=str(WORK))
    with tempfile.TemporaryDirectory(prefix="trafo-seeded-") as folder:
        environment["TMPDIR"] = folder
        try:
            done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"{binary} (did not end)"
    output = done.stdout.decode(errors="replace")
    if done.returncode == 0:
        if "0 tests from 0 test suites" in output or (binary not in WITHOUT_GTEST and "[  PASSED  ] 0 tests" in output):
            sys.exit(f"{entry} names no test")
        return None
    names = re.findall(r"^\[  FAILED  \] (\S+?)[,\s]", output, re.MULTILINE)
    if names:
        return f"{binary} {names[0]}"
    lines = [line for line in output.splitlines() if line.strip()]
    return f"{binary} ({'signal ' + str(-done.returncode) if done.returncode < 0 else (lines[-1][:80] if lines else 'failed')})"


def hunt(fault, wide):
    for entry in fault["tests"]:
        caught = run_tests(entry, fault["number"])
        if caught:
            return caught, True
    for binary in BINARIES if wide else []:
        if binary not in fault["tests"]:
            caught = run_tests(binary, fault["number"])
            if caught:
                return caught, False
    return None, False


def hunt_all(faults, jobs, wide):
    """Number of faults that no test noticed; `wide`: of all binaries, else of those that ought to."""
    survived, lines = [], []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for fault, (caught, expected) in zip(faults, pool.map(lambda fault: hunt(fault, wide), faults)):
            line = f"{fault['id']} ({fault['kind']}): " + ("SURVIVED" if caught is None else f"caught by {caught}" + ("" if expected else
                                                           ", not by those that ought to"))
            print(line, flush=True)
            lines.append(line)
            if caught is None:
                survived.append(fault["id"])
    REPORT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(survived)


def main():
    parser = argparse.ArgumentParser(description="Seeded faults: do the tests notice?")
    parser.add_argument("--long", action="store_true", help="build the copy and run every fault")
    parser.add_argument("--only", nargs="+", metavar="ID", help="only these faults")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--no-build", action="store_true", help="with --long: take the copy as it was built; TRAFO_PREBUILT=1 does too")
    parser.add_argument("--quick", action="store_true", help="with --long: only the tests that ought to notice, no run without a fault")
    options = parser.parse_args()
    faults = read_faults()
    messages = check_table(faults)
    for fault, message in messages:
        print(f"{fault['id']}: {message}")
    tried, failed = len(faults), len(messages)
    if not messages:
        wanted = [fault for fault in faults if not options.only or fault["id"] in options.only]
        if options.long:
            if not options.no_build and os.environ.get("TRAFO_PREBUILT") != "1":
                write_tree(faults)
                build(options.jobs)
            begin = time.monotonic()
            binaries = [] if options.quick else list(BINARIES)
            with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
                for binary, caught in zip(binaries, pool.map(lambda binary: run_tests(binary, 0), binaries)):
                    if caught:
                        sys.exit(f"without a fault: {caught}")
                    print(f"{binary} passes without a fault, {time.monotonic() - begin:.0f} s", flush=True)
            tried, failed = len(wanted), hunt_all(wanted, options.jobs, not options.quick)
        elif (WORK / "libtrafo.so.0").exists():
            wanted = [fault for fault in wanted if is_built(fault, faults)]
            failed = hunt_all(wanted[:: max(1, len(wanted) // HANDFUL)][:HANDFUL], options.jobs, False)
    print(f"suite: mutation  tried: {tried}  failed: {failed}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
