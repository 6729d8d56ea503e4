#!/usr/bin/env python3
"""Suite 9, mutation tests: one place of the engine is made wrong at a time, and the tests must notice every one.

    tests/mutation/mutation.py [--long] [--only ID...] [--jobs N]
    tests/mutation/mutation.py --generated N [--seed S] [...]   (generated.py says more)

The tables in tests/mutation/mutations have for each mutation
  id, kind     its name and the sort of error it is
  function     where it is: the qualified name of a function (or variable, or class), as far as it is needed: "Batcher::seek"
  right        text that occurs exactly once in the definitions of that name
  expression   the part of `right` that the mutation changes (default: all of it); once in `right`
  wrong        what the mutation puts there. A part that ends in ";" is a statement, any other an expression
  constant     true where the right text is in a constant expression, which the copy makes an ordinary one
  tests        the tests that must notice: BINARY, BINARY:GTEST_FILTER or save_faults:PART; if they do not, all binaries run

Texts are compared token by token in all sources under engine/ and capi/: a mutation survives if its function moves to another file,
or if lines are formatted in another way.

The copies of the mutated files (build/mutation/tree) have both forms of every place and ask an environment variable which one to
take (mutated_here in mutation.h). They are compiled once and linked with the other objects of the release build. The sources hold no
trace of it.

Short form: every entry still matches exactly one place, both forms are whole expressions or statements, it names tests that there are (of
what has been built), and a few mutations run if the copy has been built. --long: builds the copies,
runs the tests without a mutation, which must pass, and then with each. build/mutation/report.txt says which test noticed what.
"""

import argparse
import concurrent.futures
import os
import pathlib
import sys
import time
import tomllib

import definitions
import generated
import places
import programs
from programs import BINARIES

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import relink  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
WORK = ROOT / "build" / "mutation"
TREE, REPORT = WORK / "tree", WORK / "report.txt"
HANDFUL = 5
INCLUDE = '#include "tests/mutation/mutation.h"\n'
SOURCES = ("engine", "capi")
SIGNS = {"+", "-", "*", "&"}  # of one operand or of two
NO_END = places.DELIMITERS | generated.RELATIONS.keys() | {"/", "%", "|", "^", "<<", ">>", ".", "->"} | SIGNS
NO_BEGIN = (NO_END - SIGNS) | places.KEYWORDS | places.CONTROL


class Sources:
    """The sources that mutations are looked for in. A file is taken apart when a name that it contains is asked for."""

    def __init__(self):
        paths = [path for folder in SOURCES for path in (ROOT / folder).rglob("*") if path.suffix in (".cc", ".h")]
        self.texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted(paths)}
        self.parsed = {}

    def parse(self, file):
        if file not in self.parsed:
            tokens = definitions.tokens_of(self.texts[file])
            self.parsed[file] = tokens, definitions.definitions(tokens)
        return self.parsed[file]

    def find(self, name, wanted):
        """Places (file, first token, token after the last) of `wanted` in definitions of `name`; whether there is such a definition."""
        parts, places, defined = tuple(name.split("::")), set(), False
        word = parts[-1].removeprefix("~") if "operator" not in parts[-1] else "operator"
        for file, text in self.texts.items():
            if word not in text:
                continue
            tokens, found = self.parse(file)
            for path, begin, end in found:
                if path[-len(parts):] == parts:
                    defined = True
                    body = [token for token, _, _ in tokens[begin:end]]
                    places.update((file, begin + at, begin + at + len(wanted)) for at in definitions.occurrences(body, wanted))
        return sorted(places), defined

    def line(self, file, token):
        return self.texts[file].count("\n", 0, self.parse(file)[0][token][1]) + 1


def read_mutations():
    mutations = []
    for table in sorted((FOLDER / "mutations").glob("*.toml")):
        for mutation in tomllib.loads(table.read_text(encoding="utf-8"))["mutation"]:
            unknown = set(mutation) - {"id", "kind", "function", "right", "expression", "wrong", "constant", "tests"}
            if unknown:
                sys.exit(f"{table.name}: {mutation.get('id')} has unknown fields {sorted(unknown)}")
            mutations.append(mutation)
    names = [mutation["id"] for mutation in mutations]
    for name in names:
        if names.count(name) > 1:
            sys.exit(f"there are two mutations named {name}")
    for number, mutation in enumerate(mutations, 1):
        mutation["number"] = number
    return mutations


