#!/usr/bin/env python3
"""One Llama-form model in every target: size of the weights, time to load, tokens per second, BLEU.

    python3 tests/bench/targets_table.py --model RUN --source test.de --reference test.en [--only NAME ...] [--threads 2]

The model is a run directory with a BPE vocabulary with byte tokens, which GGUF asks for. Each target is exported, then loaded and run
in a separate process: greedy, at most 60 subwords, 16 sentences at a time (llama.cpp: one, Trafo: 256 source subwords). tok/s:
generated subwords by wall time, and by the seconds of processor time that all threads took, which other programs on the machine disturb
less. BLEU is measured by translate-train eval. Prints a table in Markdown. Needs nothing: packages go into a separate environment
(--environment).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests/tools"), os.path.join(ROOT, "tests/parity")]
import own_environment
from export_parity import Program, read_lines

LONGEST, BATCH = 60, 16
TARGETS = {  # name: (format, weights, what runs it)
    "Trafo, float32": ("", "", "trafo"), "Trafo, int8": ("", "int8", "trafo"),
    "transformers, hf-llama": ("hf-llama", "", "transformers"),
    "transformers, hf-compressed int8": ("hf-compressed", "int8", "transformers"),
    "transformers, hf-compressed int4": ("hf-compressed", "int4", "transformers"),
    "CTranslate2, float32": ("ctranslate2", "float32", "ctranslate2"), "CTranslate2, int8": ("ctranslate2", "int8", "ctranslate2"),
    "ONNX Runtime, float32": ("onnx", "float32", "onnxruntime"), "ONNX Runtime, int8": ("onnx", "int8", "onnxruntime"),
    "OpenVINO, float32": ("onnx", "float32", "openvino"), "OpenVINO, int8": ("onnx", "int8", "openvino"),
    "llama.cpp, float16": ("gguf", "float16", "llama.cpp"), "llama.cpp, Q8_0": ("gguf", "q8_0", "llama.cpp"),
    "llama.cpp, Q4_0": ("gguf", "q4_0", "llama.cpp"),
}
WEIGHTS = ("model.safetensors", "model.bin", "model.onnx", "model.onnx_data", "model.gguf")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--translate-train", default=os.path.join(ROOT, "build/release/translate-train"))
    parser.add_argument("--environment", default=os.path.join(ROOT, "build/parity-environment"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--source", required=True, help="lines to translate")
    parser.add_argument("--reference", required=True)
    parser.add_argument("--only", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", help="where the exports go; default: a temporary folder")
    parser.add_argument("--one", nargs=2, metavar=("FOLDER", "RUNTIME"), help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- in a separate process: load, translate, tell ----

def in_batches(prompts, translate):
    results = [None] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    for begin in range(0, len(order), BATCH):
        part = order[begin:begin + BATCH]
        for i, ids in zip(part, translate([prompts[i] for i in part])):
            results[i] = ids
    return results


def transformers_runner(folder, threads, never, end):
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def translate(prompts):
        longest = max(map(len, prompts))
        ids = torch.tensor([[end] * (longest - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        with torch.no_grad():
            output = model.generate(ids, attention_mask=mask, do_sample=False, num_beams=1, max_new_tokens=LONGEST, suppress_tokens=never,
                                    eos_token_id=end, pad_token_id=end)[:, longest:].tolist()
        return [ids[:ids.index(end)] if end in ids else ids for ids in output]
    return lambda prompts: in_batches(prompts, translate)


def ctranslate2_runner(folder, threads, spm, weights):
    import ctranslate2
    model = ctranslate2.Generator(folder, device="cpu", compute_type=weights, intra_threads=threads)

    def translate(prompts):
        results = model.generate_batch([[spm.id_to_piece(i) for i in p] for p in prompts], beam_size=1, max_length=LONGEST, sampling_topk=1,
                                       include_prompt_in_result=False, disable_unk=True, suppress_sequences=[["<s>"], ["<pad>"]])
        return [[spm.piece_to_id(token) for token in result.sequences[0] if token != "</s>"] for result in results]
    return lambda prompts: in_batches(prompts, translate)


def onnx_runner(folder, threads, runtime, never, end):
    import onnx_parity
    onnx_parity.runtime, onnx_parity.threads = runtime, threads
    model = onnx_parity.LanguageModel(folder)

    def translate(prompts):
        model.start(len(prompts))
        first = model.step(*onnx_parity.padded(prompts, left=True))
        return onnx_parity.greedy(model.step, first, never, end, LONGEST)
    return lambda prompts: in_batches(prompts, translate)


def llama_cpp_runner(folder, threads, never, end):
    import urllib.request

    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path = os.path.join(folder, "model.gguf")
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 1024, 1, False, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)

    def one(prompt):
        data = json.dumps(dict(prompt=prompt, n_predict=LONGEST, temperature=0, top_k=1, return_tokens=True,
                               logit_bias=[[token, False] for token in never])).encode()
        post = urllib.request.Request(server.listening_address + "/completion", data=data, headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(post, timeout=600) as response:
            return [token for token in json.load(response)["tokens"] if token != end]
    return lambda prompts: [one(prompt) for prompt in prompts]


def run_one(arguments):
    import sentencepiece
    folder, runtime = arguments.one
    spm = sentencepiece.SentencePieceProcessor(model_file=os.path.join(os.path.dirname(folder), "tokenizer.model"))
    end, never = spm.eos_id(), [i for i in (spm.unk_id(), spm.bos_id(), spm.pad_id()) if i >= 0]
    for package in {"transformers": ["torch", "transformers"], "onnxruntime": ["onnxruntime"], "openvino": ["openvino"],
                    "ctranslate2": ["ctranslate2"], "llama.cpp": ["xllamacpp"]}[runtime]:
        __import__(package)  # the time to import Python code is no time to load a model
    began = time.perf_counter()
    if runtime == "transformers":
        translate = transformers_runner(folder, arguments.threads, never, end)
    elif runtime == "ctranslate2":
        translate = ctranslate2_runner(folder, arguments.threads, spm, folder.rsplit("-", 1)[1])
    elif runtime == "llama.cpp":
        translate = llama_cpp_runner(folder, arguments.threads, never, end)
    else:
        translate = onnx_runner(folder, arguments.threads, runtime, never, end)
    loaded = time.perf_counter() - began
    prompts = [spm.encode(line) + [end] for line in read_lines(arguments.source)]
    translate(prompts[:2])
    began, used = time.perf_counter(), time.process_time()
    outputs = translate(prompts)
    wall, used = time.perf_counter() - began, time.process_time() - used
    print(json.dumps(dict(load=loaded, wall=wall, cpu=used, tokens=sum(len(ids) + 1 for ids in outputs), texts=spm.decode(outputs))))


# ---- the table ----

def run_trafo(arguments, weights, spm):
    source = read_lines(arguments.source)

    def translate(lines):
        before, began = os.times(), time.perf_counter()
        done = subprocess.run([arguments.translate_train, "translate", "-m", arguments.model, "--beam-size", "1", "--normalize", "0",
                               "--max-length", str(LONGEST), "--mini-batch-words", str(16 * BATCH), "--device", "cpu", "--cpu-threads",
                               str(arguments.threads), "--quiet", *(["--weights", "int8"] if weights else [])],
                              input="".join(line + "\n" for line in lines), encoding="utf-8", capture_output=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        return done.stdout.split("\n")[:-1], time.perf_counter() - began, used

    _, load, load_used = translate(source[:1])
    texts, wall, used = translate(source)
    return dict(load=load, wall=wall - load, cpu=used - load_used, tokens=sum(len(spm.encode(text)) + 1 for text in texts), texts=texts)


def size_of(folder):
    return sum(os.path.getsize(os.path.join(folder, name)) for name in WEIGHTS if os.path.exists(os.path.join(folder, name)))


def trafo_size(arguments, folder, weights):
    """Of the checkpoint that is translated with, or of its int8 form."""
    if weights:
        quantized = os.path.join(folder, "trafo-int8")
        if not os.path.exists(quantized):
            subprocess.run([arguments.translate_train, "quantize", "-m", arguments.model, "-o", quantized, "--quiet"], check=True)
        return size_of(quantized)
    done = subprocess.run([arguments.translate_train, "info", arguments.model, "--json"], encoding="utf-8", capture_output=True, check=True)
    return os.path.getsize(json.loads(done.stdout)["run"]["checkpoint"]["model"]["file"])


def measure(arguments, folder, name, spm):
    form, weights, runtime = TARGETS[name]
    if runtime == "trafo":
        return trafo_size(arguments, folder, weights), run_trafo(arguments, weights, spm)
    exported = os.path.join(folder, f"{form}-{weights or 'float32'}")
    if not os.path.exists(exported):
        subprocess.run([arguments.translate_train, "export", "-m", arguments.model, "--to", form, "-o", exported, "--quiet",
                        *(["--weights", weights] if weights else [])], check=True)
    done = subprocess.run([sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--one", exported, runtime], encoding="utf-8",
                          stdout=subprocess.PIPE, check=True)
    return size_of(exported), json.loads(done.stdout.splitlines()[-1])


def main():
    arguments = parse_arguments()
    import compressed_parity
    import onnx_parity
    own_environment.enter(arguments.environment, [*compressed_parity.PACKAGES, onnx_parity.PACKAGES[0], *onnx_parity.OPENVINO],
                          HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", CUDA_VISIBLE_DEVICES="",
                          OMP_NUM_THREADS=str(arguments.threads))
    if arguments.one:
        return run_one(arguments)
    import sentencepiece
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or temporary
        os.makedirs(folder, exist_ok=True)
        vocabulary = os.path.join(arguments.model, "vocab.spm")
        with open(vocabulary, "rb") as file, open(os.path.join(folder, "tokenizer.model"), "wb") as copy:
            copy.write(file.read())
        spm = sentencepiece.SentencePieceProcessor(model_file=vocabulary)
        print("| target | MB | load, s | tok/s | tok/s of processor time | BLEU |\n|---|---|---|---|---|---|")
        program = Program(arguments.translate_train, folder, 0)
        reference = read_lines(arguments.reference)
        for name in arguments.only:
            size, result = measure(arguments, folder, name, spm)
            print(f"| {name} | {size / 1e6:.2f} | {result['load']:.2f} | {result['tokens'] / result['wall']:,.0f} | "
                  f"{result['tokens'] / result['cpu']:,.0f} | {program.bleu(result['texts'], reference):.2f} |", flush=True)


if __name__ == "__main__":
    main()
