#!/usr/bin/env python3
"""Our ops on the inputs that PyTorch tests its own ops with (OpInfo), forward and backward, in float64 on the CPU.

    python3 tests/parity/opinfo.py [--library build/release/libtrafo.so] [--long] [--only NAME ...]

Each op of the table below is called as PyTorch's op of that name would be. A sample is equal (values, shapes and
gradients), refused (the call gives an error), not expressible (it uses an argument that our op does not have), or
wrong. Wrong are also INTERNAL errors, and gradients that are missing. --long: OpInfo's reference inputs instead of its
samples, and as many of them as there are.

Needs nothing: packages go into a separate environment (--environment, kept between runs). Exit codes: 0 nothing wrong, 1
something is, 77 the packages cannot be had here.
"""
import argparse
import collections
import ctypes
import itertools
import os
import sys

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/tools"))
import own_environment

PACKAGES = ["torch==2.15.0", "numpy==2.4.6", "expecttest==0.3.0"]
RTOL, ATOL = 1e-7, 1e-9
SHORT_SAMPLES = 40  # of an op


class NotExpressible(Exception):
    pass


def only(condition):
    if not condition:
        raise NotExpressible


class Ours:
    """Calls of our ops by the arguments of PyTorch's; tensors become ours at the door, and numbers where needed."""

    def __init__(self, context):
        self.context, self.leaves = context, {}

    def tensor(self, x, like=None):
        import torch
        if not isinstance(x, torch.Tensor):
            x = torch.tensor(x, dtype=like.dtype if isinstance(like, torch.Tensor) else torch.float64)
        if id(x) not in self.leaves:
            only(not x.is_complex())
            whole = x.dtype in (torch.int64, torch.int32, torch.bool)
            only(whole or x.dtype == torch.float64)
            ours = self.context.tensor(x.detach().to(torch.int32) if whole else x.detach())
            self.leaves[id(x)] = (x, ours.want_grad() if x.requires_grad else ours)
        return self.leaves[id(x)][1]

    def op(self, name, *arguments, results=1):
        return self.context.op(name, *arguments, results=results)

    def integers(self, values, kind=ctypes.c_int32):
        return (kind * max(1, len(values)))(*values)

    def shape_op(self, name, x, shape):
        only(len(shape) <= 8)
        return self.op(name, self.tensor(x), self.integers(shape, ctypes.c_int64), len(shape))


def unary(name, *fixed):
    return lambda ours, x: ours.op(name, ours.tensor(x), *fixed)


def binary(name):
    def call(ours, a, b, alpha=1, rounding_mode=None):
        only(rounding_mode is None)
        import torch
        like = a if isinstance(a, torch.Tensor) else b
        b = ours.tensor(b, like)
        return ours.op(name, ours.tensor(a, like), ours.op("scale", b, alpha) if alpha != 1 else b)
    return call


def compare(kind):
    def call(ours, a, b):
        import torch
        if isinstance(b, torch.Tensor):
            return ours.op("compare", ours.tensor(a), ours.tensor(b), kind)
        return ours.op("compare_number", ours.tensor(a), float(b), kind)
    return call


def activation(kind):
    def call(ours, x, inplace=False):
        return ours.op("activation", ours.tensor(x), kind)
    return call


def gelu(ours, x, approximate="none"):
    return ours.op("gelu_erf", ours.tensor(x)) if approximate == "none" else ours.op("activation", ours.tensor(x), 1)


def pow_(ours, x, exponent):
    import torch
    if isinstance(exponent, torch.Tensor):
        return ours.op("pow", ours.tensor(x, exponent), ours.tensor(exponent))
    only(not isinstance(exponent, complex))
    return ours.op("power", ours.tensor(x), float(exponent))


def rsqrt(ours, x):
    return ours.op("power", ours.op("sqrt", ours.tensor(x)), -1.0)  # (-inf)^-0.5 is 0, in PyTorch too


def clamp(ours, x, min=None, max=None):
    import torch
    if isinstance(min, torch.Tensor) or isinstance(max, torch.Tensor):
        y = ours.tensor(x)
        for name, bound in (("maximum", min), ("minimum", max)):
            if bound is not None:
                y = ours.op(name, y, ours.tensor(bound))
        return y
    return ours.op("clamp", ours.tensor(x), float("-inf") if min is None else float(min),
                   float("inf") if max is None else float(max))


def where(ours, a, condition, b):  # in OpInfo's order
    import torch
    like = a if isinstance(a, torch.Tensor) else b
    only(isinstance(like, torch.Tensor))
    return ours.op("where", ours.tensor(condition), ours.tensor(a, like), ours.tensor(b, like))


