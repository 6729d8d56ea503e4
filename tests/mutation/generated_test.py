#!/usr/bin/env python3
"""Generated mutations: which ones generated.py makes, both forms of them in one text (places.py), and who runs them (reach.py)."""

import os
import pathlib
import re
import resource
import subprocess
import tempfile
import unittest
import unittest.mock

import definitions
import generated
import places
import programs
import reach

PROGRAM = """#include <cstdio>
#include <cstdlib>
#include <vector>
int first_above(const std::vector<int>& values, int least) {
  int found = -1;
  for (int i = 0; i < static_cast<int>(values.size()); ++i) {
    if (values[i] > least && found < 0) {
      found = i + 1 - 1;
    }
  }
  constexpr int kFactor = 2;
  static_assert(kFactor == 2);
  const auto twice = [](int x) { return x * 2; };
  return twice(found) + (least == 7 ? 100 : 0);
}
int main(int, char** arguments) {
  const std::vector<int> values{3, 5, 8};
  std::printf("%d", first_above(values, std::atoi(arguments[1])));
}
"""
EXPECTED = {"3": "2", "5": "4", "7": "104", "9": "-2"}  # output of the program without a mutation


class OperatorsTest(unittest.TestCase):
    def made(self, source):
        tokens = definitions.tokens_of(source)
        found = []
        for _, begin, end in definitions.definitions(tokens):
            for operator, first, last, new in generated.of_function([token for token, _, _ in tokens], begin, end):
                found.append((operator, source[tokens[first][1]:tokens[last - 1][2]], new))
        return found

    def test_operators(self):
        made = self.made("int f(int a, std::vector<int> b) {\n  require(a < 3, kCode, \"at most \", 7);\n  if (a == b.size() + 2) return 1;\n"
                         "  b.clear();\n  a = 5;\n  return true ? a * 2 : 0;\n}\n")
        for expected in [("relation", "<", "<="), ("relation", "==", "!="), ("arithmetic", "+", "-"), ("arithmetic", "*", "/"),
                         ("neighbour", "2", "3"), ("neighbour", "2", "1"), ("neighbour", "0", "1"), ("constants", "true", "false"),
                         ("condition", "(a == b.size() + 2)", None), ("statement", "b.clear()", ""), ("statement", "a = 5", "")]:
            self.assertIn(expected, made)
        self.assertNotIn("7", [text for _, text, _ in made])  # a message
        self.assertEqual([text for operator, text, _ in made if operator == "relation"], ["<", "=="])  # no template

    def test_what_is_no_fault_or_no_statement_is_left_out(self):
        made = self.made("void f() {\n  x.reserve(n + 1);\n  std::lock_guard lock(mutex);\n  Shape shape = g();\n  int n = as<bool>(y);\n"
                         "  for (int i = 0; ; i += n) h();\n}\n")
        self.assertEqual([text for operator, text, _ in made if operator == "statement"], [])
        self.assertEqual([text for operator, text, _ in made if operator in ("relation", "arithmetic")], [])


class PlacesTest(unittest.TestCase):
    def around(self, source, word):
        tokens = definitions.tokens_of(source)
        texts = [token for token, _, _ in tokens]
        begin, end = places.expression_around(texts, places.partners(texts), texts.index(word))
        return source[tokens[begin][1]:tokens[end - 1][2]]

    def test_expressions_end_at_delimiters(self):
        for source, word, expected in [
                ("x = f(a, b + 3, c);", "+", "b + 3"), ("return -n * 4;", "*", "-n * 4"), ("if (a < b && c) d();", "<", "a < b"),
                ("if (a) return b - 1;", "-", "b - 1"), ("if (a) b[i] += c * 2;", "*", "c * 2"), ("for (i = 0; i < n; ++i) {}", "<", "i < n"),
                ("x = a ? b + 1 : c;", "+", "b + 1"), ("T x{n + 1, 2};", "+", "n + 1"), ("return Shape{1, 2}[0] + n;", "+", "Shape{1, 2}[0] + n"),
                ("if (a) { b(); } c(p)->d = e % 2;", "%", "e % 2"), ("v = h<3>(x) - y;", "3", "h<3>(x) - y"),
                ("sort(v, [&](int a, int b) { return a > b; });", ">", "a > b")]:
            self.assertEqual(self.around(source, word), expected)

    def test_places_in_each_other(self):
        #       0123456789012345678
        text = "if (a + b < c) { d(); }"
        made = places.Text(text, [places.Place(1, "expression", 4, 13, "a - b < c"), places.Place(2, "expression", 4, 13, "a + b <= c"),
                                  places.Place(3, "condition", 3, 14, ""), places.Place(4, "statement", 17, 20, ""),
                                  places.Place(5, "expression", 10, 16, "overlaps")], "header\n")
        here = "trafo::mutated_here"
        self.assertEqual(made.text, f"header\nif ({here}(3) != static_cast<bool>((({here}(1) ? (a - b < c) : (({here}(2) ? (a + b <= c) : "
                                    f"(a + b < c)))))))" + f" {{ if (!{here}(4)) d(); }}")
        self.assertEqual([place.number for place in made.left_out], [5])
        column = made.text.splitlines()[1].index("<= c") + 1
        self.assertEqual([place.number for place in made.at(2, column)], [2])
        self.assertEqual({place.number for place in made.at(2, len(made.text))}, {1, 2, 3, 4})  # none around it: all of the line


