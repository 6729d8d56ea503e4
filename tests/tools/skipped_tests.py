#!/usr/bin/env python3
"""Lists the tests that were skipped since the last call, with the reasons.

    skipped_tests.py FOLDER

FOLDER has the XML of Google Test of each program that has run, and *.txt with a line for each skip of other programs. ctest runs this
after all of them (tests/CMakeLists.txt). Exit status: 77 if a test was skipped, which ctest shows as a skip; 0 if none was. The files
are removed: the next call is about the next run.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree

SKIPPED = 77


def skips_of(path):
    """(name, reason) of each skipped test."""
    if path.suffix == ".txt":
        return [(path.stem, line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [(f"{path.stem} {test.get('classname')}.{test.get('name')}", " ".join((skip.get("message") or skip.text or "").split()))
            for test in ElementTree.parse(path).iter("testcase") for skip in test.iter("skipped")]


def main():
    paths = sorted(path for path in pathlib.Path(sys.argv[1]).glob("*") if path.suffix in (".xml", ".txt"))
    skips = [skip for path in paths for skip in skips_of(path)]
    for path in paths:
        path.unlink()
    by_reason = {}
    for name, reason in skips:
        by_reason.setdefault(reason.rpartition("Skipped")[2].strip() or reason, []).append(name)
    for reason, names in sorted(by_reason.items(), key=lambda each: -len(each[1])):
        print(f"{len(names)} skipped: {reason or 'no reason'}")
        for name in names:
            print(f"  {name}")
    print(f"skipped_tests: {len(paths)} programs, {len(skips)} skipped")
    sys.exit(SKIPPED if skips else 0)


if __name__ == "__main__":
    main()