def masked_fill(ours, x, mask, value):
    import torch
    only(not isinstance(value, torch.Tensor) or not value.requires_grad)
    return ours.op("masked_fill", ours.tensor(x), ours.tensor(mask), float(value))


def triangle(name):
    return lambda ours, x, diagonal=0: ours.op(name, ours.tensor(x), diagonal)


def over_dims(name):
    def call(ours, x, dim=None, keepdim=False, dtype=None):
        only(dtype is None)
        dims = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
        if dim is not None and x.dim() == 0:
            dims = []  # PyTorch takes the dimensions 0 and -1 of a number
        return ours.op(name, ours.tensor(x), ours.integers(dims), len(dims), int(keepdim))
    return call


def arg(name):
    def call(ours, x, dim=None, keepdim=False):
        only(dim is not None and x.dim() > 0)
        return ours.op(name, ours.tensor(x), dim, int(keepdim))
    return call


def topk(ours, x, k, dim=-1, largest=True, sorted=True):
    only(largest and x.dim() > 0)
    return ours.op("top_k", ours.tensor(x), k, dim, results=2)


def cumsum(ours, x, dim, dtype=None):
    only(dtype is None and x.dim() > 0)
    return ours.op("cumsum", ours.tensor(x), dim)


def gather(ours, x, dim, index, sparse_grad=False):
    only(x.dim() > 0)
    return ours.op("gather", ours.tensor(x), dim, ours.tensor(index))


def scatter(name):
    def call(ours, x, dim, index, src, reduce=None):
        import torch
        only(reduce is None and isinstance(src, torch.Tensor) and x.dim() > 0 and src.shape == index.shape)
        return ours.op(name, ours.tensor(x), dim, ours.tensor(index), ours.tensor(src))
    return call


def permute(ours, x, *dims):
    dims = dims[0] if dims and not isinstance(dims[0], int) else dims
    return ours.op("permute", ours.tensor(x), ours.integers(dims), len(dims))


def shaped(name):
    def call(ours, x, *shape):
        shape = shape[0] if shape and not isinstance(shape[0], int) else shape
        return ours.shape_op(name, x, list(shape))
    return call


def cat(ours, tensors, dim=0):
    only(all(t.dim() == tensors[0].dim() for t in tensors))  # PyTorch leaves out [0] beside any shape
    return ours.context.concat([ours.tensor(t) for t in tensors], dim)


def matmul(ours, a, b):
    return ours.op("matmul", ours.tensor(a), ours.tensor(b), 0, 0)


def linear(ours, x, weight, bias=None):
    only(weight.dim() == 2)
    return ours.op("linear", ours.tensor(x), ours.tensor(weight), None if bias is None else ours.tensor(bias))


def softmax(ours, x, dim, dtype=None, _stacklevel=3):
    only(dtype is None and 0 < x.dim() and dim in (-1, x.dim() - 1))
    return ours.op("softmax", ours.tensor(x), 1.0, 0, None)


def layer_norm(ours, x, shape, weight=None, bias=None, eps=1e-5):
    only(len(shape) == 1 and weight is not None and bias is not None)
    return ours.op("layer_norm", ours.tensor(x), ours.tensor(weight), ours.tensor(bias), eps)


def rms_norm(ours, x, shape, weight=None, eps=None):
    only(len(shape) == 1 and weight is not None)
    return ours.op("rms_norm", ours.tensor(x), ours.tensor(weight), sys.float_info.epsilon if eps is None else eps)


def cross_entropy(ours, x, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
                  label_smoothing=0.0):
    only(x.dim() == 2 and size_average is None and reduce is None)
    options = ours.context.cross_entropy_options(reduction=reduction, label_smoothing=label_smoothing, ignore_label=ignore_index,
                                                 class_weights=None if weight is None else ours.tensor(weight))
    if target.dtype.is_floating_point:
        loss = ours.op("soft_cross_entropy", ours.tensor(x), ours.tensor(target), options)
    else:
        only(target.dim() == 1)
        loss = ours.op("cross_entropy", ours.tensor(x), ours.tensor(target), options, results=2)[0]
    return loss if reduction == "none" else ours.context.reshape(loss, [])


def embedding(ours, weight, ids, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):  # in OpInfo's order
    only(max_norm is None and not scale_grad_by_freq)
    padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
    rows = ours.context.embedding(ours.context.reshape(ours.tensor(ids), [ids.numel()]), ours.tensor(weight), padding_id=padding)
    return ours.context.reshape(rows, [*ids.shape, weight.shape[1]])


