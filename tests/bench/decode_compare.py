#!/usr/bin/env python3
"""Decoding speed on the CPU: translate of this engine against CTranslate2, both float32 or both int8, in one run.

    python3 tests/bench/decode_compare.py [--build build/release] [--weights int8] [--threads 1,2] [--beams 1,5] [--rounds 5]

A model of the base size (Vaswani et al.: 6+6 layers of 512, vocabulary 32,000) with random weights, or --model, translates the same
lines on both sides, every translation to the same number of tokens, so that the work is equal. With --weights int8 this engine's
float32 runs as well, in the same rounds. Each side is a separate process that has
loaded the model; rounds are interleaved, and the median of the pairs' ratios counts. CPU seconds (user + system) are what to look
at on a machine that does other things too.

--lines: a file, plain or .gz (for instance Multi30k's test_2016_flickr.de.gz); without it, made-up sentences of that length.
Needs nothing: packages go into a separate environment (--environment, kept between runs). Exit codes: 0 done, 77 the packages
cannot be had here.
"""
import argparse
import ctypes
import gzip
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from ctypes import c_double, c_int32, c_int64, c_size_t, c_void_p

PACKAGES = ["ctranslate2==4.8.5", "sentencepiece==0.2.3", "numpy==2.4.6"]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/tools"))
import own_environment


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    numbers = lambda text: [int(part) for part in text.split(",")]
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"), help="where libtrafo.so and translate-train are")
    parser.add_argument("--environment", default=os.path.join(ROOT, "build/decode-environment"))
    parser.add_argument("--lines", help="sentences to translate, plain or .gz")
    parser.add_argument("--model", help="a folder with model.safetensors and vocab.spm instead of the made-up model")
    parser.add_argument("--weights", choices=["float32", "int8"], default="float32", help="of both sides (default float32)")
    parser.add_argument("--sentences", type=int, default=64, help="how many of them (default 64)")
    parser.add_argument("--length", type=int, default=20, help="tokens of every translation (default 20)")
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--beams", type=numbers, default=[1, 5])
    parser.add_argument("--batch", type=numbers, default=[0, 1],
                        help="sentences decoded together; 0 (default, with 1): all of ours, the best of 16, 32 and 64 of CTranslate2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", help="keeps the model here; default: a temporary folder")
    parser.add_argument("--json", help="writes the rows to this file")
    parser.add_argument("--worker", choices=["trafo", "trafo-float32", "ctranslate2"], help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- the model ----

def made_up_lines(count, words, seed):
    choice = random.Random(seed)
    return [" ".join(choice.choice(words) for _ in range(choice.randint(8, 18))) + " ." for _ in range(count)]


def read_lines(path, count):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line, _ in zip(file, range(count))]


def make_model(arguments, folder, form="ctranslate2"):
    """The run directory, its form for the other program and the lines."""
    lines_path = os.path.join(folder, "lines.txt")
    run, exported = os.path.join(folder, "run"), os.path.join(folder, form)
    program = os.path.join(arguments.build, "translate-train")
    shape = random.Random(1)
    words = sorted({"".join(shape.choice("bcdfghjklmnprstvwz") + shape.choice("aeiouäöü") for _ in range(shape.randint(2, 6)))
                    for _ in range(60000)})
    if arguments.model and not os.path.exists(exported):
        model, vocabulary = (os.path.join(arguments.model, name) for name in ("model.safetensors", "vocab.spm"))
        subprocess.run([program, "export", "-m", model, "--vocabs", vocabulary, "--to", form, "-o", exported, "--quiet"], check=True)
    if not os.path.exists(exported):
        text = os.path.join(folder, "text")
        with open(text, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in made_up_lines(30000, words, 2))
        quiet = {"stdout": subprocess.DEVNULL, "check": True}
        if not os.path.exists(run):
            subprocess.run([program, "train", "-t", text, text, "--model", run, "--task", "base", "--dim-vocabs", "32000", "--after",
                            "1u", "--mini-batch-words", "100", "--transformer-norm", "post", "--device", "cpu", "--quiet"], **quiet)
        subprocess.run([program, "export", "-m", run, "--to", form, "-o", exported, "--quiet"], **quiet)
    lines = read_lines(arguments.lines, arguments.sentences) if arguments.lines else made_up_lines(arguments.sentences, words, 3)
    with open(lines_path, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
    return lines


# ---- workers: one line of JSON in, one out ----

class TranslateOptions(ctypes.Structure):
    """trafo_translate_options, as far as this program sets it; the library reads struct_size bytes."""
    _fields_ = [("struct_size", c_size_t), ("beam", c_int64), ("n_best", c_int64), ("length_penalty", c_double), ("max_length", c_int64),
                ("min_length", c_int64), ("batch_tokens", c_int64)]


class ContextOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("device", c_int32), ("device_index", c_int32), ("threads", c_int32),
                ("fused_kernels", c_int32)]


