#!/usr/bin/env python3
"""Every op of capi/include/trafo.h against PyTorch, forward and backward, on fresh random inputs.

    python3 tests/parity/op_accuracy.py --device cuda --dtype bf16 --json errors.jsonl

Needs torch and numpy, a built libtrafo.so, and for --device cuda the plugin (found as libtrafo.so finds it, or named by
TRAFO_CUDA_LIBRARY). The reference is PyTorch in float64 on the CPU from the same inputs, rounded to the dtype under test before;
the peer is PyTorch on the same device in the same dtype (TF32 off). Two figures are made of every output and gradient:

    max   largest |error|, relative to the largest |reference|
    rms   root mean square of the error, relative to the reference's

(absolute where the reference is all zeros), over several draws together where there are few elements. A figure of ours fails when it is above 2 x the peer's + the floor. The floor is one
unit in the last place of the dtype under test, at the largest |reference| for max (between eps / 2 and eps), eps for rms (2^-23,
bfloat16 2^-7): where the peer happens to be exact, or two roundings fall apart by one step, nothing is wrong.

Failures are also: anything not finite (free blocks of the allocator are filled with NaN bytes before every run, so an output
element that no kernel writes shows), a missing gradient, a second run that is not bitwise the first, an op that refuses, a
dropout mask, forward or backward, that is not Philox of its address or, on a GPU, not the CPU's. Exit status 1 if there is any.

On the CPU only float32 is computed with; bfloat16 is a storage type there and takes part in cast.
"""
import argparse
import json
import math
import pathlib
import re
import sys
import time
import zlib

sys.dont_write_bytecode = True
import torch

import op_cases
import op_reference as reference
import trafo_ctypes as trafo
from op_cases import FLOATS, Draw, Side
from op_reference import Attention, Dropout

EPS = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-7}
# Every size class of engine/memory/cached_blocks.h up to 64 KiB: multiples of 64, then eight steps an octave.
SMALL_BLOCKS = list(range(64, 513, 64)) + [2**o + s * 2**(o - 3) for o in range(9, 16) for s in range(1, 9)]
BLOCKS_OF_A_SIZE = 4
# Draws of a case: so many that its smallest tensor has this many elements in all of them, while all tensors have at most so many.
POOLED_ELEMENTS, LARGEST_POOL = 2048, 2_000_000


