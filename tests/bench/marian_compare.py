#!/usr/bin/env python3
"""Training on a CPU in Trafo and in Marian: one shape, one vocabulary, one corpus, alternating.

    python3 tests/bench/marian_compare.py --build build/release --work FOLDER [--threads 1] [--updates 20] [--rounds 3]

The corpus is the demo's, or --train SOURCE TARGET. Both train a post-norm transformer with tied embeddings, label smoothing and dropout of
0.1, in float32, on about 4,096 target tokens an update, which Marian deals to its threads. Each trains --updates and two updates; the
difference has no start and no end of the program in it. Output: target tokens for each second, and for each second of a processor,
which counts where other programs run beside. The tokens are those that the programs log.

Marian is the package pymarian, in a separate environment (--environment, kept between runs). Exit code 77: it cannot be had here.
"""
import argparse
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/tools"))
import own_environment

MARIAN = "pymarian==1.12.42"
BATCH, LAYERS, WIDTH, FFN, HEADS, SHORT = 4096, 4, 128, 256, 4, 2
MARIAN_MAIN = "import sys, _pymarian; sys.exit(_pymarian.main(sys.argv[1:]))"


def run(command, **options):
    done = subprocess.run([str(each) for each in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))[:300]}:\n{done.stdout[-2000:]}")
    return done.stdout


class Programs:
    """A function that trains: a call gives the target tokens of so many updates."""

    def __init__(self, arguments, python):
        self.work, self.threads = pathlib.Path(arguments.work), arguments.threads
        self.trafo, self.python = os.path.join(os.path.abspath(arguments.build), "translate-train"), python
        self.train_files, self.vocabulary = arguments.train, self.work / "vocab.spm"
        run([self.trafo, "vocab", "--train-sets", *self.train_files, "--dim-vocabs", 1000, "-o", self.vocabulary])

    def with_trafo(self, updates):
        folder = self.work / "trafo"
        shutil.rmtree(folder, ignore_errors=True)
        text = run([self.trafo, "train", "--train-sets", *self.train_files, "--vocabs", self.vocabulary, "--task", "tiny", "--model", folder,
                    "--device", "cpu", "--cpu-threads", self.threads, "--enc-depth", LAYERS, "--dec-depth", LAYERS, "--dim-emb", WIDTH,
                    "--transformer-dim-ffn", FFN, "--transformer-heads", HEADS, "--transformer-norm", "post", "--transformer-dropout", 0.1,
                    "--label-smoothing", 0.1, "--mini-batch-words", BATCH, "--lr-warmup", 100, "--learn-rate", 0.002, "--valid-freq", "0u",
                    "--save-freq", "0u", "--early-stopping", 0, "--after", f"{updates}u"])
        return int(re.findall(r"([\d,]+) target tokens", text)[-1].replace(",", ""))

    def with_marian(self, updates):
        for old in self.work.glob("marian.npz*"):
            old.unlink()
        text = run([self.python, "-c", MARIAN_MAIN, "train", "--type", "transformer", "--model", self.work / "marian.npz", "--train-sets",
                    *self.train_files, "--vocabs", self.vocabulary, self.vocabulary, "--cpu-threads", self.threads, "--sync-sgd", "--enc-depth",
                    LAYERS, "--dec-depth", LAYERS, "--dim-emb", WIDTH, "--transformer-dim-ffn", FFN, "--transformer-heads", HEADS,
                    "--transformer-postprocess", "dan", "--transformer-preprocess", "", "--tied-embeddings-all", "--transformer-dropout", 0.1,
                    "--label-smoothing", 0.1, "--mini-batch", 1000, "--mini-batch-words", BATCH // self.threads, "--maxi-batch", 100,
                    "--workspace", 2000, "--max-length", 100, "--lr-warmup", 100, "--learn-rate", 0.002, "--clip-norm", 1, "--optimizer-params",
                    0.9, 0.98, 1e-9, "--disp-freq", "1u", "--save-freq", "1000000u", "--after", f"{updates}u"])
        return int(re.findall(r"Up\. \d+ .* after ([\d,]+) :", text)[-1].replace(",", ""))


def measured(train, updates):
    """Tokens, seconds and seconds of a processor."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    tokens = train(updates)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return tokens, time.monotonic() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    parser.add_argument("--work", required=True)
    parser.add_argument("--environment", default=os.path.join(ROOT, "build/marian-environment"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--train", nargs=2, metavar=("SOURCE", "TARGET"))
    arguments = parser.parse_args()
    work = pathlib.Path(arguments.work)
    work.mkdir(parents=True, exist_ok=True)
    python = own_environment.python_with(os.path.abspath(arguments.environment), [MARIAN])
    if arguments.train is None:
        run([os.path.join(arguments.build, "examples/demo-corpus"), work / "data"])
        arguments.train = [work / "data/train.de", work / "data/train.en"]
    programs = Programs(arguments, python)
    rates = {"Trafo": [], "Marian": []}
    for _ in range(arguments.rounds):
        for name, train in (("Trafo", programs.with_trafo), ("Marian", programs.with_marian)):
            short, long = measured(train, SHORT), measured(train, arguments.updates)
            tokens, seconds, processor = (last - first for first, last in zip(short, long))
            rates[name].append((tokens / seconds, tokens / processor))
            print(f"{name:7s}{tokens:8,d} tokens: {tokens / seconds:8,.0f} a second, {tokens / processor:8,.0f} a second of a processor", flush=True)
    for number, what in enumerate(("a second", "a second of a processor")):
        trafo, marian = (statistics.median(each[number] for each in rates[name]) for name in rates)
        print(f"tokens {what}: Trafo {trafo:,.0f}, Marian {marian:,.0f}, ratio {trafo / marian:.2f}")


if __name__ == "__main__":
    main()
