#!/usr/bin/env python3
"""Fine-tuning against trl: the quality on held-out examples after the same updates.

    python3 tests/parity/tuning_parity.py [--program build/release/translate-train] [--seeds 3] [--updates 300]

A small Llama of transformers that copies words is the start. Trafo and trl tune it with the same batches' size, learning rates, schedule
and AdamW: on three new tasks (SFT, all weights and LoRA), and on preferences between two words (DPO). transformers computes the figures of
both: loss and exact answers of held-out tasks, and the share of held-out preferences whose chosen answer has the higher reward. All
examples have equal lengths, so that a batch of either program has the same number of them. Orders and initial adapters are each program's
own, by seed.

Prints mean and standard deviation over the seeds. Exit codes: 0 all differences are within three standard errors, or 2 points of a share
and 5 % of a loss; 1 not; 77 the packages cannot be had here.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
import own_environment  # noqa: E402

PACKAGES = ["torch==2.15.0", "transformers==5.23.0", "trl==1.16.0", "peft==0.21.2"]
LETTERS = "abcdefghij"
BATCH, BETAS, EPSILON = 16, (0.9, 0.98), 1e-9
RATES = {"full": 2e-3, "lora": 5e-3, "dpo": 3e-4}
RANK, ALPHA, BETA = 8, 16, 0.1
TEMPLATE = ("{% for m in messages %}{{ '<|im_start|>' + m.role[0] }}{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}"
            "{% endgeneration %}{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>a' }}{% endif %}")


def shifted(text, places):
    return "".join(LETTERS[(LETTERS.index(c) + places) % len(LETTERS)] for c in text)


# Each letter of the answer depends on one letter of the question: tasks that are learned in a jump end at random in one half or the other.
TASKS = {
    "up": str.upper,
    "nx": lambda word: shifted(word, 1),
    "pv": lambda word: shifted(word, -1),
}


# ---- data ----

def word(rng):
    return "".join(rng.choice(LETTERS) for _ in range(5))


def talk(question, answer):
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def copying(rng):
    text = word(rng)
    return talk(f"cp {text}", text)


def task(rng):
    name, text = rng.choice(list(TASKS)), word(rng)
    return talk(f"{name} {text}", TASKS[name](text))


def preference(rng):
    """Of two words, the one that is first in the alphabet is preferred."""
    first, second = word(rng), word(rng)
    while first == second:
        second = word(rng)
    said = [{"role": "user", "content": f"{first} {second}"}]
    chosen, rejected = sorted([first, second])
    return {"prompt": said, "chosen": [{"role": "assistant", "content": chosen}], "rejected": [{"role": "assistant", "content": rejected}]}


def several(make, count, seed):
    rng = random.Random(seed)
    return [make(rng) for _ in range(count)]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# ---- the start ----

def make_tokenizer():
    import tokenizers
    import transformers
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model = tokenizers.models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|pad|>"])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|pad|>", chat_template=TEMPLATE)


def encoded(tokenizer, talks):
    """Ids, and which of them are of answers: as the template says, and faster."""
    parts = [[message["content"] for message in messages] for messages in talks]
    ids = tokenizer([f"<|im_start|>u{question}<|im_end|><|im_start|>a{answer}<|im_end|>" for question, answer in parts]).input_ids
    masks = [[int(i >= len(row) - len(answer) - 1) for i in range(len(row))] for row, (_, answer) in zip(ids, parts)]
    return ids, masks


def check_encoding(tokenizer, messages):
    """Returns the number of tokens."""
    found = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    (ids,), (mask,) = encoded(tokenizer, [messages])
    assert (found["input_ids"], found["assistant_masks"]) == (ids, mask), messages
    return len(ids)


def answer_losses(model, tokenizer, talks):
    """Of each conversation: the losses of its tokens, whether each is the most probable one, and which of them are the answer's."""
    import torch
    ids, masks = (torch.tensor(found) for found in encoded(tokenizer, talks))
    logits = model(input_ids=ids).logits[:, :-1].float()
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    return losses, logits.argmax(-1) == ids[:, 1:], masks[:, 1:].bool()


def make_start(folder, tokenizer, updates=300):
    import torch
    import transformers
    torch.manual_seed(1)
    size = dict(hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4)
    config = transformers.LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=64, tie_word_embeddings=True, bos_token_id=None,
                                      eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, **size)
    model = transformers.LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0)
    rng = random.Random(1)
    for update in range(updates):
        losses, _, masks = answer_losses(model, tokenizer, [copying(rng)["messages"] for _ in range(32)])
        losses[masks].mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"start: loss {losses[masks].mean().item():.3f} of copied words after {updates} updates", flush=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


# ---- figures ----

def quality(model, tokenizer, rows):
    import torch
    with torch.no_grad():
        losses, right, masks = answer_losses(model.eval(), tokenizer, [row["messages"] for row in rows])
    return {"loss": float(losses[masks].mean()), "exact": float((right | ~masks).all(1).float().mean())}


def preferred(model, start, tokenizer, rows):
    """The share of pairs whose chosen answer has the higher reward."""
    import torch
    rewards = []
    for kind in ("chosen", "rejected"):
        talks = [row["prompt"] + row[kind] for row in rows]
        with torch.no_grad():
            (of_model, _, masks), (of_start, _, _) = (answer_losses(m.eval(), tokenizer, talks) for m in (model, start))
        rewards.append(((of_start - of_model) * masks).sum(1))
    margin = rewards[0] - rewards[1]
    return {"accuracy": float((margin > 0).float().mean()), "margin": BETA * float(margin.mean())}


