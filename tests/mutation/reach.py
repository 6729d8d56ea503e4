"""Which tests reach which mutated places, and one mutation tried with the tests that reach it.

Every test of every program runs once in a separate process and records the places that it evaluates (mutation.h), also in threads, in
processes that it starts and before main(). A mutation can change nothing in a test that does not reach its place, so only the tests that do
are run with it: first the tests in the folder that belongs to the file, then the others, fast ones before slow ones.
"""

import collections
import concurrent.futures
import json
import os
import re
import tempfile
import threading

import programs
import relink

CAUGHT, SURVIVED, UNDECIDED = "caught", "survived", "undecided"
BUDGETS = (0.5, 2, 8, 32)  # seconds of tests in one process, one batch after the other; the last is without end
BATCH = 400                # tests in one process at most: the filter is an argument
ATTEMPTS = 3               # of tests that fail without a mutation as well


class Test:
    """A test of a program of Google Test, or a whole program (test: ""). seconds: of a process that runs it alone."""

    def __init__(self, binary, test, seconds=0.0, reached=()):
        self.binary, self.test, self.seconds, self.reached = binary, test, seconds, frozenset(reached)

    @property
    def entry(self):
        return f"{self.binary}:{self.test}" if self.test else self.binary

    def suite(self):
        """Without what instantiates it: Forms/SoftmaxTest/0.rows/2 is of SoftmaxTest."""
        return [part for part in self.test.partition(".")[0].split("/") if not part.isdigit()][-1]


def tests_of(binary, folder):
    if binary in programs.WITHOUT_GTEST:
        return [Test(binary, "")]
    listed = programs.run([programs.path_of(binary, folder), "--gtest_list_tests"], {"LD_LIBRARY_PATH": str(folder)}, programs.SECONDS)
    found, suite = [], ""
    for line in listed.output.splitlines():
        word = line.split("#")[0].strip()
        if line.startswith("  "):
            if not word.startswith("DISABLED_"):
                found.append(Test(binary, suite + word))
        elif word.endswith(".") and "DISABLED_" not in word:
            suite = word
    return found


def record_one(test, folder, count):
    """The test with what it reached; a text if it fails alone and is of no use."""
    with tempfile.NamedTemporaryFile(prefix="trafo-reached-") as file:
        file.write(bytes(count + 1))
        file.flush()
        done = programs.run_entry(test.entry, folder, {"TRAFO_MUTATION_REACHED": file.name})
        failure = done.failure(test.binary)
        if failure:
            return failure
        file.seek(0)
        return Test(test.binary, test.test, done.seconds, [number for number, byte in enumerate(file.read()) if byte])


def record(folder, count, jobs, binaries):
    """All tests of the programs in `folder`, whose mutations have the numbers 1 to `count`. Each is kept in `folder` when it has run, until
    a program changes: a recording that was stopped continues."""
    kept = folder / "reached.jsonl"
    state = {name: os.stat(programs.path_of(name, folder)).st_mtime for name in binaries}
    state["library"] = (folder / "libtrafo.so.0").stat().st_mtime
    text = kept.read_text(encoding="utf-8") if kept.is_file() else ""
    lines = [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]
    tests = [Test(*each) for each in lines[1:]] if lines[:1] == [state] else []
    known = {test.entry for test in tests}
    wanted = [test for name in binaries for test in tests_of(name, folder) if test.entry not in known]
    with kept.open("w", encoding="utf-8") as file, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        file.writelines(json.dumps(line) + "\n" for line in [state, *lines[1:len(known) + 1]])
        file.flush()
        running = {pool.submit(record_one, test, folder, count): test for test in wanted}
        for future in concurrent.futures.as_completed(running):
            test, done = running[future], future.result()
            if isinstance(done, str):
                print(f"{test.entry} fails alone without a mutation and is not used: {done}", flush=True)
                continue
            tests.append(done)
            file.write(json.dumps([done.binary, done.test, round(done.seconds, 3), sorted(done.reached)]) + "\n")
            file.flush()
    return tests


def batches(tests):
    """Tests, in the order in which they are wanted, as lists that one process runs each."""
    groups, budgets, spent = [collections.OrderedDict()], list(BUDGETS), 0.0
    for test in tests:
        if budgets and spent > budgets[0]:
            budgets.pop(0)
            groups.append(collections.OrderedDict())
            spent = 0.0
        spent += test.seconds
        groups[-1].setdefault(test.binary, []).append(test)
    for group in groups:
        for together in group.values():
            yield from (together[at:at + BATCH] for at in range(0, len(together), BATCH))


class Trials:
    """Tries mutations with the tests that reach them."""

    def __init__(self, tests, folder):
        self.folder, self.clean, self.lock = folder, {}, threading.Lock()
        self.reaching = collections.defaultdict(list)
        for test in tests:
            for number in test.reached:
                self.reaching[number].append(test)

    def run(self, tests, number):
        seconds = sum(test.seconds for test in tests)
        entry = tests[0].binary + (":" + ":".join(test.test for test in tests) if tests[0].test else "")
        # The limits allow for a machine that does other work too; an endless loop ends with its processor time.
        done = programs.run_entry(entry, self.folder, {"TRAFO_MUTATION": str(number)}, 30 + 15 * seconds, 5 + 5 * seconds)
        return done.failure(tests[0].binary)

    def passes_without(self, tests, failure):
        """Whether the test that failed, or all if none is named, passes without a mutation."""
        failed = [test for test in tests if failure == f"{test.binary} {test.test}"] or tests
        key = tuple(test.entry for test in failed)
        with self.lock:
            known = self.clean.get(key)
        if known is None:
            known = self.run(failed, 0) is None
            if known:
                with self.lock:
                    self.clean[key] = known
        return known

    def attempt(self, number, own_suites):
        """(outcome, what noticed the mutation, how many tests reach it)."""
        tests = sorted(self.reaching[number], key=lambda each: (not each.test or each.suite() not in own_suites, each.seconds))
        for together in batches(tests):
            for _ in range(ATTEMPTS):
                failure = self.run(together, number)
                if failure is None:
                    break
                if self.passes_without(together, failure):
                    return CAUGHT, failure, len(tests)
            else:
                return UNDECIDED, failure, len(tests)
        return SURVIVED, None, len(tests)


def suites_of(folder):
    """Names of the test suites in tests/FOLDER."""
    names = set()
    for path in (relink.ROOT / "tests" / folder).rglob("*.cc"):
        names.update(re.findall(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+)", path.read_text(encoding="utf-8"), re.M))
    return names