def locate(mutation, sources):
    """Sets file, begin and end of the part that changes; a message if there is no such place or more than one."""
    name, right = mutation["function"], words_of(mutation["right"])
    part = words_of(mutation.get("expression", mutation["right"]))
    for entry in mutation["tests"]:
        if entry.split(":")[0] not in BINARIES:
            return f"there is no test binary {entry}"
        if not programs.names_a_test(entry):
            return f"{entry} names no test"
    places, defined = sources.find(name, right)
    if not defined:
        return f"nothing named {name} is defined under {' or '.join(SOURCES)}"
    if len(places) != 1:
        lines = ", ".join(f"{file}:{sources.line(file, first)}" for file, first, _ in places)
        return f"`right` occurs {len(places)} times in {name}{': ' + lines if lines else ''}"
    starts = definitions.occurrences(right, part)
    if len(starts) != 1:
        return f"`expression` occurs {len(starts)} times in `right`"
    file, first, _ = places[0]
    tokens = sources.parse(file)[0]
    first += starts[0]
    if message := misshapen(part, words_of(mutation["wrong"]), tokens[first - 1][0]):
        return message
    mutation.update(file=file, begin=tokens[first][1], end=tokens[first + len(part) - 1][2])
    return None


NO_TYPE = places.KEYWORDS | places.CONTROL | {"new", "sizeof"}


def declares(part):
    """Whether statements declare an object: one that later text names, or one that works by its destructor."""
    for type_end, name, after in zip(part, part[1:], part[2:]):
        of_word = definitions.is_word(type_end) and type_end not in NO_TYPE and after in ("=", ";", "(", "{")
        of_template = type_end == ">" and (after == "=" or part[0] == "const" and after in (";", "(", "{"))
        if definitions.is_word(name) and (of_word or of_template):
            return True
    return False


def misshapen(part, wrong, before):
    """A message if both_forms() of these tokens, after the token `before`, cannot compile."""
    is_statement = part[-1] == ";"
    is_two_sided = generated.operand_ends(before) and before not in places.KEYWORDS  # a sign that follows
    if is_statement and before not in (";", "{", "}", ")", ":", "else", "do"):
        return "the changed part ends a statement and does not begin one"
    if is_statement and declares(part):
        return "the changed part declares an object, which would end with the braces of its form"
    for name, tokens in (("the changed part", part), ("`wrong`", wrong)):
        brackets = [at for at, token in enumerate(tokens) if token in places.OPENING or token in places.CLOSING]
        if sorted(places.partners(tokens)) != brackets:
            return f"the brackets of {name} do not match"
        outside = [token for _, token in definitions.top_level(tokens)]
        if is_statement:
            if tokens and tokens[-1] not in (";", "}"):
                return f"{name} is no whole statement"
        elif (not tokens or tokens[0] in NO_BEGIN or tokens[-1] in NO_END or tokens[0] in SIGNS and is_two_sided
              or {",", ";"}.intersection(outside) or outside.count(":") != outside.count("?")):
            return f"{name} is no whole expression"
    return None


def words_of(text):
    return [token for token, _, _ in definitions.tokens_of(text)]


def locate_all(mutations, sources):
    """(mutation, message) of mutations without a unique place."""
    messages = [(mutation, message) for mutation in mutations if (message := locate(mutation, sources))]
    placed = sorted((mutation for mutation in mutations if "file" in mutation), key=lambda each: (each["file"], each["begin"]))
    for first, second in zip(placed, placed[1:]):
        if second["file"] == first["file"] and second["begin"] < first["end"]:
            messages.append((second, f"overlaps {first['id']}"))
    return messages


def both_forms(mutation, part):
    number, wrong = mutation["number"], mutation["wrong"]
    if part.rstrip().endswith(";"):
        return f"if (trafo::mutated_here({number})) {{ {wrong} }} else {{ {part} }}"
    return f"(trafo::mutated_here({number}) ? ({wrong}) : ({part}))"


def without_constexpr(text, begin):
    """The constant expression that the place at `begin` belongs to as an ordinary one."""
    at = text.rindex("constexpr", 0, begin)
    return text[:at] + "const    " + text[at + len("constexpr"):]  # the same length


def mutated_files(mutations, sources):
    """Of every file with a mutation, its text with both forms of each."""
    texts = {mutation["file"]: sources.texts[mutation["file"]] for mutation in mutations}
    for mutation in sorted(mutations, key=lambda each: each["begin"], reverse=True):
        text, begin, end = texts[mutation["file"]], mutation["begin"], mutation["end"]
        if mutation.get("constant"):
            text = without_constexpr(text, begin)
        texts[mutation["file"]] = text[:begin] + both_forms(mutation, text[begin:end]) + text[end:]
    for file, text in texts.items():
        # A header keeps its guard in front.
        guarded = "#pragma once\n" in text
        texts[file] = text.replace("#pragma once\n", "#pragma once\n" + INCLUDE, 1) if guarded else INCLUDE + text
    return texts


def write_tree(wanted):
    """The mutated files. One whose text stays the same keeps its time, so that building again is quick."""
    for path in list(TREE.rglob("*")):
        if path.is_file() and str(path.relative_to(TREE)) not in wanted:
            path.unlink()
    for name, content in wanted.items():
        path = TREE / name
        if not path.is_file() or path.read_text(encoding="utf-8") != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")


