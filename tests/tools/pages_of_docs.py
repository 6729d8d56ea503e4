#!/usr/bin/env python3
"""The documents: every link inside the project leads to a file and a heading, no guide page is longer than 150 lines, and README.md links
to every page that is not in docs/lab.

    tests/tools/pages_of_docs.py
"""
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("docs", "engine", "schema", "capi", "bindings")
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]*))?\)")
MOST_LINES = 150


def pages():
    yield from sorted(ROOT.glob("*.md"))
    for folder in FOLDERS:
        yield from (page for page in sorted((ROOT / folder).rglob("*.md")) if "target" not in page.parts)


def anchor_of(heading):
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page):
    inside = False
    for line in page.read_text(encoding="utf-8").split("\n"):
        if line.startswith("```"):
            inside = not inside
        elif not inside and re.match(r"#+ ", line):
            yield anchor_of(line.lstrip("#"))


def main():
    problems, links, linked = [], 0, set()
    for page in pages():
        name = page.relative_to(ROOT)
        text = page.read_text(encoding="utf-8")
        if name.parts[:2] == ("docs", "guide") and text.count("\n") > MOST_LINES:
            problems.append(f"{name} has {text.count(chr(10))} lines, a guide page has at most {MOST_LINES}")
        for target, anchor in LINK.findall(text):
            if "://" in target:
                continue
            links += 1
            found = pathlib.Path(os.path.normpath(page.parent / target)) if target else page
            if not found.exists():
                problems.append(f"{name}: there is no {target}")
            elif anchor and found.suffix == ".md" and anchor not in anchors(found):
                problems.append(f"{name}: {target or name} has no heading #{anchor}")
            if name.name == "README.md" and page.parent == ROOT:
                linked.add(found)
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if "lab" not in page.relative_to(ROOT).parts and page not in linked:
            problems.append(f"README.md has no link to {page.relative_to(ROOT)}")
    print("\n".join(problems) or f"pages_of_docs: {links} links ok")
    return bool(problems) or links == 0


if __name__ == "__main__":
    sys.exit(main())
