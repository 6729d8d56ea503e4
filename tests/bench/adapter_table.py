#!/usr/bin/env python3
"""LoRA adapters against full fine-tuning, on a GPU: memory of a large model, and quality on a domain that the base has not seen.

    python3 tests/bench/adapter_table.py --data DIR [--work DIR] [--parts memory,domain] [--device cuda]

memory: a decoder-only model (Llama form, --shape) is trained for a few updates in full and with adapters. Printed are the planned peak
and the measured one of each.

domain: --data has the German-English captions of Multi30k. Captions about dogs and other animals (--domain, a regular expression for
the German side) are taken away, and a base is trained on the others. The first 1,000 of the pairs taken away are the test, the next 200
the validation, and the rest is what is fine-tuned on. Each kind of fine-tuning tries its learning rates; the validation chooses. Printed
is the BLEU of the test with beam 5, with the p-value of a paired bootstrap of the adapter against full fine-tuning. Needs Python alone.
"""
import argparse
import gzip
import os
import re
import sys

from program import TranslateTrain

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ANIMALS = (r"(?i)\w*(hund|welpe|pudel|terrier|dackel|katze|pferd|reiter|rodeo|kuh\b|kühe|schaf|ziege|vogel|vögel|möwe|taube|ente\b"
           r"|elefant|kamel|affe|tier)\w*")
SHAPE = "--dim-emb 1024 --transformer-dim-ffn 2816 --transformer-heads 16 --dec-depth 28"
TEST, VALIDATION = 1000, 200


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    parser.add_argument("--data", required=True)
    parser.add_argument("--work", default="adapters")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--parts", default="memory,domain")
    parser.add_argument("--shape", default=SHAPE, help="of the large model")
    parser.add_argument("--batches", default="512,4096", help="target tokens of a batch, of the memory (default 512,4096)")
    parser.add_argument("--memory-flags", default="", help="more flags of every training whose memory is measured, such as --recompute full")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--domain", default=ANIMALS)
    parser.add_argument("--task", default="small", help="preset of the base (default small)")
    parser.add_argument("--after", default="6000u", help="of the base (default 6000u)")
    parser.add_argument("--tuning", default="1000u")
    parser.add_argument("--full-rates", default="0.0001,0.0003,0.001")
    parser.add_argument("--adapter-rates", default="0.001,0.002,0.003,0.01")
    return parser.parse_args()


class Program(TranslateTrain):
    def __init__(self, arguments):
        super().__init__(arguments.build)
        self.arguments = arguments

    def train(self, folder, *words):
        if os.path.exists(os.path.join(folder, "done")):
            with open(os.path.join(folder, "done"), encoding="utf-8") as file:
                return file.read()
        result = self.run("train", "--model", folder, "--device", self.arguments.device, *words)
        printed = result.stdout + result.stderr
        with open(os.path.join(folder, "done"), "w", encoding="utf-8") as file:
            file.write(printed)
        return printed


def read_pairs(data, name):
    texts = []
    for side in ("de", "en"):
        with gzip.open(os.path.join(data, f"{name}.{side}.gz"), "rt", encoding="utf-8") as file:
            texts.append(file.read().splitlines())
    return list(zip(*texts))


def write_pairs(folder, name, pairs):
    paths = [os.path.join(folder, f"{name}.{side}") for side in ("de", "en")]
    for path, lines in zip(paths, zip(*pairs)):
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
    return paths


def memory(program, arguments):
    pairs = read_pairs(arguments.data, "train")
    train, valid = write_pairs(arguments.work, "all", pairs), write_pairs(arguments.work, "few", pairs[:20])
    common = ["--train-sets", *train, "--valid-sets", *valid, "--valid-freq", "1000u", "--save-freq", "1000u", "--keep-best", "off",
              "--valid-metrics", "ce-mean-words", *arguments.memory_flags.split()]
    base = os.path.join(arguments.work, "large")
    program.train(base, *common, "--task", "llama", *arguments.shape.split(), "--mini-batch-words", "256", "--after", "1u")
    print("| training | batch | parameters | trained | planned, MiB | measured, MiB | of full |\n|---|---|---|---|---|---|---|")
    for batch in arguments.batches.split(","):
        full = None
        for kind, flags in (("full", []), (f"LoRA, rank {arguments.rank}", ["--lora-rank", str(arguments.rank)])):
            folder = os.path.join(arguments.work, f"large-{kind.split(',')[0].lower()}-{batch}")
            printed = program.train(folder, *common, "--pretrained-model", base, "--task", "llama", "--mini-batch-words", batch, "--after",
                                    "8u", *flags)
            planned = float(re.search(r"planned peak ([0-9.]+) MiB", printed)[1])
            measured = float(re.findall(r"memory ([0-9.]+) MiB", printed)[-1])
            parameters = int(re.search(r"([0-9,]+) parameters", printed.split("trafo ", 1)[1])[1].replace(",", ""))
            trained = re.search(r"([0-9,]+) of [0-9,]+ parameters are trained", printed)
            full, count = full or measured, int(trained[1].replace(",", "")) if trained else parameters
            print(f"| {kind} | {batch} | {parameters / 1e6:.1f} M | {count / 1e6:.1f} M | {planned:.1f} | {measured:.1f} | "
                  f"{measured / full:.3f} |", flush=True)


