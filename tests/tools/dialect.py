#!/usr/bin/env python3
"""Counts turns of phrase that readers of English stumble over, in comments and in documents.

    tests/tools/dialect.py [--list] [PATH ...]

Prints the rate of each turn per 10,000 words beside the rates in the comments of five other projects (llm.c, CTranslate2, MLX, candle,
DuckDB). --list prints the places as well. PATH limits the count to tracked files below these folders; the default is all.
Generated files are left out, because their text is counted where it is written, and so is docs/lab.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Name, pattern, rates in the other projects.
TURNS = (
    ('sentence that begins with "What"', r"(?:^|[.:;] )What (?![^.?]*\?)", "0.0"),
    ('"those of", "that of"', r"\b(?:those|that) of\b", "0.0 to 0.7"),
    ('"behind"', r"\bbehind\b", "0.0 to 0.4"),
    ('"of its own", "of their own"', r"\bof (?:its|their|his|your) own\b", "0.0 to 0.2"),
    ('"stands"', r"\bstands\b", "0.0"),
    ('"there is none", "is none"', r"\b(?:is|are) none\b", "0.0 to 0.3"),
    ('"of before"', r"\bof before\b", "not counted"),
)
SLASHES = {".h", ".hpp", ".cc", ".c", ".cu", ".cuh", ".rs", ".go", ".def"}
HASHES = {".py", ".sh", ".toml", ".cmake", ".yaml", ".yml"}


def tracked(paths):
    names = subprocess.run(["git", "ls-files", "-z", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.split("\0"):
        generated = ".generated." in name or "/generated/" in name or name.endswith(("trafo-sys/src/bindings.rs", "reference/generated/options.md"))
        if name and not generated and not name.startswith("docs/lab/") and not (ROOT / name).is_symlink():
            yield name


def blocks_of(lines, text_of):
    """Runs of neighbouring lines for which text_of returns a text, as (first line, text)."""
    first, parts = 0, []
    for number, line in enumerate([*lines, None], 1):
        text = None if line is None else text_of(line)
        if text is None:
            if parts:
                yield first, " ".join(parts)
            parts = []
            continue
        if not parts:
            first = number
        parts.append(text)


def slash_comments(source):
    """Blocks of // and /* */ comments. Neighbouring lines are one block."""
    inside = False

    def text_of(line):
        nonlocal inside
        if inside:
            inside = "*/" not in line
            return line.split("*/")[0].strip().lstrip("*").strip()
        match = re.match(r"\s*/\*+(.*)", line)
        if match:
            inside = "*/" not in match.group(1)
            return match.group(1).split("*/")[0].strip()
        match = re.search(r"(?:^|\s)//+[/!<]*\s?(.*)", line)
        return match.group(1).strip() if match else None

    return blocks_of(source.split("\n"), text_of)


def hash_comments(source):
    def text_of(line):
        match = re.match(r"\s*#(?!!)\s?(.*)", line)
        return match.group(1).strip() if match else None

    yield from blocks_of(source.split("\n"), text_of)


def quoted_texts(source, pattern):
    """Docstrings of Python, help texts of the option tables."""
    for match in re.finditer(pattern, source, re.M | re.S):
        yield source.count("\n", 0, match.start()) + 1, " ".join(match.group(1).split())


def document_texts(source):
    """Paragraphs, list items and table rows, without blocks of code."""
    inside = False

    def text_of(line):
        nonlocal inside
        fence = line.lstrip().startswith("```")
        if fence:
            inside = not inside
        return line.strip() if not fence and not inside and line.strip() else None

    return blocks_of(source.split("\n"), text_of)


def texts_of(name):
    """("comments" or "documents", first line, text) of a file."""
    path = ROOT / name
    suffix = path.suffix if path.name != "CMakeLists.txt" else ".cmake"
    if suffix not in SLASHES | HASHES | {".md"}:
        return
    source = path.read_text(encoding="utf-8", errors="replace")
    if suffix == ".md":
        for line, text in document_texts(source):
            yield "documents", line, text
        return
    found = slash_comments(source) if suffix in SLASHES else hash_comments(source)
    for line, text in found:
        yield "comments", line, text
    if suffix == ".py":
        for line, text in quoted_texts(source, r'^\s*"""(.*?)"""'):
            yield "comments", line, text
    if suffix == ".toml":
        for line, text in quoted_texts(source, r'\b(?:doc|help)\s*=\s*"((?:[^"\\]|\\.)*)"'):
            yield "comments", line, text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true", help="print the places as well")
    parser.add_argument("path", nargs="*")
    arguments = parser.parse_args()
    words = {"comments": 0, "documents": 0}
    counts = {kind: [0] * len(TURNS) for kind in words}
    for name in tracked(arguments.path):
        for kind, line, text in texts_of(name):
            words[kind] += len(text.split())
            for index, (turn, pattern, _) in enumerate(TURNS):
                found = len(re.findall(pattern, text))
                counts[kind][index] += found
                if found and arguments.list:
                    print(f"{name}:{line}: {turn}: {text[:200]}")
    if not any(words.values()):
        sys.exit("dialect: no comment and no document in these paths")
    print(f"{'per 10,000 words':36}{'comments':>20}{'documents':>20}   other projects")
    for index, (turn, _, others) in enumerate(TURNS):
        cells = []
        for kind, total in words.items():
            count = counts[kind][index]
            cells.append(f"{1e4 * count / total:.1f} ({count})" if total else "-")
        print(f"{turn:36}{cells[0]:>20}{cells[1]:>20}   {others}")
    print(f"{'words':36}{words['comments']:>20,}{words['documents']:>20,}")


if __name__ == "__main__":
    main()
