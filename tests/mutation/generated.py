"""Generated mutations: small faults that a program makes in the engine's C++, beside the hand-written ones.

    tests/mutation/mutation.py --generated N [--seed S] [--files N] [--folder engine/io] [--jobs N]
                               [--programs NAME...] [--list | --build-only | --no-build] [--resume]

Operators: a relation (< and <=, == and != ...), an operator of arithmetic (+ and -, * and /), a number and its neighbours, a condition
and its opposite, a statement that goes, constants that change places (true and false; two numbers of a function). They apply to the
bodies of functions in engine/**/*.cc and engine/**/*-inl.h, but not to CUDA, the MPI plugin, generated files, messages of errors and what only makes
room in advance (reserve). The same seed and the same sources give the same mutations in the same order, with as many of each operator
as there can be. They lie in --files files, which are drawn from all folders, since every file that has some must be compiled.

The copies of the mutated files (build/mutation/generated/tree) hold both forms of every place of the sample (places.py); they are
compiled once and linked with the other objects of the release build. Mutations that do not compile (a constant expression, an operator that a
type does not have) are left out, and the next of the order takes its place. Then a mutation costs no more than the tests that reach it
(reach.py).

A mutation that no test notices is in survivors.toml with the reason why it changes nothing that a test could see, or it is a failure.
build/mutation/generated.txt has the outcome of every mutation. --build-only: compiles and links. --no-build: takes what was built.
--resume: keeps the outcomes in build/mutation/generated.txt and tries the others.
"""

import concurrent.futures
import functools
import hashlib
import json
import math
import os
import pathlib
import random
import re
import sys
import time
import tomllib

import definitions
import places
import reach

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import relink  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
WORK = ROOT / "build" / "mutation" / "generated"
TREE, LEFT_OUT, REPORT = WORK / "tree", WORK / "left_out.json", ROOT / "build" / "mutation" / "generated.txt"
SURVIVORS = FOLDER / "survivors.toml"
# The suites of faults are left to --long: a minute each.
PROGRAMS = ["unit_tests", "op_tests", "train_tests", "parity_tests", "dist_tests", "c_api_test", "process_test", "cli_tests"]
INCLUDE = '#include "tests/mutation/mutation.h"\n'
RELATIONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/"}
# Calls whose text is a message, or that end in an error: changed words are no fault.
MESSAGES = {"require", "fail", "refuse", "check", "concat", "fail_errno", "static_assert", "TRAFO_OP"}
IN_ADVANCE = {"reserve", "prefetch", "shrink_to_fit"}  # calls that change no result
MANY = 4      # sources that include a header; one that more include is not drawn, since all would be compiled
SPARE = 1.25  # of what is compiled at first, to what is wanted: some does not compile


class Mutation:
    def __init__(self, operator, file, function, number, place, line):
        self.operator, self.file, self.function, self.place, self.line = operator, file, function, place, line
        # The name does not depend on lines: an edit elsewhere in the file leaves it as it is.
        self.name = f"{operator}:{file}:{function}:{number}"

    def __str__(self):
        return f"{self.name} (line {self.line})"


def is_number(token):
    return re.fullmatch(r"\d+", token) is not None


def is_name(token):
    return token[0].isalpha() or token[0] == "_" or token in (">", "*", "&")


def operand_ends(token):
    return token[0].isalnum() or token[0] == "_" or token in (")", "]")


def closing(texts, at, opening, end):
    depth = 0
    for index in range(at, end):
        depth += (texts[index] == opening) - (texts[index] == {"(": ")", "{": "}"}[opening])
        if depth == 0:
            return index
    return end


