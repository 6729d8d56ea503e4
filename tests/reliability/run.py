#!/usr/bin/env python3
"""Runs the test suites of docs/design/reliability.md and prints their summary table.

    tests/reliability/run.py [--long] [--device cuda] [--only NAME...] [--update-docs] [--build DIRECTORY] [--jobs N]

A suite is one command. Its last line on standard output that has the form `suite: NAME  tried: N  failed: M` is its result. A
suite counts as passed only with such a line, its own name in it, something tried, nothing failed and exit status 0. Exit status 77
means that it cannot run here (no compiler of that kind, no GPU): it is listed as skipped, which is not a pass.

--device cuda runs the suites that a GPU has a form of, on one; their results have a separate table.

Exit status: 0 all passed, 1 something failed, 77 nothing failed and something was skipped. Every suite's output is kept in
build/reliability/NAME.log. --update-docs writes the rows of the suites that ran into docs/design/reliability.md.
"""

import argparse
import concurrent.futures
import datetime
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(__file__).resolve().parent
DOCUMENT = ROOT / "docs/design/reliability.md"
# Of the tables in docs/design/reliability.md, by --device.
MARKERS = {
    "cpu": ("<!-- table of tests/reliability/run.py: begin -->", "<!-- table of tests/reliability/run.py: end -->"),
    "cuda": ("<!-- table of tests/reliability/run.py --device cuda: begin -->", "<!-- table of tests/reliability/run.py --device cuda: end -->"),
}
RESULT = re.compile(r"^suite: (\S+) +tried: (\d+) +failed: (\d+)$")
SKIPPED = 77
COLUMNS = ["#", "suite", "command", "form", "tried", "failed", "seconds", "date", "machine", "note"]

# Number in docs/design/reliability.md, name, what it tries.
SUITES = [
    (1, "save_faults", "every call of a save fails in turn"),
    (2, "kills", "SIGKILL at random moments of training and saving"),
    (3, "damaged_files", "truncated and flipped checkpoints"),
    (4, "fuzzing", "fuzzers of every reader and of the C ABI"),
    (5, "corpus_table", "odd and broken corpora"),
    (6, "allocation_failure", "the i-th allocation fails"),
    (7, "concurrency", "many trainers, many threads"),
    (8, "soak", "long runs: memory, descriptors, threads"),
    (9, "mutation", "the engine made wrong in one place at a time"),
    (10, "golden_checkpoints", "checkpoints of earlier releases"),
    (11, "misuse", "every function of the C ABI called wrongly"),
]
SUITES_ON_A_GPU = [
    (6, "allocation_failure", "the i-th allocation of device memory fails"),
    (8, "soak", "long runs: memory of host and device, descriptors, threads"),
    (12, "compute_sanitizer", "memory errors, races and missed barriers in kernels"),
]


def command_of(name, build):
    """The suite's script, here or in another folder of tests, or its program among the built tests; None if there is neither."""
    for pattern in (f"reliability/{name}.*", f"*/{name}.*"):
        for path in sorted(FOLDER.parent.glob(pattern)):
            if path.suffix in (".py", ".sh"):
                return path
    for depth in ("", "*/", "*/*/"):
        for path in sorted(build.glob(f"tests/{depth}{name}")) + sorted(build.glob(f"tests/{depth}{name}_suite")):
            if path.is_file() and os.access(path, os.X_OK):
                return path
    return None


def machine_class():
    """Processor model, cores and GPU, without anything that names one machine."""
    model = platform.machine()
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = re.sub(r"\s+", " ", line.split(":", 1)[1]).strip()
                break
    except OSError:
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    text = f"{model}, {cores} cores"
    try:
        cards = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, timeout=30)
        names = [name.strip() for name in cards.stdout.splitlines() if name.strip()] if cards.returncode == 0 else []
        if names:
            text += ", " + ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names)))
    except (OSError, subprocess.TimeoutExpired):
        pass
    return text.replace("|", "/")


