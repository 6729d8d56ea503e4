#!/usr/bin/env python3
"""Answers of scripts/check_dependencies.py to a bill of materials, and of scripts/check-dependencies.sh without a registry."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_dependencies  # noqa: E402

COMPONENTS = [{"name": "Reader", "version": "1:0.1.97-3+b1"}, {"name": "crate", "version": "2.0.0", "hashes": [{}]}]
FAULT = {"id": "CVE-0", "component": "Reader", "fixed": "0.2.1", "about": "reads too far"}


class DependenciesTest(unittest.TestCase):
    def problems(self, advisories=(), pins=(), components=COMPONENTS):
        return check_dependencies.problems(components, advisories, pins)

    def test_a_fault_needs_an_answer_or_a_newer_version(self):
        wrong, answered = self.problems([FAULT])
        self.assertEqual((len(wrong), len(answered)), (1, 0))
        self.assertIn("Reader 1:0.1.97-3+b1: CVE-0, fixed in 0.2.1", wrong[0])
        wrong, answered = self.problems([FAULT | {"answer": "it is not called"}])
        self.assertEqual((len(wrong), len(answered)), (0, 1))
        self.assertEqual(self.problems([FAULT | {"fixed": "0.1.97"}]), ([], []))
        self.assertEqual(self.problems([FAULT | {"component": "Other"}]), ([], []))

    def test_what_a_component_contains_is_looked_at(self):
        copy = {"name": "Copy", "version": "3.14.0"}
        components = [{"name": "Reader", "version": "0.2.1", "components": [copy]}]
        wrong, _ = self.problems([FAULT, FAULT | {"id": "CVE-1", "component": "Copy", "fixed": "3.15.0"}], components=components)
        self.assertEqual(wrong, ["Copy 3.14.0: CVE-1, fixed in 3.15.0: reads too far"])

    def test_what_is_pinned_is_listed_with_a_hash(self):
        self.assertEqual(self.problems(pins=[("crate", "2.0.0", True)]), ([], []))
        self.assertIn("not in the bill", self.problems(pins=[("crate", "2.0.1", True)])[0][0])
        self.assertIn("no hash", self.problems(pins=[("Reader", "1:0.1.97-3+b1", True)])[0][0])

    def test_a_version_is_known(self):
        self.assertIn("no version", self.problems(components=[{"name": "x", "version": "unknown"}])[0][0])

    def test_the_pins_of_this_tree_have_hashes(self):
        pins = check_dependencies.read_pins()
        self.assertGreater(len(pins), 20)
        self.assertEqual({name for name, _, _ in pins if name.startswith("nvidia-")}.__len__(), 7)


class CommandTest(unittest.TestCase):
    """With programs in place of cargo audit and govulncheck, and `python3` in place of the check of the bill of materials."""

    NOTHING = ("exit 0", "")
    OFFLINE = ("exit 1", "error: couldn't fetch advisory database: failed to fetch https://example.org: Could not resolve host")
    NO_ROUTE = ("exit 1", "govulncheck: fetching vulnerabilities: dial tcp: lookup vuln.example.org: network is unreachable")
    FOUND = ("exit 3", "Vulnerability #1: GO-0000-0000")

    CRATES = ["Rust crates of bindings/rust", "Rust crates of examples/learning-service"]
    MODULES = ["Go modules of bindings/go/trafo", "Go modules of examples/learning-service"]

    def run_with(self, cargo, govulncheck, bill="exit 0", **variables):
        with tempfile.TemporaryDirectory() as folder:
            for name, (ends, says) in {"python3": (bill, ""), "cargo": cargo, "cargo-audit": cargo, "govulncheck": govulncheck}.items():
                program = pathlib.Path(folder) / name
                program.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n{ends}\n")
                program.chmod(0o755)
            done = subprocess.run([ROOT / "scripts/check-dependencies.sh"], capture_output=True, text=True, check=False,
                                  env=dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}", **variables))
        return done.returncode, done.stdout

    def test_nothing_is_found(self):
        status, said = self.run_with(self.NOTHING, self.NOTHING)
        self.assertEqual((status, said.count("nothing found")), (0, 4))

    def test_it_says_what_was_not_checked(self):
        for cargo, govulncheck, missing in [(self.OFFLINE, self.NOTHING, self.CRATES), (self.NOTHING, self.NO_ROUTE, self.MODULES),
                                            (self.OFFLINE, self.NO_ROUTE, [*self.CRATES, *self.MODULES])]:
            status, said = self.run_with(cargo, govulncheck)
            self.assertEqual(status, 77, said)
            lines = [line for line in said.splitlines() if line.startswith("NOT CHECKED")]
            self.assertEqual(len(lines), len(missing), said)
            for line, name in zip(lines, missing):
                self.assertIn(name, line)
                self.assertIn("offline", line)

    def test_copies_of_the_databases_are_read_where_they_are_named(self):
        cargo = ('echo "$*" | grep -xE "audit --file (bindings/rust|examples/learning-service)/Cargo.lock --db /a copy --no-fetch"', "")
        govulncheck = ('[ "$*" = "-db file:///a copy ./..." ]', "")
        status, said = self.run_with(cargo, govulncheck, TRAFO_RUST_ADVISORIES="/a copy", TRAFO_GO_ADVISORIES="file:///a copy")
        self.assertEqual((status, said.count("nothing found")), (0, 4), said)
        self.assertEqual(self.run_with(cargo, govulncheck)[0], 1)

    def test_a_finding_counts_more_than_being_offline(self):
        for arguments in [(self.FOUND, self.NO_ROUTE), (self.OFFLINE, self.FOUND), (self.NOTHING, self.NOTHING, "exit 1")]:
            status, said = self.run_with(*arguments)
            self.assertEqual(status, 1, said)
        self.assertIn("GO-0000-0000", self.run_with(self.OFFLINE, self.FOUND)[1])


if __name__ == "__main__":
    unittest.main()