def left_out(texts, begin, end):
    """Indices of tokens in calls that make messages or room, template arguments and subscripts of types."""
    out, at = set(), begin
    while at < end:
        if texts[at] in MESSAGES | IN_ADVANCE and texts[at + 1:at + 2] == ["("]:
            last = closing(texts, at + 1, "(", end)
            first_comma = next((i for i in range(at + 2, last) if texts[i] == "," and texts[at + 2:i].count("(") == texts[at + 2:i].count(")")), last)
            # The condition of require() counts, the text after it does not.
            out.update(range(first_comma if texts[at] in ("require", "check") else at, last + 1))
            at = last
        elif texts[at] == "<" and at > begin and re.match(r"(static_cast|vector|span|optional|pair|unique_ptr|shared_ptr|array|map|"
                                                         r"function|is_same_v|numeric_limits|[a-z_]+_cast|template)$", texts[at - 1]):
            depth = 0
            for index in range(at, end):
                depth += {"<": 1, ">": -1, ">>": -2}.get(texts[index], 0)
                out.add(index)
                if depth <= 0:
                    break
            at = index
        at += 1
    return out


def is_whole_statement(statement):
    """A call or an assignment; no declaration, which what follows would miss, and whose object would die early."""
    if not statement or any(statement.count(opening) != statement.count(end) for opening, end in places.OPENING.items()):
        return False
    first = statement.index("(") if "(" in statement else len(statement)
    if any(is_name(a) and is_name(b) for a, b in zip(statement[:first], statement[1:first])):
        return False
    is_call = first < len(statement) and statement[-1] == ")" and re.fullmatch(r"[\w:.>\-\[\]]+", "".join(statement[:first]))
    is_assignment = any(word in ("=", "+=", "-=", "*=", "++", "--") for word in statement) and not any(
        is_name(a) and is_name(b) for a, b in zip(statement, statement[1:]))
    return bool(is_call or is_assignment)


