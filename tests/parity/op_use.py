#!/usr/bin/env python3
"""Which ops PyTorch programs use most, and whether docs/lab/op-use.md says what they are here.

    python3 tests/parity/op_use.py [--most 30]

The programs are the models of transformers 4.57.3, one file each (modeling_NAME.py). A file counts once for an op: as torch.NAME,
nn.functional.NAME, a layer nn.NAME or a method of a tensor. Not counted: what creates, initialises, inspects or stores tensors, layers that
contain others, and operators (+, *, indexing), whose types the text does not show. Each of the ops used most must be in a table of
docs/lab/op-use.md, with its count.

Needs nothing: packages go into the environment of loaders_parity.py. Exit codes: 0 all are there, 1 not, 77 the packages cannot be had here.
"""
import ast
import collections
import os
import pathlib
import re
import sys

import export_parity
import loaders_parity

LAYERS = {"Linear": "linear", "Embedding": "embedding", "LayerNorm": "layer_norm", "Dropout": "dropout", "Conv1d": "conv", "Conv2d": "conv",
          "Conv3d": "conv", "ConvTranspose1d": "conv", "ConvTranspose2d": "conv", "BatchNorm1d": "batch_norm", "BatchNorm2d": "batch_norm",
          "GroupNorm": "group_norm", "ReLU": "relu", "GELU": "gelu", "SiLU": "silu", "Tanh": "tanh", "Sigmoid": "sigmoid",
          "Softmax": "softmax", "CrossEntropyLoss": "cross_entropy", "MSELoss": "mse_loss", "BCEWithLogitsLoss": "bce_loss"}
OTHER_NAMES = {"conv1d": "conv", "conv2d": "conv", "float": "to", "half": "to", "long": "to", "int": "to", "bool": "to", "type": "to",
               "type_as": "to", "bmm": "matmul", "mm": "matmul", "concat": "cat", "concatenate": "cat", "permute": "permute", "clip": "clamp",
               "masked_fill_": "masked_fill", "view_as": "view", "expand_as": "expand", "t": "transpose", "swapaxes": "transpose",
               "binary_cross_entropy_with_logits": "bce_loss"}
# Of torch, nn.functional and tensors, what computes no value of a network.
NO_OPS = set("""size dim numel item tolist numpy cpu cuda contiguous clone detach copy_ data_ptr is_contiguous element_size stride storage
    zero_ fill_ normal_ uniform_ trunc_normal_ xavier_uniform_ kaiming_uniform_ arange ones zeros full empty tensor as_tensor from_numpy rand
    randn randint zeros_like ones_like full_like empty_like rand_like randn_like new_zeros new_ones new_full new_tensor new_empty linspace eye
    no_grad autocast is_autocast_enabled get_autocast_dtype get_autocast_gpu_dtype finfo iinfo device dtype Tensor manual_seed Size
    requires_grad_ register_hook backward is_floating_point is_tensor get_device set_default_dtype get_default_dtype Generator jit compile
    split_with_sizes_copy register_buffer apply bernoulli add_ sub_ mul_ div_ share_memory_ retain_grad type_promotion cartesian_prod
    is_grad_enabled set_grad_enabled inference_mode load save version get_rng_state set_rng_state names align_to resize_ equal index values
    indices data grad shape ndim T keys map_ erfinv_ pop count""".split())


def ops_of(tree, tensor, function, module):
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            found.add("matmul")
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, base = node.func.attr, ast.unparse(node.func.value)
        if base == "nn":
            if name in LAYERS:
                found.add(LAYERS[name])
            continue
        of_torch = base == "torch" and name in module
        of_functional = base in ("nn.functional", "F", "torch.nn.functional") and name in function
        of_tensor = name in tensor and not re.match(r"(self|super\(\)|torch|nn|F|np|math|logger|config|self\.config|os|re|itertools|functools)$|torch\.|"
                                                    r"nn\.|self\.config|logger", base)
        name = OTHER_NAMES.get(name, name)
        if (of_torch or of_functional or of_tensor) and name not in NO_OPS:
            found.add(name)
    return found


def main():
    parser = export_parity.argument_parser(__doc__)
    parser.set_defaults(environment=os.path.join(export_parity.ROOT, "build/loaders-environment"))
    parser.add_argument("--most", type=int, default=30)
    arguments = parser.parse_args()
    export_parity.enter(arguments, loaders_parity.PACKAGES)
    import torch
    import transformers
    names = [{name for name in dir(each) if not name.startswith("_")} for each in (torch.Tensor, torch.nn.functional, torch)]
    files = [path for path in sorted(pathlib.Path(transformers.__file__).parent.glob("models/*/modeling_*.py"))
             if not re.match(r"modeling_(tf|flax)_", path.name)]
    counts = collections.Counter()
    for path in files:
        counts.update(ops_of(ast.parse(path.read_text(encoding="utf-8")), *names))
    document = pathlib.Path(export_parity.ROOT, "docs/lab/op-use.md").read_text(encoding="utf-8")
    problems = []
    if f"{len(files)} models" not in document:
        problems.append(f"docs/lab/op-use.md does not say that there are {len(files)} models")
    for name, count in counts.most_common(arguments.most):
        row = re.search(rf"^\| `{name}`[^|]* \| {count} \|(.*)$", document, re.M)
        print(f"{count:4d}  {name:16s}{row[1] if row else ''}")
        if row is None:
            problems.append(f"docs/lab/op-use.md has no row for {name}, which {count} of {len(files)} models use")
    print("\n".join(problems) or f"the {arguments.most} ops used most by {len(files)} models are in docs/lab/op-use.md")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