def poison(context, tensors):
    """Free blocks of NaN bytes for whatever an op on tensors of these shapes may ask for."""
    sizes = set(SMALL_BLOCKS)
    for tensor in tensors:
        width = tensor.shape[-1] if tensor.dim() else 1
        for count in (tensor.numel(), tensor.numel() // max(width, 1)):
            sizes.update(size for size in (2 * count, 4 * count) if size > SMALL_BLOCKS[-1])
    context.poison(sorted(sizes), BLOCKS_OF_A_SIZE)


def run_torch(case, values, side, make_upstream):
    """Outputs and gradients by name. make_upstream(outputs) gives the gradients that come from above."""
    x, leaves = {}, {}
    for name, value in values.items():
        x[name] = (value.to(side.device) if side.peer or value.dtype not in FLOATS else value.double()).detach()
        if value.dtype in FLOATS and name not in case.constants:
            leaves[name] = x[name].requires_grad_()
    outputs = case.torch(x, side)
    upstream = make_upstream(outputs)
    results = {f"out{i}" if len(outputs) > 1 else "out": y.detach().cpu() for i, y in enumerate(outputs)}
    roots = [(y, u.to(y.device, y.dtype)) for y, u in zip(outputs, upstream) if y.requires_grad]
    grads = [None] * len(leaves)
    if roots and leaves:
        grads = torch.autograd.grad([y for y, _ in roots], list(leaves.values()), [u for _, u in roots], allow_unused=True)
    if case.differentiated:
        for (name, leaf), grad in zip(leaves.items(), grads):
            results["d" + name] = None if grad is None else grad.cpu()
    return results, upstream


def run_ours(context, case, values, upstream):
    x, leaves = {}, {}
    for name, value in values.items():
        turned = name in case.transposed
        x[name] = context.tensor(value.mT if turned else value)
        if value.dtype in FLOATS and name not in case.constants:
            leaves[name] = x[name].want_grad()
        if turned:
            x[name] = context.op("transpose", x[name], -1, -2)
    outputs = case.ours(context, x)
    results = {f"out{i}" if len(outputs) > 1 else "out": y.read() if isinstance(y, trafo.Tensor) else y
               for i, y in enumerate(outputs)}
    if not case.differentiated:
        return results
    roots = outputs[:case.differentiated]
    if len(roots) > 1:  # backward starts from one tensor
        roots = [context.concat([context.reshape(root, [-1]) for root in roots], 0)]
        upstream = [torch.cat([u.reshape(-1) for u in upstream])]
    context.backward(roots[0], context.tensor(upstream[0].to(roots[0].dtype()).reshape(roots[0].shape())))
    for name, leaf in leaves.items():
        grad = leaf.grad()
        value = grad.read() if grad else None
        results["d" + name] = value.mT if value is not None and name in case.transposed else value
    return results


def same_bits(a, b):
    if a is None or b is None:
        return a is b
    integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    return a.dtype == b.dtype and torch.equal(a.reshape(-1).view(integers), b.reshape(-1).view(integers))


def largest_of(expected):
    """0 also for what float64 leaves where the exact answer is 0."""
    largest = expected.abs().max().item() if expected.numel() else 0.0
    return largest if largest > 1e-12 else 0.0


def errors(value, expected):
    """(max, rms), infinite for what is not finite."""
    if expected.numel() == 0:
        return 0.0, 0.0
    difference = value.double() - expected
    if not bool(difference.isfinite().all()):
        return math.inf, math.inf
    root = expected.square().mean().sqrt().item() if largest_of(expected) else 1
    return (difference.abs().max().item() / (largest_of(expected) or 1), difference.square().mean().sqrt().item() / root)


def floors(expected, dtype):
    largest = largest_of(expected)
    at_largest = 2.0**math.floor(math.log2(largest)) / largest if largest else 1
    return EPS[dtype] * at_largest, EPS[dtype]


class Report:
    def __init__(self, arguments):
        self.quiet, self.file = arguments.quiet, open(arguments.json, "w") if arguments.json else None
        self.common = {"device": arguments.device, "dtype": arguments.dtype, "seed": arguments.seed}
        self.failures, self.ops = [], {}

    def write(self, record):
        if self.file:
            self.file.write(json.dumps({k: str(v) if isinstance(v, float) and not math.isfinite(v) else v
                                        for k, v in record.items()} | self.common) + "\n")

    def comparison(self, case, name, draws, dtype):
        """draws: (ours, peer, reference) of each."""
        ours, _, first = draws[0]
        shape_ok = all(a is not None and a.shape == c.shape for a, _, c in draws)
        expected = torch.cat([c.reshape(-1) for _, _, c in draws])
        mine = errors(torch.cat([a.reshape(-1) for a, _, _ in draws]), expected) if shape_ok else (math.inf, math.inf)
        theirs = errors(torch.cat([(torch.zeros_like(c) if b is None else b).reshape(-1) for _, b, c in draws]), expected)
        floor = floors(expected, dtype)
        # A peer that gives nothing finite says nothing about us.
        bound = [2 * (t if math.isfinite(t) else 0) + f for t, f in zip(theirs, floor)]
        ok = all(m <= b for m, b in zip(mine, bound))
        ratio = [m / t if t else (0.0 if m == 0 else math.inf) for m, t in zip(mine, theirs)]
        self.write({"op": case.op, "case": case.label, "tensor": name, "shape": list(first.shape),
                    "draws": len(draws), "ours_max": mine[0],
                    "torch_max": theirs[0], "ratio_max": ratio[0], "ours_rms": mine[1], "torch_rms": theirs[1],
                    "ratio_rms": ratio[1], "floor_max": floor[0], "floor_rms": floor[1], "pass": ok})
        line = (f"{case.op:<27}{case.label[:48]:<49}{name:<16}{mine[0]:9.2e} {theirs[0]:9.2e} {ratio[0]:7.2f}  "
                f"{mine[1]:9.2e} {theirs[1]:9.2e} {ratio[1]:7.2f}  ")
        line += "ok" if ok else "FAIL" if shape_ok else "FAIL: no gradient" if ours is None else \
            f"FAIL: shape {tuple(ours.shape)} instead of {tuple(first.shape)}"
        self.add(case.op, ok, line)
        worst = self.ops[case.op]["worst"]
        self.ops[case.op]["worst"] = [max(w, m / b) for w, m, b in zip(worst, mine, bound)]
        if all(math.isfinite(t) for t in (*mine, *theirs)):
            self.ops[case.op]["rms"].append((mine[1], theirs[1]))

    def check(self, op, label, what, ok, detail=""):
        self.write({"op": op, "case": label, "check": what, "detail": detail, "pass": ok})
        if not ok or what.startswith("dropout"):
            self.add(op, ok, f"{op:<27}{label[:48]:<49}{what}: {'ok' if ok else 'FAIL'} {detail}")

    def add(self, op, ok, line):
        entry = self.ops.setdefault(op, {"lines": 0, "failed": 0, "worst": [0.0, 0.0], "rms": []})
        entry["lines"] += 1
        if not ok:
            entry["failed"] += 1
            self.failures.append(line)
        if not ok or not self.quiet:
            print(line, flush=True)

    def summary(self):
        print(f"\n{'op':<29}{'figures':>8}{'failed':>8}   worst of the bound (max, rms)   rms over all: ours, torch")
        for op, entry in sorted(self.ops.items()):
            rms = [math.sqrt(sum(pair[i]**2 for pair in entry["rms"]) / max(1, len(entry["rms"]))) for i in (0, 1)]
            print(f"{op:<29}{entry['lines']:>8}{entry['failed']:>8}   {entry['worst'][0]:7.2f} {entry['worst'][1]:7.2f}"
                  f"{rms[0]:>26.2e} {rms[1]:.2e}")
            self.write({"summary": op, "figures": entry["lines"], "failed": entry["failed"], "ours_rms": rms[0],
                        "torch_rms": rms[1]})
        print(f"{len(self.failures)} failures" + (":" if self.failures else ""))
        for line in self.failures[:40]:
            print("  " + line)
        self.write({"summary": True, "failures": len(self.failures), "figures": sum(e["lines"] for e in self.ops.values())})


def run_draw(context, case, arguments, draw):
    """{name: (ours, peer, reference)} and the names of what two runs disagree on."""
    values = case.inputs(draw)

    def random_upstream(outputs):
        return [draw.normal(*y.shape) for y in outputs[:case.differentiated]]
    expected, upstream = run_torch(case, values, Side(False, "cpu", torch.float64), random_upstream)
    for name, tensor in expected.items():
        if tensor is not None and not bool(tensor.isfinite().all()):
            raise AssertionError(f"the reference of {name} is not finite: the case is wrong")
    peer, _ = run_torch(case, values, Side(True, arguments.device, context.dtype), lambda _: upstream)
    runs = []
    for _ in range(2):
        if arguments.poison:
            poison(context, [*values.values(), *(t for t in expected.values() if t is not None)])
        runs.append(run_ours(context, case, values, upstream))
    if runs[0].keys() != expected.keys():
        raise AssertionError(f"ours gives {list(runs[0])}, the reference {list(expected)}")
    results = {}
    for name, wanted in expected.items():
        if wanted is None:  # nothing depends on it: no gradient, or zeros
            if runs[0][name] is None:
                continue
            wanted = torch.zeros(runs[0][name].shape, dtype=torch.float64)
        results[name] = runs[0][name], peer[name], wanted
    return results, [name for name in expected if not same_bits(runs[0][name], runs[1][name])]


def run_case(context, case, arguments, report):
    """One draw, or, where outputs have so few elements that a figure is a matter of luck, several."""
    draws, unequal, wanted = [], set(), 1
    while len(draws) < wanted:
        # The generator takes 32 bits.
        seed = zlib.crc32(f"{arguments.seed}/{case.op}/{case.label}/{len(draws)}".encode())
        results, differing = run_draw(context, case, arguments, Draw(seed, context.dtype))
        draws.append(results)
        unequal.update(differing)
        sizes = [c.numel() for _, _, c in results.values() if c.numel() > 0]
        if len(draws) == 1 and sizes:
            wanted = max(1, min(32, POOLED_ELEMENTS // min(sizes), LARGEST_POOL // sum(sizes)))
    for name in draws[0]:
        report.comparison(case, name, [draw[name] for draw in draws], context.dtype)
    report.check(case.op, case.label, "two runs bitwise equal", not unequal, ", ".join(sorted(unequal)))
    if context.device == "cuda":
        context.trim()


# ---- dropout masks: what is not exactly zero was kept ----

def visible_masks(context, dtype, op, drop, shape):
    """{direction: kept} of an op on ones."""
    ones, zeros = torch.ones(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)
    if op == "embedding":  # every row of the table is used once
        x = context.tensor(ones).want_grad()
        ids = context.tensor(torch.arange(shape[0], dtype=torch.int32))
        y = context.embedding(ids, x, dropout=drop.struct())
    else:
        x = context.tensor(ones).want_grad()
        vector = context.tensor(zeros[0].contiguous())
        y = {"dropout": lambda: context.op("dropout", x, drop.struct()),
             "bias_act_dropout": lambda: context.op("bias_act_dropout", x, vector, trafo.RELU, drop.struct()),
             "bias_dropout_residual": lambda: context.op("bias_dropout_residual", x, vector, context.tensor(zeros),
                                                         drop.struct()),
             "bias_dropout_residual_norm": lambda: context.op(
                 "bias_dropout_residual_norm", x, vector, context.tensor(zeros), vector, vector, 1e-5, drop.struct(),
                 results=2)[0]}[op]()
    context.backward(y, context.tensor(ones))
    return {"forward": y.read() != 0, "backward": x.grad().read() != 0}


def attention_masks(context, dtype, drop, problem):
    """Equal scores, so every probability is 1 / keys; windows of the identity as values show them column by column, and as the
    upstream gradient in dv."""
    heads, dim, width = problem.heads, problem.head_dim, problem.width
    shown = {way: torch.zeros(heads, sum(problem.queries), max(problem.keys), dtype=torch.bool)
             for way in ("forward", "backward")}

    def windows(lengths, first):  # row r of a sentence has its one in column r - first of every head
        rows = torch.cat([torch.arange(n) for n in lengths]) - first
        eye = ((rows[:, None] == torch.arange(dim)[None, :])).to(dtype)
        return eye.repeat(1, heads)
    bounds = [torch.tensor([0] + n, dtype=torch.int32).cumsum(0, dtype=torch.int32) for n in (problem.queries, problem.keys)]
    for first in range(0, max(problem.queries + problem.keys), dim):
        q = context.tensor(torch.zeros(sum(problem.queries), width, dtype=dtype))
        k = context.tensor(torch.zeros(sum(problem.keys), width, dtype=dtype))
        v = context.tensor(windows(problem.keys, first)).want_grad()
        out = context.attention(q, k, v, context.tensor(bounds[0]), context.tensor(bounds[1]), heads=heads, head_dim=dim,
                                dropout=drop.struct())
        context.backward(out, context.tensor(windows(problem.queries, first)))
        forward, backward = out.read().reshape(-1, heads, dim) != 0, v.grad().read().reshape(-1, heads, dim) != 0
        for b, (queries, keys) in enumerate(zip(problem.queries, problem.keys)):
            q_at, k_at = bounds[0][b].item(), bounds[1][b].item()
            columns, rows = min(dim, max(0, keys - first)), min(dim, max(0, queries - first))
            shown["forward"][:, q_at:q_at + queries, first:first + columns] = \
                forward[q_at:q_at + queries, :, :columns].transpose(0, 1)
            shown["backward"][:, q_at + first:q_at + first + rows, :keys] = \
                backward[k_at:k_at + keys, :, :rows].permute(1, 2, 0)
    return shown


def check_masks(context, host, arguments, report):
    wanted = lambda op: re.search(arguments.filter, f"{op}/dropout bits")
    drops = [Dropout(0.3, 7, 3, 5), Dropout(0.1, 2**64 - 3, 2**32 - 1, 2**31), Dropout(0.999, 1, 0, 0)]

    def compare(op, label, made, on_host, kept):
        for way, mask in made.items():
            report.check(op, label, f"dropout bits {way}, the definition's", bool(torch.equal(mask, kept)))
            if on_host:
                report.check(op, label, f"dropout bits {way}, the CPU's", bool(torch.equal(mask, on_host[way])))
    for drop in drops:
        for op in ("dropout", "embedding", "bias_act_dropout", "bias_dropout_residual", "bias_dropout_residual_norm"):
            for shape in [(1, 1), (37, 7), (64, 512), (501, 333)] if wanted(op) else []:
                compare(op, f"{shape[0]} x {shape[1]}, p {drop.p}", visible_masks(context, context.dtype, op, drop, shape),
                        host and visible_masks(host, torch.float32, op, drop, shape), drop.kept(shape))
        for dim in (40, 64, 128) if wanted("attention") else ():
            problem = Attention(2, dim, [70, 5, 0, 129], [66, 130, 3, 64], dropout=drop)
            kept = problem.dropout_mask()[:, :, :max(problem.keys)].transpose(0, 1).clone()
            at = 0
            for queries, keys in zip(problem.queries, problem.keys):
                kept[:, at:at + queries, keys:] = False  # there is nothing to see
                at += queries
            compare("attention", f"head {dim}, p {drop.p}", attention_masks(context, context.dtype, drop, problem),
                    host and attention_masks(host, torch.float32, drop, problem), kept)


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", default=str(root / "build/release/libtrafo.so"))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--seed", type=int, help="default: from the time; printed")
    parser.add_argument("--filter", default="", help="regular expression over 'op/case'")
    parser.add_argument("--json", help="also write JSON lines to this file")
    parser.add_argument("--poison", action=argparse.BooleanOptionalAction, default=True,
                        help="fill the allocator's free blocks with NaN bytes before every run (default)")
    parser.add_argument("--quiet", action="store_true", help="print failures and the summary only")
    arguments = parser.parse_args()
    if arguments.device == "cpu" and arguments.dtype == "bf16":
        parser.error("bfloat16 is computed with on CUDA only")
    if arguments.seed is None:
        arguments.seed = time.time_ns() % 2**31
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[arguments.dtype]

    library = trafo.Library(arguments.library)
    context = trafo.Context(library, arguments.device)
    context.dtype = dtype
    host = trafo.Context(library, "cpu") if arguments.device != "cpu" else None
    report = Report(arguments)
    card = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    header = {"trafo": library.version(), "torch": torch.__version__, "card": card, "date": time.strftime("%Y-%m-%d"),
              "poison": arguments.poison}
    report.write(header)
    print(f"trafo {header['trafo']} and torch {header['torch']} on {card}, {arguments.dtype}, seed {arguments.seed}")
    print(f"{'op':<27}{'case':<49}{'tensor':<16}{'ours max':>9} {'torch':>9} {'ratio':>7}  {'ours rms':>9} {'torch':>9} "
          f"{'ratio':>7}")

    for case in op_cases.all_cases():
        if not re.search(arguments.filter, f"{case.op}/{case.label}") or (case.float32_only and dtype != torch.float32):
            continue
        try:
            run_case(context, case, arguments, report)
        except Exception as error:  # one case that cannot run must not hide the others
            report.check(case.op, case.label, "ran", False, f"{type(error).__name__}: {error}")
    check_masks(context, host, arguments, report)
    report.summary()
    return 1 if report.failures or not report.ops else 0


if __name__ == "__main__":
    sys.exit(main())