def of_function(texts, begin, end):
    """(operator, first token, token after the last, new text) of a body, in the order of the text."""
    body = next((i for i in range(begin, end) if texts[i] == "{"), end)
    skip = left_out(texts, body, end)
    numbers = [i for i in range(body, end) if is_number(texts[i]) and i not in skip]
    for at in range(body + 1, end - 1):
        if at in skip:
            continue
        token, before, after = texts[at], texts[at - 1], texts[at + 1]
        is_bracket = token in "<>" and (before in ("template", "operator") or after in (">", ")") or texts[at:at + 3:2] == ["<", ">"] or
                                        texts[at - 2:at + 1:2] == ["<", ">"])  # of a template argument
        if token in RELATIONS and operand_ends(before) and not is_bracket:
            yield "relation", at, at + 1, RELATIONS[token]
        if token in ARITHMETIC and operand_ends(before) and (operand_ends(after) or after == "(") and before not in (
                "return", "auto", "char", "void", "const", "float", "double", "T"):
            yield "arithmetic", at, at + 1, ARITHMETIC[token]
        if is_number(token):
            neighbours = {str(int(token) + 1)} | ({str(int(token) - 1)} if int(token) > 0 else set())
            for each in sorted(neighbours, key=int, reverse=True):
                yield "neighbour", at, at + 1, each
            others = [i for i in numbers if texts[i] != token]
            if others and texts[others[len(others) // 2]] not in neighbours:
                yield "constants", at, at + 1, texts[others[len(others) // 2]]
        if token in ("true", "false"):
            yield "constants", at, at + 1, "false" if token == "true" else "true"
        if token == "if" and after == "(" and before != "#":
            last = closing(texts, at + 1, "(", end)
            if ";" not in texts[at + 2:last]:
                yield "condition", at + 1, last + 1, None
        # A call or an assignment that is a statement.
        if before in (";", "{", "}") and re.match(r"[A-Za-z_]", token) and token not in (
                "return", "const", "auto", "if", "for", "while", "do", "switch", "case", "default", "break", "continue", "using", "throw",
                "static", "constexpr", "try", "else", "struct", "int", "bool", "float", "double", "size_t", "uint32_t", "int64_t"):
            semicolon = next((i for i in range(at, end) if texts[i] in (";", "{", "}")), end)
            if texts[semicolon:semicolon + 1] == [";"] and not skip.intersection(range(at, semicolon)) and is_whole_statement(
                    texts[at:semicolon]):
                yield "statement", at, semicolon, ""


def place_of(text, tokens, texts, pairs, operator, first, last, new):
    """The part of the text that has two forms; its number comes with the sample."""
    begin, end = tokens[first][1], tokens[last - 1][2]
    if operator in ("statement", "condition"):
        return places.Place(0, operator, begin, end, "")
    outer_first, outer_last = places.expression_around(texts, pairs, first)
    outer_begin, outer_end = tokens[outer_first][1], tokens[outer_last - 1][2]
    return places.Place(0, "expression", outer_begin, outer_end, text[outer_begin:begin] + new + text[end:outer_end])


def sources():
    paths = [*(ROOT / "engine").rglob("*.cc"), *(ROOT / "engine").rglob("*-inl.h")]
    for path in sorted(paths):
        name = str(path.relative_to(ROOT))
        if "generated" in name or "/cuda/" in name or "/dist/mpi/" in name or name.endswith("_cuda.cc"):
            continue
        yield name, path.read_text(encoding="utf-8")


def of_text(file, text):
    """Every mutation of a file, in the order of its text."""
    tokens = definitions.tokens_of(text)
    texts = [token for token, _, _ in tokens]
    pairs = places.partners(texts)
    counts, seen, found = {}, set(), []
    functions = [each for each in definitions.definitions(tokens) if tokens[each[2] - 1][0] == "}"]
    for path, begin, end in sorted(functions, key=lambda each: each[1]):
        function = "::".join(path[1:] if path[:1] == ("trafo",) else path)
        for operator, first, last, new in of_function(texts, begin, end):
            if (operator, first, new) in seen:  # a function in a function
                continue
            seen.add((operator, first, new))
            number = counts[operator, function] = counts.get((operator, function), 0) + 1
            found.append(Mutation(operator, file, function, number, place_of(text, tokens, texts, pairs, operator, first, last, new),
                                  text.count("\n", 0, tokens[first][1]) + 1))
    return found


@functools.cache
def candidates(folders=("",)):
    """Every mutation there is, in the order of files and texts."""
    return [mutation for file, text in sources() if file.startswith(folders) for mutation in of_text(file, text)]


def including(headers):
    """Header -> engine sources that include it, also through others."""
    graph = {str(path.relative_to(ROOT)): set(re.findall(r'"(engine/[^"]+)"', path.read_text(encoding="utf-8")))
             for path in (ROOT / "engine").rglob("*") if path.suffix in (".cc", ".h")}
    found = {header: set() for header in headers}
    for file in graph:
        if file.endswith(".cc"):
            seen, wanted = set(), [file]
            while wanted:
                each = wanted.pop()
                if each not in seen:
                    seen.add(each)
                    wanted.extend(graph.get(each, ()))
            for header in seen & set(headers):
                found[header].add(file)
    return found


def drawn_files(by_file, count, picks):
    """`count` files: of each folder by the square root of how much it has, at least one; in a folder, large ones rather than small ones."""
    folders = {}
    for file in sorted(by_file):
        folders.setdefault(file.split("/")[1], []).append(file)
    sizes = {folder: math.sqrt(sum(len(by_file[file]) for file in files)) for folder, files in folders.items()}
    drawn = []
    for folder, files in folders.items():
        share = max(1, round(count * sizes[folder] / sum(sizes.values())))
        # Weighted, without repetition: the largest of random() ** (1 / weight).
        drawn += sorted(files, key=lambda file: picks.random() ** (1 / len(by_file[file])), reverse=True)[:share]
    return drawn


def ordered(seed, files, folders=("",)):
    """Candidates of this many files in the order of the seed; each place has its position as its number."""
    picks, by_file = random.Random(seed), {}
    for mutation in candidates(folders):
        by_file.setdefault(mutation.file, []).append(mutation)
    for header, sources_of in including([file for file in by_file if file.endswith(".h")]).items():
        if len(sources_of) > MANY:
            del by_file[header]
    queues = {}
    for file in drawn_files(by_file, files, picks):
        groups = {}
        for mutation in by_file[file]:
            groups.setdefault(mutation.operator, []).append(mutation)
        for operator, group in sorted(groups.items()):
            picks.shuffle(group)
            queues.setdefault(operator, []).extend(((at + picks.random()) / math.sqrt(len(group)), mutation) for at, mutation in enumerate(group))
    for queue in queues.values():
        queue.sort(key=lambda each: each[0], reverse=True)
    order = []
    while queues:
        for name in sorted(queues):
            order.append(queues[name].pop()[1])
            if not queues[name]:
                del queues[name]
    for number, mutation in enumerate(order, 1):
        mutation.place.number = number
    return order


def survivors():
    """Name -> why no test can see it."""
    return {each["name"]: each["why"] for each in tomllib.loads(SURVIVORS.read_text(encoding="utf-8")).get("survivor", [])}


class Build:
    """The copies of the files of a sample, without what does not compile."""

    def __init__(self, order, count):
        self.order, self.count = order, count
        self.texts = dict(sources())
        self.sums = {file: hashlib.sha256(text.encode()).hexdigest() for file, text in self.texts.items()}
        self.refused = {}  # file -> names of what does not compile
        if LEFT_OUT.is_file():
            for file, (digest, names) in json.loads(LEFT_OUT.read_text(encoding="utf-8")).items():
                if self.sums.get(file) == digest:
                    self.refused[file] = set(names)
        self.taken = min(len(order), int(count * SPARE) + 1)

    def refuse(self, mutation):
        self.refused.setdefault(mutation.file, set()).add(mutation.name)

    def is_refused(self, mutation):
        return mutation.name in self.refused.get(mutation.file, ())

    def sample(self):
        """The first `count` that compile."""
        return [mutation for mutation in self.order if not self.is_refused(mutation)][:self.count]

    def check_built(self):
        for mutation in self.sample():
            path = TREE / mutation.file
            if not path.is_file() or f"mutated_here({mutation.place.number})" not in path.read_text(encoding="utf-8"):
                sys.exit(f"{mutation} is not in what was built; run it with --build-only")

    def write(self):
        """path -> places.Text of the copies; a file whose text stays the same keeps its time."""
        by_file, copies = {}, {}
        for mutation in self.order[:self.taken]:
            if not self.is_refused(mutation):
                by_file.setdefault(mutation.file, []).append(mutation)
        for file, mutations in by_file.items():
            copy = places.Text(self.texts[file], [mutation.place for mutation in mutations], INCLUDE)
            for mutation in mutations:
                if mutation.place in copy.left_out:
                    self.refuse(mutation)
            copies[str(TREE / file)] = copy
        for path in [path for path in TREE.rglob("*") if path.is_file() and str(path) not in copies]:
            path.unlink()
        for name, copy in copies.items():
            path = pathlib.Path(name)
            if not path.is_file() or path.read_text(encoding="utf-8") != copy.text:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(copy.text, encoding="utf-8")
        saved = {file: [self.sums[file], sorted(names)] for file, names in sorted(self.refused.items())}
        LEFT_OUT.write_text(json.dumps(saved, indent=1), encoding="utf-8")
        return copies

    def in_files_of(self, messages):
        """The places of all mutations in the files that errors name: an error inside a template may name the line of another mutation."""
        named = {str(pathlib.Path(path).relative_to(TREE)) for path in re.findall(rf"^({re.escape(str(TREE))}/[^:]+):\d+:\d+: error", messages, re.M)}
        return {each.place for each in self.order[:self.taken] if each.file in named}

    def compile(self, jobs):
        """Object -> its new path, of all that the copies are part of."""
        commands = {name: each for name, each in relink.compile_commands().items() if any(f"{target}.dir" in name for target in ("trafo_engine", "trafo_tcp", "trafo_mpi"))}
        numbered = {mutation.place: mutation for mutation in self.order}
        while True:
            copies = self.write()
            changed = [str(pathlib.Path(path).relative_to(TREE)) for path in copies]
            wanted = set().union(*including(changed).values())
            names = [name for name, (_, source) in commands.items() if source in wanted]
            if not names:
                sys.exit(f"no object of the release build is made of {', '.join(changed)}")
            done = 0

            def compiled(name):
                nonlocal done
                words, source = commands[name]
                try:
                    return relink.compile_object(words, source, WORK / "objects", TREE, ["-O1"])
                except relink.CompileError as error:
                    return error
                finally:
                    done += 1
                    if done % 10 == 0:
                        print(f"compiled {done} of {len(names)}", flush=True)

            with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
                objects = dict(zip(names, pool.map(compiled, names)))
            errors = {name: each for name, each in objects.items() if isinstance(each, relink.CompileError)}
            for name, error in errors.items():
                blamed = places.blamed(error.messages, copies) or self.in_files_of(error.messages)
                if not blamed:
                    sys.exit(f"{name} does not compile, and no mutation explains it:\n{error.messages[:4000]}")
                for place in blamed:
                    self.refuse(numbered[place])
            print(f"{len(names) - len(errors)} of {len(names)} objects compile with their mutations", flush=True)
            missing = self.count - sum(not self.is_refused(mutation) for mutation in self.order[:self.taken])
            if not errors and (missing <= 0 or self.taken == len(self.order)):
                self.write()
                return objects
            if not errors:
                self.taken = min(len(self.order), self.taken + int(missing * SPARE) + 1)


def build(sample, jobs, programs):
    """Compiles the copies and links the programs with them."""
    relink.build_release(jobs, wanted=programs)  # first: it makes an object of each file
    objects = sample.compile(jobs)
    relink.link_all(objects, WORK, [], wanted=programs)


def finished(resume):
    """Name -> line of the report, of an earlier run that is continued."""
    if not resume or not REPORT.is_file():
        return {}
    return {line.split(" (line ")[0]: line for line in REPORT.read_text(encoding="utf-8").splitlines() if " (line " in line}


def described(mutation, outcome, noticed, reaching, explained):
    if outcome == reach.CAUGHT:
        return f"{mutation}: caught by {noticed}"
    if outcome == reach.UNDECIDED:
        return f"{mutation}: UNDECIDED: {noticed}, and without the mutation as well"
    if mutation.name in explained:
        return f"{mutation}: explained: {explained[mutation.name]}"
    return f"{mutation}: SURVIVED {reaching} tests that reach it"


def kind_of(line):
    return re.match(r"\S.*? \(line \d+\): (\w+)", line)[1].lower()


def run(options):
    """Exit status of the command."""
    folders = tuple(options.folder)
    order = ordered(options.seed, options.files, folders)
    if options.list:
        print("\n".join(map(str, order[:options.generated])))
        print(f"{len(candidates(folders))} mutations can be made; these are the first {options.generated} of seed {options.seed}")
        return 0
    WORK.mkdir(parents=True, exist_ok=True)
    sample = Build(order, options.generated)
    if not options.no_build:
        build(sample, options.jobs, options.programs)
        if options.build_only:
            return 0
    sample.check_built()
    begin = time.monotonic()
    tests = reach.record(WORK, len(order), options.jobs, options.programs)
    print(f"{len(tests)} tests, which reach {len(set().union(*(test.reached for test in tests)))} places, in "
          f"{time.monotonic() - begin:.0f} s", flush=True)
    trials, explained, earlier = reach.Trials(tests, WORK), survivors(), finished(options.resume)
    suites = {folder: reach.suites_of(folder) for folder in {mutation.file.split("/")[1] for mutation in sample.sample()}}

    def attempt(mutation):
        line = earlier.get(mutation.name)
        if line and kind_of(line) == reach.CAUGHT:
            return line
        return described(mutation, *trials.attempt(mutation.place.number, suites[mutation.file.split("/")[1]]), explained)

    counts, lines = {reach.CAUGHT: 0, reach.SURVIVED: 0, "explained": 0, reach.UNDECIDED: 0}, set()
    begin = time.monotonic()
    with REPORT.open("a" if options.resume else "w", encoding="utf-8") as report, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for future in concurrent.futures.as_completed([pool.submit(attempt, mutation) for mutation in sample.sample()]):
            line = future.result()
            counts[kind_of(line)] += 1
            lines.add(line)
            if line not in earlier.values():
                print(line, flush=True)
                report.write(line + "\n")
                report.flush()
    REPORT.write_text("".join(line + "\n" for line in sorted(lines)), encoding="utf-8")
    failed = counts[reach.SURVIVED] + counts[reach.UNDECIDED]
    print(f"{', '.join(f'{number} {kind}' for kind, number in counts.items())}, in {time.monotonic() - begin:.0f} s")
    print(f"suite: generated_mutations  tried: {sum(counts.values())}  failed: {failed}")
    return 1 if failed else 0
