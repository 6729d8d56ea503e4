#!/usr/bin/env python3
"""Usage: flags_of_docs.py TRANSLATE_TRAIN DOCUMENT ...

Checks that every flag which a document gives to translate-train exists: all flags in the third column of tables whose third heading
names translate-train, and all flags of lines in code blocks that call it.
"""
import re
import subprocess
import sys

COMMANDS = ("train", "vocab", "translate", "score", "eval", "average", "info", "report", "plan", "export", "import", "demo")
FLAG = re.compile(r"--[a-z][a-z0-9-]*")


def flags_of(program, command):
    text = subprocess.run([program, command, "--help"], capture_output=True, text=True, check=True).stdout
    return set(FLAG.findall(text))


def mentions(text):
    """(command, flag) pairs; a command that is not named is train."""
    for block in re.findall(r"```(?:sh|bash)?\n(.*?)```", text, re.S):
        for line in block.replace("\\\n", " ").split("\n"):
            call = re.search(r"translate-train +([a-z]+)", line)
            if call:
                for flag in FLAG.findall(re.split(r"[|#]", line[call.start():])[0]):
                    yield call.group(1), flag
    heading = None
    for line in text.split("\n"):
        if not line.startswith("|"):
            heading = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if heading is None:
            heading = cells
        elif len(heading) > 2 and "translate-train" in heading[2]:
            command = heading[2].strip("`").split()[1]
            for quoted in re.findall(r"`([^`]*)`", cells[2]):
                words = quoted.split()
                if words and words[0] in COMMANDS:
                    continue
                for flag in FLAG.findall(quoted):
                    yield command, flag


def main():
    program, documents = sys.argv[1], sys.argv[2:]
    if not documents:
        sys.exit(__doc__)
    known = {}
    failures = checked = 0
    for document in documents:
        with open(document, encoding="utf-8") as file:
            for command, flag in mentions(file.read()):
                if command not in COMMANDS:
                    continue
                if command not in known:
                    known[command] = flags_of(program, command)
                checked += 1
                if flag not in known[command]:
                    failures += 1
                    print(f"{document}: translate-train {command} has no {flag}")
    print(f"{checked} flags of {len(documents)} documents, {failures} unknown")
    sys.exit(1 if failures or checked == 0 else 0)


if __name__ == "__main__":
    main()
