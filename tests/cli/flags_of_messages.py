#!/usr/bin/env python3
"""Usage: flags_of_messages.py TRANSLATE_TRAIN SOURCE_FOLDER ...

Checks that every flag in a text of the sources exists: messages tell people what to type. Each must be in the help of a command, be a
flag of another program that is named before it in the same text, or be one of Marian's and fairseq's, which are answered.
"""
import pathlib
import re
import subprocess
import sys

FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
OTHERS = ("cmake", "openssl", "iconv", "gzip", "apt", "pip", "docker", "git", "srun", "sbatch", "mpirun")


def flags_of(program):
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    commands = re.findall(r"^  ([a-z]+(?:-[a-z]+)*) ", text.split("Subcommands:")[1], re.M)
    helps = [subprocess.run([program, command, "--help"], capture_output=True, text=True, check=True).stdout for command in commands]
    return set(FLAG.findall("".join([text, *helps])))


def texts_of(source):
    """(line, text) of the string literals; neighbours are one text."""
    code = re.sub(r"//[^\n]*", lambda match: " " * len(match[0]), source)
    literal = r'"(?:[^"\\\n]|\\.)*"'
    for match in re.finditer(rf"{literal}(?:\s*{literal})*", code):
        yield source.count("\n", 0, match.start()) + 1, "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', match[0]))


def main():
    flags = flags_of(sys.argv[1])
    texts = failed = 0
    for folder in sys.argv[2:]:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            # The rows of foreign_flags.cc are checked by tests/cli/cli_test.cc; generated/settings.cc has flags that no help shows.
            if path.suffix not in (".cc", ".h") or path.name == "foreign_flags.cc" or path.parent.name == "generated":
                continue
            for line, text in texts_of(path.read_text(encoding="utf-8")):
                for match in FLAG.finditer(text):
                    texts += 1
                    if match[0] not in flags and not any(other in text[:match.start()] for other in OTHERS):
                        print(f"{path}:{line}: {match[0]} is no flag: {text[:120]}")
                        failed += 1
    print(f"flags_of_messages: {texts} flags in texts, {failed} that do not exist")
    sys.exit(1 if failed or not texts else 0)


if __name__ == "__main__":
    main()