def output_and_status(command, log, limit):
    """The lines a command printed and its exit status; stops its whole process group at the limit."""
    with open(log, "w", encoding="utf-8", errors="replace") as sink:
        process = subprocess.Popen(command, cwd=ROOT, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            sink.write(f"\nrun.py: stopped after {limit} seconds\n")
            status = None
        except BaseException:  # Ctrl-C must not leave a soak behind
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return log.read_text(encoding="utf-8", errors="replace").splitlines(), status


def judged(name, lines, status):
    """(tried, failed, note): `failed` is "skipped" for what could not run and never 0 for what gave no proof of passing."""
    results = [match for match in map(RESULT.match, lines) if match]
    last = next((line for line in reversed(lines) if line.strip()), "nothing was printed").strip()
    if status == SKIPPED:
        return "0", "skipped", last
    if status is None:
        return "0", "1", "ran past its time"
    if not results:
        return "0", "1", f"no result line, exit status {status}: {last}"
    suite, tried, failed = results[-1].groups()
    if suite != name:
        return tried, str(max(1, int(failed))), f"the result line names {suite}"
    if int(tried) == 0:
        return tried, "1", "tried nothing"
    if int(failed) == 0 and status != 0:
        return tried, "1", f"exit status {status}"
    return tried, failed, "" if int(failed) == 0 else "see its log"


def run_suite(number, name, options):
    path = command_of(name, options.build)
    form = "long" if options.long else "short"
    command = [str(path)] + (["--long"] if options.long else []) if path else []
    prefix = "TRAFO_TEST_DEVICE=cuda " if options.device == "cuda" else ""
    shown = f"`{prefix}{os.path.relpath(path, ROOT)}{' --long' if options.long else ''}`" if path else "-"
    begin = time.monotonic()
    if path is None:
        tried, failed, note = "0", "skipped", "it has no script, and no program in the build folder"
    else:
        log = ROOT / "build" / "reliability" / f"{name}{'' if options.device == 'cpu' else '-' + options.device}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            lines, status = output_and_status(command, log, options.limit)
            tried, failed, note = judged(name, lines, status)
        except OSError as error:
            tried, failed, note = "0", "1", f"cannot be started: {error.strerror}"
    seconds = time.monotonic() - begin
    return {"#": str(number), "suite": name, "command": shown, "form": form, "tried": tried, "failed": failed,
            "seconds": f"{seconds:.0f}", "date": datetime.date.today().isoformat(), "machine": options.machine,
            "note": note[:120].replace("|", "/")}


def printed_table(rows):
    columns = [column for column in COLUMNS if column not in ("date", "machine", "form")]
    widths = {column: max([len(column)] + [len(row[column]) for row in rows]) for column in columns}
    for row in [{column: column for column in columns}] + rows:
        print("  ".join(row[column].ljust(widths[column]) for column in columns).rstrip())


def rows_in(block):
    rows = {}
    for line in block.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == len(COLUMNS) and cells[0].isdigit():
            rows[cells[1]] = dict(zip(COLUMNS, cells))
    return rows


def update_document(rows, device):
    """Replaces the rows of the suites that ran; the other rows stay with their dates."""
    text = DOCUMENT.read_text(encoding="utf-8")
    begin, end = MARKERS[device]
    if text.count(begin) != 1 or text.count(end) != 1:
        sys.exit(f"run.py: {DOCUMENT.relative_to(ROOT)} must have each marker of its tables once")
    before, rest = text.split(begin)
    block, after = rest.split(end)
    known = rows_in(block)
    known.update({row["suite"]: row for row in rows})
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in sorted(known.values(), key=lambda row: int(row["#"])):
        lines.append("| " + " | ".join(row[column] for column in COLUMNS) + " |")
    DOCUMENT.write_text(before + begin + "\n" + "\n".join(lines) + "\n" + end + after, encoding="utf-8")


def main():
    names = sorted({name for _, name, _ in SUITES + SUITES_ON_A_GPU})
    parser = argparse.ArgumentParser(description="Runs the reliability suites and prints their summary table.",
                                     epilog="Suites: " + "; ".join(f"{name}: {what}" for _, name, what in SUITES))
    parser.add_argument("--device", choices=sorted(MARKERS), default="cpu", help="cuda: the suites that have a form for a GPU")
    parser.add_argument("--long", action="store_true", help="the long form of every suite (hours)")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help="only these suites")
    parser.add_argument("--update-docs", action="store_true", help="write the table into docs/design/reliability.md")
    parser.add_argument("--build", help="build folder of the release build (default build/release)")
    parser.add_argument("--jobs", type=int, default=1, help="suites at a time (default 1; each has threads of its own)")
    parser.add_argument("--limit", type=float, help="seconds a suite may take (default 900, long form: 43200)")
    options = parser.parse_args()
    options.limit = options.limit or (43200 if options.long else 900)
    options.machine = machine_class()
    options.build = pathlib.Path(options.build or os.environ.get("TRAFO_BUILD", ROOT / "build" / "release")).resolve()
    os.environ["TRAFO_BUILD"] = str(options.build)  # scripts of suites look there
    if options.device == "cuda":
        os.environ["TRAFO_TEST_DEVICE"] = "cuda"
    else:
        os.environ.pop("TRAFO_TEST_DEVICE", None)

    def run(suite):
        number, name, what = suite
        print(f"{name}: {what} ...", flush=True)
        row = run_suite(number, name, options)
        print(f"suite: {name}  tried: {row['tried']}  failed: {row['failed']}", flush=True)
        return row

    suites = [suite for suite in (SUITES_ON_A_GPU if options.device == "cuda" else SUITES)
                if not options.only or suite[1] in options.only]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(run, suites))
    print()
    printed_table(rows)
    if options.update_docs:
        update_document(rows, options.device)
    if any(row["failed"] not in ("0", "skipped") for row in rows):
        sys.exit(1)
    if any(row["failed"] == "skipped" for row in rows):
        sys.exit(SKIPPED)


if __name__ == "__main__":
    main()