class CompiledTest(unittest.TestCase):
    """A program with all of its mutations, compiled as generated.py does it, run with each."""

    def build(self, folder, mutations):
        """The path of the program; the mutations that compile."""
        header = '#include "tests/mutation/mutation.h"\n'
        while True:
            copy = places.Text(PROGRAM, [mutation.place for mutation in mutations], header)
            self.assertEqual(copy.left_out, [])
            source = folder / "program.cc"
            source.write_text(copy.text)
            done = subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-w", f"-I{generated.ROOT}", str(source), "-o",
                                   str(folder / "program")], capture_output=True, text=True)
            if done.returncode == 0:
                return folder / "program", mutations
            refused = places.blamed(done.stderr, {str(source): copy})
            self.assertTrue(refused, done.stderr)
            mutations = [mutation for mutation in mutations if mutation.place not in refused]

    def test_every_mutation_is_one_fault(self):
        mutations = generated.of_text("program.cc", PROGRAM)
        for number, mutation in enumerate(mutations, 1):
            mutation.place.number = number
        with tempfile.TemporaryDirectory() as name:
            program, compiled = self.build(pathlib.Path(name), mutations)
            refused = [str(each) for each in mutations if each not in compiled]
            self.assertEqual([each for each in refused if "line 11" not in each and "line 12" not in each], [])  # constant expressions only
            record = pathlib.Path(name) / "record"

            def outputs(number, reached=False):
                record.write_bytes(bytes(len(mutations) + 1))
                environment = dict(os.environ, TRAFO_MUTATION=str(number), **({"TRAFO_MUTATION_REACHED": str(record)} if reached else {}))
                done = {}
                for argument in EXPECTED:
                    # Processor time: a busy machine is no endless loop.
                    ended = subprocess.run([program, argument], env=environment, capture_output=True, text=True,
                                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (1, 1)))
                    done[argument] = ended.stdout if ended.returncode == 0 else f"exit status {ended.returncode}"
                return done

            self.assertEqual(outputs(0, reached=True), EXPECTED)
            reached = {number for number, byte in enumerate(record.read_bytes()) if byte}
            self.assertEqual(reached, {each.place.number for each in compiled})
            by_text = {}
            for mutation in compiled:
                wrong = PROGRAM[:mutation.place.begin] + mutation.place.wrong + PROGRAM[mutation.place.end:]
                by_text[mutation.operator, re.sub(r"\s+", " ", wrong.splitlines()[mutation.line - 1].strip())] = outputs(mutation.place.number)
            self.assertEqual(by_text["arithmetic", "found = i - 1 - 1;"], {"3": "0", "5": "0", "7": "100", "9": "-2"})
            self.assertEqual(by_text["relation", "if (values[i] >= least && found < 0) {"], dict(EXPECTED, **{"3": "0", "5": "2"}))
            self.assertEqual(by_text["neighbour", "return twice(found) + (least == 7 ? 101 : 0);"], dict(EXPECTED, **{"7": "105"}))
            # Two of them change nothing that an output shows: a position of 0 is no position below 1 or not above -1 ...
            self.assertGreater(sum(each != EXPECTED for each in by_text.values()), len(by_text) * 0.8)


