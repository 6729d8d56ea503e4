#!/usr/bin/env python3
"""Which kernels of the CUDA plugin a command runs, and which it leaves out.

Usage: kernels_run.py LIBTRAFO_CUDA_SO COMMAND [ARGUMENT ...]

The kernels that exist are read from the plugin's machine code (cuobjdump), those that run from a
profile of the command (ncu, one launch of each configuration); both come with the CUDA toolkit.
Only kernels of this project count, not those of CUB and cuBLASLt. Prints the kernels that were not
run; the exit status is 1 if there are any.
"""
import csv
import re
import subprocess
import sys


def output(arguments):
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


def kernels_of(plugin):
    names = set()
    for line in output(["cuobjdump", "-symbols", plugin]).splitlines():
        if "STO_ENTRY" in line:
            names.add(line.split()[-1])
    return {name for name in names if "trafo" in name}


def kernels_run(command):
    profile = ["ncu", "--csv", "--page", "raw", "--filter-mode", "per-launch-config",
               "--launch-count", "1", "--metrics", "launch__grid_size",
               "--print-kernel-base", "mangled", "--target-processes", "all"]
    run = subprocess.run(profile + command, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    rows = csv.reader(line for line in run.stdout.splitlines() if line.startswith('"'))
    header = next(rows)
    column = header.index("Kernel Name")
    return {re.sub(r"\(.*", "", row[column]) for row in rows}


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    there = kernels_of(sys.argv[1])
    if not there:
        sys.exit(f"{sys.argv[1]} has no kernels of this project")
    missing = there - kernels_run(sys.argv[2:])
    print(f"{len(there) - len(missing)} of {len(there)} kernels were run")
    if missing:
        print(output(["c++filt", *sorted(missing)]))
        sys.exit(1)


if __name__ == "__main__":
    main()
