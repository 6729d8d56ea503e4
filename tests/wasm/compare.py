#!/usr/bin/env python3
"""Compares the files of two runs of the steps.

    compare.py ONE OTHER            byte by byte, but for times
    compare.py --rounding ONE OTHER of two instruction sets: vocabularies and translations byte by byte, losses to 1e-5 of their values. Weights
                                    are not compared: AdamW makes steps of rounding where a gradient is zero, as of the biases of keys

In each run, the checkpoint of the resumed training must have the bytes of the one that was not cut.
"""
import json
import pathlib
import sys

LOSSES = 1e-5


def files(folder):
    return {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()}


def without_times(path):
    content = json.loads(path.read_text())
    if path.name == "state.json":
        del content["train_seconds"]
    else:  # a manifest has the size and the checksum of state.json, and its own
        del content["files"]["state.json"], content["crc32"]
    return content


def same(one, other):
    if one.name in ("state.json", "manifest.json"):
        return without_times(one) == without_times(other)
    return one.read_bytes() == other.read_bytes()


def losses_gap(one, other):
    numbers = lambda path: [float(line.split()[1]) for line in path.read_text().splitlines()]
    a, b = numbers(one), numbers(other)
    assert len(a) == len(b) > 0
    return max(abs(x - y) / x for x, y in zip(a, b))


def check_resumed(run):
    folders = [sorted((run / name / "ckpt").iterdir())[-1] for name in ("run", "whole_run")]
    cut, whole = map(files, folders)
    different = [str(name) for name in whole if name not in cut or not same(cut[name], whole[name])]
    if different:
        sys.exit(f"compare: {run.name}: a resumed training has other files: {', '.join(different)}")


def main():
    rounding = sys.argv[1] == "--rounding"
    one, other = map(pathlib.Path, sys.argv[-2:])
    check_resumed(one)
    check_resumed(other)
    left, right = files(one), files(other)
    for run in (left, right):
        run.pop(pathlib.Path("pairs.tsv"), None)
    if left.keys() != right.keys():
        sys.exit(f"compare: other files: {sorted(map(str, left.keys() ^ right.keys()))}")
    exact = [name for name in left if not rounding or name.name.startswith("beam") or name.suffix == ".model"]
    different = [str(name) for name in exact if not same(left[name], right[name])]
    if different or not exact:
        sys.exit(f"compare: these files differ: {', '.join(different)}")
    print(f"compare: {len(exact)} files have the same bytes")
    if rounding:
        losses = losses_gap(one / "losses.txt", other / "losses.txt")
        print(f"compare: losses differ by {losses:.1e}")
        if losses > LOSSES:
            sys.exit(f"compare: that is more than {LOSSES}")


if __name__ == "__main__":
    main()
