#!/usr/bin/env python3
"""Generation speed of a language model on a GPU: this engine against transformers with a static cache and compiled, in one run.

    python3 tests/bench/generate_gpu_compare.py --build build/release --work FOLDER [--batch 1,8,64] [--rounds 5]

Uses the Python that runs it, which must have torch and transformers. FOLDER gets the 1B Llama form of docs/performance.md with random
weights (16 layers of 2,048, 32 heads and 8 of keys and values, feed-forward 8,192, vocabulary 8,000) and its hf-llama form, which
are kept for the next time. Both sides compute in bfloat16, read the same prompts of token ids and generate greedily, all sequences of a
batch to the same length. Rounds are taken in turn; the median of the ratios counts. `first`: seconds until the first tokens of all sequences.
"""
import argparse
import ctypes
import os
import random
import statistics
import subprocess
import sys
import time
from ctypes import c_int32, c_int64, c_size_t, c_void_p

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import decode_compare
import generate_compare

SHAPE = ["--task", "llama", "--dim-emb", "2048", "--dec-depth", "16", "--transformer-heads", "32", "--transformer-kv-heads", "8",
         "--transformer-dim-ffn", "8192", "--max-length", "2048", "--tied-embeddings-all"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    numbers = lambda text: [int(part) for part in text.split(",")]
    parser.add_argument("--build", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--batch", type=numbers, default=[1, 8, 64])
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def make_models(arguments):
    program, path = os.path.join(arguments.build, "translate-train"), lambda name: os.path.join(arguments.work, name)
    os.makedirs(arguments.work, exist_ok=True)
    run = lambda *words: subprocess.run([program, *words, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    if not os.path.exists(path("run")):
        generate_compare.make_text(arguments.work)
        run("vocab", "-t", path("text"), "--bpe", "--byte-fallback", "--dim-vocabs", "8000", "-o", path("vocab.spm"))
        run("train", "-t", path("few"), "--vocabs", path("vocab.spm"), "--model", path("run"), *SHAPE, "--after", "1u",
            "--mini-batch-words", "100", "--device", "cuda", "--precision", "bf16")
    if not os.path.exists(path("hf")):
        run("export", "-m", path("run"), "--to", "hf-llama", "-o", path("hf"))


class Trafo:
    def __init__(self, arguments):
        model, vocabulary = decode_compare.model_of_run(os.path.join(arguments.work, "run"))
        self.side = decode_compare.Trafo(arguments.build, model, vocabulary, 4, device=1, precision=2)
        self.generator = c_void_p()
        self.side.call("generator_new", self.side.model, self.side.tokenizer, c_int64(0), ctypes.byref(self.generator))

    def generate(self, prompts, length):
        """The tokens of each sequence, and the seconds until each had its first one."""
        options, first, piece = generate_compare.Options(), c_int64(), generate_compare.Piece()
        self.side.call("translate_options_init", ctypes.byref(options), c_size_t(ctypes.sizeof(options)))
        options.n_best = 1
        options.max_length = options.min_length = length
        rows = (generate_compare.Ids * len(prompts))(*(generate_compare.Ids((c_int32 * len(ids))(*ids), len(ids)) for ids in prompts))
        tokens, left, until_first, began = {}, len(prompts), 0, time.perf_counter()
        self.side.call("generator_start_ids", self.generator, rows, c_size_t(len(prompts)), ctypes.byref(options), None,
                       ctypes.byref(first))
        while left:
            self.side.call("generator_next", self.generator, None, ctypes.byref(piece), c_size_t(ctypes.sizeof(piece)))
            tokens.setdefault(piece.sequence, []).append(piece.token)
            left -= piece.finished
            if not until_first and len(tokens) == len(prompts):
                until_first = time.perf_counter() - began
        return [tokens[number] for number in sorted(tokens)], until_first


class Transformers:
    def __init__(self, arguments):
        import torch
        import transformers
        torch.set_float32_matmul_precision("high")
        self.torch = torch
        self.model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(arguments.work, "hf"), dtype=torch.bfloat16,
                                                                       attn_implementation="sdpa").eval().cuda()

    def generate(self, prompts, length):
        torch = self.torch
        ids = torch.tensor(prompts, device="cuda")
        with torch.inference_mode():
            out = self.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=length,
                                      max_new_tokens=length, max_length=None, cache_implementation="static",
                                      suppress_tokens=[0, 1, 2, 3])
        torch.cuda.synchronize()
        return out[:, len(prompts[0]):].tolist(), 0


def timed(side, prompts, length):
    began = time.perf_counter()
    tokens, first = side.generate(prompts, length)
    return time.perf_counter() - began, first, tokens


def main():
    arguments = parse_arguments()
    make_models(arguments)
    ours, theirs = Trafo(arguments), Transformers(arguments)
    print(f"{arguments.prompt} tokens of a prompt, {arguments.length} generated, bfloat16; medians of {arguments.rounds} turns")
    print("batch   Trafo tok/s   first, s   transformers tok/s   ratio   equal first tokens")
    for batch in arguments.batch:
        numbers = random.Random(batch)
        prompts = [[numbers.randrange(300, 7900) for _ in range(arguments.prompt)] for _ in range(batch)]
        for _ in range(2):  # compiles and captures
            timed(theirs, prompts, arguments.length)
            timed(ours, prompts, arguments.length)
        turns = [(timed(ours, prompts, arguments.length), timed(theirs, prompts, arguments.length)) for _ in range(arguments.rounds)]
        ratio = statistics.median(theirs_turn[0] / ours_turn[0] for ours_turn, theirs_turn in turns)
        speed = lambda which: batch * arguments.length / statistics.median(turn[which][0] for turn in turns)
        first = statistics.median(turn[0][1] for turn in turns)
        equal = sum(a[0] == b[0] for a, b in zip(turns[0][0][2], turns[0][1][2]))
        print(f"{batch:5} {speed(0):13.0f} {first:10.3f} {speed(1):20.0f} {ratio:7.2f} {equal:10} of {batch}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
