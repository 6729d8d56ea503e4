#!/usr/bin/env python3
"""Reads the event files of `translate-train train --tensorboard` with TensorBoard's own reader.

    tests/tools/tensorboard_check.py [--program build/release/translate-train]

Trains a small run, kills it without warning between two checkpoints, lets it continue, and compares what TensorBoard makes of
the two event files with the run's metrics.jsonl: every step once, in order, with the same values, and the samples as text. The
`tensorboard` package is installed into a separate environment under build/ (about half a minute, once). Exit code 77 means
that it could not be had and nothing was checked.
"""
import argparse
import json
import math
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import own_environment
import toy_corpus

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ["tensorboard==2.20.0"]


def records(run):
    found = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            pass  # cut off by the kill
    return found


def train(program, folder):
    """A run that was killed and went on; its log had more updates before the kill than the checkpoint."""
    run = folder / "run"
    command = [program, "train", "--train-sets", "t.src", "t.trg", "--valid-sets", "v.src", "v.trg", "--model", "run",
               "--task", "tiny", "--enc-depth", "1", "--dec-depth", "1", "--dim-emb", "16", "--transformer-dim-ffn", "32",
               "--transformer-heads", "2", "--dim-vocabs", "60", "--mini-batch-words", "200", "--cpu-threads", "1",
               "--device", "cpu", "--valid-freq", "25u", "--save-freq", "25u", "--disp-freq", "1u", "--after", "1000000u",
               "--tensorboard"]
    first = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        time.sleep(0.002)
        updates = [r["update"] for r in records(run)] if (run / "metrics.jsonl").exists() else [0]
        if (run / "latest").exists() and max(updates) % 25 > 3:
            break
    first.send_signal(signal.SIGKILL)
    first.wait()
    saved, seen = int((run / "latest").read_text()), max(r["update"] for r in records(run))
    assert seen > saved > 0, (seen, saved)
    subprocess.run([program, "train", "--model", "run", "--after", f"{saved + 60}u"], cwd=folder, check=True,
                   stderr=subprocess.DEVNULL)
    print(f"killed after update {seen}, went on from {saved}")
    return run


def compare(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    board.Reload()
    files = list((run / "tensorboard").iterdir())
    assert len(files) == 2, files
    kinds = {kind: [r for r in records(run) if r["type"] == kind] for kind in ("train", "valid")}
    columns = {"train/loss": ("train", "loss"), "train/learning_rate": ("train", "learning_rate"),
               "train/grad_norm": ("train", "grad_norm"),
               "speed/target_tokens_per_second": ("train", "target_tokens_per_second"),
               "valid/bleu": ("valid", "bleu"), "valid/chrf": ("valid", "chrf"),
               "valid/ce-mean-words": ("valid", "ce-mean-words")}
    compared = 0
    for tag, (kind, key) in columns.items():
        points, wanted = board.Scalars(tag), kinds[kind]
        assert [p.step for p in points] == [r["update"] for r in wanted], f"{tag}: steps differ"
        for point, record in zip(points, wanted):
            assert math.isclose(point.value, record[key], rel_tol=1e-6), (tag, point, record[key])
            assert abs(point.wall_time - record["time"]) < 1e-3
        compared += len(points)
    texts = board.Tensors("valid/samples")
    assert [t.step for t in texts] == [r["update"] for r in kinds["valid"]]
    sources = next(r for r in records(run) if r["type"] == "samples")["sources"]
    for text in texts:
        markdown = text.tensor_proto.string_val[0].decode()
        assert all(source in markdown for source in sources), markdown
    print(f"tensorboard_check: {compared} scalars and {len(texts)} texts as TensorBoard reads them, steps 1 to "
          f"{kinds['train'][-1]['update']} without gap or double")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", default=ROOT / "build/release/translate-train", type=pathlib.Path)
    parser.add_argument("--environment", default=ROOT / "build/tensorboard-environment", type=pathlib.Path)
    parser.add_argument("--compare", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.compare:
        compare(arguments.compare)
        return
    python = own_environment.python_with(arguments.environment, PACKAGES)
    with tempfile.TemporaryDirectory() as folder:
        toy_corpus.write(pathlib.Path(folder), 300, 20)
        run = train(arguments.program.resolve(), pathlib.Path(folder))
        subprocess.run([python, __file__, "--compare", run], check=True)


if __name__ == "__main__":
    main()
