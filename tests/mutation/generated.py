"""Generated mutations: small faults that a program makes in the engine's C++, beside the hand-written ones.

    tests/mutation/mutation.py --generated N [--seed S] [--list] [--folder engine/io] [--jobs N]

Operators: a relation (< and <=, == and != ...), an operator of arithmetic (+ and -, * and /), a number and its neighbours, a condition
and its opposite, a statement that goes, constants that change places (true and false; two numbers of a function). They apply to the
bodies of functions in engine/**/*.cc, but not to CUDA, generated files and messages of errors. The same seed and the same sources give
the same mutations in the same order.

Each mutation is one object compiled anew and one test program linked anew. The tests of the folder that belongs to the file run first,
then the other tests of that program, then the other programs. A mutation that no test notices is in survivors.toml with the reason why
it changes nothing that a test could see, or it is a failure. build/mutation/generated.txt has the outcome of every mutation.
"""

import concurrent.futures
import functools
import hashlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib

import definitions

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import relink  # noqa: E402

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
WORK = ROOT / "build" / "mutation" / "generated"
REPORT = ROOT / "build" / "mutation" / "generated.txt"
SURVIVORS = FOLDER / "survivors.toml"
# As tests/CMakeLists.txt has them.
PROGRAMS = {
    "tests/unit_tests": ["core", "memory", "backend", "autograd", "runtime", "optim", "tokenizer", "data", "metrics", "io"],
    "tests/op_tests": ["ops"],
    "tests/train_tests": ["nn", "models", "decode", "train", "interop"],
}
RELATIONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/"}
# Calls whose text is a message, or that end in an error: changed words are no fault.
MESSAGES = {"require", "fail", "refuse", "check", "concat", "fail_errno", "static_assert", "TRAFO_OP"}
SECONDS, MEMORY_KIB = 300, 256 << 20  # address space: the meta device reserves much and uses none


class Mutation:
    def __init__(self, operator, file, function, number, begin, end, text, line):
        self.operator, self.file, self.function, self.begin, self.end, self.text, self.line = operator, file, function, begin, end, text, line
        # The name does not depend on lines: an edit elsewhere in the file leaves it as it is.
        self.name = f"{operator}:{file}:{function}:{number}"

    def __str__(self):
        return f"{self.name} (line {self.line})"


def is_number(token):
    return re.fullmatch(r"\d+", token) is not None


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
    """Indices of tokens in calls that make messages, template arguments and subscripts of types."""
    out, at = set(), begin
    while at < end:
        if texts[at] in MESSAGES and texts[at + 1:at + 2] == ["("]:
            last = closing(texts, at + 1, "(", end)
            first_comma = next((i for i in range(at + 2, last) if texts[i] == "," and texts[at + 2:i].count("(") == texts[at + 2:i].count(")")), last)
            # The condition of require() counts, what comes behind it does not.
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


