"""The shape classes that op_accuracy.py runs every op of capi/include/trafo.h on."""
import dataclasses
from typing import Callable

import torch
import torch.nn.functional as F

import op_reference as reference
import trafo_ctypes as trafo
from op_reference import Attention, Dropout

FLOATS = (torch.float32, torch.float64, torch.bfloat16)


class Draw:
    """Fresh random inputs, rounded to the dtype under test."""

    def __init__(self, seed, dtype):
        self.random, self.dtype = torch.Generator().manual_seed(seed), dtype

    def uniform(self, *shape, low=-1.0, high=1.0, dtype=None):
        unit = torch.rand(shape, generator=self.random, dtype=torch.float64)
        return (low + (high - low) * unit).to(dtype or self.dtype)

    def away_from_zero(self, *shape):
        sign = torch.randint(0, 2, shape, generator=self.random) * 2 - 1
        return self.uniform(*shape, low=0.5, high=2) * sign

    def normal(self, *shape, dtype=None):
        return torch.randn(shape, generator=self.random, dtype=torch.float64).to(dtype or self.dtype)

    def integers(self, *shape, low=0, high=2):
        return torch.randint(low, high, shape, generator=self.random).to(torch.int32)


@dataclasses.dataclass
class Side:
    """Which run of the PyTorch function this is."""
    peer: bool
    device: str
    dtype: torch.dtype


@dataclasses.dataclass
class Case:
    op: str
    label: str
    inputs: Callable  # Draw -> {name: tensor}; floating-point ones get gradients unless they are in `constants`
    ours: Callable  # (Context, {name: Tensor}) -> Tensors, or tensors on the host
    torch: Callable  # ({name: tensor}, Side) -> tensors
    constants: tuple = ()
    differentiated: int = 1  # this many outputs, from the first, get an upstream gradient
    transposed: tuple = ()  # inputs that the op gets as a transposed view of what is stored
    float32_only: bool = False


def pack(*values):
    return lambda draw: {"x": draw.uniform(*values)}