# ---- the two programs ----

def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")


def load(path, adapter=None):
    import peft
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(path)
    return peft.PeftModel.from_pretrained(model, adapter) if adapter else model


def by_trafo(options, work, start, kind, files, length, seed):
    folder = work / f"{kind}-{seed}"
    sequences = 2 * BATCH if kind == "dpo" else BATCH
    flags = {"full": [], "lora": ["--lora-rank", RANK, "--lora-alpha", ALPHA],
             "dpo": ["--objective", "dpo", "--dpo-beta", BETA]}[kind]
    run(options.program, "train", "--pretrained-model", work / "imported", "--train-sets", files[0], "--valid-sets", files[1], "--model", folder,
        "--after", f"{options.updates}u", "--learn-rate", RATES[kind], "--lr-decay", "linear", "--lr-warmup", 0, "--label-smoothing", 0,
        "--transformer-dropout", 0, "--transformer-dropout-attention", 0, "--transformer-dropout-ffn", 0, "--exponential-smoothing", 0,
        "--mini-batch-words", sequences * length, "--seed", seed, "--valid-freq", "1000000u", "--save-freq", "1000000u",
        "--valid-metrics", "ce-mean-words", "--device", "cpu", *flags)
    if kind == "lora":
        return load(start, folder / "adapter")
    run(options.program, "export", "-m", folder, "--checkpoint", "latest", "--to", "hf-llama", "-o", folder / "hf")
    return load(folder / "hf")


def by_trl(options, start, tokenizer, kind, rows, seed):
    import datasets
    import peft
    import torch
    import trl
    torch.manual_seed(seed)
    settings = dict(output_dir=str(options.work / "trl"), per_device_train_batch_size=BATCH, max_steps=options.updates, learning_rate=RATES[kind],
                    lr_scheduler_type="linear", warmup_steps=0, adam_beta1=BETAS[0], adam_beta2=BETAS[1], adam_epsilon=EPSILON, weight_decay=0,
                    max_grad_norm=1, seed=seed, use_cpu=True, bf16=False, gradient_checkpointing=False, report_to="none", save_strategy="no",
                    logging_strategy="no", disable_tqdm=True, max_length=64)
    common = dict(model=load(start), train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer)
    if kind == "dpo":
        trainer = trl.DPOTrainer(args=trl.DPOConfig(beta=BETA, **settings), ref_model=load(start), **common)
    else:
        adapter = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0, target_modules="all-linear", task_type="CAUSAL_LM")
        trainer = trl.SFTTrainer(args=trl.SFTConfig(assistant_only_loss=True, packing=False, **settings),
                                 peft_config=adapter if kind == "lora" else None, **common)
    # transformers' rates are those of one update earlier.
    trainer.create_optimizer()
    trainer.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(trainer.optimizer, lambda update: max(0, 1 - (update + 1) / options.updates))
    trainer.train()
    return trainer.model


# ---- comparison ----

def is_within_noise(name, ours, theirs):
    error = (statistics.variance(ours) / len(ours) + statistics.variance(theirs) / len(theirs)) ** .5
    allowed = 0.05 * statistics.mean(theirs) if name in ("loss", "margin") else 0.02
    return abs(statistics.mean(ours) - statistics.mean(theirs)) <= max(3 * error, allowed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=str(ROOT / "build/release/translate-train"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--kinds", nargs="+", choices=list(RATES), default=list(RATES))
    options = parser.parse_args()
    own_environment.enter(ROOT / "build/trl-environment", PACKAGES, HF_HUB_OFFLINE="1", TRL_EXPERIMENTAL_SILENCE="1")
    import transformers
    transformers.logging.set_verbosity_error()
    good = True
    with tempfile.TemporaryDirectory(prefix="trafo-tuning-") as folder:
        options.work = work = pathlib.Path(folder)
        start, tokenizer = work / "start", make_tokenizer()
        make_start(start, tokenizer)
        run(options.program, "import", "--from", start, "-o", work / "imported")
        for kind in options.kinds:
            make = preference if kind == "dpo" else task
            held_out = several(make, 500, 99)
            figures = {"trafo": [], "trl": []}
            for seed in range(1, options.seeds + 1):
                rows = several(make, BATCH * options.updates, seed)
                files = write(work / f"{kind}-{seed}.jsonl", rows), write(work / "held-out.jsonl", held_out[:50])
                talks = [row.get("messages") or row["prompt"] + row["chosen"] for row in rows[:20] + held_out[:20]]
                lengths = {check_encoding(tokenizer, messages) for messages in talks}
                assert len(lengths) == 1, lengths
                for name, model in [("trafo", by_trafo(options, work, start, kind, files, *lengths, seed)),
                                    ("trl", by_trl(options, start, tokenizer, kind, rows, seed))]:
                    found = preferred(model, load(start), tokenizer, held_out) if kind == "dpo" else quality(model, tokenizer, held_out)
                    figures[name].append(found)
                    print(kind, seed, name, *(f"{key} {value:.4f}" for key, value in found.items()), flush=True)
            for key in figures["trl"][0]:
                ours, theirs = ([one[key] for one in figures[name]] for name in ("trafo", "trl"))
                within = len(ours) < 2 or is_within_noise(key, ours, theirs)
                spread = [f"{statistics.mean(v):.4f} ± {statistics.stdev(v) if len(v) > 1 else 0:.4f}" for v in (ours, theirs)]
                print(f"{kind:5} {key:9} trafo {spread[0]}  trl {spread[1]}  {'within the noise' if within else 'DIFFERENT'}", flush=True)
                good = good and within
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
