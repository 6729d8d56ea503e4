#!/usr/bin/env python3
"""Frozen NF4 weights of translate-train beside those of bitsandbytes.

    python3 tests/parity/qlora_parity.py [--translate-train build/release/translate-train] [--data FOLDER]

Trains a small Llama form, and an adapter over it with --base-precision nf4. Then bitsandbytes quantizes the matrices of the base on the
CPU (quantize_4bit, nf4, blocks of 64, compress_statistics). All codes of weights must be the same. So must the codes of absmax, but
where a value lies in the middle of two codes to 2e-5, between which bitsandbytes on a CPU takes either. Float32 scales, and the
dequantized values of blocks with the same code of absmax, are equal to 2e-6 of the largest.

The environment and the exit codes are as in export_parity.py.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import export_parity as parity

PACKAGES = ["torch==2.15.0", "numpy==2.4.6", "safetensors==0.8.0", "bitsandbytes==0.50.2", "transformers==5.23.0", "sentencepiece==0.2.3"]
TOLERANCE = 2e-6  # of the largest magnitude
MIDDLE = 2e-5  # of absmax codes, whose range is -1 .. 1


def newest(program, run):
    checkpoints = os.path.join(program.folder, run, "ckpt")
    updates = [name for name in os.listdir(checkpoints) if name.isdigit()]
    return os.path.join(checkpoints, max(updates, key=int), "model.safetensors")


def far(ours, theirs):
    """The largest difference, in parts of the largest magnitude."""
    return ((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-30)).item()


def absmax_agrees(ours, theirs, exact):
    """Whether the codes are equal, or neighbours of an exact value half way between them."""
    import bitsandbytes.functional as bnb
    code = bnb.create_dynamic_map(signed=True)
    ours, theirs = ours.long(), theirs.long()
    lower = ours.minimum(theirs)
    middle = (code[lower] + code[(lower + 1).clamp(max=255)]) / 2
    return bool(((ours == theirs) | (((ours - theirs).abs() == 1) & ((exact - middle).abs() <= MIDDLE))).all())


def dequantized(ours, name, shape):
    """By the formula of engine/quant/base_codes.h, from the tensors of a checkpoint."""
    import bitsandbytes.functional as bnb
    import torch
    packed = ours.get_tensor(name)
    codes = torch.stack([packed >> 4, packed & 15], dim=1).reshape(-1)[:shape.numel()].long()
    absmax = bnb.create_dynamic_map(signed=True)[ours.get_tensor(name + ".absmax").long()]
    absmax = absmax * ours.get_tensor(name + ".nested_absmax").repeat_interleave(256)[:len(absmax)] + ours.get_tensor(name + ".nested_offset")
    values = bnb.get_4bit_type("nf4", device="cpu")[codes] * absmax.repeat_interleave(64)[:len(codes)]
    return values.reshape(shape)


def main(arguments):
    import bitsandbytes.functional as bnb
    import torch
    from safetensors import safe_open
    wrong = matrices = 0
    with parity.workplace(arguments) as (program, *_):
        base = program.train("base", 20, "--task", "llama")
        program.run("train", "-t", "train.src", "train.trg", "--model", "tuned", "--pretrained-model", base, "--lora-rank", "4",
                    "--base-precision", "nf4", "--after", "2u", "--mini-batch-words", "1500", "--device", "cpu", "--quiet")
        floats = safe_open(newest(program, "base"), "pt")
        coded = safe_open(newest(program, "tuned"), "pt")
        for name in sorted(key for key in coded.keys() if key + ".absmax" in coded.keys()):
            matrices += 1
            weight = floats.get_tensor(name)
            theirs, state = bnb.quantize_4bit(weight, blocksize=64, quant_type="nf4", compress_statistics=True)
            same_codes = torch.equal(coded.get_tensor(name), theirs.reshape(-1))
            absmax, of_theirs = coded.get_tensor(name + ".absmax"), state.absmax.reshape(-1)
            blocks = torch.nn.functional.pad(weight.reshape(-1), (0, -weight.numel() % 64)).reshape(-1, 64).abs().amax(1)
            exact = (blocks - state.offset) / state.state2.absmax.repeat_interleave(256)[:len(blocks)]
            same = (absmax == of_theirs).repeat_interleave(64)[:weight.numel()]
            values = [dequantized(coded, name, weight.shape).reshape(-1)[same], bnb.dequantize_4bit(theirs, state).reshape(-1)[same]]
            same_absmax = absmax_agrees(absmax, of_theirs, exact)
            distances = [far(coded.get_tensor(name + ".nested_absmax"), state.state2.absmax),
                         far(coded.get_tensor(name + ".nested_offset"), state.offset.reshape(1)), far(*values)]
            equal = same_codes and same_absmax and max(distances) <= TOLERANCE
            wrong += not equal
            print(f"{'ok   ' if equal else 'WRONG'} {name} {list(weight.shape)}: codes {'equal' if same_codes else 'differ'}, "
                  f"absmax {'equal' if same_absmax else 'differ'} ({int((absmax != of_theirs).sum())} of {len(absmax)} in the middle), scales, offset and values off by "
                  + ", ".join(f"{distance:.1e}" for distance in distances), flush=True)
    print(f"{matrices} matrices, {wrong} of which differ")
    return 1 if wrong or matrices == 0 else 0


if __name__ == "__main__":
    options = parity.argument_parser(__doc__)
    options.set_defaults(environment=os.path.join(parity.ROOT, "build/qlora-environment"))
    given = options.parse_args()
    parity.enter(given, PACKAGES)
    sys.exit(main(given))
