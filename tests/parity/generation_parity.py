#!/usr/bin/env python3
"""`translate-train generate` against transformers: greedy tokens under every rule, log-probabilities, and the tokens that may be drawn.

    python3 tests/parity/generation_parity.py [--translate-train build/release/translate-train]

Makes a small random Llama model with transformers, imports it and continues rows of token ids. transformers' generate() has the same
rules; OpenAI's presence and frequency penalties, which it lacks, are a logits processor here, as in the documentation of OpenAI's API.
Of sampling, the set of drawn tokens is compared with what transformers' warpers leave.

Needs nothing: packages go into the environment of export_parity.py. Exit codes: 0 all equal, 1 not, 77 the packages cannot be had here.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
import own_environment  # noqa: E402
from export_parity import Checks  # noqa: E402

PACKAGES = ["torch==2.15.0", "transformers==5.23.0", "safetensors==0.8.0"]
VOCABULARY, END, LENGTH = 60, 2, 20
TOLERANCE = 1e-4
SAMPLES = 400


def make_model(folder):
    import torch
    import transformers
    torch.manual_seed(5)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=128, initializer_range=0.4, bos_token_id=1, eos_token_id=END))
    model.save_pretrained(folder)
    return model.eval()


def prompts():
    import random
    draw = random.Random(4)
    return [[draw.randrange(4, VOCABULARY) for _ in range(draw.randrange(1, 30))] for _ in range(40)]


class Penalties:
    """mu[j] - c[j] * frequency - float(c[j] > 0) * presence, c[j]: how often token j was generated."""

    def __init__(self, given, presence, frequency):
        self.given, self.presence, self.frequency = given, presence, frequency

    def __call__(self, ids, scores):
        import torch
        counts = torch.bincount(ids[0, self.given:], minlength=VOCABULARY)
        return scores - counts * self.frequency - (counts > 0) * self.presence


# Flags of generate, and arguments of generate() of transformers or a processor.
RULES = [
    ([], {}, None),
    (["--repetition-penalty", "1.4"], {"repetition_penalty": 1.4}, None),
    (["--no-repeat-ngram-size", "2"], {"no_repeat_ngram_size": 2}, None),
    (["--min-length", "6"], {"min_new_tokens": 6}, None),
    (["--presence-penalty", "1.5"], {}, (1.5, 0)),
    (["--frequency-penalty", "0.7"], {}, (0, 0.7)),
    (["--presence-penalty", "-1", "--frequency-penalty", "1.2"], {}, (-1, 1.2)),
    (["--logit-bias", "7=3.5", "9=-2"], {"sequence_bias": [[[7], 3.5], [[9], -2.0]]}, None),
    (["--banned-tokens", "5", "8", "13"], {"suppress_tokens": [5, 8, 13]}, None),
    (["--stop-tokens", "11", "12"], {"eos_token_id": [END, 11, 12]}, None),
]
# Never generated here: <s>.
SPECIALS = [1]


def ours(program, model, rows, *flags, length=LENGTH):
    done = subprocess.run([program, "generate", "-m", model, "--ids", "--json", "--device", "cpu", "-q", "--max-length", str(length), *flags],
                          input="".join(" ".join(map(str, row)) + "\n" for row in rows), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"generate {' '.join(flags)}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def theirs(model, row, arguments, penalties):
    import torch
    arguments = {"suppress_tokens": [], **arguments}
    arguments["suppress_tokens"] = arguments["suppress_tokens"] + SPECIALS
    processors = [Penalties(len(row), *penalties)] if penalties else []
    with torch.no_grad():
        found = model.generate(torch.tensor([row]), do_sample=False, max_new_tokens=LENGTH, pad_token_id=3, logits_processor=processors,
                               **arguments)
    return found[0, len(row):].tolist()


def check_rules(checks, program, imported, model, rows):
    for flags, arguments, penalties in RULES:
        found = ours(program, imported, rows, *flags)
        same = sum(one["tokens"] == theirs(model, row, arguments, penalties) for one, row in zip(found, rows))
        # Two nearly equal logits may change places by rounding.
        checks.say(same >= len(rows) - 1, f"{' '.join(flags) or 'no rule'}: {same} of {len(rows)} sequences are the same")


def check_log_probabilities(checks, program, imported, model, rows):
    import torch
    gap = 0
    for one, row in zip(ours(program, imported, rows, "--log-probs", "3", "--frequency-penalty", "0.5"), rows):
        with torch.no_grad():
            logits = model(torch.tensor([row + one["tokens"]])).logits[0, len(row) - 1:].double()
        for token, score, steps in zip(one["tokens"], one["log_probabilities"], torch.log_softmax(logits, -1)):
            gap = max(gap, abs(score["log_probability"] - steps[token].item()))
            best = steps.topk(3)
            gap = max([gap, *(abs(a["log_probability"] - b) for a, b in zip(score["alternatives"], best.values.tolist()))])
    checks.say(gap <= TOLERANCE, f"log-probabilities differ by at most {gap:.1e}")


def check_cuts(checks, program, imported, model, rows):
    """The first tokens that are drawn, and what transformers leaves of the distribution."""
    import torch
    import transformers
    for flags, warpers in [(["--sampling-topk", "4"], ["TopK", 4]), (["--sampling-topp", "0.6"], ["TopP", 0.6]),
                           (["--min-p", "0.2"], ["MinP", 0.2]), (["--temperature", "1.7", "--min-p", "0.2"], ["MinP", 0.2])]:
        temperature = float(flags[1]) if flags[0] == "--temperature" else 1
        warp = getattr(transformers, warpers[0] + "LogitsWarper")(warpers[1])
        wrong = missing = 0
        for row in rows[:4]:
            drawn = {one["tokens"][0] for one in ours(program, imported, [row], "-n", str(SAMPLES), *flags, length=1)}
            with torch.no_grad():
                logits = model(torch.tensor([row])).logits[:, -1] / temperature
            logits[:, SPECIALS] = -torch.inf
            left = warp(torch.tensor([row]), logits)[0]
            likely = {token for token, p in enumerate(torch.softmax(left, -1).tolist()) if p > 10 / SAMPLES}
            wrong += len(drawn - {token for token in range(VOCABULARY) if left[token] > -torch.inf})
            missing += len(likely - drawn)
        checks.say(wrong == 0 and missing == 0, f"{' '.join(flags)}: {wrong} tokens drawn that transformers cuts, {missing} likely ones missing")


def check_batches(checks, program, imported, rows):
    for flags in ([], ["--seed", "7"]):
        together = [one["tokens"] for one in ours(program, imported, rows, *flags)]
        alone = [one["tokens"] for one in ours(program, imported, rows, *flags, "--parallel", "1")]
        checks.say(together == alone, f"{' '.join(flags) or 'greedy'}: sequences are the same alone and together")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--translate-train", default=str(ROOT / "build/release/translate-train"))
    parser.add_argument("--environment", default=str(ROOT / "build/export-parity"))
    arguments = parser.parse_args()
    own_environment.enter(arguments.environment, PACKAGES, TRANSFORMERS_VERBOSITY="error", CUDA_VISIBLE_DEVICES="")
    import torch
    torch.set_num_threads(1)
    checks, program = Checks(), str(pathlib.Path(arguments.translate_train).resolve())
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(folder + "/hf")
        subprocess.run([program, "import", "--from", folder + "/hf", "-o", folder + "/model", "--quiet"], check=True)
        rows = prompts()
        check_rules(checks, program, folder + "/model", model, rows)
        check_log_probabilities(checks, program, folder + "/model", model, rows)
        check_cuts(checks, program, folder + "/model", model, rows)
        check_batches(checks, program, folder + "/model", rows)
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
