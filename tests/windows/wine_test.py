#!/usr/bin/env python3
"""Runs translate-train.exe, and C programs on trafo.dll, under Wine.

    wine_test.py BUILD [LINUX_BUILD]

BUILD: the folder of the preset `windows`, with interrupt.exe. LINUX_BUILD: a build of the same sources for this machine, whose checkpoints
must have the same bytes. WINEPREFIX and the compiler are set by tests/tools/windows.sh. Prints a line for each check.
"""
import filecmp
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
import toy_corpus  # noqa: E402

WINE = os.environ.get("WINE", "/usr/lib/wine/wine64")
CC = os.environ.get("CC", "x86_64-w64-mingw32-gcc-posix")
SETS = "--train-sets t.src t.trg --valid-sets v.src v.trg".split()
TRAIN = "train --device cpu --mini-batch-words 400 --cpu-threads 2 --valid-freq 10u --quiet".split()
SIZE = "--dec-depth 1 --dim-emb 32 --transformer-dim-ffn 64 --transformer-heads 2"
MODEL = f"--task tiny {SIZE} --enc-depth 1 --dim-vocabs 60".split()
# Runs that take other paths through the library: positions, initial values, vocabularies, schedules, optimizers, quantization, and what is
# translated with them.
RUNS = {
    "rotary": (f"--task llama {SIZE} --transformer-kv-heads 1 --dim-vocabs 60 --lr-decay cosine --lr-warmup 5 --optimizer muon",
               "--beam-size 4 --normalize 0.6 --n-best 3 --word-scores"),
    "gpt2": (f"--task gpt2 {SIZE} --vocab-kind byte-bpe --dim-vocabs 300 --lr-decay linear --lr-warmup 5 --optimizer-states 8bit "
             "--exponential-smoothing 0.1",
             "--output-sampling nucleus 0.9 --temperature 0.7"),
    "quantized": (f"--task tiny {SIZE} --enc-depth 1 --vocab-kind byte --lr-decay noam --optimizer lion --quantize-bits 8 "
                  "--transformer-ffn-activation gelu-erf", "--weights int8 --output-sampling topk 5"),
    "sampled": (f"--task tiny {SIZE} --enc-depth 1 --dim-vocabs 60 --sentencepiece-alphas 0.2 --optimizer sgd --learn-rate 0.1 --transformer-dropout 0.2 "
                "--layer-drop 0.2", "--weights int8 --beam-size 3"),
}
INTERRUPTED = 130
# Of examples/c, in an order in which later ones load files of earlier ones. cancel.c has threads of C11, which MinGW lacks.
EXAMPLES = ["errors", "own_network", "train", "translate", "generate", "devices"]


def fail(message):
    sys.exit(f"wine_test: {message}")


def passed(what):
    print(f"wine_test: {what}: ok", flush=True)


def done(command, status=0, **more):
    """Runs a command to its end; its output."""
    result = subprocess.run([str(word) for word in command], capture_output=True, timeout=600, **more)
    text = (result.stdout + result.stderr).decode(errors="replace")
    if result.returncode != status:
        fail(f"{' '.join(map(str, command))}: exit status {result.returncode}, not {status}: {text}")
    return text


def wait_for(condition, what, process=None):
    for _ in range(3000):
        if condition():
            return
        if process is not None and process.poll() is not None:
            fail(f"{what}: the program ended before, with {process.returncode}: {process.stdout.read().decode(errors='replace')}")
        time.sleep(0.1)
    fail(f"{what}: waited five minutes")


