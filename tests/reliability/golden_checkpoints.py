#!/usr/bin/env python3
"""Suite 10: every later release loads, continues and translates with what an earlier one wrote; a newer file is refused by name.

    tests/reliability/golden_checkpoints.py [--long]

golden/VERSION/FORM are run directories that golden/make_golden.py made with that release, with the translations and losses it gave.
A trial is one form and one of these:

  translate   the same texts in the same order, scores within SCORES of those recorded;
  continue    the losses of the next updates within LOSSES of those recorded. Bits are promised between runs on one machine, not between
              processors (SIMD widths group sums differently), and the files travel; so the bits are compared by the next one;
  same_bits   continued in one go, in two, and with another number of threads: the same bytes of model and optimizer;
  newer       a checkpoint marked by a newer version, in each of its files, is refused, and the message says which version.

The short form runs all of it; --long also continues every form for 100 updates in 10 pieces and compares the bytes.
"""

import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zlib

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
BUILD = pathlib.Path(os.environ.get("TRAFO_BUILD", ROOT / "build" / "release"))
PROGRAM = BUILD / "translate-train"
SCORES, LOSSES = 2e-4, 2e-4  # absolute; sums of a few hundred float32 terms, over a few updates
sys.path.insert(0, str(FOLDER / "../golden/checkpoints"))
from make_golden import write_corpus, data_flags  # noqa: E402

LINE = re.compile(r"(\d+) \|\|\| (.*) \|\|\| Score= (\S+) \|\|\| (\S+)")


class Failure(Exception):
    pass


def check(condition, message):
    if not condition:
        raise Failure(message)


def call(arguments, text="", expected=0):
    done = subprocess.run([str(PROGRAM)] + arguments, input=text, capture_output=True, text=True, timeout=300)
    check(done.returncode == expected or (expected is None and done.returncode > 0),
          f"translate-train {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}")
    return done