class StringView(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("length", c_size_t)]


def model_of_run(run):
    """The latest model of a run directory and its vocabulary."""
    with open(os.path.join(run, "latest"), encoding="utf-8") as file:
        return os.path.join(run, "ckpt", file.read().strip(), "model.safetensors"), os.path.join(run, "vocab.spm")


class Trafo:
    """One handle of each kind, kept for the life of the process."""

    def __init__(self, build, model, vocabulary, threads, device=0, precision=0, int8=False):
        self.c = ctypes.CDLL(os.path.join(build, "libtrafo.so"))
        self.c.trafo_error_message.restype = ctypes.c_char_p
        self.c.trafo_error_message.argtypes = [c_void_p]
        options = ContextOptions()
        self.call("context_options_init", ctypes.byref(options), c_size_t(ctypes.sizeof(options)))
        options.threads, options.device = threads, device
        self.context, self.tokenizer, self.model = c_void_p(), c_void_p(), c_void_p()
        self.call("context_new", ctypes.byref(options), ctypes.byref(self.context))
        vocabulary, model = vocabulary.encode(), model.encode()
        self.call("tokenizer_load", vocabulary, c_size_t(len(vocabulary)), ctypes.byref(self.tokenizer))
        if int8:
            self.call("model_load_int8", self.context, model, c_size_t(len(model)), ctypes.byref(self.model))
        else:
            self.call("model_load_as", self.context, model, c_size_t(len(model)), c_int32(precision), ctypes.byref(self.model))
        self.call("model_prepare_inference", self.model)

    def call(self, name, *arguments):
        function = getattr(self.c, "trafo_" + name)
        function.restype = c_void_p
        error = function(*arguments)
        if error:
            raise RuntimeError(self.c.trafo_error_message(error).decode())

    def translate(self, lines, beam, length, batch):
        options = TranslateOptions()
        self.call("translate_options_init", ctypes.byref(options), c_size_t(ctypes.sizeof(options)))
        if (options.beam, options.n_best, options.length_penalty, options.batch_tokens) != (5, 1, 1, 4096):
            raise RuntimeError("trafo_translate_options of the library has other fields than this program thinks")
        options.beam, options.min_length, options.max_length = beam, length, length
        texts = [line.encode() for line in lines]
        options.batch_tokens = 1 << 20 if batch > 0 else options.batch_tokens
        steps = [texts[i:i + batch] for i in range(0, len(texts), batch)] if batch > 0 else [texts]
        for step in steps:
            views, out = (StringView * len(step))(*[StringView(text, len(text)) for text in step]), c_void_p()
            self.call("translate", self.model, self.tokenizer, views, c_size_t(len(step)), ctypes.byref(options), None,
                      ctypes.byref(out))
            self.c.trafo_translations_free.restype = None
            self.c.trafo_translations_free(out)
        return length * len(lines)


class CTranslate2:
    def __init__(self, folder, threads, weights):
        import ctranslate2
        import sentencepiece
        path = os.path.join(folder, "ctranslate2")
        self.translator = ctranslate2.Translator(path, device="cpu", compute_type=weights, intra_threads=threads, inter_threads=1)
        self.spm = sentencepiece.SentencePieceProcessor(model_file=os.path.join(path, "vocab.spm"))

    def translate(self, lines, beam, length, batch):
        subwords = [self.spm.encode(line, out_type=str) for line in lines]
        results = self.translator.translate_batch(subwords, beam_size=beam, min_decoding_length=length, max_decoding_length=length,
                                                  max_batch_size=batch, disable_unk=True, suppress_sequences=[["<s>"], ["<pad>"]])
        return sum(len(result.hypotheses[0]) for result in results)