def of_function(tokens, begin, end):
    """(operator, first token, token behind the last, new text) of a body, in the order of the text."""
    texts = [token for token, _, _ in tokens]
    body = next((i for i in range(begin, end) if texts[i] == "{"), end)
    skip = left_out(texts, body, end)
    numbers = [i for i in range(body, end) if is_number(texts[i]) and i not in skip]
    for at in range(body + 1, end - 1):
        if at in skip:
            continue
        token, before, after = texts[at], texts[at - 1], texts[at + 1]
        if token in RELATIONS and operand_ends(before) and not (token in "<>" and (before in ("template", "operator") or after in (">", ")"))):
            yield "relation", at, at + 1, RELATIONS[token]
        if token in ARITHMETIC and operand_ends(before) and (operand_ends(after) or after == "(") and before not in (
                "return", "auto", "char", "void", "const", "float", "double", "T"):
            yield "arithmetic", at, at + 1, ARITHMETIC[token]
        if is_number(token):
            yield "neighbour", at, at + 1, str(int(token) + 1)
            if int(token) > 0:
                yield "neighbour", at, at + 1, str(int(token) - 1)
            others = [i for i in numbers if texts[i] != token]
            if others:
                yield "constants", at, at + 1, texts[others[len(others) // 2]]
        if token in ("true", "false"):
            yield "constants", at, at + 1, "false" if token == "true" else "true"
        if token == "if" and after == "(" and before != "#":
            last = closing(texts, at + 1, "(", end)
            if ";" not in texts[at + 2:last]:
                yield "condition", at + 1, last + 1, None
        # A call or an assignment that stands alone.
        if before in (";", "{", "}") and re.match(r"[A-Za-z_]", token) and token not in (
                "return", "const", "auto", "if", "for", "while", "do", "switch", "case", "default", "break", "continue", "using", "throw",
                "static", "constexpr", "try", "else", "struct", "int", "bool", "float", "double", "size_t", "uint32_t", "int64_t"):
            semicolon = next((i for i in range(at, end) if texts[i] in (";", "{", "}")), end)
            statement = texts[at:semicolon]
            is_call = "(" in statement and statement[-1] == ")" and re.fullmatch(r"[\w:.>\-\[\]]+\(?", "".join(statement[:statement.index("(") + 1]))
            is_assignment = any(word in ("=", "+=", "-=", "*=", "++", "--") for word in statement) and not any(
                is_name(a) and is_name(b) for a, b in zip(statement, statement[1:]))
            if texts[semicolon:semicolon + 1] == [";"] and (is_call or is_assignment) and not skip.intersection(range(at, semicolon)):
                yield "statement", at, semicolon, ""


def is_name(token):
    return token[0].isalpha() or token[0] == "_" or token in (">", "*", "&")


def sources():
    for path in sorted((ROOT / "engine").rglob("*.cc")):
        name = str(path.relative_to(ROOT))
        if "generated" in name or "/cuda/" in name or name.endswith("_cuda.cc"):
            continue
        yield name, path.read_text(encoding="utf-8")


@functools.cache
def candidates(folder=""):
    """Every mutation there is, in the order of files and texts."""
    found = []
    for file, text in sources():
        if not file.startswith(folder):
            continue
        tokens = definitions.tokens_of(text)
        counts, seen = {}, set()
        functions = [each for each in definitions.definitions(tokens) if tokens[each[2] - 1][0] == "}"]
        for path, begin, end in sorted(functions, key=lambda each: each[1]):
            function = "::".join(path[1:] if path[:1] == ("trafo",) else path)
            for operator, first, last, new in of_function(tokens, begin, end):
                place = (operator, first, new)
                if place in seen:  # a function in a function
                    continue
                seen.add(place)
                number = counts[operator, function] = counts.get((operator, function), 0) + 1
                at, behind = tokens[first][1], tokens[last - 1][2]
                replacement = f"(!{text[at:behind]})" if new is None else new
                found.append(Mutation(operator, file, function, number, at, behind, replacement, text.count("\n", 0, at) + 1))
    return found


def chosen(count, seed, folder=""):
    """A sample with as many of each operator as there can be."""
    groups = {}
    for mutation in candidates(folder):
        groups.setdefault(mutation.operator, []).append(mutation)
    picks = random.Random(seed)
    for name in sorted(groups):
        picks.shuffle(groups[name])
    sample = []
    while len(sample) < count and any(groups.values()):
        for name in sorted(groups):
            if groups[name] and len(sample) < count:
                sample.append(groups[name].pop())
    return sample


def survivors():
    """Name -> why no test can see it."""
    if not SURVIVORS.is_file():
        return {}
    return {each["name"]: each["why"] for each in tomllib.loads(SURVIVORS.read_text(encoding="utf-8")).get("survivor", [])}


def suites_of(folder):
    """A filter of Google Test for the tests in tests/FOLDER."""
    names = set()
    for path in (ROOT / "tests" / folder).glob("*.cc"):
        names.update(re.findall(r"^TEST(?:_[FP])?\(\s*(\w+)", path.read_text(encoding="utf-8"), re.M))
        names.update("*/" + name for name in re.findall(r"^TEST_P\(\s*(\w+)", path.read_text(encoding="utf-8"), re.M))
    return ":".join(f"{name}.*" for name in sorted(names))


def run_program(program, pattern):
    """None if the tests pass, else the first that does not."""
    command = [str(program), "--gtest_brief=1", "--gtest_fail_fast"] + ([f"--gtest_filter={pattern}"] if pattern else [])
    limited = ["bash", "-c", f'ulimit -v {MEMORY_KIB}; exec "$@"', "bash", *command]
    with tempfile.TemporaryDirectory(prefix="trafo-mutation-") as folder:
        try:
            done = subprocess.run(limited, cwd=folder, env=dict(os.environ, TMPDIR=folder), capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"{program.name} (did not end)"
    if done.returncode == 0:
        return None
    name = re.search(r"^\[  FAILED  \] (\S+?)[,\s]", done.stdout.decode(errors="replace"), re.M)
    return f"{program.name} {name[1]}" if name else f"{program.name} (exit status {done.returncode})"


def try_one(mutation, commands):
    """What noticed the mutation; None: nothing; "" if it does not compile."""
    place = WORK / hashlib.sha256(mutation.name.encode()).hexdigest()[:16]
    shutil.rmtree(place, ignore_errors=True)
    copy = place / "tree" / mutation.file
    copy.parent.mkdir(parents=True)
    text = (ROOT / mutation.file).read_text(encoding="utf-8")
    copy.write_text(text[:mutation.begin] + mutation.text + text[mutation.end:], encoding="utf-8")
    objects = {}
    try:
        for name, (words, source) in commands.items():
            if source == mutation.file:
                objects[name] = relink.compile_object(words, source, place / "objects", place / "tree", ["-O1"])
    except SystemExit:
        shutil.rmtree(place, ignore_errors=True)
        return ""
    folder = mutation.file.split("/")[1]
    own = next(program for program, folders in PROGRAMS.items() if folder in folders or (folder == "options" and "train" in folders))
    try:
        program = relink.link(own, objects, place, [])
        caught = run_program(program, suites_of(folder)) or run_program(program, "")
        for other in PROGRAMS:
            if caught is None and other != own:
                caught = run_program(relink.link(other, objects, place, []), "")
        return caught
    finally:
        shutil.rmtree(place, ignore_errors=True)


def run(count, seed, folder, jobs, only_list):
    """Exit status of the command."""
    sample = chosen(count, seed, folder)
    if only_list:
        print("\n".join(map(str, sample)))
        print(f"{len(candidates(folder))} mutations can be made; these are {len(sample)} of seed {seed}")
        return 0
    explained = survivors()
    commands = relink.compile_commands()
    subprocess.run(["ninja", "-C", str(relink.RELEASE), "-j", str(jobs), *(program.split("/")[1] for program in PROGRAMS)], check=True)
    for program in PROGRAMS:  # what fails anyway would notice everything
        failing = run_program(relink.RELEASE / program, "")
        if failing:
            sys.exit(f"without a mutation: {failing}")
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    counts = {"caught": 0, "survived": 0, "explained": 0, "does not compile": 0}
    begin = time.monotonic()
    with REPORT.open("w", encoding="utf-8") as report, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for mutation, caught in zip(sample, pool.map(lambda each: try_one(each, commands), sample)):
            if caught == "":
                kind, said = "does not compile", "does not compile"
            elif caught:
                kind, said = "caught", f"caught by {caught}"
            elif mutation.name in explained:
                kind, said = "explained", f"survived: {explained[mutation.name]}"
            else:
                kind, said = "survived", "SURVIVED"
            counts[kind] += 1
            line = f"{mutation}: {said}"
            print(line, flush=True)
            report.write(line + "\n")
            report.flush()
    print(f"{', '.join(f'{number} {kind}' for kind, number in counts.items())}, in {time.monotonic() - begin:.0f} s")
    print(f"suite: generated mutations  tried: {len(sample) - counts['does not compile']}  failed: {counts['survived']}")
    return 1 if counts["survived"] else 0
