#!/usr/bin/env python3
"""Writes the golden files of tests/parity: loss, every gradient and ten training losses of small models, by PyTorch in float32;
and loss, gradients and metrics of DPO, ORPO and KTO, with another model as the reference (dpo-*.json, orpo-*.json, kto-*.json).

Needs torch (CPU) and nothing of this project; run it only to make new files:
    python3 tests/golden/parity/make_golden.py tests/golden/parity

Weights are a formula of parameter number and position (see value()), so the files hold results only. Sentences are run one by
one, without padding: an independent route to what the packed engine computes.
"""
import json
import math
import sys

import torch
import torch.nn.functional as F

VOCABULARY, WIDTH, FFN, HEADS, LAYERS, POSITIONS = 13, 8, 12, 2, 2, 16
SMOOTHING, LEARNING_RATE, BETAS, EPS, DECAY = 0.1, 1e-2, (0.9, 0.98), 1e-9, 0.01
BOS, EOS = 1, 2
SOURCES = [[5, 6, 7, EOS], [4, EOS], [9, 8, 7, 6, 12, 11, EOS]]
TARGETS = [[8, 9, EOS], [10, 11, 12, 4, EOS], [5, EOS]]
# Of DPO and ORPO: TARGETS are the chosen answers to SOURCES. The numbers of the reference's parameters begin here.
REJECTED = [[9, 9, 8, EOS], [4, EOS], [6, 5, EOS]]
BETA, DPO_SMOOTHING, REFERENCE = 0.5, 0.2, 40
# Of KTO: the rows of a batch, (source, answer, desirable). Each answer is also given to the source after it, the last one to the first.
ROWS = [(SOURCES[0], TARGETS[0], True), (SOURCES[2], TARGETS[2], True), (SOURCES[1], REJECTED[1], False)]
DESIRABLE, UNDESIRABLE = 1.5, 0.75


def value(number, shape, name):
    count = math.prod(shape)
    wave = torch.tensor([math.sin(1.0 + 0.37 * i + 0.11 * number) for i in range(count)], dtype=torch.float64)
    base = 1.0 if name.endswith("norm.weight") else 0.0
    return (base + 0.3 * wave).to(torch.float32).reshape(shape)


class Parameters:
    """Declared in the engine's order; the order numbers them."""

    def __init__(self, first=0):
        self.values = {}
        self.first = first

    def add(self, name, *shape):
        self.values[name] = value(self.first + len(self.values), shape, name).requires_grad_(True)

    def linear(self, name, out, inputs):
        self.add(name + ".weight", out, inputs)
        self.add(name + ".bias", out)

    def norm(self, name):
        self.add(name + ".weight", WIDTH)
        self.add(name + ".bias", WIDTH)

    def __getitem__(self, name):
        return self.values[name]


def declare(architecture, pre_norm, first=0):
    p = Parameters(first)
    p.add("embedding.weight", VOCABULARY, WIDTH)
    lm = architecture == "decoder-lm"
    if lm:
        p.add("positions.weight", POSITIONS, WIDTH)
    for side in ["decoder"] if lm else ["encoder", "decoder"]:
        for i in range(LAYERS):
            at = f"{side}.{i}"
            cross = side == "decoder" and not lm
            p.norm(at + ".attention_norm")
            if cross:
                p.norm(at + ".cross_norm")
            p.norm(at + ".ffn_norm")
            p.linear(at + ".attention.qkv", 3 * WIDTH, WIDTH)
            p.linear(at + ".attention.output", WIDTH, WIDTH)
            if cross:
                p.linear(at + ".cross.query", WIDTH, WIDTH)
                p.linear(at + ".cross.output", WIDTH, WIDTH)
            p.linear(at + ".ffn.up", FFN, WIDTH)
            p.linear(at + ".ffn.down", WIDTH, FFN)
    if lm:
        p.norm("decoder.norm")
    else:
        if pre_norm:
            p.norm("encoder.norm")
            p.norm("decoder.norm")
        p.linear("decoder.cross_kv", LAYERS * 2 * WIDTH, WIDTH)
    p.add("output.bias", VOCABULARY)
    return p


def sinusoid():
    half = WIDTH // 2
    position = torch.arange(POSITIONS, dtype=torch.float64)[:, None]
    angle = position * 10000.0 ** (-2.0 * torch.arange(half, dtype=torch.float64) / WIDTH)
    return torch.cat([angle.sin(), angle.cos()], 1).to(torch.float32)


