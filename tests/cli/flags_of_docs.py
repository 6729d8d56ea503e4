#!/usr/bin/env python3
"""Usage: flags_of_docs.py TRANSLATE_TRAIN DOCUMENT ...

Checks that every command and flag which a document gives to translate-train exists: in lines of code blocks that call it, and in
tables of flags. Where a table has columns of Marian and fairseq, the program must accept their flags or answer them, too.
"""
import re
import subprocess
import sys

FLAG = re.compile(r"--[a-z][a-z0-9-]*")


def flags_of(program, command):
    text = subprocess.run([program, command, "--help"], capture_output=True, text=True, check=True).stdout
    return set(FLAG.findall(text))


def commands_of(program):
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  ([a-z]+(?:-[a-z]+)*) ", text.split("Subcommands:")[1], re.M))


def code_lines(text):
    """Lines of fenced blocks of shell and of blocks that are set in by four blanks."""
    fence = None
    for line in text.replace("\\\n", " ").split("\n"):
        if line.startswith("```"):
            fence = None if fence is not None else line[3:].strip()
        elif fence in ("", "sh", "bash"):
            yield line
        elif fence is None and line.startswith("    "):
            yield line


def mentions(text, default):
    """(command, flag) pairs; flag is None where a command is called without any. Tables: the column whose heading names
    translate-train, or a first column "flag", which is of the command `default`."""
    for line in code_lines(text):
        for call in re.finditer(r"translate-train +([a-z]+(?:-[a-z]+)*)([^|#;&)]*)", line):
            yield call.group(1), None
            for flag in FLAG.findall(call.group(2)):
                yield call.group(1), flag
    heading = None
    for line in text.split("\n"):
        if not line.startswith("|"):
            heading = None
            continue
        cells = [cell.strip() for cell in line.replace("\\|", "/").strip("|").split("|")]
        if heading is None:
            heading = cells
            continue
        if len(heading) > 2 and "translate-train" in heading[2]:
            command, cell = heading[2].strip("`").split()[1], cells[2]
        elif heading[0] == "flag":
            command, cell = default, cells[0]
        else:
            continue
        for quoted in re.findall(r"`([^`]*)`", cell):
            if not re.match(r"[a-z]", quoted):  # another command's
                for flag in FLAG.findall(quoted):
                    yield command, flag


def foreign_mentions(text):
    """(command, flag) of the columns of other programs beside one whose heading names translate-train."""
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
            for flag in FLAG.findall(" ".join(re.findall(r"`([^`]*)`", cells[0] + " " + cells[1]))):
                yield command, flag


def is_answered(program, command, flag):
    """It names the flag of the same purpose, or says why it has no such flag."""
    error = subprocess.run([program, command, flag], capture_output=True, text=True, check=False).stderr
    return f"error: no flag {flag}: " in error


def main():
    program, documents = sys.argv[1], sys.argv[2:]
    if not documents:
        sys.exit(__doc__)
    commands = commands_of(program)
    known = {}
    failures = checked = foreign = 0
    for document in documents:
        default = next((name for page, name in (("translating.md", "translate"), ("generating.md", "generate")) if document.endswith(page)), "train")
        with open(document, encoding="utf-8") as file:
            text = file.read()
        for command, flag in foreign_mentions(text):
            foreign += 1
            if command not in known:
                known[command] = flags_of(program, command)
            if flag not in known[command] and not is_answered(program, command, flag):
                failures += 1
                print(f"{document}: translate-train {command} does not answer {flag}")
        for command, flag in mentions(text, default):
            checked += 1
            if command not in commands:
                failures += 1
                print(f"{document}: translate-train has no {command}")
                continue
            if command not in known:
                known[command] = flags_of(program, command)
            if flag is not None and flag not in known[command]:
                failures += 1
                print(f"{document}: translate-train {command} has no {flag}")
    print(f"{checked} calls and flags, and {foreign} flags of other programs, of {len(documents)} documents, {failures} unknown")
    sys.exit(1 if failures or checked == 0 or foreign == 0 else 0)


if __name__ == "__main__":
    main()
