#!/usr/bin/env python3
"""Every function of the C ABI has a comment that says what it does; "since 0.1" alone does not. Checks itself on a header without any."""

import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/reliability/misuse"))
import headers  # noqa: E402


def without_docstring(paths):
    """The names of functions without a docstring, and the number of functions."""
    functions = headers.read(paths).functions
    said = {function.name: re.sub(r"\bsince \d+\.\d+\b|[\s*]", "", function.comment) for function in functions}
    return [name for name, text in said.items() if not text], len(functions)


with tempfile.TemporaryDirectory() as folder:
    sample = pathlib.Path(folder) / "sample.h"
    sample.write_text("/* The version. since 0.1 */\nTRAFO_API int32_t trafo_one(void);\n/* since 0.1 */\nTRAFO_API int32_t trafo_two(void);\n"
                      "TRAFO_API int32_t trafo_three(void);\n")
    if without_docstring([sample]) != (["trafo_two", "trafo_three"], 3):
        sys.exit(f"docstrings_test: the check finds {without_docstring([sample])} in a header where two of three functions have none")

missing, count = without_docstring(sorted((ROOT / "capi/include").rglob("*.h")))
exported = len((ROOT / "capi/abi/symbols.txt").read_text().split())
if count != exported:
    sys.exit(f"docstrings_test: the headers declare {count} functions, capi/abi/symbols.txt has {exported}")
if missing:
    sys.exit(f"docstrings_test: no docstring: {', '.join(missing)}")
print(f"docstrings_test: {count} functions ok")