class SampleTest(unittest.TestCase):
    def test_five_hundred_of_a_seed_are_always_the_same(self):
        def names(seed):
            return [each.name for each in generated.ordered(seed, 60)[:500]]

        first = names(1)
        self.assertEqual(first, names(1))
        self.assertNotEqual(first, names(2))
        self.assertEqual(len(set(first)), 500)
        self.assertEqual(len({name.split(":")[0] for name in first}), 6)
        folders = {each.file.split("/")[1] for each in generated.candidates()}
        files = {name.split(":")[1] for name in first}
        self.assertTrue(55 <= len(files) <= 65, len(files))
        self.assertEqual({name.split(":")[1].split("/")[1] for name in first}, folders)

    def test_survivors_are_explained(self):
        names = {each.name for each in generated.candidates()}
        for name, why in generated.survivors().items():
            self.assertTrue(name in names, f"{name}: there is no such mutation any more")
            self.assertGreater(len(why), 20, name)


class ReachTest(unittest.TestCase):
    def test_tests_come_in_batches_of_a_program(self):
        tests = [reach.Test("unit_tests", f"A.{at}", 0.2) for at in range(5)] + [reach.Test("cli_tests", "B.1", 3), reach.Test("c_api_test", "", 9)]
        made = [[test.entry for test in together] for together in reach.batches(tests)]
        self.assertEqual(made, [["unit_tests:A.0", "unit_tests:A.1", "unit_tests:A.2"], ["unit_tests:A.3", "unit_tests:A.4"],
                                ["cli_tests:B.1"], ["c_api_test"]])

    def test_a_skipped_test_is_no_wrong_filter(self):
        skipped = "[==========] 1 test from 1 test suite ran. (0 ms total)\n[  PASSED  ] 0 tests.\n[  SKIPPED ] 1 test.\n"
        none = "[==========] 0 tests from 0 test suites ran. (0 ms total)\n[  PASSED  ] 0 tests.\n"
        self.assertFalse(programs.Outcome(0, skipped, 0, None).names_no_test())
        self.assertTrue(programs.Outcome(0, none, 0, None).names_no_test())
        self.assertIsNone(programs.Outcome(0, skipped, 0, None).failure("unit_tests"))

    def test_a_recording_that_was_stopped_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            path, ran = pathlib.Path(folder), []
            for name in ["libtrafo.so.0", "program"]:
                (path / name).touch()

            def record_one(test, *_):
                if len(ran) == 2:
                    raise KeyboardInterrupt
                ran.append(test.entry)
                return reach.Test(test.binary, test.test, 0.1, [len(ran)])

            with unittest.mock.patch.multiple(reach, record_one=record_one, tests_of=lambda *_: [reach.Test("p", name) for name in "abc"]), \
                    unittest.mock.patch.object(programs, "path_of", lambda *_: path / "program"):
                self.assertRaises(KeyboardInterrupt, reach.record, path, 3, 1, ["p"])
                with (path / "reached.jsonl").open("a") as file:
                    file.write('["p", "c", 0.')  # and in the middle of a line
                first, ran[:] = ran[:], []
                made = reach.record(path, 3, 1, ["p"])
                self.assertEqual((first, ran), (["p:a", "p:b"], ["p:c"]))
                self.assertEqual(sorted(test.entry for test in made), ["p:a", "p:b", "p:c"])
                self.assertEqual(len(reach.record(path, 3, 1, ["p"])), 3)
                self.assertEqual(ran, ["p:c"])
                os.utime(path / "program", (1, 1))  # another program: everything runs again
                self.assertRaises(KeyboardInterrupt, reach.record, path, 3, 1, ["p"])

    def test_filters_name_tests(self):
        with unittest.mock.patch.object(programs, "tests_of", lambda binary: ["A.b", "Forms/C.d/0"] if binary == "unit_tests" else []):
            for entry, named in [("unit_tests:A.*", True), ("unit_tests:*C.d*", True), ("unit_tests:X.*:A.b", True), ("unit_tests:X.*", False),
                                 ("unit_tests:*-A.*:*C*", False), ("unit_tests", True), ("cli_tests:X.*", True)]:
                self.assertEqual(programs.names_a_test(entry), named, entry)

    def test_suites_without_what_instantiates_them(self):
        for name, suite in [("A.b", "A"), ("Forms/A.b/0", "A"), ("A/0.b", "A"), ("Forms/A/1.b", "A")]:
            self.assertEqual(reach.Test("unit_tests", name).suite(), suite)


if __name__ == "__main__":
    unittest.main()
