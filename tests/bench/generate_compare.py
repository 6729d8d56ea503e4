#!/usr/bin/env python3
"""Speed of a language model on the CPU: this engine beside llama.cpp and transformers, one line at a time, greedy, in one run.

    python3 tests/bench/generate_compare.py --environment build/parity-environment --work FOLDER [--build build/release]

The environment has xllamacpp, torch and transformers. FOLDER gets a Llama form with random weights (11 layers of 768, 12 heads and 4
of keys and values, feed-forward 2,048, vocabulary 8,000, embeddings not
tied: 82 million parameters), its quantized forms and those that `export` writes for
the other programs: GGUF in f32, q8_0 and q4_0, and hf-llama. They are kept for the next time. Each side is a process that has loaded
the model and reads the same token ids; they take turns, and the median of the ratios of the turns counts. CPU seconds (user + system)
are what to look at on a machine that does other things too. `first` is the time from the start of loading to the first token.
"""
import argparse
import ctypes
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
import urllib.request
from ctypes import c_double, c_int32, c_int64, c_size_t, c_void_p

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import decode_compare

ROOT = decode_compare.ROOT
SHAPE = ["--task", "llama", "--dim-emb", "768", "--dec-depth", "11", "--transformer-heads", "12", "--transformer-kv-heads", "4",
         "--transformer-dim-ffn", "2048", "--max-length", "1024",
         "--tied-embeddings-all", "off"]
FORMS = {"float32": "float32", "int8": "q8_0", "int4": "q4_0"}  # ours and llama.cpp's


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    numbers = lambda text: [int(part) for part in text.split(",")]
    parser.add_argument("--environment", required=True, help="a virtual environment with xllamacpp, torch and transformers")
    parser.add_argument("--work", required=True, help="keeps the models")
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    parser.add_argument("--weights", default="float32,int8,int4")
    parser.add_argument("--threads", type=numbers, default=[2, 1])
    parser.add_argument("--prompt", type=int, default=124, help="tokens of the prompt (default 124)")
    parser.add_argument("--length", type=int, default=200, help="tokens that are generated (default 200)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", default="trafo,llama.cpp,transformers")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- the models ----