class Checks:
    def __init__(self, build, linux, work):
        self.build, self.linux, self.work = build, linux, work
        self.program = [WINE, build / "translate-train.exe"]
        toy_corpus.write(work, 200, 20)

    def train(self, run, after, *more, status=0, program=None, sets=SETS, model=MODEL):
        command = [*(program or self.program), *TRAIN, *sets, *model, "--model", run, "--after", after, *more]
        return done(command, status, cwd=self.work)

    def translate(self, run, out, *more, program=None):
        done([*(program or self.program), "translate", "--quiet", "--device", "cpu", "-m", run, "-i", "v.src", "-o", out, *more], cwd=self.work)

    def start(self, run, *more):
        command = [*self.program, *TRAIN, *SETS, *MODEL, "--model", run, "--after", "100000u", "--save-freq", "10u", *more]
        return subprocess.Popen([str(word) for word in command], cwd=self.work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def same(self, *files):
        first = files[0]
        for other in files[1:]:
            if not filecmp.cmp(self.work / first, self.work / other, shallow=False):
                fail(f"{first} and {other} differ")

    def resumes(self):
        """A run in two parts has the bytes of a run in one."""
        self.train("whole", "20u")
        self.train("cut", "10u")
        self.train("cut", "20u")
        self.same("whole/ckpt/20/model.safetensors", "cut/ckpt/20/model.safetensors")
        passed("training, and resuming with the same bytes")

    def resumes_after_kill(self):
        process = self.start("killed")
        wait_for((self.work / "killed/ckpt/10/manifest.json").exists, "the first checkpoint", process)
        process.kill()
        process.wait()
        last = max(int(path.name) for path in (self.work / "killed/ckpt").iterdir() if path.name.isdigit())
        target = f"{last + 10}u"
        self.train("killed", target, "--save-freq", "10u")
        self.train("unkilled", target, "--save-freq", "10u")
        self.same(f"killed/ckpt/{last + 10}/model.safetensors", f"unkilled/ckpt/{last + 10}/model.safetensors")
        passed(f"resuming after a kill at update {last} or later, with the bytes of a run that was not killed")

    def locks(self):
        process = self.start("locked")
        wait_for((self.work / "locked/ckpt/10/manifest.json").exists, "the first checkpoint", process)
        said = self.train("locked", "20u", status=1)
        process.kill()
        process.wait()
        if "is in use by" not in said:
            fail(f"a second run in the same directory: {said}")
        passed("a run directory that is in use is refused")

    def ends_at_ctrl_c(self):
        mark = self.work / "interrupted/ckpt/10/manifest.json"
        command = [WINE, self.build / "interrupt.exe", "interrupted\\ckpt\\10\\manifest.json", self.build / "translate-train.exe", *TRAIN,
                   *SETS, *MODEL, "--model", "interrupted", "--after", "100000u", "--save-freq", "10u"]
        done(command, INTERRUPTED, cwd=self.work)
        last = max(int(path.name) for path in (self.work / "interrupted/ckpt").iterdir() if path.name.isdigit())
        if not mark.exists() or not (self.work / f"interrupted/ckpt/{last}/manifest.json").exists():
            fail("Ctrl-C left no checkpoint")
        self.train("interrupted", f"{last + 1}u")
        passed(f"Ctrl-C saves and ends with {INTERRUPTED}, and the run resumes")

    def translates(self):
        for run in ("whole", "cut"):
            self.translate(run, f"{run}.out")
        if (self.work / "whole.out").read_bytes().count(b"\n") != 20:
            fail("20 lines are not translated")
        self.same("whole.out", "cut.out")
        passed("translation")

    def takes_foreign_paths(self):
        """Names in several scripts, and a path of more than 260 characters."""
        folder = self.work / "Übersetzung 翻訳 перевод" / "/".join(["long" * 20] * 4)
        folder.mkdir(parents=True)
        for name in ("t.src", "t.trg", "v.src", "v.trg"):
            shutil.copy(self.work / name, folder / f"ü{name}")
        inside = str(folder.relative_to(self.work)) + "/"
        sets = ["--train-sets", f"{inside}üt.src", f"{inside}üt.trg", "--valid-sets", f"{inside}üv.src", f"{inside}üv.trg"]
        for after in ("10u", "20u"):
            self.train(f"{inside}läuft", after, sets=sets)
        self.same("whole/ckpt/20/model.safetensors", f"{inside}läuft/ckpt/20/model.safetensors")
        done([*self.program, "translate", "--quiet", "--device", "cpu", "-m", f"{inside}läuft", "-i", f"{inside}üv.src",
              "-o", f"{inside}aus 出力.txt"], cwd=self.work)
        self.same("whole.out", f"{inside}aus 出力.txt")
        said = done([*self.program, "info", f"{inside}läuft"], cwd=self.work)
        if "läuft" not in said:
            fail(f"info does not name the run: {said}")
        passed(f"paths of {len(str(folder))} characters in several scripts")

    def refuses_plugins(self):
        said = done([*self.program, "translate", "--device", "cuda", "-m", "whole", "-i", "v.src"], 2, cwd=self.work)
        if "does not exist for Windows" not in said:
            fail(f"--device cuda: {said}")
        passed("the error for a plugin")

    def equals_linux(self):
        if self.linux is None:
            print("wine_test: no build for Linux is given; bytes of checkpoints are not compared", flush=True)
            return
        here = [self.linux / "translate-train"]
        self.train("here", "20u", program=here)
        self.compare("here", "whole", "vocab.spm")
        self.translate("whole", "here.out", program=here)
        self.same("here.out", "whole.out")
        for run, (model, translation) in RUNS.items():
            names = [f"{run}-here", f"{run}-there"]
            for name, program in zip(names, (here, self.program)):
                self.train(name, "20u", program=program, model=model.split())
                self.translate(name, f"{name}.out", *translation.split(), program=program)
            self.compare(*names)
            self.same(*[f"{name}.out" for name in names])
        passed(f"weights, optimizers, vocabularies, states and translations of {1 + len(RUNS)} runs have the bytes of Linux")

    def compare(self, here, there, *more):
        """The checkpoints of two runs have the same bytes but for times."""
        for name in ("ckpt/20/model.safetensors", "ckpt/20/optimizer.safetensors", "valid/10.hyp", *more):
            self.same(f"{here}/{name}", f"{there}/{name}")
        states = [json.loads((self.work / run / "ckpt/20/state.json").read_text()) for run in (here, there)]
        different = [key for key in states[0].keys() | states[1].keys() if key != "train_seconds" and states[0].get(key) != states[1].get(key)]
        if different:
            fail(f"state.json of {there} differs from that of Linux in {', '.join(sorted(different))}")

    def runs_c_programs(self):
        """The program of the C guide and those of examples/c."""
        folder = self.work / "c"
        shutil.copytree(ROOT / "examples/c", folder)
        shutil.copy(self.build / "trafo.dll", folder)
        guide = (ROOT / "docs/guide/c-guide.md").read_text()
        (folder / "first.c").write_text(re.search(r"^```c\n(/\* first\.c \*/.*?)^```", guide, re.M | re.S)[1])
        for name in ["first", *EXAMPLES]:
            done([CC, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/capi/include", f"{name}.c", "-o", f"{name}.exe",
                  f"-L{self.build}", "-ltrafo", "-static-libgcc"], cwd=folder)
            said = done([WINE, f"{name}.exe"], cwd=folder).strip()
            if not said or (name == "first" and said != "5 11 11 25"):
                fail(f"{name}.c says: {said}")
        passed(f"{1 + len(EXAMPLES)} programs in C")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    linux = pathlib.Path(sys.argv[2]).resolve() if len(sys.argv) == 3 else None
    with tempfile.TemporaryDirectory() as work:
        checks = Checks(build, linux, pathlib.Path(work))
        print("wine_test:", done([*checks.program, "--version"]).strip(), flush=True)
        for check in (checks.resumes, checks.translates, checks.equals_linux, checks.resumes_after_kill, checks.locks,
                      checks.ends_at_ctrl_c, checks.takes_foreign_paths, checks.refuses_plugins, checks.runs_c_programs):
            check()
    print("wine_test: passed")


main()