def domain(program, arguments):
    pairs = read_pairs(arguments.data, "train")
    matches = lambda pair: re.search(arguments.domain, pair[0])
    inside = [pair for pair in pairs if matches(pair)]
    if len(inside) < TEST + 2 * VALIDATION:
        sys.exit(f"--domain: only {len(inside)} pairs match it")
    other = write_pairs(arguments.work, "other", [pair for pair in pairs if not matches(pair)])
    other_valid = write_pairs(arguments.work, "other-valid", [pair for pair in read_pairs(arguments.data, "val") if not matches(pair)])
    test, valid = write_pairs(arguments.work, "test", inside[:TEST]), write_pairs(arguments.work, "valid", inside[TEST:TEST + VALIDATION])
    own = write_pairs(arguments.work, "domain", inside[TEST + VALIDATION:])
    base = os.path.join(arguments.work, "base")
    program.train(base, "--train-sets", *other, "--valid-sets", *other_valid, "--task", arguments.task, "--after", arguments.after)

    def score(run, baseline=None):
        hypotheses = os.path.join(run, "test.hyp")
        program.run("translate", "-m", run, "--device", arguments.device, "-i", test[0], "-o", hypotheses, "--quiet")
        compared = ["--baseline", os.path.join(baseline, "test.hyp")] if baseline else []
        return program.json("eval", "--hyp", hypotheses, "--ref", test[1], "--confidence", "on", *compared)["bleu"]

    def best(kind, rates, flags):
        """The run whose best validation is highest, its learning rate, and how many parameters it trains."""
        found = []
        for rate in rates.split(","):
            run = os.path.join(arguments.work, f"{kind}-{rate}")
            printed = program.train(run, "--train-sets", *own, "--valid-sets", *valid, "--pretrained-model", base, "--task", arguments.task,
                                    "--learn-rate", rate, "--lr-warmup", "100", "--after", arguments.tuning, "--valid-freq", "100u",
                                    "--save-freq", "100u", *flags)
            found.append((max(map(float, re.findall(r"bleu ([0-9.]+)", printed))), rate, run))
            print(f"{kind}, learning rate {rate}: validation BLEU {found[-1][0]}", file=sys.stderr, flush=True)
        return max(found)

    print(f"{len(inside) - TEST - VALIDATION} pairs of the domain to fine-tune on, {len(pairs) - len(inside)} others\n")
    print("| model | learning rate | validation BLEU | test BLEU | against full fine-tuning |\n|---|---|---|---|---|")
    bleu = score(base)
    print(f"| base | - | - | {bleu['score']:.2f} ± {bleu['half_width']:.2f} | |")
    full = best("full", arguments.full_rates, [])
    bleu = score(full[2])
    print(f"| full fine-tuning | {full[1]} | {full[0]:.2f} | {bleu['score']:.2f} ± {bleu['half_width']:.2f} | |")
    adapter = best("adapter", arguments.adapter_rates, ["--lora-rank", str(arguments.rank)])
    bleu = score(adapter[2], full[2])
    print(f"| LoRA, rank {arguments.rank} | {adapter[1]} | {adapter[0]:.2f} | {bleu['score']:.2f} ± {bleu['half_width']:.2f} | "
          f"{bleu['score'] - bleu['baseline']['score']:+.2f}, p = {bleu['p_value']:.3f} |", flush=True)


def main():
    arguments = parse_arguments()
    os.makedirs(arguments.work, exist_ok=True)
    program = Program(arguments)
    for part in arguments.parts.split(","):
        {"memory": memory, "domain": domain}[part](program, arguments)
        print()


if __name__ == "__main__":
    main()
