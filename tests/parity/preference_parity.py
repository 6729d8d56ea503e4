#!/usr/bin/env python3
"""Preference data and objectives against trl.

    python3 tests/parity/preference_parity.py [--build build/release] [--count 1000]

Rows: --count preference pairs of conversations with real tokenizers and chat templates (npm, as chat_parity.py), with a prompt and with an
implicit one. The ids of prompts and answers must be those of trl's DPOTrainer.

Losses: ORPOTrainer and KTOTrainer of trl, given the decoder-lm of tests/golden/parity/make_golden.py, must have the losses, gradients and
rewards of its files within 1e-5. The engine has them too: tests/parity/golden_test.cc.

Needs npm, and corpus_rows of the build. Exit codes: 0 all equal, 1 not, 77 npm or the packages cannot be had here.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
sys.path.insert(0, str(ROOT / "tests/parity"))
sys.path.insert(0, str(ROOT / "tests/golden/parity"))
import own_environment  # noqa: E402
import chat_parity  # noqa: E402

PACKAGES = ["torch==2.15.0", "transformers==5.23.0", "trl==1.16.0"]
TOKENIZERS = ["llama3_1", "qwen2_5", "qwen3", "gemma3", "mistral_nemo"]
SEED = 11


# ---- rows ----

def said(rng):
    while True:
        text = chat_parity.text(rng)
        if text.strip():
            return text


def messages_of(rng):
    """A prompt that ends with a question, and two different answers, sometimes of more turns."""
    prompt = [{"role": "system", "content": said(rng)}] if rng.random() < .3 else []
    for _ in range(rng.randrange(3)):
        prompt += [{"role": "user", "content": said(rng)}, {"role": "assistant", "content": said(rng)}]
    prompt.append({"role": "user", "content": said(rng)})
    answers = []
    while len(answers) < 2:
        answer = [{"role": "assistant", "content": said(rng)}]
        if rng.random() < .2:
            answer += [{"role": "user", "content": said(rng)}, {"role": "assistant", "content": said(rng)}]
        if not answers or answer[0] != answers[0][0]:
            answers.append(answer)
    return prompt, *answers


def examples(count, implicit):
    rng = random.Random(SEED + implicit)
    found = []
    for _ in range(count):
        prompt, chosen, rejected = messages_of(rng)
        found.append({"chosen": prompt + chosen, "rejected": prompt + rejected} if implicit else
                     {"prompt": prompt, "chosen": chosen, "rejected": rejected})
    return found


def rows_of_trl(rows, tokenizer):
    from datasets import Dataset
    from trl import DPOTrainer
    trainer = types.SimpleNamespace(_tokenizer=tokenizer, _is_vision_dataset=False)
    arguments = types.SimpleNamespace(dataset_num_proc=None, max_length=None, truncation_mode="keep_start")
    made = DPOTrainer._prepare_dataset(trainer, Dataset.from_list(rows), tokenizer, arguments, "train")
    return [(row["prompt_ids"], row["chosen_ids"], row["rejected_ids"]) for row in made]


def rows_of_trafo(rows, program, tokenizer, template, folder):
    file, source = folder / "rows.jsonl", folder / "template.jinja"
    day = {"chat_template_kwargs": {"strftime_now": chat_parity.DAY.isoformat()}}
    file.write_text("".join(json.dumps({**row, **day}) + "\n" for row in rows), encoding="utf-8")
    source.write_text(template, encoding="utf-8")
    done = subprocess.run([program, tokenizer, source, file], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print("FAILED ", done.stderr)
        sys.exit(1)
    return [(row["source"], row["target"], row["rejected"]) for row in map(json.loads, done.stdout.splitlines())]


def compare_rows(build, count):
    good = True
    chat_parity.fix_day()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, files in chat_parity.of_npm(folder, TOKENIZERS).items():
            tokenizer, template = chat_parity.reference(files)
            tokenizer.chat_template = template
            for implicit in (False, True):
                rows = examples(count, implicit)
                wanted = rows_of_trl(rows, tokenizer)
                found = rows_of_trafo(rows, build / "tests/corpus_rows", files / "tokenizer.json", template, folder)
                wrong = [i for i in range(count) if i >= len(found) or tuple(map(list, wanted[i])) != found[i]]
                good &= not wrong and len(found) == count
                print(f"{'FAILED' if wrong else 'ok':8}{name}, {'implicit prompt' if implicit else 'prompt'}: {count - len(wrong)} of {count} "
                      "pairs have the same ids", flush=True)
                for i in wrong[:1]:
                    print("       ", rows[i], wanted[i], found[i] if i < len(found) else None, sep="\n        ")
    return good


# ---- losses ----

def golden_model(golden, first=0):
    """The decoder-lm of make_golden.py as a model of transformers: rows of ids, padded at the end."""
    import torch

    class Golden(torch.nn.Module):
        is_gradient_checkpointing = False

        def __init__(self):
            super().__init__()
            self.values = golden.declare("decoder-lm", True, first).values
            parameters = type("Parameters", (), {"__getitem__": lambda _, name: self.values[name]})()
            self.net = golden.Net(parameters, "decoder-lm", True, "gelu")

        def forward(self, input_ids, attention_mask, labels=None, **_):
            rows = [row[:int(length)].tolist() for row, length in zip(input_ids, attention_mask.sum(1))]
            logits = torch.zeros(*input_ids.shape, golden.VOCABULARY)
            for i, row in enumerate(rows):
                logits[i, :len(row) - 1] = self.net.logits(row[:1], row[1:])[0]
            if labels is None:
                return types.SimpleNamespace(logits=logits)
            counted = labels[:, 1:] != -100
            each = logits[:, :-1].log_softmax(-1).gather(2, labels[:, 1:].clamp(min=0)[..., None])[..., 0]
            zeros = torch.zeros_like(each)
            return types.SimpleNamespace(log_probs=torch.where(counted, each, 0.0), entropy=zeros, mean_logits=zeros)

    return Golden()


class Accelerator:
    device = "cpu"

    @staticmethod
    def gather_for_metrics(value):
        return value


def padded(rows):
    import torch
    width = max(map(len, rows))
    return torch.tensor([row + [0] * (width - len(row)) for row in rows]), torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])


def loss_of_orpo(golden, model):
    """The mean over pairs, each a batch, as gradient accumulation has it."""
    from trl.experimental.orpo import ORPOTrainer
    trainer = types.SimpleNamespace(is_encoder_decoder=False, padding_value=0, aux_loss_enabled=False, beta=golden.BETA,
                                    accelerator=Accelerator, concatenated_inputs=ORPOTrainer.concatenated_inputs,
                                    get_batch_logps=ORPOTrainer.get_batch_logps)
    for name in "concatenated_forward", "odds_ratio_loss":
        setattr(trainer, name, types.MethodType(getattr(ORPOTrainer, name), trainer))
    losses, metrics = [], []
    for source, chosen, rejected in zip(golden.SOURCES, golden.TARGETS, golden.REJECTED):
        batch = {}
        for name, answer in ("chosen", chosen), ("rejected", rejected):
            batch[f"{name}_input_ids"], batch[f"{name}_attention_mask"] = padded([source + answer])
            batch[f"{name}_labels"] = padded([[-100] * len(source) + answer])[0]
        loss, found = ORPOTrainer.get_batch_loss_metrics(trainer, model, batch)
        losses.append(loss)
        metrics.append(found)
    names = {"rewards/chosen": "chosen-reward", "rewards/rejected": "rejected-reward", "rewards/margins": "reward-margin",
             "rewards/accuracies": "reward-accuracy", "log_odds_chosen": "log-odds"}
    return sum(losses) / len(losses), {ours: sum(each[name] for each in metrics) / len(metrics) for name, ours in names.items()}


def loss_of_kto(golden, model):
    import collections
    import torch
    from trl import KTOTrainer
    trainer = types.SimpleNamespace(
        model=model, ref_model=golden_model(golden, golden.REFERENCE), accelerator=Accelerator, calculate_KL=True, aux_loss_enabled=False,
        precompute_ref_logps=False, loss_type="kto", beta=golden.BETA, desirable_weight=golden.DESIRABLE,
        undesirable_weight=golden.UNDESIRABLE, args=types.SimpleNamespace(gradient_checkpointing_kwargs=None), _tp_size=1,
        _total_train_tokens=0, _metrics=collections.defaultdict(lambda: collections.defaultdict(list)))
    trainer._compute_kl_logps = types.MethodType(KTOTrainer._compute_kl_logps, trainer)
    inputs = {"label": torch.tensor([row[2] for row in golden.ROWS])}
    for prefix, answers in ("", [row[1] for row in golden.ROWS]), ("KL_", [golden.ROWS[i - 1][1] for i in range(len(golden.ROWS))]):
        sequences = [row[0] + answer for row, answer in zip(golden.ROWS, answers)]
        inputs[f"{prefix}input_ids"], inputs[f"{prefix}attention_mask"] = padded(sequences)
        inputs[f"{prefix}completion_mask"] = padded([[0] * len(row[0]) + [1] * len(answer) for row, answer in zip(golden.ROWS, answers)])[0]
    loss = KTOTrainer._compute_loss(trainer, model, inputs, False)
    found = {name: values[-1] for name, values in trainer._metrics["train"].items() if values and isinstance(values, list)}
    return loss, {"chosen-reward": found["rewards/chosen"], "rejected-reward": found["rewards/rejected"],
                  "reward-margin": found["rewards/margins"], "kl": found["kl"]}


def compare_losses():
    import make_golden as golden
    good = True
    for name, loss_of in ("orpo", loss_of_orpo), ("kto", loss_of_kto):
        wanted = json.loads((ROOT / f"tests/golden/parity/{name}-decoder-lm-pre.json").read_text(encoding="utf-8"))
        model = golden_model(golden)
        model.train()
        loss, metrics = loss_of(golden, model)
        loss.backward()
        furthest = abs(loss.item() - wanted["loss"])
        for parameter, gradient in wanted["gradients"].items():
            found = model.values[parameter].grad.flatten().tolist()
            furthest = max([furthest, *(abs(a - b) for a, b in zip(found, gradient, strict=True))])
        for metric, value in metrics.items():
            furthest = max(furthest, abs(value - wanted["metrics"][metric]))
        good &= furthest <= 1e-5
        print(f"{'ok' if furthest <= 1e-5 else 'FAILED':8}{name}: loss, {len(wanted['gradients'])} gradients and {len(metrics)} metrics of trl "
              f"within {furthest:.1e}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--count", type=int, default=1000)
    arguments = parser.parse_args()
    own_environment.enter(ROOT / "build/trl-environment", PACKAGES, HF_HUB_OFFLINE="1", TRL_EXPERIMENTAL_SILENCE="1")
    good = compare_losses()
    good &= compare_rows(arguments.build, arguments.count)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
