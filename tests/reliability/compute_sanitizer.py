#!/usr/bin/env python3
"""Every test that computes on a GPU, under NVIDIA's compute-sanitizer: memcheck, racecheck and synccheck.

    TRAFO_TEST_DEVICE=cuda tests/reliability/compute_sanitizer.py [--long] [--tools TOOL...] [--filter PATTERN] [--jobs N] [--seconds N]

Needs a GPU, compute-sanitizer, op_tests and train_tests of TRAFO_BUILD (default build/release) and the plugin, beside the library or
where TRAFO_CUDA_LIBRARY says; exit status 77 without TRAFO_TEST_DEVICE=cuda. A trial is one test under one tool. The short form takes
memcheck and every eighth test. initcheck is not among the tools: it does not follow what cuBLASLt's kernels write with the copy engine;
what racecheck reports inside cuBLASLt's own kernels (nvjet_*), whose synchronisation it does not know, does not count.

The last line is  suite: compute_sanitizer  tried: N  failed: M.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TRAFO_BUILD", ROOT / "build" / "release"))
# The tests of these programs that need a GPU, and the tools they run under. A trainer runs the kernels of the ops, whose races
# op_tests shows in a time that can be waited for.
PROGRAMS = {
    "op_tests": ("*Cuda*:Devices/*", ["memcheck", "racecheck", "synccheck"]),
    "train_tests": ("Devices/*:*Accelerator*:DeviceFailures*", ["memcheck"]),
}
TOOLS = ["memcheck", "racecheck", "synccheck"]
# Kernels of cuBLASLt. They cannot be left out with --kernel-name-exclude: then they end in an internal error of racecheck.
OF_LIBRARIES = ("nvjet_", "cublas", "cutlass", "sm90_xmma")
ACCESS = re.compile(r"(?:Race reported between|and) (?:Read|Write) access at (\S+?)\+0x")
ERRORS = 99  # exit status of a program in which a tool found something


def tests_of(program, pattern):
    listed = subprocess.run([BUILD / "tests" / program, "--gtest_list_tests", f"--gtest_filter={pattern}"],
                            capture_output=True, text=True, check=True).stdout
    suite, names = "", []
    for line in listed.splitlines():
        word = line.split("#")[0].strip()
        if not line.startswith(" "):
            suite = word
        elif word:
            names.append(suite + word)
    return names


def run(tool, program, name, seconds):
    """None if the test called nothing of a device, else what is wrong, "" for nothing."""
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(ERRORS), str(BUILD / "tests" / program),
               f"--gtest_filter={name}"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, text=True, errors="replace")
    except subprocess.TimeoutExpired:
        return f"did not end in {seconds} s"
    passed = "[  PASSED  ] 1 test" in done.stdout
    if passed and "terminated before first instrumented API call" in done.stdout:
        return None
    if "[  SKIPPED ]" in done.stdout and "[       OK ]" not in done.stdout:
        return None
    summary = re.search(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", done.stdout)
    if done.returncode == 0 and passed and summary and not int(summary[1] or summary[2]):
        return ""
    races = ACCESS.findall(done.stdout)
    if passed and races and done.stdout.count("========= Error") == done.stdout.count("Race reported between") and all(
            kernel.startswith(OF_LIBRARIES) for kernel in races):
        return ""
    return f"exit status {done.returncode}\n" + done.stdout[-2000:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true", help="all tests, all tools")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, help="only these")
    parser.add_argument("--filter", help="of op_tests, instead of all that need a GPU")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) - 4), help="tests at a time")
    parser.add_argument("--seconds", type=float, default=600, help="a test may take")
    options = parser.parse_args()
    if os.environ.get("TRAFO_TEST_DEVICE") != "cuda":
        print("compute_sanitizer: skipped, TRAFO_TEST_DEVICE is not cuda")
        return 77
    if not shutil.which("compute-sanitizer"):
        print("compute_sanitizer: skipped, there is no compute-sanitizer")
        return 77
    trials = []
    for program, (pattern, tools) in PROGRAMS.items():
        if options.filter and program != "op_tests":
            continue
        names = tests_of(program, options.filter or pattern)
        if not options.long and not options.filter:
            names, tools = names[::8], tools[:1]
        trials += [(tool, program, name) for tool in options.tools or tools if tool in tools for name in names]
    tried = failed = 0
    # The slowest tool first, so that the last to end is a short one.
    trials.sort(key=lambda trial: trial[0] != "racecheck")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for trial, wrong in zip(trials, pool.map(lambda trial: run(*trial, options.seconds), trials)):
            if wrong is None:
                continue
            tried += 1
            if wrong:
                failed += 1
                print(f"{' '.join(trial)}: {wrong}", flush=True)
    print(f"suite: compute_sanitizer  tried: {tried}  failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
