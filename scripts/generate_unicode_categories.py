#!/usr/bin/env python3
"""Usage: generate_unicode_categories.py [--check]

Writes engine/metrics/generated/unicode_categories.h from Python's unicodedata: which code points are numbers, punctuation and symbols.
--check writes nothing and fails if the file is stale. It says nothing about a file of another Unicode version than Python's (exit
code 77).
"""
import pathlib
import re
import sys
import unicodedata

FILE = pathlib.Path(__file__).resolve().parents[1] / "engine/metrics/generated/unicode_categories.h"
KINDS = "NPS"
WIDTH = 100


def ranges():
    """(first, last, kind), neighbours of one kind joined."""
    found = []
    for code in range(sys.maxunicode + 1):
        kind = unicodedata.category(chr(code))[0]
        if kind not in KINDS:
            continue
        if found and found[-1][1] == code - 1 and found[-1][2] == kind:
            found[-1][1] = code
        else:
            found.append([code, code, kind])
    return found


def header():
    lines = ["// Written by scripts/generate_unicode_categories.py: change that.",
             f"// The general categories N, P and S of Unicode {unicodedata.unidata_version}, as ranges of code points.", "// clang-format off",
             "#pragma once", "", "#include <cstdint>", "", "namespace trafo {", "",
             "// Unicode's letters: N numbers, P punctuation, S symbols.",
             "enum class UnicodeCategory : uint8_t { other, N, P, S };", "",
             "struct UnicodeRange {", "  char32_t first, last;", "  UnicodeCategory category;", "};", "",
             "namespace unicode {", "using enum UnicodeCategory;", "",
             "// Sorted; ranges do not overlap.", "inline constexpr UnicodeRange kCategories[] = {"]
    entries = [f"{{{first:#x}, {last:#x}, {kind}}}," for first, last, kind in ranges()]
    line = "   "
    for entry in entries:
        if len(line) + 1 + len(entry) > WIDTH:
            lines.append(line)
            line = "   "
        line += " " + entry
    return "\n".join([*lines, line, "};", "", "}  // namespace unicode", "", "}  // namespace trafo"]) + "\n"


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    text = header()
    if not check:
        FILE.write_text(text)
        return
    old = FILE.read_text()
    version = re.search(r"of Unicode ([\d.]+),", old)[1]
    if version != unicodedata.unidata_version:
        print(f"{FILE.name} is of Unicode {version}, this Python knows {unicodedata.unidata_version}: not compared")
        sys.exit(77)
    if old != text:
        sys.exit(f"{FILE.name} is stale: run scripts/generate_unicode_categories.py and commit what it writes")
    print(f"{FILE.name} is up to date with Unicode {version}")


if __name__ == "__main__":
    main()