def binary():
    shapes = [("width 1", (1,), (1,)), ("same shape, odd", (3, 7), (3, 7)), ("vector over rows", (5, 9), (9,)),
              ("rows over a vector", (9,), (5, 9)), ("column over rows", (5, 9), (5, 1)),
              ("one element", (4, 5), (1,)), ("rank 0", (3,), ()), ("both sides repeated", (4, 1, 3), (1, 5, 1)),
              ("outer and inner repeated", (2, 3, 4, 5), (1, 3, 1, 5)), ("batch of one", (1, 6), (1, 6)),
              ("empty batch", (0, 5), (5,)), ("no width", (3, 0), (1,)), ("large", (300, 512), (300, 512)),
              ("large, vector over odd rows", (1031, 259), (259,)), ("strided", (33, 17), (33, 17))]
    operations = {"add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "divide": torch.div}
    for name, function in operations.items():
        for label, a, b in shapes:
            yield Case(name, label, lambda d, a=a, b=b: {"a": d.uniform(*a), "b": d.away_from_zero(*b)},
                       lambda c, x, name=name: [c.op(name, x["a"], x["b"])],
                       lambda x, side, function=function: [function(x["a"], x["b"])],
                       transposed=("a", "b") if label == "strided" else ())
        yield Case(name, "a tensor with itself", lambda d: {"a": d.away_from_zero(3, 5)},
                   lambda c, x, name=name: [c.op(name, x["a"], x["a"])],
                   lambda x, side, function=function: [function(x["a"], x["a"])])


def unary():
    shapes = [("width 1", (1,)), ("rank 0", ()), ("odd", (3, 5)), ("no vector width divides it", (31,)),
              ("whole vectors", (2, 16)), ("rank 4", (2, 1, 3, 4)), ("empty batch", (0, 7)), ("batch of one", (1, 9)),
              ("large", (256, 1024)), ("large, odd", (100003,)), ("strided", (33, 17))]
    kinds = {"scale": lambda x: x * -1.75, "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "tanh": torch.tanh,
             "sigmoid": torch.sigmoid}
    ranges = {"log": [("", 0.25, 3), ("small values, ", 1e-6, 1e-3), ("large values, ", 3, 1e5)],
              "sqrt": [("", 0.25, 3), ("small values, ", 1e-6, 1e-3), ("large values, ", 3, 1e5)],
              "exp": [("", -4, 3), ("large values, ", -30, 30)]}
    for name, function in kinds.items():
        for prefix, low, high in ranges.get(name, [("", -4, 4), ("small values, ", -1e-3, 1e-3),
                                                   ("large values, ", -30, 30)]):
            for label, shape in shapes if prefix == "" else [("odd", (1000, 37))]:
                extra = (-1.75,) if name == "scale" else ()
                yield Case(name, prefix + label, lambda d, s=shape, l=low, h=high: {"x": d.uniform(*s, low=l, high=h)},
                           lambda c, x, name=name, extra=extra: [c.op(name, x["x"], *extra)],
                           lambda x, side, function=function: [function(x["x"])],
                           transposed=("x",) if label == "strided" else ())
    for name, kind in (("relu", trafo.RELU), ("gelu", trafo.GELU), ("silu", trafo.SILU), ("gelu_erf", trafo.GELU_ERF)):
        for label, shape, bound in [(*entry, 3) for entry in shapes] + [("large values", (1000, 37), 30),
                                                                       ("small values", (1000, 37), 1e-3)]:
            yield Case("activation", f"{name}, {label}", lambda d, s=shape, b=bound: {"x": d.uniform(*s, low=-b, high=b)},
                       lambda c, x, kind=kind: [c.op("activation", x["x"], kind)],
                       lambda x, side, kind=kind: [reference.activation(x["x"], kind)],
                       transposed=("x",) if label == "strided" else ())


def reduce():
    for label, shape in [("one element", (1,)), ("odd", (3, 5, 2)), ("rank 0", ()), ("batch of one", (1, 33)),
                         ("no vector divides it", (131,)), ("over a row chunk", (259, 2)), ("wide", (1, 70001)),
                         ("large", (700, 512)), ("strided", (33, 17))]:
        for name in ("sum", "mean"):
            yield Case(name, label, lambda d, s=shape: {"x": d.uniform(*s)},
                       lambda c, x, name=name: [c.op(name, x["x"])],
                       lambda x, side, name=name: [getattr(torch, name)(x["x"]).reshape(1)],
                       transposed=("x",) if label == "strided" else ())
    yield Case("sum", "nothing", pack(0, 5), lambda c, x: [c.op("sum", x["x"])], lambda x, side: [x["x"].sum().reshape(1)])
    dims = [("width 1", (4, 1), 1, 0), ("last dimension, odd", (5, 7), -1, 0), ("first dimension", (5, 7), 0, 0),
            ("middle dimension", (3, 4, 5), 1, 0), ("kept dimension", (3, 4, 5), -2, 1), ("to rank 0", (6,), 0, 0),
            ("one row", (1, 33), 1, 0), ("over a row chunk", (259, 2), 0, 0), ("empty batch", (0, 5), 1, 0),
            ("no columns", (3, 0, 4), 0, 1), ("long rows", (3, 20011), 1, 0), ("long columns", (20011, 3), 0, 0),
            ("large", (700, 512), 0, 0), ("large rows", (700, 513), 1, 0), ("strided", (33, 17), 0, 0)]
    functions = {"sum_dim": lambda x, dim, keep: x.sum(dim, keepdim=keep),
                 "mean_dim": lambda x, dim, keep: x.mean(dim, keepdim=keep), "max_dim": reference.max_dim}
    for name, function in functions.items():
        for label, shape, dim, keep in dims:
            yield Case(name, label, lambda d, s=shape: {"x": d.uniform(*s)},
                       lambda c, x, n=name, dim=dim, keep=keep: [c.op(n, x["x"], dim, keep)],
                       lambda x, side, f=function, dim=dim, keep=keep: [f(x["x"], dim, bool(keep))],
                       transposed=("x",) if label == "strided" else ())


def views():
    for label, shape, to in [("one element", (1,), ()), ("flat", (5, 7), (35,)), ("split", (6, 8), (2, 3, 4, 2)),
                             ("inferred", (2, 3, 8), (-1, 4)), ("batch of one", (1, 9), (9, 1)), ("same", (5, 3), (5, 3)),
                             ("empty batch", (0, 6), (3, 0, 2)), ("large", (512, 300), (300, 512)),
                             ("strided", (17, 33), (33, 17))]:
        yield Case("reshape", label, lambda d, s=shape: {"x": d.uniform(*s)}, lambda c, x, to=to: [c.reshape(x["x"], to)],
                   lambda x, side, to=to: [x["x"].reshape(to)], transposed=("x",) if label == "strided" else ())
    for label, shape, a, b in [("width 1", (1, 1), 0, 1), ("odd", (5, 7), 0, 1), ("over a tile edge", (17, 33), -1, -2),
                               ("heads", (2, 3, 4, 8), 1, 2), ("outermost", (2, 3, 4, 5), 0, 3), ("same", (4, 5), 1, 1),
                               ("empty batch", (0, 3, 4), 0, 2), ("large", (515, 1030), 0, 1), ("batches", (9, 65, 33), 1, 2)]:
        yield Case("transpose", label, lambda d, s=shape: {"x": d.uniform(*s)},
                   lambda c, x, a=a, b=b: [c.op("transpose", x["x"], a, b)],
                   lambda x, side, a=a, b=b: [x["x"].transpose(a, b)])
    for label, shape, dim, start, stop in [("one element", (1,), 0, 0, 1), ("rows", (6, 4), 0, 1, 5),
                                           ("columns", (3, 12), 1, 4, 10), ("middle", (2, 7, 3), -2, 2, 5),
                                           ("nothing", (3, 4), 0, 3, 3), ("everything", (5, 3), 1, 0, 3),
                                           ("empty batch", (0, 4), 1, 1, 3), ("large", (515, 1030), 1, 7, 900),
                                           ("strided", (17, 33), 1, 3, 20)]:
        yield Case("slice", label, lambda d, s=shape: {"x": d.uniform(*s)},
                   lambda c, x, dim=dim, i=start, j=stop: [c.op("slice", x["x"], dim, i, j)],
                   lambda x, side, dim=dim, i=start, j=stop: [x["x"].narrow(dim, i, j - i)],
                   transposed=("x",) if label == "strided" else ())
    for label, shapes, dim in [("rows", [(1, 3), (4, 3), (2, 3)], 0), ("columns, one empty", [(3, 2), (3, 0), (3, 5)], -1),
                               ("middle", [(2, 1, 3), (2, 3, 3)], 1), ("one", [(7,)], 0), ("width 1", [(3, 1), (3, 1)], 1),
                               ("batch of one", [(1, 9), (1, 9)], 0), ("empty batch", [(0, 4), (0, 4)], 1),
                               ("large", [(300, 257), (300, 511)], 1)]:
        names = [f"x{i}" for i in range(len(shapes))]
        yield Case("concat", label, lambda d, n=names, s=shapes: {a: d.uniform(*b) for a, b in zip(n, s)},
                   lambda c, x, n=names, dim=dim: [c.concat([x[a] for a in n], dim)],
                   lambda x, side, n=names, dim=dim: [torch.cat([x[a] for a in n], dim)])
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
    for source in kinds:
        for to in kinds:
            for label, shape in [("odd", (3, 5)), ("no vector width divides it", (131,)), ("empty batch", (0, 7)),
                                 ("large", (512, 300))] if source != to else []:
                yield Case("cast", f"{source} to {to}, {label}",
                           lambda d, s=shape, t=kinds[source]: {"x": d.normal(*s, dtype=t)},
                           lambda c, x, t=kinds[to]: [c.op("cast", x["x"], trafo.DTYPES[t])],
                           lambda x, side, t=kinds[to]: [x["x"].to(t) if side.peer else x["x"]])


def products():
    for label, a, b, ta, tb in [
            ("width 1", (1, 1), (1, 1), 0, 0), ("odd", (3, 5), (5, 7), 0, 0), ("a transposed", (5, 3), (5, 7), 1, 0),
            ("b transposed", (3, 5), (7, 5), 0, 1), ("both transposed", (5, 3), (7, 5), 1, 1),
            ("batched", (3, 2, 4), (3, 4, 5), 0, 0), ("batched, both transposed", (2, 4, 3), (2, 5, 4), 1, 1),
            ("row times column", (1, 9), (9, 1), 0, 0), ("column times row", (6, 1), (1, 5), 0, 0),
            ("empty batch", (0, 2, 3), (0, 3, 4), 0, 0), ("no rows", (0, 3), (3, 4), 0, 0),
            ("nothing to sum", (2, 0), (0, 3), 0, 0), ("large", (512, 384), (384, 640), 0, 0),
            ("large, odd", (257, 301), (301, 131), 0, 0), ("large, both transposed", (301, 257), (131, 301), 1, 1),
            ("long sums", (33, 5000), (5000, 35), 0, 0), ("heads", (24, 65, 64), (24, 65, 64), 0, 1),
            ("strided", (33, 17), (17, 40), 0, 0)]:
        def product(x, side, ta=ta, tb=tb):
            return [torch.matmul(x["a"].mT if ta else x["a"], x["b"].mT if tb else x["b"])]
        yield Case("matmul", label, lambda d, a=a, b=b: {"a": d.uniform(*a), "b": d.uniform(*b)},
                   lambda c, x, ta=ta, tb=tb: [c.op("matmul", x["a"], x["b"], ta, tb)], product,
                   transposed=("a", "b") if label == "strided" else ())
    for label, shape, out, bias in [("odd", (4, 5), 3, 1), ("without bias", (4, 5), 3, 0), ("rank 3", (2, 3, 4), 5, 1),
                                    ("one vector", (6,), 4, 1), ("empty batch", (0, 3, 4), 5, 1), ("width 1", (3, 1), 1, 1),
                                    ("batch of one", (1, 256), 256, 1), ("large", (700, 512), 384, 1),
                                    ("large, odd", (701, 333), 259, 1), ("many rows", (5000, 64), 48, 1),
                                    ("many rows without bias", (5000, 40), 24, 0), ("strided", (33, 17), 9, 1)]:
        def inputs(d, shape=shape, out=out, bias=bias):
            return {"x": d.uniform(*shape), "weight": d.uniform(out, shape[-1]), **({"bias": d.uniform(out)} if bias else {})}
        yield Case("linear", label, inputs, lambda c, x: [c.op("linear", x["x"], x["weight"], x.get("bias"))],
                   lambda x, side: [F.linear(x["x"], x["weight"], x.get("bias"))],
                   transposed=("x", "weight") if label == "strided" else ())


def dropouts():
    for label, shape, drop in [
            ("width 1", (1,), Dropout(0.5, 1, 2, 3)), ("rank 0", (), Dropout(0.5, 2, 2, 3)),
            ("odd", (3, 7), Dropout(0.1, 3, 0, 1)), ("whole blocks of eight", (4, 16), Dropout(0.3, 4, 7, 2)),
            ("no block divides it", (37,), Dropout(0.25, 2**64 - 1, 2**32 - 1, 9)),
            ("batch of one", (1, 9), Dropout(0.5)), ("empty batch", (0, 8), Dropout(0.5)), ("off", (2, 5), Dropout(0)),
            ("nearly everything", (4099,), Dropout(0.999)), ("large", (512, 1000), Dropout(0.1)),
            ("large, odd", (1001, 513), Dropout(0.3)), ("strided", (33, 17), Dropout(0.3))]:
        yield Case("dropout", label, lambda d, s=shape: {"x": d.uniform(*s)},
                   lambda c, x, drop=drop: [c.op("dropout", x["x"], drop.struct())],
                   lambda x, side, drop=drop: [reference.dropped(x["x"], drop)],
                   transposed=("x",) if label == "strided" else ())


def embeddings():
    drop = Dropout(0.3, 7, 3, 5)
    for label, vocabulary, width, tokens, scale, positions, dropout in [
            ("width 1", 3, 1, 3, 1, 0, None), ("one token", 4, 5, 1, 2.5, 0, None), ("odd width", 5, 7, 5, 1.5, 0, None),
            ("no vector divides the width", 3, 37, 3, -1, 0, None), ("empty batch", 3, 4, 0, 1, 0, None),
            ("empty batch with positions", 3, 4, 0, 1, 2, None), ("learned positions", 4, 6, 6, 2, 4, None),
            ("dropout", 4, 9, 6, 3, 4, drop), ("many tokens on few rows", 11, 3, 3000, 1, 7, drop),
            ("one row gets everything", 1, 65, 2000, 1, 0, None), ("large", 3000, 512, 1500, 22.6, 256, drop),
            ("large, odd", 1000, 333, 2000, 18.2, 0, None), ("wide rows", 50, 2056, 300, 1, 0, drop)]:
        def inputs(d, v=vocabulary, w=width, t=tokens, p=positions):
            x = {"ids": d.integers(t, high=v), "table": d.uniform(v, w)}
            return x | ({"positions": d.integers(t, high=p), "position_table": d.uniform(p, w)} if p else {})

        def ours(c, x, scale=scale, drop=dropout):
            given = {"dropout": drop.struct()} if drop else {}
            return [c.embedding(x["ids"], x["table"], scale=scale, positions=x.get("positions"),
                                position_table=x.get("position_table"), **given)]

        def theirs(x, side, scale=scale, drop=dropout):
            y = F.embedding(x["ids"], x["table"])
            y = y * scale if scale != 1 else y
            if "positions" in x:
                y = y + F.embedding(x["positions"], x["position_table"])
            return [reference.dropped(y, drop)]
        yield Case("embedding", label, inputs, ours, theirs)
    for positions, width in [(1, 1), (5, 4), (7, 5), (0, 6), (64, 128), (512, 512), (1000, 256), (2048, 37)]:
        yield Case("sinusoidal_positions", f"{positions} x {width}", lambda d: {},
                   lambda c, x, n=positions, w=width: [c.function("sinusoidal_positions", n, w, trafo.DTYPES[c.dtype])],
                   lambda x, side, n=positions, w=width: [reference.sinusoids(n, w, side.dtype, side.device)],
                   differentiated=0)


ROWS = [("width 1", (6, 1)), ("width 2", (3, 2)), ("odd", (3, 7)), ("one more than two vectors", (9, 33)),
        ("batch of one", (1, 16)), ("empty batch", (0, 8)), ("three dimensions", (2, 3, 20)),
        ("many narrow rows", (700, 3)), ("width no vector divides", (40, 67)), ("width 128", (300, 128)),
        ("width 256", (65, 256)), ("width 512", (700, 512)), ("width 1000", (33, 1000)), ("width 1024", (65, 1024)),
        ("width 1023", (65, 1023)), ("wide rows", (17, 4096)), ("very wide rows, odd", (5, 16385)),
        ("many rows", (5000, 64)), ("strided", (33, 17))]


def layer_norms():
    extra = [("vector without rows", (12,), 1e-5, 0), ("large epsilon", (4, 10), 0.1, 0),
             ("mean far from zero", (65, 256), 1e-5, 30)]
    for label, shape, epsilon, mean in [(*entry, 1e-5, 0) for entry in ROWS] + extra:
        def inputs(d, shape=shape, mean=mean):
            return {"x": d.uniform(*shape, low=mean - 1, high=mean + 1), "gamma": d.uniform(shape[-1], low=0.5, high=1.5),
                    "beta": d.uniform(shape[-1])}
        yield Case("layer_norm", label, inputs,
                   lambda c, x, e=epsilon: [c.op("layer_norm", x["x"], x["gamma"], x["beta"], e)],
                   lambda x, side, e=epsilon: [reference.layer_norm(x["x"], x["gamma"], x["beta"], e)],
                   transposed=("x",) if label == "strided" else ())


def llama_ops():
    for label, shape in ROWS:
        strided = ("x",) if label == "strided" else ()
        yield Case("rms_norm", label, lambda d, s=shape: {"x": d.uniform(*s), "gamma": d.uniform(s[-1], low=0.5, high=1.5)},
                   lambda c, x: [c.op("rms_norm", x["x"], x["gamma"], 1e-6)],
                   lambda x, side: [reference.rms_norm(x["x"], x["gamma"], 1e-6, side.peer)], transposed=strided)
        for p in (0, 0.3):
            def theirs(x, side, p=p):
                y = x["residual"] + reference.dropped(x["x"], Dropout(p))
                return [y, reference.rms_norm(y, x["gamma"], 1e-6, side.peer)]
            yield Case("residual_rms_norm", f"{label}, p {p}",
                       lambda d, s=shape: {"x": d.uniform(*s), "residual": d.uniform(*s), "gamma": d.uniform(s[-1], high=1.5)},
                       lambda c, x, p=p: c.op("residual_rms_norm", x["x"], x["residual"], x["gamma"], 1e-6, Dropout(p).struct(),
                                              results=2), theirs, differentiated=2, transposed=strided)
        yield Case("swiglu", label, lambda d, s=shape: {"x": d.uniform(*s[:-1], 2 * s[-1], low=-3, high=3)},
                   lambda c, x: [c.op("swiglu", x["x"])], lambda x, side: [reference.swiglu(x["x"])], transposed=strided)
    for label, rows, heads, kv, dim, theta, last in [
            ("one pair", 5, 1, 0, 2, 1e4, 40), ("odd pairs", 4, 3, 0, 6, 1e4, 40), ("empty batch", 0, 2, 0, 8, 1e4, 40),
            ("one row", 1, 2, 0, 64, 1e4, 40), ("packed product", 700, 8, 8, 64, 1e4, 256), ("strided", 33, 2, 0, 8, 1e4, 40),
            ("grouped queries", 300, 8, 2, 64, 5e5, 4096), ("one head of keys", 33, 6, 1, 10, 1e4, 100),
            ("wide heads", 65, 4, 4, 128, 1e4, 2048), ("far positions", 65, 4, 0, 64, 1e4, 200000)]:
        yield Case("rotary", label,
                   lambda d, r=rows, w=(heads + 2 * kv) * dim, last=last: {"x": d.uniform(r, w), "at": d.integers(r, high=last)},
                   lambda c, x, a=(heads, kv, dim, theta): [c.op("rotary", x["x"], x["at"], *a)],
                   lambda x, side, a=(heads, kv, dim, theta): [reference.rotary(x["x"], x["at"], *a)],
                   transposed=("x",) if label == "strided" else ())


def add_norms():
    for name, kind in (("relu", trafo.RELU), ("gelu", trafo.GELU), ("silu", trafo.SILU), ("gelu_erf", trafo.GELU_ERF)):
        for label, shape, p, bias in [(*entry, 0.3, True) for entry in ROWS] + [
                ("no dropout", (40, 99), 0, True), ("no bias", (40, 33), 0.5, False),
                ("no bias, no dropout", (2, 18), 0, False)]:
            def inputs(d, shape=shape, bias=bias):
                return {"x": d.uniform(*shape, low=-3, high=3), **({"bias": d.uniform(shape[-1])} if bias else {})}

            def theirs(x, side, kind=kind, p=p):
                y = x["x"] + x["bias"] if "bias" in x else x["x"]
                return [reference.dropped(reference.activation(y, kind), Dropout(p))]
            yield Case("bias_act_dropout", f"{name}, {label}", inputs,
                       lambda c, x, kind=kind, p=p: [c.op("bias_act_dropout", x["x"], x.get("bias"), kind, Dropout(p).struct())],
                       theirs, transposed=("x",) if label == "strided" else ())
    for label, shape, p, bias in [(*entry, 0.3, True) for entry in ROWS] + [
            ("no dropout", (40, 99), 0, True), ("no bias", (40, 33), 0.5, False), ("no bias, no dropout", (3, 5), 0, False)]:
        drop = Dropout(p, 77, 3, 2)

        def add_norm(x, drop=drop):
            y = x["x"] + x["bias"] if "bias" in x else x["x"]
            return x["residual"] + reference.dropped(y, drop)

        def inputs(d, shape=shape, bias=bias, norm=False):
            x = {"x": d.uniform(*shape), "residual": d.uniform(*shape), **({"bias": d.uniform(shape[-1])} if bias else {})}
            return x | ({"gamma": d.uniform(shape[-1], low=0.5, high=1.5), "beta": d.uniform(shape[-1])} if norm else {})

        def normed(c, x, drop=drop):
            return c.op("bias_dropout_residual_norm", x["x"], x.get("bias"), x["residual"], x["gamma"], x["beta"], 1e-5,
                        drop.struct(), results=2)

        def both(x, side, add_norm=add_norm):
            total = add_norm(x)
            return [total, reference.layer_norm(total, x["gamma"], x["beta"], 1e-5)]
        strided = ("x", "residual") if label == "strided" else ()
        yield Case("bias_dropout_residual", label, inputs,
                   lambda c, x, drop=drop: [c.op("bias_dropout_residual", x["x"], x.get("bias"), x["residual"], drop.struct())],
                   lambda x, side, add_norm=add_norm: [add_norm(x)], transposed=strided)
        with_norm = lambda d, inputs=inputs: inputs(d, norm=True)
        yield Case("bias_dropout_residual_norm", label, with_norm, normed, both, differentiated=2, transposed=strided)
        if label in ("odd", "width 512", "very wide rows, odd"):
            yield Case("bias_dropout_residual_norm", label + ", only the sum differentiated", with_norm, normed, both,
                       transposed=strided)
            yield Case("bias_dropout_residual_norm", label + ", only the normed differentiated", with_norm,
                       lambda c, x, normed=normed: normed(c, x)[::-1], lambda x, side, both=both: both(x, side)[::-1],
                       transposed=strided)


def softmaxes():
    cases = [("one key", (2, 2, 3, 1), 1, 0, 0), ("odd", (1, 2, 3, 7), 1, 0, 0), ("scaled", (2, 1, 4, 9), 0.125, 0, 0),
             ("negative scale", (1, 1, 3, 18), -2, 0, 0), ("causal square", (2, 2, 5, 5), 1, 1, 0),
             ("causal, more keys than queries", (1, 2, 3, 8), 1, 1, 0),
             ("causal, rows that see nothing", (1, 2, 6, 3), 1, 1, 0), ("padded", (3, 2, 2, 17), 1, 0, 1),
             ("padded and causal", (2, 2, 6, 6), 0.7, 1, 1), ("all-masked rows", (2, 2, 3, 5), 0.5, 0, 2),
             ("all-masked rows, causal", (2, 2, 70, 70), 0.5, 1, 2), ("two dimensions", (4, 33), 1, 0, 0),
             ("one dimension", (13,), 1, 0, 0), ("three dimensions, padded", (3, 4, 6), 1, 1, 1),
             ("empty batch", (0, 2, 3, 4), 1, 0, 0), ("empty batch, padded", (0, 2, 3, 4), 1, 0, 1),
             ("no keys", (2, 3, 0), 1, 0, 0), ("large scores", (64, 129), 20, 0, 0), ("strided", (33, 17), 1, 0, 0)]
    for keys in (32, 63, 64, 65, 128, 200, 256, 384, 512, 768, 1000, 1024, 2048, 2049, 5000, 20011):
        cases.append((f"{keys} keys", (2, 2, 7, keys), 0.3, 0, 1))
    for keys in (64, 130, 512):
        cases.append((f"{keys} keys, causal and padded", (2, 4, keys, keys), 0.125, 1, 1))
    for label, shape, scale, causal, padded in cases:
        def inputs(d, shape=shape, padded=padded):
            x = {"x": d.uniform(*shape, low=-3, high=3)}
            if padded:
                x["mask"] = d.integers(shape[0] if len(shape) == 4 else 1, shape[-1])
            if padded == 2:
                x["mask"][1] = 1
            return x
        yield Case("softmax", label, inputs,
                   lambda c, x, scale=scale, causal=causal: [c.op("softmax", x["x"], scale, causal, x.get("mask"))],
                   lambda x, side, scale=scale, causal=causal: [reference.softmax(x["x"], scale, causal, x.get("mask"))],
                   transposed=("x",) if label == "strided" else ())


def attention_case(label, problem, layout="packed"):
    """layout: where q, k, v live: (tensor, first column in widths) for each; `calls` makes several of one set of tensors."""
    w = problem.width
    layouts = {
        "packed": {"qkv": 3, "calls": [(("qkv", 0), ("qkv", w), ("qkv", 2 * w))]},
        "separate": {"q": 1, "k": 1, "v": 1, "calls": [(("q", 0), ("k", 0), ("v", 0))]},
        "packed keys and values": {"q": 1, "kv": 2, "calls": [(("q", 0), ("kv", 0), ("kv", w))]},
        "two layers": {"q": 1, "kv": 5, "calls": [(("q", 0), ("kv", 0), ("kv", w)), (("q", 0), ("kv", 3 * w), ("kv", 2 * w))]},
        "shared columns": {"x": 1, "extra": 1, "calls": [(("x", 0), ("x", 0), ("x", 1))]}}
    chosen = dict(layouts[layout])
    calls, extra = chosen.pop("calls"), chosen.pop("extra", 0)
    rows = {name: sum(problem.queries if name in ("q", "qkv", "x") else problem.keys) for name in chosen}

    def bounds(lengths):
        return torch.tensor([0] + lengths, dtype=torch.int32).cumsum(0, dtype=torch.int32)

    def ours(c, x):
        cu_q, cu_k = c.tensor(bounds(problem.queries)), c.tensor(bounds(problem.keys))
        drop = problem.dropout.struct() if problem.dropout else trafo.Dropout()
        return [c.attention(x[q], x[k], x[v], cu_q, cu_k, heads=problem.heads, head_dim=problem.head_dim, q_column=i,
                            k_column=j, v_column=n, scale=problem.scale, causal=int(problem.causal), dropout=drop)
                for (q, i), (k, j), (v, n) in calls]

    def theirs(x, side):
        return [problem(*[x[name][:, at:at + w] for name, at in call], side.peer) for call in calls]
    return Case("attention", label, lambda d: {name: d.uniform(rows[name], count * w + extra, low=-2, high=2)
                                               for name, count in chosen.items()}, ours, theirs, differentiated=len(calls))


def attentions():
    lengths, drop = [1, 63, 64, 65, 130, 200], Dropout(0.2, 11, 2, 9)
    for dim in (8, 32, 40, 64, 96, 128):
        for causal in (False, True):
            problem = Attention(2, dim, lengths, lengths, causal)
            yield attention_case(f"packed, head {dim}{', causal' * causal}", problem)
        yield attention_case(f"cross, head {dim}", Attention(2, dim, [5, 64, 1, 130], [63, 1, 65, 200]),
                             "packed keys and values")
    for dim in (32, 64, 40):
        for causal in (False, True):
            yield attention_case(f"packed, head {dim}{', causal' * causal}, dropout",
                                 Attention(2, dim, lengths, lengths, causal, dropout=drop))
        yield attention_case(f"cross, head {dim}, dropout", Attention(2, dim, [5, 64, 1, 130], [63, 1, 65, 200], dropout=drop),
                             "packed keys and values")
    yield attention_case("one token", Attention(2, 3, [1], [1]))
    yield attention_case("width 1", Attention(1, 1, [3, 1], [2, 4]), "separate")
    yield attention_case("no vector divides the head", Attention(1, 19, [3], [5]), "separate")
    yield attention_case("empty sequences and queries without keys", Attention(2, 8, [0, 3, 0, 1], [2, 0, 1, 2]), "separate")
    yield attention_case("empty batch", Attention(2, 8, [], []), "separate")
    yield attention_case("empty sequences only", Attention(2, 8, [0, 0], [0, 3]), "packed keys and values")
    yield attention_case("causal with hidden rows", Attention(1, 32, [70, 5, 2], [66, 2, 4], True), "separate")
    yield attention_case("causal, more keys than queries", Attention(2, 64, [3, 65, 100], [8, 130, 165], True), "separate")
    yield attention_case("peaked", Attention(1, 8, [40], [60], scale=10), "separate")
    yield attention_case("head 200", Attention(1, 200, [65], [70]), "separate")
    yield attention_case("head 256", Attention(1, 256, [65], [70], True), "separate")
    yield attention_case("one long sequence", Attention(2, 64, [1000], [1000], True))
    yield attention_case("many short sequences", Attention(4, 64, [3] * 100, [7] * 100), "packed keys and values")
    yield attention_case("columns of two layers", Attention(2, 64, [20, 33], [65, 10]), "two layers")
    yield attention_case("shared columns", Attention(2, 16, [30, 20], [30, 20], True), "shared columns")


def losses():
    for label, classes, tokens, smoothing, ignored, weighted, reduction, bound in [
            ("one class", 1, 3, 0, 0, 0, "mean", 3), ("batch of one", 5, 1, 0.1, 0, 0, "mean", 3),
            ("odd", 7, 3, 0, 0, 0, "sum", 3), ("no vector divides the classes", 37, 40, 0.2, 0, 0, "mean", 3),
            ("empty batch", 5, 0, 0.1, 0, 0, "mean", 3), ("empty batch, losses apart", 5, 0, 0.1, 0, 1, "none", 3),
            ("every label ignored", 6, 2, 0.1, 2, 0, "mean", 3), ("ignored labels", 9, 50, 0.1, 20, 0, "mean", 3),
            ("ignored labels and weights", 9, 50, 0.1, 20, 1, "mean", 3), ("losses apart", 9, 40, 0.3, 7, 1, "none", 3),
            ("large logits", 16, 30, 0, 0, 0, "mean", 40), ("1100 classes", 1100, 5, 0.1, 1, 1, "sum", 3),
            ("8000 classes", 8000, 70, 0.1, 9, 0, "mean", 5), ("8001 classes", 8001, 33, 0.1, 0, 1, "mean", 5),
            ("32000 classes", 32000, 16, 0.1, 2, 0, "sum", 5), ("many rows", 300, 3000, 0.1, 100, 0, "mean", 5)]:
        def labels(d, classes=classes, tokens=tokens, ignored=ignored, weighted=weighted):
            x = {"labels": d.integers(tokens, high=classes)}
            x["labels"][:ignored] = -100
            return x | ({"weights": d.uniform(tokens, low=0.25, high=2, dtype=torch.float32)} if weighted else {})

        def inputs(d, labels=labels, shape=(tokens, classes), bound=bound):
            return {"logits": d.uniform(*shape, low=-bound, high=bound)} | labels(d)

        def ours(c, x, smoothing=smoothing, reduction=reduction):
            options = c.cross_entropy_options(reduction, weights=x.get("weights"), label_smoothing=smoothing)
            return c.op("cross_entropy", x["logits"], x["labels"], options, results=2)

        def loss(logits, x, smoothing=smoothing, reduction=reduction):
            return [reference.cross_entropy(logits, x["labels"], x.get("weights"), s, reduction) for s in (smoothing, 0.0)]
        yield Case("cross_entropy", label, inputs, ours, lambda x, side, loss=loss: loss(x["logits"], x),
                   constants=("weights",))
        if reduction == "none":
            continue
        for width, chunk, bias in ((24, max(2, tokens // 10), True), (65, 1000, False)):
            def head(d, labels=labels, shape=(tokens, classes, width), bias=bias):
                tokens, classes, width = shape
                x = {"x": d.uniform(tokens, width), "weight": d.uniform(classes, width)}
                return x | ({"bias": d.uniform(classes)} if bias else {}) | labels(d)

            def chunked(c, x, smoothing=smoothing, reduction=reduction, classes=classes, chunk=chunk):
                options = c.cross_entropy_options(reduction, weights=x.get("weights"), label_smoothing=smoothing)
                size = 2 if c.dtype == torch.bfloat16 else 4
                return c.op("linear_cross_entropy", x["x"], x["weight"], x.get("bias"), x["labels"], options,
                            chunk * classes * size, results=2)
            yield Case("linear_cross_entropy", f"{label}, width {width}, chunks of {chunk} rows", head, chunked,
                       lambda x, side, loss=loss: loss(F.linear(x["x"], x["weight"], x.get("bias")), x),
                       constants=("weights",))


def optimizers():
    for label, count, decay, clip in [("one element", 1, 0, 0), ("odd", 37, 0.01, 0), ("clipped", 1000, 0, 0.5),
                                      ("clipped, decay", 4099, 0.1, 1.0), ("below the limit", 100, 0, 1e6),
                                      ("large", 300001, 0.01, 1.0), ("whole vectors", 4096, 0, 0), ("ten steps", 65, 0.01, 2)]:
        steps = 10 if label == "ten steps" else 3

        def inputs(d, count=count, steps=steps):
            return {"p": d.normal(count)} | {f"g{i}": d.normal(count) for i in range(steps)}

        def ours(c, x, decay=decay, clip=clip, steps=steps):
            parameter = c.tensor(x["p"].read()).want_grad()
            ones = c.tensor(torch.ones(parameter.shape()))
            optimizer = trafo.AdamW(c, [parameter], beta1=0.9, beta2=0.98, epsilon=1e-9, weight_decay=decay, clip_norm=clip)
            for i in range(steps):
                c.backward(c.op("multiply", parameter, x[f"g{i}"]), ones)
                norm = optimizer.step(0.1)
            return [parameter, torch.tensor([norm], dtype=torch.float64)]

        def theirs(x, side, decay=decay, clip=clip, steps=steps):
            return reference.adamw(x["p"], [x[f"g{i}"] for i in range(steps)], 0.1, (0.9, 0.98), 1e-9, decay, clip)
        yield Case("adamw", label, inputs, ours, theirs, constants=("p", *[f"g{i}" for i in range(steps)]),
                   differentiated=0, float32_only=True)


def all_cases():
    for group in (binary, unary, reduce, views, products, dropouts, embeddings, layer_norms, llama_ops, softmaxes, attentions, add_norms,
                  losses, optimizers):
        yield from group()