def attention(ours, q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    import torch
    only(q.dim() == k.dim() and q.dim() in (3, 4) and dropout_p == 0 and v.shape[-1] == q.shape[-1])
    only(q.dim() == 3 or q.shape[1] == k.shape[1] or (enable_gqa and q.shape[1] % k.shape[1] == 0))
    context, batch, heads, (queries, width) = ours.context, q.shape[0], q.shape[1] if q.dim() == 4 else 1, q.shape[-2:]

    def rows(x):  # [batch, heads, length, width] -> [batch * length, heads * width]
        y = context.op("transpose", ours.tensor(x), 1, 2) if x.dim() == 4 else ours.tensor(x)
        return context.reshape(y, [batch * x.shape[-2], x.numel() // (batch * x.shape[-2])])

    def offsets(length):
        return context.tensor(torch.arange(batch + 1, dtype=torch.int32) * length)
    given = {} if scale is None else {"scale": scale}
    if is_causal and queries != k.shape[-2]:  # PyTorch lets query i see keys up to i, we let the last query see all
        attn_mask = torch.ones(queries, k.shape[-2], dtype=torch.bool).tril()
    else:
        given["causal"] = int(is_causal)
    if attn_mask is not None:
        mask = attn_mask.logical_not() if attn_mask.dtype == torch.bool else attn_mask
        shape = [mask.shape[0], 1, *mask.shape[1:]] if mask.dim() == 3 and q.dim() == 3 else [1] * (4 - mask.dim()) + list(mask.shape)
        given["mask"] = context.reshape(ours.tensor(mask), shape)
    out = context.attention(rows(q), rows(k), rows(v), offsets(queries), offsets(k.shape[-2]), heads=heads,
                            kv_heads=k.shape[1] if k.dim() == 4 else 1, head_dim=width, **given)
    if q.dim() == 3:
        return context.reshape(out, list(q.shape))
    return context.op("transpose", context.reshape(out, [batch, queries, heads, width]), 1, 2)


OPS = {
    "abs": unary("abs"), "sin": unary("sin"), "cos": unary("cos"), "erf": unary("erf"), "exp": unary("exp"), "log": unary("log"),
    "sqrt": unary("sqrt"), "tanh": unary("tanh"), "sigmoid": unary("sigmoid"), "neg": unary("scale", -1.0),
    "reciprocal": unary("power", -1.0), "rsqrt": rsqrt, "square": unary("power", 2.0),
    "nn.functional.relu": activation(0), "nn.functional.silu": activation(2), "nn.functional.gelu": gelu,
    "add": binary("add"), "sub": binary("subtract"), "mul": binary("multiply"), "div": binary("divide"),
    "maximum": binary("maximum"), "minimum": binary("minimum"), "pow": pow_, "clamp": clamp,
    "eq": compare(0), "ne": compare(1), "lt": compare(2), "le": compare(3), "gt": compare(4), "ge": compare(5),
    "where": where, "masked_fill": masked_fill, "tril": triangle("tril"), "triu": triangle("triu"),
    "sum": over_dims("sum_dims"), "mean": over_dims("mean_dims"), "amax": over_dims("max_dims"), "amin": over_dims("min_dims"),
    "argmax": arg("argmax"), "argmin": arg("argmin"), "topk": topk, "cumsum": cumsum, "gather": gather,
    "scatter": scatter("scatter"), "scatter_add": scatter("scatter_add"),
    "permute": permute, "transpose": lambda ours, x, a, b: ours.op("transpose", ours.tensor(x), a, b),
    "expand": shaped("expand"), "reshape": shaped("reshape"), "cat": cat,
    "matmul": matmul, "mm": matmul, "bmm": matmul, "mv": matmul, "dot": matmul, "nn.functional.linear": linear,
    "softmax": softmax, "nn.functional.layer_norm": layer_norm, "nn.functional.rms_norm": rms_norm,
    "nn.functional.cross_entropy": cross_entropy, "nn.functional.embedding": embedding,
    "nn.functional.scaled_dot_product_attention": attention,
}
# Elements of one value: which of them gets the gradient of an extremum is a choice (PyTorch divides it, we give it to the first).
TIES = {"amax", "amin"}


def close(what, ours, reference):
    """An empty string, or what differs."""
    import torch
    if list(ours.shape) != list(reference.shape):
        return f"{what} has shape {list(ours.shape)}, not {list(reference.shape)}"
    if not torch.allclose(ours.to(torch.float64), reference.to(torch.float64), RTOL, ATOL, equal_nan=True):
        worst = (ours.to(torch.float64) - reference.to(torch.float64)).abs().max().item()
        return f"{what} is off by {worst:.3g}"
    return ""


def compared(context, call, op, sample):
    """An empty string, or what is wrong."""
    import torch
    # Separate leaves: some samples are views of memory that they share.
    sample = sample.transform(lambda x: x.detach().clone().requires_grad_(x.requires_grad)
                              if isinstance(x, torch.Tensor) else x)
    reference = op(sample.input, *sample.args, **sample.kwargs)
    references = list(reference) if isinstance(reference, (tuple, list)) else [reference]
    ours = Ours(context)
    result = call(ours, sample.input, *sample.args, **sample.kwargs)
    results = result if isinstance(result, list) else [result]
    for i, (mine, theirs) in enumerate(zip(results, references, strict=True)):
        if difference := close(f"result {i}", mine.read(), theirs.detach()):
            return difference
    root = references[0]
    if not (root.requires_grad and root.dtype == torch.float64):
        return ""
    upstream = torch.rand(root.shape, dtype=torch.float64) + 0.5
    leaves = [(x, mine) for x, mine in ours.leaves.values() if x.requires_grad]
    gradients = torch.autograd.grad(root, [x for x, _ in leaves], upstream, allow_unused=True)
    context.backward(results[0], context.tensor(upstream))
    for i, ((x, mine), expected) in enumerate(zip(leaves, gradients, strict=True)):
        gradient = mine.grad()
        expected = torch.zeros_like(x) if expected is None else expected
        actual = torch.zeros_like(x) if gradient is None else gradient.read()
        expected = torch.where(x.isnan() & actual.isnan(), actual, expected)  # PyTorch gives 0 for some ops
        if difference := close(f"gradient {i}", actual, expected):
            return difference
    return ""


def has_ties(op, sample):
    import torch
    return op.name in TIES and isinstance(sample.input, torch.Tensor) and sample.input.unique().numel() < sample.input.numel()


def check(context, op, samples, refusals):
    import trafo_ctypes as trafo
    counts = collections.Counter()
    for number, sample in enumerate(samples):
        outcome, detail = "equal", ""
        try:
            if has_ties(op, sample):
                raise NotExpressible
            detail = compared(context, OPS[op.name], op, sample)
            outcome = "wrong" if detail else "equal"
        except NotExpressible:
            outcome = "not expressible"
        except trafo.TrafoError as error:
            outcome, detail = ("wrong" if str(error).startswith("INTERNAL") else "refused"), str(error)
            refusals[op.name, detail] += outcome == "refused"
        counts[outcome] += 1
        if outcome == "wrong":
            shapes = [list(x.shape) if hasattr(x, "shape") else x for x in (sample.input, *sample.args)]
            print(f"WRONG {op.name}, sample {number} ({shapes}, {sample.kwargs}): {detail}", flush=True)
    return counts


def drawn(make, op, gradients):
    import torch
    try:
        yield from make("cpu", torch.float64, requires_grad=gradients)
    except ValueError as error:  # of a generator in PyTorch
        print(f"PyTorch's samples of {op.name} end early: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", default=os.path.join(ROOT, "build/release/libtrafo.so"))
    parser.add_argument("--environment", default=os.path.join(ROOT, "build/parity-environment"))
    parser.add_argument("--long", action="store_true", help="OpInfo's reference inputs, all of them")
    parser.add_argument("--only", nargs="*", help="names of PyTorch's ops")
    parser.add_argument("--refusals", action="store_true", help="print why samples were refused")
    arguments = parser.parse_args()
    own_environment.enter(arguments.environment, PACKAGES, CUDA_VISIBLE_DEVICES="")

    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    import trafo_ctypes as trafo
    torch.manual_seed(1)
    torch.set_num_threads(1)
    context = trafo.Context(trafo.Library(arguments.library), "cpu", threads=1)
    total, refusals, covered = collections.Counter(), collections.Counter(), set()
    print(f"{'op':30}{'samples':>9}{'equal':>9}{'refused':>9}{'not expr.':>11}{'wrong':>7}")
    names = set(arguments.only or OPS)
    for op in op_db:
        if op.name not in names or op.variant_test_name not in ("", "no_rounding_mode"):
            continue
        samples = drawn(op.reference_inputs if arguments.long else op.sample_inputs, op, op.supports_autograd)
        counts = check(context, op, samples if arguments.long else itertools.islice(samples, SHORT_SAMPLES), refusals)
        covered.add(op.name)
        total += counts
        print(f"{op.name:30}{sum(counts.values()):9}{counts['equal']:9}{counts['refused']:9}{counts['not expressible']:11}"
              f"{counts['wrong']:7}", flush=True)
    if arguments.refusals:
        for (name, why), count in sorted(refusals.items()):
            print(f"refused {count} x {name}: {why}")
    missing = [] if arguments.only else sorted(set(OPS) - covered)
    print(f"covered {len(covered)} ops, {sum(total.values())} samples: equal {total['equal']}, refused {total['refused']}, "
          f"not expressible {total['not expressible']}, wrong {total['wrong']}")
    if missing:
        print("PyTorch has no samples of:", *missing)
    sys.exit(1 if total["wrong"] or missing or not total["equal"] else 0)


if __name__ == "__main__":
    main()
