#!/usr/bin/env python3
"""QLoRA on a GPU beside bitsandbytes with PEFT: the loss of held-out text after the same updates over the same data, and the time.

    python3 tests/bench/qlora_compare.py --build build/cuda --work FOLDER [--updates 500] [--seeds 3]

Uses the Python that runs it, which must have torch, transformers, peft and bitsandbytes. A Llama form (8 layers of 1,024, vocabulary
8,000) is trained on sequences of ids in which one id follows from the last, half of the time, by a table, and is exported. Then both
sides tune it to another table, with the base in NF4: rank 16 on all seven projections, AdamW, one learning rate, all rows as long as
each other. Orders and initial adapters are each program's own, by seed. transformers over bitsandbytes' NF4 computes the held-out losses
of both sides, of ours from the adapter's directory.

Exit codes: 0 the mean losses are within 1 % or three standard errors, 1 not.
"""
import argparse
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import generate_compare

SHAPE = ["--task", "llama", "--dim-emb", "1024", "--dec-depth", "8", "--transformer-heads", "16", "--transformer-kv-heads", "4",
         "--transformer-dim-ffn", "4096", "--tied-embeddings-all"]
LENGTH, BATCH, RANK, RATE, BETAS, EPSILON = 256, 16, 16, 2e-4, (0.9, 0.98), 1e-9
PLAIN = ["--label-smoothing", "0", "--transformer-dropout", "0", "--transformer-dropout-attention", "0", "--transformer-dropout-ffn", "0",
         "--exponential-smoothing", "0", "--max-length", str(LENGTH), "--valid-freq", "1000000u", "--save-freq", "1000000u",
         "--valid-metrics", "ce-mean-words", "--device", "cuda", "--precision", "bf16", "--data-format", "nanogpt", "--quiet"]
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FIRST, LAST, END = 300, 2300, 2  # the ids in use, and </s>


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--updates", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    return parser.parse_args()


def rows_of(table_seed, count, seed):
    table = list(range(FIRST, LAST))
    random.Random(table_seed).shuffle(table)
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        row = [draw.randrange(FIRST, LAST)]
        while len(row) < LENGTH - 1:
            row.append(table[row[-1] - FIRST] if draw.random() < 0.5 else draw.randrange(FIRST, LAST))
        rows.append(row + [END])
    return rows


def write(path, rows):
    with open(path, "wb") as file:
        for row in rows:
            file.write(struct.pack(f"<{len(row)}H", *row))
    return path


def run(arguments, *words):
    subprocess.run([os.path.join(arguments.build, "translate-train"), *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def make_base(arguments, path):
    generate_compare.make_text(arguments.work)
    run(arguments, "vocab", "-t", path("text"), "--bpe", "--byte-fallback", "--dim-vocabs", 8000, "-o", path("vocab.spm"), "--quiet")
    run(arguments, "train", "--train-sets", write(path("first.bin"), rows_of(1, 20000, 1)), "--valid-sets",
        write(path("few.bin"), rows_of(1, 120, 2)), "--vocabs", path("vocab.spm"), "--model", path("run"), *SHAPE, *PLAIN, "--after", "1000u",
        "--learn-rate", "5e-4", "--lr-decay", "cosine", "--lr-warmup", 100, "--mini-batch-words", 32 * LENGTH)
    run(arguments, "export", "-m", path("run"), "--to", "hf-llama", "-o", path("hf"), "--quiet")


def by_trafo(arguments, path, seed):
    folder = path(f"tuned-{seed}")
    began = time.perf_counter()
    run(arguments, "train", "--pretrained-model", path("run"), "--train-sets", path("second.bin"), "--valid-sets", path("held-out.bin"),
        "--model", folder, *PLAIN, "--after", f"{arguments.updates}u", "--learn-rate", RATE, "--lr-decay", "constant", "--lr-warmup", 0,
        "--mini-batch-words", BATCH * LENGTH, "--seed", seed, "--lora-rank", RANK, "--base-precision", "nf4")
    return os.path.join(folder, "adapter"), time.perf_counter() - began


def quantized(path):
    """The base with bitsandbytes' NF4 in place of its linear layers, double quantization as ours."""
    import bitsandbytes
    import torch
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(path("hf"), dtype=torch.bfloat16)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, torch.nn.Linear) and name != "lm_head":
                coded = bitsandbytes.nn.Linear4bit(child.in_features, child.out_features, bias=False, compute_dtype=torch.bfloat16,
                                                   compress_statistics=True, quant_type="nf4")
                coded.weight = bitsandbytes.nn.Params4bit(child.weight.data, requires_grad=False, quant_type="nf4", compress_statistics=True)
                setattr(parent, name, coded)
    return model.cuda()


def with_begin(rows):
    """As the engine reads a row: </s> is in front of the first token."""
    return [[END, *row] for row in rows]


def loss_of(model, rows):
    import torch
    ids = torch.tensor(with_begin(rows), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return model(input_ids=ids, labels=ids, use_cache=False).loss


def held_out_loss(model, rows):
    import torch
    with torch.no_grad():
        return statistics.mean(float(loss_of(model.eval(), rows[i:i + 20])) for i in range(0, len(rows), 20))


def by_peft(arguments, path, rows, seed):
    import peft
    import torch
    torch.manual_seed(seed)
    model = peft.get_peft_model(quantized(path), peft.LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=PROJECTIONS)).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    for p in trained:
        p.data = p.data.float()
    optimizer = torch.optim.AdamW(trained, RATE, betas=BETAS, eps=EPSILON, weight_decay=0, fused=True)
    order = random.Random(seed).sample(rows, BATCH * arguments.updates)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for update in range(arguments.updates):
        loss_of(model, order[BATCH * update:BATCH * (update + 1)]).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    return model, time.perf_counter() - began


def main():
    arguments = parse_arguments()
    os.makedirs(arguments.work, exist_ok=True)
    path = lambda name: os.path.join(arguments.work, name)
    make_base(arguments, path)
    rows, held_out = rows_of(2, BATCH * arguments.updates, 3), rows_of(2, 200, 4)
    write(path("second.bin"), rows), write(path("held-out.bin"), held_out)
    import peft
    print(f"base: loss {held_out_loss(quantized(path), rows_of(1, 200, 5)):.4f} of its own table, "
          f"{held_out_loss(quantized(path), held_out):.4f} of the new one", flush=True)
    losses = {"Trafo": [], "bitsandbytes": []}
    for seed in range(1, arguments.seeds + 1):
        adapter, ours_s = by_trafo(arguments, path, seed)
        ours = held_out_loss(peft.PeftModel.from_pretrained(quantized(path), adapter), held_out)
        model, theirs_s = by_peft(arguments, path, rows, seed)
        theirs = held_out_loss(model, held_out)
        losses["Trafo"].append(ours), losses["bitsandbytes"].append(theirs)
        print(f"seed {seed}: Trafo {ours:.4f} in {ours_s:.1f} s with its start and its files, bitsandbytes with PEFT {theirs:.4f} in "
              f"{theirs_s:.1f} s", flush=True)
    means = {name: statistics.mean(found) for name, found in losses.items()}
    error = (sum(statistics.variance(found) / len(found) for found in losses.values()) ** .5) if arguments.seeds > 1 else 0
    print(json.dumps({**means, "standard error": error}))
    return int(abs(means["Trafo"] - means["bitsandbytes"]) > max(3 * error, 0.01 * means["bitsandbytes"]))


if __name__ == "__main__":
    sys.exit(main())
