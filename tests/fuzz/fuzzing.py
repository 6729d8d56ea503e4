#!/usr/bin/env python3
"""Suite 4: hostile files, arguments and call sequences.

Without a flag: every checked-in input of tests/fuzz/corpus is replayed with fuzz_replay of a
build (any compiler, best with address and undefined sanitizers), and if the build of the preset
`fuzz` is there, its fuzz_targets looks for new inputs, 5 seconds a target. --long: 10 minutes a
target. Findings are written to FUZZ/findings and make the exit status 1.

The last line is  suite: fuzzing  tried: N  failed: M  (inputs run, inputs that were findings).
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests/fuzz/corpus"
# A leak, a hang and too much memory are findings as well.
LIMITS = ["-timeout=5", "-rss_limit_mb=1024", "-malloc_limit_mb=256", "-max_len=16384"]
# A caller may ask for a tensor of any size: what is not to be had is an error. A file may not ask for that much.
SANITIZER = {"c_api": "allocator_may_return_null=1:max_allocation_size_mb=250"}


def sanitized(target, **variables):
    """The environment of a program that runs a target."""
    options = [os.environ.get("ASAN_OPTIONS"), SANITIZER.get(target)]
    return dict(os.environ, ASAN_OPTIONS=":".join(filter(None, options)), **variables)


def replay(program, target):
    """Inputs replayed and those that failed."""
    files = sorted(p for p in (CORPUS / target).iterdir() if p.is_file())
    environment = sanitized(target)
    whole = subprocess.run([program, target, *files], capture_output=True, env=environment)
    if whole.returncode == 0:
        return len(files), []
    failed = []
    for file in files:
        alone = subprocess.run([program, target, file], capture_output=True, env=environment)
        if alone.returncode != 0:
            failed.append(file)
            sys.stdout.write(alone.stderr.decode(errors="replace")[-4000:])
    # They fail one after the other and not alone.
    return len(files), failed or [CORPUS / target]


def fuzz(program, target, seconds, findings):
    """Inputs tried by libFuzzer and the files of its findings."""
    findings.mkdir(parents=True, exist_ok=True)
    mine = f"{target}-*"
    before = set(findings.glob(mine))
    with tempfile.TemporaryDirectory() as grown:
        command = ["nice", "-n", "10", program, f"--target={target}", f"-max_total_time={seconds}",
                   "-print_final_stats=1", "-close_fd_mask=3", f"-artifact_prefix={findings}/{target}-",
                   *LIMITS, grown, str(CORPUS / target)]
        run = subprocess.run(command, capture_output=True, env=sanitized(target, LLVM_PROFILE_FILE="/dev/null"))
    text = run.stderr.decode(errors="replace")
    units = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
    found = sorted(set(findings.glob(mine)) - before)
    if run.returncode != 0:
        sys.stdout.write(text[-6000:])
        found = found or [findings]
    return int(units.group(1)) if units else 1, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.environ.get("TRAFO_BUILD", ROOT / "build/release"), type=pathlib.Path, help="has fuzz_replay")
    parser.add_argument("--fuzz", default=ROOT / "build/fuzz", type=pathlib.Path, help="has fuzz_targets")
    parser.add_argument("--long", action="store_true", help="10 minutes a target; needs the build of --fuzz")
    parser.add_argument("--seconds", type=int, help="of libFuzzer a target")
    parser.add_argument("--replay-only", action="store_true", help="never libFuzzer")
    parser.add_argument("--target", action="append", help="only this one")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) - 2), help="targets at a time")
    options = parser.parse_args()

    replayer = options.build / "tests/fuzz/fuzz_replay"
    fuzzer = options.fuzz / "tests/fuzz/fuzz_targets"
    if not replayer.exists():
        sys.exit(f"there is no {replayer}: cmake --build --preset release --target fuzz_replay")
    if options.long and not fuzzer.exists():
        sys.exit(f"there is no {fuzzer}: cmake --preset fuzz && cmake --build --preset fuzz --target fuzz_targets")
    names = subprocess.run([replayer, "--list"], capture_output=True, text=True, check=True).stdout.split()
    if "arguments" not in names:
        print("arguments      not replayed: this build has no translate-train")
    seconds = options.seconds or (600 if options.long else 5)

    def run(target):
        tried, findings = replay(replayer, target)
        line = f"{target:14} replayed {tried}"
        if fuzzer.exists() and not options.replay_only:
            units, found = fuzz(fuzzer, target, seconds, options.fuzz / "findings")
            tried += units
            findings += found
            line += f", libFuzzer {units} in {seconds} s"
        print(line + "".join(f"\n  finding: {finding}" for finding in findings), flush=True)
        return tried, len(findings)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        counts = list(pool.map(run, options.target or names))
    tried, failed = (sum(numbers) for numbers in zip(*counts))
    print(f"suite: fuzzing  tried: {tried}  failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