def make_text(work):
    """Made-up lines for a vocabulary (text) and a few of them to make a model from (few)."""
    shape = random.Random(1)
    words = sorted({"".join(shape.choice("bcdfghjklmnprstvwz") + shape.choice("aeiou") for _ in range(shape.randint(2, 6)))
                    for _ in range(60000)})
    for name, count in (("text", 20000), ("few", 300)):
        with open(os.path.join(work, name), "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in decode_compare.made_up_lines(count, words, 2))


def make_models(arguments):
    program, work = os.path.join(arguments.build, "translate-train"), arguments.work
    os.makedirs(work, exist_ok=True)
    path = lambda name: os.path.join(work, name)
    run = lambda *words: subprocess.run([program, *words, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    if not os.path.exists(path("run")):
        make_text(work)
        run("vocab", "-t", path("text"), "--bpe", "--byte-fallback", "--dim-vocabs", "8000", "-o", path("vocab.spm"))
        run("train", "-t", path("few"), "--vocabs", path("vocab.spm"), "--model", path("run"), *SHAPE, "--after", "3u",
            "--mini-batch-words", "100", "--device", "cpu")
    for weights, form in FORMS.items():
        if weights != "float32" and not os.path.exists(path(weights)):
            run("quantize", "-m", path("run"), "-o", path(weights), "--bits", weights[-1])
        if not os.path.exists(path(form)):
            run("export", "-m", path("run"), "--to", "gguf", "--weights", form, "-o", path(form))
    if not os.path.exists(path("hf")):
        run("export", "-m", path("run"), "--to", "hf-llama", "--weights", "float32", "-o", path("hf"))


# ---- workers: one line of JSON in, one out ----

class Options(ctypes.Structure):
    """trafo_translate_options, as far as this program sets it; the library reads struct_size bytes."""
    _fields_ = decode_compare.TranslateOptions._fields_


class Ids(ctypes.Structure):
    _fields_ = [("ids", ctypes.POINTER(c_int32)), ("count", c_size_t)]


class Piece(ctypes.Structure):
    """trafo_generation_piece."""
    _fields_ = [("struct_size", c_size_t), ("sequence", c_int64), ("text", decode_compare.StringView), ("token", c_int32),
                ("finished", c_int32), ("finish", c_int32), ("reserved", c_int32), ("log_probability", c_double), ("prompt_tokens", c_int64),
                ("cached_tokens", c_int64), ("generated_tokens", c_int64)]


class Trafo:
    def __init__(self, arguments, weights, threads):
        folder = os.path.join(arguments.work, weights)
        model, vocabulary = (decode_compare.model_of_run(os.path.join(arguments.work, "run")) if weights == "float32" else
                             (os.path.join(folder, "model.safetensors"), os.path.join(folder, "vocab.spm")))
        self.side = decode_compare.Trafo(arguments.build, model, vocabulary, threads)
        self.generator = c_void_p()
        self.side.call("generator_new", self.side.model, self.side.tokenizer, c_int64(0), ctypes.byref(self.generator))

    def generate(self, prompt, length):
        """The tokens, and the seconds until the first one."""
        options, first, piece, tokens = Options(), c_int64(), Piece(), []
        self.side.call("translate_options_init", ctypes.byref(options), c_size_t(ctypes.sizeof(options)))
        options.n_best = 1
        options.max_length = options.min_length = length
        row = Ids((c_int32 * len(prompt))(*prompt), len(prompt))
        began, until_first = time.perf_counter(), 0
        self.side.call("generator_start_ids", self.generator, ctypes.byref(row), c_size_t(1), ctypes.byref(options), None,
                       ctypes.byref(first))
        while not piece.finished:
            self.side.call("generator_next", self.generator, None, ctypes.byref(piece), c_size_t(ctypes.sizeof(piece)))
            until_first = until_first or time.perf_counter() - began
            tokens.append(piece.token)
        return tokens, until_first


class LlamaCpp:
    """The server of llama.cpp in this process; seconds are its own."""

    def __init__(self, arguments, weights, threads):
        import xllamacpp
        params = xllamacpp.CommonParams()
        params.model.path = os.path.join(arguments.work, FORMS[weights], "model.gguf")
        params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 1024, 1, False, -1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        self.server = xllamacpp.Server(params)

    def generate(self, prompt, length):
        data = json.dumps(dict(prompt=prompt, n_predict=length, temperature=0, top_k=1, samplers=["top_k"], ignore_eos=True,
                               cache_prompt=False, return_tokens=True, logit_bias=[[token, False] for token in range(4)])).encode()
        post = urllib.request.Request(self.server.listening_address + "/completion", data=data,
                                      headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(post, timeout=600) as response:
            answer = json.load(response)
        return answer["tokens"], answer["timings"]["prompt_ms"] / 1000


class Transformers:
    def __init__(self, arguments, weights, threads):
        import torch
        import transformers
        torch.set_num_threads(threads)
        self.torch = torch
        self.model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(arguments.work, "hf"), dtype=torch.float32).eval()

    def generate(self, prompt, length):
        torch = self.torch
        began, times = time.perf_counter(), []
        hook = self.model.register_forward_hook(lambda *_: times.append(time.perf_counter()))
        with torch.inference_mode():
            ids = torch.tensor([prompt])
            out = self.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=length,
                                      max_new_tokens=length, max_length=None, suppress_tokens=[0, 1, 2, 3])
        hook.remove()
        return out[0, len(prompt):].tolist(), times[0] - began


SIDES = {"trafo": Trafo, "llama.cpp": LlamaCpp, "transformers": Transformers}


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def work(arguments):
    side, weights = arguments.worker
    if side != "trafo":
        __import__({"llama.cpp": "xllamacpp", "transformers": "transformers"}[side])  # no part of loading a model
    prompt = [random.Random(5).randrange(300, 7900) for _ in range(arguments.prompt)]
    began = time.perf_counter()
    model = SIDES[side](arguments, weights, arguments.threads[0])
    loaded = time.perf_counter() - began
    model.generate(prompt[:8], 1)
    print(json.dumps({"load": loaded, "first": time.perf_counter() - began}), flush=True)
    for _ in sys.stdin:
        used = processor_seconds()
        model.generate(prompt, 1)
        prompt_cpu = processor_seconds() - used
        used, began = processor_seconds(), time.perf_counter()
        tokens, until_first = model.generate(prompt, arguments.length)
        wall, cpu = time.perf_counter() - began, processor_seconds() - used
        print(json.dumps({"tokens": tokens, "prompt": until_first, "prompt_cpu": prompt_cpu, "generation": wall - until_first,
                          "generation_cpu": cpu - prompt_cpu}), flush=True)


class Worker:
    def __init__(self, arguments, side, weights, threads):
        words = [sys.executable, os.path.abspath(__file__), "--worker", side, weights, "--threads", str(threads)]
        for name in ("environment", "work", "build", "prompt", "length"):
            words += ["--" + name, str(getattr(arguments, name))]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                        env=dict(os.environ, OMP_NUM_THREADS=str(threads)))
        self.name, self.start = side, self.read()

    def read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        sys.exit(f"a worker ended with {self.process.wait()}")

    def run(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.read()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# ---- the table ----

def equal_tokens(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def compare(arguments, weights, threads):
    names = [name for name in arguments.sides.split(",") if name != "transformers" or weights == "float32"]
    sides = [Worker(arguments, name, weights, threads) for name in names]
    turns = [[side.run() for side in sides] for _ in range(arguments.rounds + 1)][1:]  # the first one warms up
    median = lambda side, kind: statistics.median(turn[side][kind] for turn in turns)
    ratio = lambda side, kind: statistics.median(turn[side][kind] / turn[0][kind] for turn in turns)
    for i, side in enumerate(sides):
        prompt, generation = arguments.prompt / median(i, "prompt"), (arguments.length - 1) / median(i, "generation")
        ratios = " ".join(f"{ratio(i, kind):6.2f}" for kind in ("prompt", "prompt_cpu", "generation", "generation_cpu"))
        print(f"{weights:8} {threads:7} {side.name:12} {prompt:9.0f} {generation:9.1f} {1000 * median(i, 'prompt_cpu'):9.1f} "
              f"{1000 * median(i, 'generation_cpu') / (arguments.length - 1):9.2f} {ratios} {side.start['load']:6.2f} "
              f"{side.start['first']:6.2f} {equal_tokens(turns[0][i]['tokens'], turns[0][0]['tokens']):5}", flush=True)
        side.close()


def main():
    arguments = parse_arguments()
    arguments.work, arguments.build = os.path.abspath(arguments.work), os.path.abspath(arguments.build)
    if arguments.worker:
        return work(arguments)
    python = os.path.join(arguments.environment, "bin/python")
    if os.path.realpath(sys.prefix) != os.path.realpath(arguments.environment):
        os.execv(python, [python, *sys.argv])
    make_models(arguments)
    print(f"{arguments.prompt} tokens of a prompt, {arguments.length} generated; medians of {arguments.rounds} turns; ratios: this side's "
          "seconds / Trafo's\nequal: tokens before the first one that is not Trafo's")
    print("weights  threads side         prompt/s generate/s prompt ms cpu ms/token cpu prompt   cpu   gen   cpu   load  first equal")
    for threads in arguments.threads:
        for weights in arguments.weights.split(","):
            compare(arguments, weights, threads)
    return 0


if __name__ == "__main__":
    sys.exit(main())
