#!/usr/bin/env python3
"""Which kernels of the CUDA plugin commands run, and which they leave out.

Usage: kernels_run.py LIBRARY COMMAND [ARGUMENT ...]
       kernels_run.py LIBRARY --parallel 'COMMAND ARGUMENT ...' 'COMMAND ...' ...

LIBRARY is kernels_run/libtrafo_cuda.so of the build folder: the plugin, with notes of its launches
(kernels_run.cc). The commands find it through TRAFO_CUDA_LIBRARY and run at their usual speed;
commands of --parallel run in a shell each, all at once, and one may set TRAFO_CUDA_LIBRARY itself to
kernels_run/without_wgmma/libtrafo_cuda.so, where attention runs the kernels of cards other than 9.0.
Only kernels of this project count, not CUB's and cuBLASLt's. Prints the kernels that were not
run; the exit status is 1 if there are any, or if a command fails.
"""
import os
import subprocess
import sys
import tempfile


def run_all(commands, library, notes):
    environment = dict(os.environ, TRAFO_CUDA_LIBRARY=library, TRAFO_KERNELS_RUN=notes)
    running = []
    for command in commands:
        output = tempfile.TemporaryFile("w+")
        running.append((command, output, subprocess.Popen(command, shell=isinstance(command, str), env=environment,
                                                          stdout=output, stderr=subprocess.STDOUT)))
    failed = False
    for command, output, process in running:
        if process.wait():
            failed = True
            output.seek(0)
            print(f"{command} failed ({process.returncode}):\n{output.read()[-2000:]}")
    return not failed


def main():
    if len(sys.argv) < 3 or sys.argv[2:] == ["--parallel"]:
        sys.exit(__doc__)
    parallel = sys.argv[2] == "--parallel"
    commands = sys.argv[3:] if parallel else [sys.argv[2:]]
    with tempfile.TemporaryDirectory() as folder:
        notes = os.path.join(folder, "kernels")
        passed = run_all(commands, os.path.abspath(sys.argv[1]), notes)
        lines = open(notes).read().split("\n") if os.path.exists(notes) else []
    named = {word: {line[len(word) + 1:] for line in lines if line.startswith(word + " ") and "trafo" in line}
             for word in ("holds", "ran")}
    if not named["holds"]:
        sys.exit(f"no command has loaded {sys.argv[1]}, or it is a plugin that takes no notes")
    missing = named["holds"] - named["ran"]
    print(f"{len(named['holds']) - len(missing)} of {len(named['holds'])} kernels were run")
    if missing:
        print(subprocess.run(["c++filt", *sorted(missing)], check=True, capture_output=True, text=True).stdout)
    sys.exit(0 if passed and not missing else 1)


if __name__ == "__main__":
    main()
