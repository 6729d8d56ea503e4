#!/usr/bin/env python3
"""Decoding speed on a GPU: translate of this engine against transformers' MarianMT generate (SDPA), in one run, without a network.

    python3 tests/bench/decode_gpu_compare.py --build build/release --work FOLDER [--lines FILE] [--rounds 5]

Uses the Python that runs it, which must have torch, transformers and sentencepiece. FOLDER gets a model of the base size with random
weights (vocabulary 32,000; made on the CPU, kept for the next time) and its hf-marian form. Both sides translate the same lines, every
translation to the same number of tokens; rounds are interleaved, the median of the pairs' ratios counts. float32 and bfloat16.
"""
import argparse
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import decode_compare


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    numbers = lambda text: [int(part) for part in text.split(",")]
    parser.add_argument("--build", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--lines")
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--length", type=int, default=30)
    parser.add_argument("--beams", type=numbers, default=[1, 5])
    parser.add_argument("--batch", type=numbers, default=[256, 64, 1])
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


class Transformers:
    def __init__(self, folder, dtype):
        import torch
        from transformers import MarianMTModel
        import sentencepiece
        self.torch = torch
        self.model = MarianMTModel.from_pretrained(os.path.join(folder, "hf-marian"), attn_implementation="sdpa", dtype=dtype).eval().cuda()
        self.spm = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "run/vocab.spm"))
        self.pad = self.model.config.pad_token_id

    def translate(self, lines, beam, length, batch):
        torch, tokens = self.torch, 0
        ids = sorted((self.spm.encode(line) + [self.model.config.eos_token_id] for line in lines), key=len, reverse=True)
        for begin in range(0, len(ids), batch):
            part = ids[begin:begin + batch]
            longest = max(map(len, part))
            source = torch.tensor([line + [self.pad] * (longest - len(line)) for line in part], device="cuda")
            with torch.inference_mode():
                out = self.model.generate(source, attention_mask=(source != self.pad).long(), num_beams=beam, do_sample=False,
                                          min_new_tokens=length, max_new_tokens=length, max_length=None)
            tokens += out.shape[0] * (out.shape[1] - 1)
        torch.cuda.synchronize()
        return tokens


def main():
    arguments = parse_arguments()
    import torch
    import transformers
    os.makedirs(arguments.work, exist_ok=True)
    lines = decode_compare.make_model(arguments, arguments.work, "hf-marian")
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, {torch.cuda.get_device_name()}, {len(lines)} lines, "
          f"{arguments.length} tokens each, median of {arguments.rounds} interleaved pairs")
    print("dtype    beam batch  trafo tok/s  transformers tok/s  ratio")
    for name, dtype, precision in [("bfloat16", torch.bfloat16, 2), ("float32", torch.float32, 0)]:
        paths = decode_compare.model_of_run(os.path.join(arguments.work, "run"))
        ours = decode_compare.Trafo(arguments.build, *paths, 1, device=1, precision=precision)
        theirs = Transformers(arguments.work, dtype)
        for beam in arguments.beams:
            for batch in arguments.batch:
                chosen = lines if batch > 1 else lines[:8]
                pairs = []
                for _ in range(arguments.rounds + 1):  # the first warms up
                    pair = []
                    for side in (ours, theirs):
                        began = time.perf_counter()
                        tokens = side.translate(chosen, beam, arguments.length, batch)
                        pair.append(tokens / (time.perf_counter() - began))
                    pairs.append(pair)
                pairs = pairs[1:]
                median = [statistics.median(pair[side] for pair in pairs) for side in (0, 1)]
                ratio = statistics.median(a / b for a, b in pairs)
                print(f"{name:8} {beam:4} {batch:5} {median[0]:12.0f} {median[1]:19.0f} {ratio:6.2f}", flush=True)
        del ours, theirs
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
