#!/usr/bin/env python3
"""Where programs and libraries look for libraries, as their dynamic section says.

    run_paths.py build|installed FOLDER_OR_FILE...

Reads every ELF file. Each element of a run path must begin with $ORIGIN or, in a build, be an absolute folder. An empty or a relative
element means the current directory, where anybody may have put a library. There must be an ELF file.
"""

import pathlib
import re
import subprocess
import sys


def elf_files(paths):
    """Programs, shared and loadable libraries. A link is not followed: its file has its own place."""
    for path in paths:
        for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if each.suffix in (".o", ".a", ".rlib", ".rmeta") or each.is_symlink() or not each.is_file():
                continue
            with each.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield each


def faults(run_path, installed):
    for element in run_path.split(":"):
        if re.fullmatch(r"\$ORIGIN(/.*)?", element):
            continue
        if element == "":
            yield "has an empty element, which is the current directory"
        elif installed:
            yield f"has the element {element}, which is not relative to $ORIGIN"
        elif not element.startswith("/"):
            yield f"has the relative element {element}"


def main():
    kind, paths = sys.argv[1], [pathlib.Path(each) for each in sys.argv[2:]]
    if kind not in ("build", "installed") or not paths:
        sys.exit(__doc__)
    files = with_path = failed = 0
    for file in elf_files(paths):
        files += 1
        said = subprocess.run(["readelf", "--dynamic", file], capture_output=True, text=True, check=True).stdout
        for run_path in re.findall(r"\((?:RPATH|RUNPATH)\).*?\[(.*)\]", said):
            with_path += 1
            for fault in faults(run_path, kind == "installed"):
                print(f"{file}: the run path {run_path} {fault}")
                failed += 1
    print(f"run_paths: {files} files, {with_path} with a run path, {failed} faults")
    sys.exit(1 if failed or not files else 0)


if __name__ == "__main__":
    main()
