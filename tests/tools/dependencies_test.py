#!/usr/bin/env python3
"""What scripts/check_dependencies.py says of a bill of materials."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
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


if __name__ == "__main__":
    unittest.main()
