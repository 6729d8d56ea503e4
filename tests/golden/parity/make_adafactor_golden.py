#!/usr/bin/env python3
"""Writes adafactor-*.json: losses of the models of make_golden.py in 24 updates by transformers' Adafactor in float64, and the
parameters after them. Float32 would not do: an update divides by the size of the gradient, also where that is rounding, as of the
biases of keys. Needs torch (CPU) and transformers:
    python3 tests/golden/parity/make_adafactor_golden.py tests/golden/parity

`plain` has a given learning rate and weight decay. `scaled` is Adafactor as in the paper: relative steps, with a low threshold of
clipping, so that it clips.
"""
import json
import sys

import make_golden
import torch
import transformers
from transformers.optimization import Adafactor

UPDATES = 24
FORMS = {
    "plain": dict(lr=1e-2, eps=(1e-20, 1e-3), weight_decay=0.01, scale_parameter=False, relative_step=False),
    "scaled": dict(lr=None, eps=(1e-20, 0.25), decay_rate=-0.7, clip_threshold=0.5, scale_parameter=True, relative_step=True),
}


def sinusoid():
    angle = torch.arange(make_golden.POSITIONS)[:, None] * 10000.0 ** (-2.0 * torch.arange(make_golden.WIDTH // 2) / make_golden.WIDTH)
    return torch.cat([angle.sin(), angle.cos()], 1)


def trained(architecture, pre_norm, activation, options):
    p = make_golden.declare(architecture, pre_norm)
    p.values = {name: v.detach().double().requires_grad_(True) for name, v in p.values.items()}
    net = make_golden.Net(p, architecture, pre_norm, activation)
    optimizer = Adafactor(p.values.values(), **options)
    losses = []
    for _ in range(UPDATES):
        optimizer.zero_grad()
        loss = net.mean_loss()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    parameters = {name: [float(f"{x:.12g}") for x in v.detach().flatten().tolist()] for name, v in p.values.items()}
    return {"losses": losses, "parameters": parameters}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    make_golden.sinusoid = sinusoid
    for architecture, pre_norm, activation in (("encoder-decoder", False, "silu"), ("decoder-lm", True, "gelu")):
        result = {form: trained(architecture, pre_norm, activation, options) for form, options in FORMS.items()}
        name = f"{architecture}-{'pre' if pre_norm else 'post'}"
        with open(f"{sys.argv[1]}/adafactor-{name}.json", "w") as file:
            json.dump({"transformers": transformers.__version__, "torch": torch.__version__, **result}, file)
            file.write("\n")
        print(name, {form: r["losses"][::6] for form, r in result.items()})