def work(arguments):
    with open(os.path.join(arguments.work, "lines.txt"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    threads = arguments.threads[0]
    if arguments.worker == "ctranslate2":
        side = CTranslate2(arguments.work, threads, arguments.weights)
    else:
        paths = (os.path.join(arguments.model, name) for name in ("model.safetensors", "vocab.spm")) if arguments.model else model_of_run(
            os.path.join(arguments.work, "run"))
        side = Trafo(arguments.build, *paths, threads, int8=arguments.weights == "int8" and arguments.worker == "trafo")
    for request in sys.stdin:
        wanted = json.loads(request)
        chosen = lines[:wanted["sentences"]]
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        tokens = side.translate(chosen, wanted["beam"], wanted["length"], wanted["batch"])
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(json.dumps({"wall": wall, "cpu": cpu, "tokens": tokens}), flush=True)


class Worker:
    def __init__(self, arguments, folder, name, threads):
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
        model = ["--model", os.path.abspath(arguments.model)] if arguments.model else []
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", name, "--work", folder, "--build",
                                         os.path.abspath(arguments.build), "--threads", str(threads), "--weights",
                                         arguments.weights, *model],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def run(self, **wanted):
        self.process.stdin.write(json.dumps(wanted) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"a worker ended with {self.process.wait()}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(arguments, ours, theirs, own_float32, threads, beam, batch):
    sides = [ours, theirs, *([own_float32] if own_float32 else [])]
    sentences = arguments.sentences if batch == 0 else min(arguments.sentences, 12)
    wanted = {"beam": beam, "length": arguments.length, "sentences": sentences}
    choices = [16, 32, 64] if batch == 0 else [batch]
    warm = {size: theirs.run(batch=size, **wanted)["cpu"] for size in choices}
    best = min(warm, key=warm.get)
    rounds = []
    for _ in range(arguments.rounds + 1):  # the first one warms up
        rounds.append([side.run(batch=best if side is theirs else batch, **wanted) for side in sides])
    rounds = rounds[1:]
    tokens = {answer["tokens"] for answers in rounds for answer in answers}
    if len(tokens) != 1:
        sys.exit(f"the sides did not do the same work: {sorted(tokens)} tokens")
    median = lambda side, kind: statistics.median(answers[side][kind] for answers in rounds)
    ratio = lambda kind, other=1: statistics.median(answers[other][kind] / answers[0][kind] for answers in rounds)
    count = tokens.pop()
    row = {"threads": threads, "beam": beam, "batch": batch or "all", "peer_batch": best,
           "trafo_tokens_per_second": count / median(0, "wall"), "peer_tokens_per_second": count / median(1, "wall"),
           "trafo_cpu_seconds": median(0, "cpu"), "peer_cpu_seconds": median(1, "cpu"), "ratio_wall": ratio("wall"),
           "ratio_cpu": ratio("cpu")}
    own = ""
    if own_float32:
        row |= {"float32_tokens_per_second": count / median(2, "wall"), "ratio_float32_wall": ratio("wall", 2),
                "ratio_float32_cpu": ratio("cpu", 2)}
        own = f" {row['float32_tokens_per_second']:12.0f} {row['ratio_float32_wall']:6.2f} {row['ratio_float32_cpu']:6.2f}"
    print(f"{threads:7} {beam:4} {row['batch']:>5} {best:5} {row['trafo_tokens_per_second']:10.0f} "
          f"{row['peer_tokens_per_second']:10.0f} {row['trafo_cpu_seconds']:9.3f} {row['peer_cpu_seconds']:9.3f} "
          f"{row['ratio_wall']:7.2f} {row['ratio_cpu']:7.2f}{own}", flush=True)
    return row


def main():
    arguments = parse_arguments()
    if arguments.worker:
        return work(arguments)
    own_environment.enter(arguments.environment, PACKAGES)
    import ctranslate2
    with tempfile.TemporaryDirectory() as temporary:
        folder = os.path.abspath(arguments.work or temporary)
        os.makedirs(folder, exist_ok=True)
        lines = make_model(arguments, folder)
        print(f"CTranslate2 {ctranslate2.__version__}, {arguments.weights}, {len(lines)} lines, {arguments.length} tokens each, median of "
              f"{arguments.rounds} interleaved pairs; ratios above 1: ours is faster")
        int8 = arguments.weights == "int8"
        print("threads beam batch theirs trafo tok/s CT2 tok/s trafo cpu   CT2 cpu    wall     cpu"
              + (" float32 tok/s   wall    cpu" if int8 else ""))
        rows = []
        for threads in arguments.threads:
            sides = [Worker(arguments, folder, name, threads) for name in ("trafo", "ctranslate2", *(["trafo-float32"] if int8 else []))]
            rows += [compare(arguments, *sides[:2], sides[2] if int8 else None, threads, beam, batch) for batch in arguments.batch
                     for beam in arguments.beams]
            for side in sides:
                side.close()
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