class Net:
    def __init__(self, p, architecture, pre_norm, activation):
        self.p, self.lm, self.pre_norm = p, architecture == "decoder-lm", pre_norm
        self.activation = {"relu": F.relu, "gelu": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu}[activation]

    def linear(self, x, name):
        return F.linear(x, self.p[name + ".weight"], self.p[name + ".bias"])

    def norm(self, x, name):
        return F.layer_norm(x, (WIDTH,), self.p[name + ".weight"], self.p[name + ".bias"], 1e-5)

    def attend(self, q, k, v, causal):
        def split(x):
            return x.reshape(len(x), HEADS, -1).transpose(0, 1)

        scores = split(q) @ split(k).transpose(1, 2) / math.sqrt(WIDTH // HEADS)
        if causal:
            hidden = torch.ones(len(q), len(k), dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        return (scores.softmax(-1) @ split(v)).transpose(0, 1).reshape(len(q), WIDTH)

    def block(self, x, norm, function):
        if self.pre_norm:
            return x + function(self.norm(x, norm))
        return self.norm(x + function(x), norm)

    def self_attention(self, at, causal):
        def run(x):
            q, k, v = self.linear(x, at + ".attention.qkv").split(WIDTH, 1)
            return self.linear(self.attend(q, k, v, causal), at + ".attention.output")

        return run

    def ffn(self, at):
        return lambda x: self.linear(self.activation(self.linear(x, at + ".ffn.up")), at + ".ffn.down")

    def loss(self, source, target, smoothing=SMOOTHING):
        """Summed over the labels of one pair; and how many there are."""
        each = self.losses(source, target, smoothing)
        if self.lm:
            each = each[len(source) - 1 :]  # the target and its <eos> only
        return each.sum(), len(each)

    def losses(self, source, target, smoothing):
        """Of each label, those of the source of a decoder-lm included."""
        logits, labels = self.logits(source, target)
        return F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")

    def logits(self, source, target):
        """And the labels."""
        p, table = self.p, self.p["embedding.weight"]
        if self.lm:
            stream = torch.tensor(source + target)
            inputs, labels = stream[:-1], stream[1:]
            x = table[inputs] + p["positions.weight"][: len(inputs)]
        else:
            x = table[torch.tensor(source)] * math.sqrt(WIDTH) + sinusoid()[: len(source)]
            for i in range(LAYERS):
                x = self.block(x, f"encoder.{i}.attention_norm", self.self_attention(f"encoder.{i}", False))
                x = self.block(x, f"encoder.{i}.ffn_norm", self.ffn(f"encoder.{i}"))
            if self.pre_norm:
                x = self.norm(x, "encoder.norm")
            memory = self.linear(x, "decoder.cross_kv").split(WIDTH, 1)
            inputs, labels = torch.tensor([BOS] + target[:-1]), torch.tensor(target)
            x = table[inputs] * math.sqrt(WIDTH) + sinusoid()[: len(inputs)]
        for i in range(LAYERS):
            at = f"decoder.{i}"
            x = self.block(x, at + ".attention_norm", self.self_attention(at, True))
            if not self.lm:
                k, v = memory[2 * i], memory[2 * i + 1]
                x = self.block(
                    x,
                    at + ".cross_norm",
                    lambda y: self.linear(self.attend(self.linear(y, at + ".cross.query"), k, v, False), at + ".cross.output"),
                )
            x = self.block(x, at + ".ffn_norm", self.ffn(at))
        if self.pre_norm:
            x = self.norm(x, "decoder.norm")
        return F.linear(x, table, p["output.bias"]), labels

    def mean_loss(self):
        parts = [self.loss(s, t) for s, t in zip(SOURCES, TARGETS)]
        return sum(loss for loss, _ in parts) / sum(count for _, count in parts)


def golden(architecture, pre_norm, activation):
    p = declare(architecture, pre_norm)
    net = Net(p, architecture, pre_norm, activation)
    loss = net.mean_loss()
    loss.backward()
    result = {
        "torch": torch.__version__,
        "architecture": architecture,
        "pre_norm": pre_norm,
        "activation": activation,
        "loss": loss.item(),
        "gradients": rounded(p.values),
    }
    optimizer = torch.optim.AdamW(p.values.values(), lr=LEARNING_RATE, betas=BETAS, eps=EPS, weight_decay=DECAY)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = net.mean_loss()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    result["training_losses"] = losses
    return result


def rounded(gradients):
    return {name: [float(f"{g:.9g}") for g in v.grad.flatten().tolist()] for name, v in gradients.items()}


def golden_dpo(architecture, pre_norm, activation):
    """The mean loss over pairs of Rafailov et al. (arXiv 2305.18290, equation 7), in its conservative form with label smoothing."""
    p = declare(architecture, pre_norm)
    policy = Net(p, architecture, pre_norm, activation)
    reference = Net(declare(architecture, pre_norm, REFERENCE), architecture, pre_norm, activation)

    def reward(source, target):
        with torch.no_grad():
            of_reference = -reference.loss(source, target, 0)[0]
        return BETA * (-policy.loss(source, target, 0)[0] - of_reference)

    chosen = torch.stack([reward(s, t) for s, t in zip(SOURCES, TARGETS)])
    rejected = torch.stack([reward(s, t) for s, t in zip(SOURCES, REJECTED)])
    margin = chosen - rejected
    loss = (-(1 - DPO_SMOOTHING) * F.logsigmoid(margin) - DPO_SMOOTHING * F.logsigmoid(-margin)).mean()
    loss.backward()
    return {
        "torch": torch.__version__,
        "loss": loss.item(),
        "gradients": rounded(p.values),
        "metrics": {
            "chosen-reward": chosen.mean().item(),
            "rejected-reward": rejected.mean().item(),
            "reward-margin": margin.mean().item(),
            "reward-accuracy": (margin > 0).float().mean().item(),
        },
    }


def golden_orpo(architecture, pre_norm, activation):
    """The mean over pairs of Hong et al. (arXiv 2403.07691, equations 4, 6 and 7). The likelihood is of the whole sequence, as in trl."""
    p = declare(architecture, pre_norm)
    net = Net(p, architecture, pre_norm, activation)

    def log_probability(source, target):
        nll, labels = net.loss(source, target, 0)
        return -nll / labels

    def log_odds(log_p):
        return log_p - torch.log1p(-torch.exp(log_p))

    learned = torch.stack([net.losses(s, t, 0).mean() for s, t in zip(SOURCES, TARGETS)])
    chosen = torch.stack([log_probability(s, t) for s, t in zip(SOURCES, TARGETS)])
    rejected = torch.stack([log_probability(s, t) for s, t in zip(SOURCES, REJECTED)])
    odds = log_odds(chosen) - log_odds(rejected)
    loss = (learned - BETA * F.logsigmoid(odds)).mean()
    loss.backward()
    return {
        "torch": torch.__version__,
        "loss": loss.item(),
        "gradients": rounded(p.values),
        "metrics": {
            "chosen-reward": BETA * chosen.mean().item(),
            "rejected-reward": BETA * rejected.mean().item(),
            "reward-margin": BETA * (chosen - rejected).mean().item(),
            "reward-accuracy": (chosen > rejected).float().mean().item(),
            "log-odds": odds.mean().item(),
        },
    }


def golden_kto(architecture, pre_norm, activation):
    """The mean over rows of Ethayarajh et al. (arXiv 2402.01306, equation 8), with the KL term of a batch as in trl."""
    p = declare(architecture, pre_norm)
    policy = Net(p, architecture, pre_norm, activation)
    reference = Net(declare(architecture, pre_norm, REFERENCE), architecture, pre_norm, activation)

    def ratio(source, answer):
        with torch.no_grad():
            of_reference = reference.loss(source, answer, 0)[0]
        return of_reference - policy.loss(source, answer, 0)[0]

    ratios = torch.stack([ratio(source, answer) for source, answer, _ in ROWS])
    others = [ROWS[i - 1][1] for i in range(len(ROWS))]
    kl = torch.stack([ratio(row[0], answer) for row, answer in zip(ROWS, others)]).mean().detach().clamp(min=0)
    desirable = torch.tensor([row[2] for row in ROWS])
    ahead = torch.where(desirable, ratios - kl, kl - ratios)
    weights = torch.where(desirable, DESIRABLE, UNDESIRABLE)
    loss = (weights * (1 - torch.sigmoid(BETA * ahead))).mean()
    loss.backward()
    chosen, rejected = BETA * ratios[desirable].mean().item(), BETA * ratios[~desirable].mean().item()
    return {
        "torch": torch.__version__,
        "loss": loss.item(),
        "gradients": rounded(p.values),
        "metrics": {
            "desirable-share": desirable.float().mean().item(),
            "chosen-reward": chosen,
            "rejected-reward": rejected,
            "reward-margin": chosen - rejected,
            "reward-accuracy": (ahead > 0).float().mean().item(),
            "kl": kl.item(),
        },
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    for architecture, pre_norm, activation in (
        ("encoder-decoder", True, "relu"),
        ("encoder-decoder", False, "silu"),
        ("decoder-lm", True, "gelu"),
    ):
        name = f"{architecture}-{'pre' if pre_norm else 'post'}.json"
        with open(f"{sys.argv[1]}/{name}", "w") as file:
            json.dump(golden(architecture, pre_norm, activation), file)
            file.write("\n")
        for objective, make in ("dpo", golden_dpo), ("orpo", golden_orpo), ("kto", golden_kto):
            with open(f"{sys.argv[1]}/{objective}-{name}", "w") as file:
                json.dump(make(architecture, pre_norm, activation), file)
                file.write("\n")
        print(name)