def build(jobs):
    """Compiles what the changed files are part of, and links it with the other objects of the release build."""
    relink.build_release(jobs)
    changed = {str(path.relative_to(TREE)) for path in TREE.rglob("*") if path.is_file()}
    linked = ("engine/", "capi/", "tests/")
    relink.relink(lambda source, files: source.startswith(linked) and bool(files & changed), WORK, jobs, copies=TREE,
                  compile_flags=["-O1"])


def is_built(mutation, wanted):
    """Whether the copy has this mutation, under its number, in the file as it is now."""
    path = TREE / mutation["file"]
    return path.is_file() and path.read_text(encoding="utf-8") == wanted[mutation["file"]]


def run_tests(entry, number):
    """None if they pass, else what noticed."""
    return programs.run_entry(entry, WORK, {"TRAFO_MUTATION": str(number)}).failure(entry.partition(":")[0])


def run_one(mutation, wide):
    """(the test that noticed the mutation or None, whether the mutation's row names this test)."""
    for entry in mutation["tests"]:
        caught = run_tests(entry, mutation["number"])
        if caught:
            return caught, True
    for binary in BINARIES if wide else []:
        if binary not in mutation["tests"]:
            caught = run_tests(binary, mutation["number"])
            if caught:
                return caught, False
    return None, False


def run_all(mutations, jobs, wide):
    """How many mutations survive. `wide`: all binaries run, else only the tests of each mutation."""
    survived, lines = [], {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(run_one, mutation, wide): mutation["id"] for mutation in mutations}
        kinds = {mutation["id"]: mutation["kind"] for mutation in mutations}
        for done in concurrent.futures.as_completed(running):
            (caught, own), name = done.result(), running[done]
            outcome = "SURVIVED" if caught is None else f"caught by {caught}" + ("" if own else ", not by its own tests")
            lines[name] = f"{name} ({kinds[name]}): {outcome}"
            print(lines[name], flush=True)
            if caught is None:
                survived.append(name)
    REPORT.write_text("".join(lines[mutation["id"]] + "\n" for mutation in mutations), encoding="utf-8")
    return len(survived)


def main():
    parser = argparse.ArgumentParser(description="Mutation tests: do the tests notice a wrong engine?")
    parser.add_argument("--long", action="store_true", help="build the copy and run every mutation")
    parser.add_argument("--only", nargs="+", metavar="ID", help="only these mutations")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--no-build", action="store_true", help="take the copy as it was built; with --long, TRAFO_PREBUILT=1 does too")
    parser.add_argument("--quick", action="store_true", help="with --long: only each mutation's own tests, no run without a mutation")
    parser.add_argument("--generated", type=int, metavar="N", help="N mutations that generated.py makes, instead of those of the tables")
    parser.add_argument("--seed", type=int, default=1, help="of --generated")
    parser.add_argument("--files", type=int, default=60, metavar="N", help="of --generated: from about this many files")
    parser.add_argument("--folder", nargs="+", default=["engine/"], metavar="PATH", help="of --generated: only files whose path begins so")
    parser.add_argument("--programs", nargs="+", choices=generated.PROGRAMS, default=generated.PROGRAMS, metavar="NAME",
                        help="of --generated: only their tests, for a quick look at the code that they test")
    parser.add_argument("--list", action="store_true", help="of --generated: say which they are and run none")
    parser.add_argument("--build-only", action="store_true", help="of --generated: compile and link, run none")
    parser.add_argument("--resume", action="store_true", help="of --generated: keep what an earlier run caught")
    options = parser.parse_args()
    if options.generated:
        sys.exit(generated.run(options))
    mutations, sources = read_mutations(), Sources()
    messages = locate_all(mutations, sources)
    for mutation, message in messages:
        print(f"{mutation['id']}: {message}")
    tried, failed = len(mutations), len(messages)
    if not messages:
        files = mutated_files(mutations, sources)
        wanted = [mutation for mutation in mutations if not options.only or mutation["id"] in options.only]
        if options.long:
            if not options.no_build and os.environ.get("TRAFO_PREBUILT") != "1":
                write_tree(files)
                build(options.jobs)
            begin = time.monotonic()
            binaries = [] if options.quick else list(BINARIES)
            with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
                for binary, caught in zip(binaries, pool.map(lambda binary: run_tests(binary, 0), binaries)):
                    if caught:
                        sys.exit(f"without a mutation: {caught}")
                    print(f"{binary} passes without a mutation, {time.monotonic() - begin:.0f} s", flush=True)
            tried, failed = len(wanted), run_all(wanted, options.jobs, not options.quick)
        elif (WORK / "libtrafo.so.0").exists():
            wanted = [mutation for mutation in wanted if is_built(mutation, files)]
            failed = run_all(wanted[:: max(1, len(wanted) // HANDFUL)][:HANDFUL], options.jobs, False)
    print(f"suite: mutation  tried: {tried}  failed: {failed}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