class Form:
    def __init__(self, folder, scratch, corpus):
        self.folder, self.scratch, self.corpus = folder, scratch, corpus
        self.name = f"{folder.parent.name}/{folder.name}"
        self.expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        self.copies = 0

    def copy(self):
        self.copies += 1
        run = self.scratch / f"{self.folder.name}-{self.copies}"
        shutil.copytree(self.folder, run)
        (run / "expected.json").unlink()
        vocabulary = self.folder.parent / "vocab.spm.xz"
        (run / "vocab.spm").write_bytes(lzma.decompress(vocabulary.read_bytes()))
        return run

    def data(self, run):
        return data_flags(self.corpus) + ["--vocabs", str(run / "vocab.spm")]

    def go_on(self, run, updates, threads=1):
        # The type of the computation is the machine's, not the checkpoint's: bf16 runs go on in
        # float32 here.
        call(["train", "--model", str(run), "--after", f"{self.expected['update'] + updates}u", "--device", "cpu",
              "--precision", "fp32", "--cpu-threads", str(threads)] + self.data(run))
        return run

    def checkpoint(self, run, updates):
        folder = run / "ckpt" / str(self.expected["update"] + updates)
        return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.name.endswith(".safetensors")}

    def translate(self):
        text = (self.corpus / "valid.de").read_text(encoding="utf-8")
        lines = call(["translate", "--model", str(self.copy()), "--checkpoint", "latest", "--n-best", "2", "--device", "cpu", "-q"],
                     text).stdout.splitlines()
        wanted = self.expected["translations"]
        check(len(lines) == len(wanted), f"{len(lines)} lines instead of {len(wanted)}")
        for line, want in zip(lines, wanted):
            is_line, is_want = LINE.fullmatch(line), LINE.fullmatch(want)
            check(is_line and is_want, f"not an n-best line: {line!r}")
            check(is_line[1] == is_want[1] and is_line[2] == is_want[2], f"{line!r} instead of {want!r}")
            check(abs(float(is_line[3]) - float(is_want[3])) <= SCORES, f"{line!r} instead of {want!r}")

    def go_on_as_recorded(self):
        wanted = self.expected["losses"]
        run = self.go_on(self.copy(), len(wanted))
        found = {}
        for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if record.get("type") == "train":
                found[str(record["update"])] = record["loss"]
        check(sorted(found) == sorted(wanted), f"updates {sorted(found)} instead of {sorted(wanted)}")
        tolerance = LOSSES if self.expected["device"] == "cpu" else 0.05  # of what bf16 gave
        for update, loss in wanted.items():
            check(abs(found[update] - loss) <= tolerance, f"update {update}: loss {found[update]!r} instead of {loss!r}")

    def same_bits(self, pieces=2, updates=8):
        whole = self.checkpoint(self.go_on(self.copy(), updates), updates)
        run = self.copy()
        for piece in range(1, pieces + 1):
            self.go_on(run, updates * piece // pieces, threads=1 + piece % 2)
        check(self.checkpoint(run, updates) == whole, f"{pieces} pieces gave other bytes than one")

    # --- files marked by a newer version; every checksum fits, as a newer release would write it ---

    def sealed(self, run, name, content):
        """Puts `content` in the place of a file of the checkpoint and makes the manifest fit."""
        folder = run / "ckpt" / str(self.expected["update"])
        (folder / name).write_bytes(content)
        manifest = (folder / "manifest.json").read_text(encoding="utf-8")
        entry = f'"{name}":{{"bytes":{len(content)},"crc32":"{zlib.crc32(content):08x}"}}'
        manifest, count = re.subn(rf'"{re.escape(name)}":\{{[^}}]*\}}', entry, manifest)
        check(count == 1, f"the manifest does not name {name} once")
        self.write_manifest(folder, manifest)

    @staticmethod
    def write_manifest(folder, text):
        # The sum of the text whose own digits are zeros: engine/io/checksum.h.
        start = '{"crc32":"'
        check(text.startswith(start), "the manifest does not begin with its checksum")
        zeroed = start + "00000000" + text[len(start) + 8:]
        crc = zlib.crc32(zeroed.encode())
        (folder / "manifest.json").write_text(start + f"{crc:08x}" + text[len(start) + 8:], encoding="utf-8")

    def refused(self, run, version, arguments=None):
        done = call(arguments or ["train", "--model", str(run), "--after", f"{self.expected['update'] + 1}u", "--device", "cpu",
                                  "--precision", "fp32"] + self.data(run), expected=None)
        check("newer" in done.stderr and re.search(rf"(version|format) '?\"?{version}\b", done.stderr),
              f"the refusal does not name version {version}: {done.stderr.strip()}")
        check(not (run / "ckpt" / str(self.expected["update"] + 1)).exists(), "it was trained on")

    def newer_manifest(self):
        run = self.copy()
        folder = run / "ckpt" / str(self.expected["update"])
        text = (folder / "manifest.json").read_text(encoding="utf-8")
        check(text.count('"version":1,') == 1, "no version 1 in the manifest")
        self.write_manifest(folder, text.replace('"version":1,', '"version":7,'))
        self.refused(run, 7)

    def newer_state(self):
        run = self.copy()
        text = (run / "ckpt" / str(self.expected["update"]) / "state.json").read_text(encoding="utf-8")
        check(text.count('"version": 1,') == 1, "no version 1 in the state")
        self.sealed(run, "state.json", text.replace('"version": 1,', '"version": 8,').encode())
        self.refused(run, 8)

    def newer_tensors(self, name):
        run = self.copy()
        path = run / "ckpt" / str(self.expected["update"]) / name
        content = path.read_bytes()
        size = int.from_bytes(content[:8], "little")
        header = content[8:8 + size].decode()
        check(header.count('"trafo.format":"1"') == 1, f"no format 1 in {name}")
        header = header.replace('"trafo.format":"1"', '"trafo.format":"9"')
        start = '{"__metadata__":{"trafo.header_crc32":"'
        check(header.startswith(start), f"{name} does not begin with its checksum")
        at = len(start)
        crc = zlib.crc32((header[:at] + "00000000" + header[at + 8:]).encode())
        header = header[:at] + f"{crc:08x}" + header[at + 8:]
        self.sealed(run, name, content[:8] + header.encode() + content[8 + size:])
        self.refused(run, 9)
        if name == "model.safetensors":
            self.refused(run, 9, ["translate", "--model", str(run), "--checkpoint", "latest", "--device", "cpu"])

    def trials(self, long_form):
        yield "translate", self.translate
        yield "continue", self.go_on_as_recorded
        yield "same_bits", self.same_bits
        yield "newer manifest", self.newer_manifest
        yield "newer state", self.newer_state
        yield "newer model", lambda: self.newer_tensors("model.safetensors")
        yield "newer optimizer", lambda: self.newer_tensors("optimizer.safetensors")
        if (self.folder / "ckpt" / str(self.expected["update"]) / "unsmoothed.safetensors").exists():
            yield "newer unsmoothed", lambda: self.newer_tensors("unsmoothed.safetensors")
        if long_form:
            yield "same bits of 100 updates", lambda: self.same_bits(pieces=10, updates=100)


def main():
    if any(argument != "--long" for argument in sys.argv[1:]):
        sys.exit(__doc__)
    if not PROGRAM.is_file():
        sys.exit(f"{PROGRAM} is missing: build it first")
    folders = sorted(path.parent for path in (ROOT / "tests/golden/checkpoints").glob("*/*/expected.json"))
    tried = failed = 0
    with tempfile.TemporaryDirectory(prefix="trafo-golden-") as name:
        scratch = pathlib.Path(name)
        corpus = scratch / "corpus"
        corpus.mkdir()
        write_corpus(corpus)
        for folder in folders:
            form = Form(folder, scratch, corpus)
            for trial, action in form.trials("--long" in sys.argv):
                tried += 1
                try:
                    action()
                except (Failure, subprocess.TimeoutExpired, OSError) as error:
                    failed += 1
                    print(f"FAILED {form.name}, {trial}: {error}")
    print(f"suite: golden_checkpoints  tried: {tried}  failed: {failed}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
