#!/usr/bin/env python3
"""Compares rows of bench_ops and bench_step with the rows of the PyTorch comparison script.

Usage: compare.py OURS.jsonl PEER.jsonl

Rows are joined by section, dtype and shape, training steps by workload and batch. Of the peer's
forms (eager, compiled, attention backends) the best counts, for each figure on its own. `x` is how
many times better ours is: above 1 we are ahead, in time as in memory. Rows of ours without a row of
the peer are listed at the end.
"""
import json
import math
import sys

GRADIENT_OPS = ("softmax", "layernorm")


def read_rows(path):
    rows = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("{"):
                rows.append(json.loads(line))
    return rows


def dtype_of(row):
    names = {"attn": "bfloat16", "flce": "bfloat16"}  # the peer's rows of these do not say
    return row.get("dt", names.get(row["sec"], "")).removeprefix("torch.")


def key_of(row):
    if row["sec"] == "train":
        return ("train", " ".join(row["model"].split()[:2]), row["model"].split()[2])
    return (row["sec"], dtype_of(row), tuple(row["shape"]), row.get("causal"))


def label_of(key, ours):
    if key[0] == "train":
        return f"train {key[1]} {key[2]} {ours.get('dt', '')}"
    causal = " causal" if key[3] else ""
    return f"{key[0]} {key[1]} {'x'.join(map(str, key[2]))}{causal}"


def figures(row):
    """{figure: (value, unit, form)} of one row, smaller is better."""
    section, form = row["sec"], row.get("be") or row.get("impl") or row.get("mode") or ""
    found = {}

    def put(name, value, unit, which=form):
        if value is not None and (name not in found or value < found[name][0]):
            found[name] = (value, unit, which)

    if section in GRADIENT_OPS:
        put("forward", row.get("fw_us"), "us")
        put("forward", row.get("fw_eager_us"), "us", "eager")
        put("forward", row.get("fw_compile_us"), "us", "compile")
        put("backward", row.get("bw_us"), "us")
    elif section == "attn":
        put("forward", row.get("fw_us"), "us")
        both = row.get("fwbw_us")
        put("backward", row.get("bw_us", both - row["fw_us"] if both else None), "us")
    elif section == "flce":
        put("time", row.get("ms"), "ms")
        put("memory", row.get("peak_MiB"), "MiB")
    elif section == "train":
        put("step", row.get("ms"), "ms")
        put("memory", row.get("peak_GiB"), "GiB")
    return found


def best_of(rows):
    """{key: {figure: best}} over rows without an error."""
    best = {}
    for row in rows:
        if "sec" not in row or "err" in row or not ("shape" in row or "model" in row):
            continue
        kept = best.setdefault(key_of(row), {})
        for name, figure in figures(row).items():
            if name not in kept or figure[0] < kept[name][0]:
                kept[name] = figure
    return best


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    ours_rows, peer = read_rows(arguments[0]), best_of(read_rows(arguments[1]))
    print(f"{'':48} {'':9} {'ours':>12} {'peer':>12} {'x':>7}  peer's form")
    ratios, alone = {}, []
    for row in ours_rows:
        if "sec" not in row or "err" in row or not ("shape" in row or "model" in row):
            continue
        key, mine = key_of(row), figures(row)
        if not mine:
            continue
        label = label_of(key, row) + ("" if row.get("fused", True) else " reference")
        if key not in peer:
            alone.append(label)
            continue
        for name, (value, unit, _) in mine.items():
            if name not in peer[key]:
                continue
            theirs, _, form = peer[key][name]
            ratio = theirs / value if value > 0 else math.inf
            if row.get("fused", True):
                ratios.setdefault(f"{key[0]} {name}", []).append(ratio)
            print(f"{label:48} {name:9} {value:9.4g} {unit:>3} {theirs:8.4g} {unit:>3} {ratio:6.2f}x"
                  f"  {form}")
        if key[0] == "train" and row.get("tok_s"):
            tokens = row["tok_s"] / 1e3
            theirs = tokens * row["ms"] / peer[key]["step"][0] if "step" in peer[key] else math.nan
            print(f"{'':48} {'':9} {tokens:9.4g} k/s {theirs:8.4g} k/s")
    for what, values in ratios.items():
        mean = math.exp(sum(map(math.log, values)) / len(values))
        print(f"geometric mean, {what:40} {mean:6.2f}x over {len(values)}")
    if alone:
        print("no figure of the peer: " + "; ".join(dict.fromkeys(alone)))
    return 0 if ratios else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
