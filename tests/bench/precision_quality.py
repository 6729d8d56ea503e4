#!/usr/bin/env python3
"""The cost of a precision in quality: the same training with the same seed in each of --precisions, compared by the loss on held-out text.

    tests/bench/precision_quality.py --work DIR --seed 1 -- --task gpt2 -t text.gz --valid-sets held-out.gz --after 2000u ...

Everything after -- goes to `translate-train train`. The first precision trains the vocabulary, unless -v is there, and the others take
it. Prints a line for each validation of a run, and at the end each run's last cross-entropy a token beside the first run's. Exit status 1:
one is more than --most percent above it. Needs Python alone.
"""
import argparse
import json
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
METRIC = "ce-mean-words"


def validations(run):
    """(update, cross-entropy) of a run directory, oldest first."""
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [(r["update"], r[METRIC]) for r in records if r["type"] == "valid" and r.get(METRIC) is not None]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default=os.path.join(ROOT, "build/release/translate-train"))
    parser.add_argument("--work", required=True, help="where the run directories are made; they must not be there yet")
    parser.add_argument("--precisions", default="bf16,fp8", help="the first one is what the others are compared with (default bf16,fp8)")
    parser.add_argument("--most", type=float, default=0.5, help="percent that a loss may lie above the first one (default 0.5)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("options", nargs=argparse.REMAINDER, help="-- and options of translate-train train")
    arguments = parser.parse_args()
    options = arguments.options[1:] if arguments.options[:1] == ["--"] else arguments.options
    os.makedirs(arguments.work, exist_ok=True)
    vocabulary = None
    losses = {}
    for precision in arguments.precisions.split(","):
        run = os.path.join(arguments.work, precision)
        command = [arguments.program, "train", *options, "--precision", precision, "--seed", str(arguments.seed), "--model", run]
        if vocabulary:
            command += ["-v", vocabulary]
        begin = time.monotonic()
        subprocess.run(command, check=True, stdout=sys.stderr)
        seconds = time.monotonic() - begin
        if vocabulary is None and "-v" not in options and "--vocabs" not in options:
            vocabulary = os.path.join(run, "vocab.spm")
        for update, loss in validations(run):
            print(f"{precision} update {update}: {METRIC} {loss:.5f}")
        losses[precision] = validations(run)[-1][1]
        print(f"{precision}: {seconds:.1f} s", flush=True)
    first = next(iter(losses.values()))
    worst = 0.0
    for precision, loss in losses.items():
        above = 100 * (loss / first - 1)
        worst = max(worst, above)
        print(f"{precision}: {METRIC} {loss:.5f}, {above:+.3f} %")
    return 1 if worst > arguments.most else 0


if __name__ == "__main__":
    sys.exit(main())
