#!/usr/bin/env python3
"""The tables of docs/reference/ops.md and generated/ops.md: every op of trafo.h has a row, and every name of C, Rust and Go in them exists.

    tests/tools/ops_of_docs.py
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = re.compile(r"`([^`]+)`")


def text_of(pattern):
    return "".join(path.read_text() for path in sorted(ROOT.glob(pattern)) if not path.name.endswith("_test.go"))


def rows(text):
    """Cells of each table row, after its heading and rule."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        lines = block.splitlines()
        heading = [cell.strip() for cell in lines[0].strip("|").split("|")]
        for line in lines[2:]:
            yield heading, [cell.strip() for cell in line.strip("|").split("|")]


def exists_in_rust(text, name):
    """A method or a type."""
    return re.search(rf"\bfn {name}\b|\bpub (struct|enum) {name}\b", text, re.M) is not None


def main():
    header = text_of("capi/include/**/*.h")
    rust = text_of("bindings/rust/trafo/src/**/*.rs")
    go = text_of("bindings/go/trafo/*.go")
    document = "".join((ROOT / "docs/reference" / name).read_text() for name in ("generated/ops.md", "ops.md", "../lab/op-use.md"))
    functions = set(re.findall(r"\*(trafo_\w+)\(", header))
    listed, problems = set(), []
    for heading, cells in rows(document):
        if len(cells) != len(heading):
            problems.append(f"a row has {len(cells)} cells: {cells}")
            continue
        row = dict(zip(heading, cells))
        for name in NAME.findall(row["C"]):
            function = name if name.startswith("trafo_") else "trafo_op_" + name
            listed.add(function)
            if function not in functions:
                problems.append(f"C has no {function}")
        for name in NAME.findall(row["Rust"]):
            if name in "+-*/":
                continue
            if not all(exists_in_rust(rust, part) for part in name.split("::") if part != "Tensor"):
                problems.append(f"Rust has no {name}")
        for name in NAME.findall(row["Go"]):
            if re.search(rf"^func \(\w+ \*?\w+\) {name.split('.')[-1]}\(", go, re.M) is None:
                problems.append(f"Go has no {name}")
    problems += [f"docs/reference/generated/ops.md has no {name}" for name in sorted(functions - listed) if name.startswith("trafo_op_")]
    print("\n".join(problems) or f"docs/reference/ops.md: {sum(name.startswith('trafo_op_') for name in listed)} ops, all names exist")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
