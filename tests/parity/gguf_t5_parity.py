#!/usr/bin/env python3
"""GGUF files of T5, T5 1.1, mT5 and MADLAD-400 in llama.cpp (in the package xllamacpp): ids, log-probabilities and greedy translations.

    python3 tests/parity/gguf_t5_parity.py [--translate-train build/release/translate-train]

The directories are those of t5_parity.py, random tiny models with vocabularies that are trained here: three configurations of each class that
llama.cpp can express, the texts of its tests and ones of up to 200 tokens. Each is imported and exported as GGUF. llama.cpp, which is called
through its C functions, gives the ids of transformers, its log-probabilities of targets (to 1e-4 a token, of gated models to 5e-3: llama.cpp
takes GELU from a table of float16), and its greedy translations, but where such rounding decides. What llama.cpp cannot express is refused by
name: other distances than 128, SiLU, the bytes of ByT5.

The environment and the exit codes are as in export_parity.py.
"""
import ctypes
import math
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import export_parity as parity
import multilingual_parity as multilingual
import t5_parity

CONFIGURATIONS, TEXTS, LONGEST = 3, 20, 12
TOLERANCE = {False: 1e-4, True: 5e-3}  # of gated models


class Batch(ctypes.Structure):
    _fields_ = [("tokens", ctypes.c_int32), *[(name, ctypes.c_void_p) for name in ("token", "embd", "pos", "n_seq_id", "seq_id", "logits")]]


class ModelOptions(ctypes.Structure):  # llama_model_params and bytes after it, none of which is set here
    _fields_ = [("all", ctypes.c_int64 * 64)]


class ContextOptions(ctypes.Structure):  # the first members of llama_context_params
    _fields_ = [*[(name, ctypes.c_int32) for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq", "n_outputs_max",
                                                      "n_outputs_max_per_seq", "n_threads", "n_threads_batch", "context_type", "rope_scaling",
                                                      "pooling", "attention", "flash_attention")],
                ("rope", ctypes.c_float * 6), ("yarn_orig_ctx", ctypes.c_int32), ("defrag_thold", ctypes.c_float),
                ("callback", ctypes.c_void_p * 2), ("type_k", ctypes.c_int32), ("type_v", ctypes.c_int32), ("rest", ctypes.c_int64 * 64)]


def llama_cpp():
    import xllamacpp
    functions = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
    pointers = ["llama_model_load_from_file", "llama_init_from_model", "llama_model_get_vocab", "llama_get_memory"]
    for name in pointers:
        getattr(functions, name).restype = ctypes.c_void_p
    functions.llama_model_default_params.restype = ModelOptions
    functions.llama_context_default_params.restype = ContextOptions
    functions.llama_batch_get_one.restype = Batch
    functions.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
    functions.silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    functions.llama_log_set(functions.silent, None)
    functions.llama_backend_init()
    return functions


class LlamaCpp:
    """An encoder-decoder: one text at a time."""
    def __init__(self, functions, file, vocabulary):
        self.c, self.vocabulary = functions, vocabulary
        self.model = ctypes.c_void_p(functions.llama_model_load_from_file(file.encode(), functions.llama_model_default_params()))
        assert self.model, f"llama.cpp does not load {file}"
        options = functions.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = 512
        options.n_threads = options.n_threads_batch = 1
        options.flash_attention = options.type_k = options.type_v = 0  # none; float32
        self.context = ctypes.c_void_p(functions.llama_init_from_model(self.model, options))
        self.vocab = ctypes.c_void_p(functions.llama_model_get_vocab(self.model))
        self.start = functions.llama_model_decoder_start_token(self.model)

    def close(self):
        self.c.llama_free(self.context)
        self.c.llama_model_free(self.model)

    def ids(self, text):
        data, found = text.encode(), (ctypes.c_int32 * 2000)()
        count = self.c.llama_tokenize(self.vocab, data, len(data), found, len(found), True, False)
        return found[:count]

    def run(self, function, ids):
        tokens = (ctypes.c_int32 * len(ids))(*ids)
        assert function(self.context, self.c.llama_batch_get_one(tokens, len(ids))) == 0

    def encode(self, source):
        self.c.llama_memory_clear(ctypes.c_void_p(self.c.llama_get_memory(self.context)), True)
        self.run(self.c.llama_encode, source)

    def step(self, token):
        """The logits after a token of the decoder."""
        self.run(self.c.llama_decode, [token])
        return self.c.llama_get_logits_ith(self.context, -1)[:self.vocabulary]

    def score(self, source, target):
        self.encode(source)
        total = 0
        for before, token in zip([self.start, *target], target):
            logits = self.step(before)
            most = max(logits)
            total += logits[token] - most - math.log(sum(math.exp(each - most) for each in logits))
        return total

    def greedy(self, source, never, end):
        self.encode(source)
        found, token = [], self.start
        while len(found) < LONGEST:
            logits = self.step(token)
            token = max((i for i in range(len(logits)) if i not in never), key=logits.__getitem__)
            if token == end:
                break
            found.append(token)
        return found


def theirs_of(model, tokens, source, special):
    import torch
    never = [*special, *range(tokens, model.config.vocab_size)]
    texts = []
    for row in source:
        with torch.no_grad():
            output = model.generate(torch.tensor([row]), attention_mask=torch.ones(1, len(row), dtype=torch.long), do_sample=False, num_beams=1,
                                    max_new_tokens=LONGEST, max_length=None, suppress_tokens=never)[0].tolist()
        texts.append([token for token in output[1:] if token != model.config.eos_token_id])
    return texts


def is_tie(model, source, found, wanted):
    """Whether transformers decides the first token in which two texts differ by no more than llama.cpp's rounding of GELU."""
    import torch
    end = model.config.eos_token_id
    found, wanted = [*found, end], [*wanted, end]
    at = next(i for i, (a, b) in enumerate(zip(found, wanted)) if a != b)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[model.config.decoder_start_token_id, *wanted[:at]]])).logits
    return model.config.is_gated_act and (logits[0, -1, wanted[at]] - logits[0, -1, found[at]]).item() <= TOLERANCE[True]


def reason_to_refuse(family, model):
    if family == "byt5":
        return "a byte vocabulary"
    if model.config.dense_act_fn not in ("relu", "gelu_new") or model.config.is_gated_act != (model.config.dense_act_fn == "gelu_new"):
        return "cannot express"
    return None if model.config.relative_attention_max_distance == 128 else "relative_distance 20"


def compare(checks, functions, label, file, model, tokenizer, tokens, lines):
    long = [" ".join(lines[i:i + 14]) for i in range(0, 28, 14)]
    texts = lines + long
    source, target = multilingual.encoded(tokenizer, texts, texts[1:] + texts[:1])
    llama = LlamaCpp(functions, file, tokens)
    different = [(line, found, wanted) for line, found, wanted in zip(texts, map(llama.ids, texts), source) if found != wanted]
    checks.say(not different, f"{label}: llama.cpp has the ids of {len(texts)} texts" + "".join(f" {ascii(each)[:200]}" for each in different[:2]))
    target = [row[:20] for row in target]
    theirs = parity.marian_log_probabilities(multilingual.cut(model, tokens), source, target)
    found = [llama.score(*pair) for pair in zip(source, target)]
    gap = max(abs(a - b) / len(row) for a, b, row in zip(found, theirs, target))
    checks.say(gap <= TOLERANCE[model.config.is_gated_act], f"{label}: a token differs by at most {gap:.1e}")
    special = [0, 2]
    wanted = theirs_of(model, tokens, source, special)
    found = [llama.greedy(row, special, model.config.eos_token_id) for row in source]
    same = sum(a == b or is_tie(model, *texts) for a, b, *texts in zip(found, wanted, source, found, wanted))
    checks.say(same == len(wanted), f"{label}: {same} of {len(wanted)} greedy translations, sources of up to {max(map(len, source))} tokens")
    llama.close()


def main():
    parser = parity.argument_parser(__doc__)
    parser.add_argument("--family", nargs="+", choices=sorted(t5_parity.FAMILIES), default=list(t5_parity.FAMILIES))
    arguments = parser.parse_args()
    parity.enter(arguments, parity.PACKAGES)
    with parity.workplace(arguments) as (program, train, test, _):
        checks, functions = parity.Checks(), llama_cpp()
        texts = [side for pair in train[:1500] for side in pair]
        for family in arguments.family:
            exported = refused = number = 0
            while exported < CONFIGURATIONS and not (family == "byt5" and refused):
                name, label = f"{family}-{number}", f"{family} {number}"
                folder = os.path.join(program.folder, name + "-theirs")
                tokenizer = t5_parity.save_tokenizer(family, number, texts, folder)
                model, tokens = t5_parity.save_model(family, number, tokenizer, folder)
                program.run("import", "--from", folder, "-o", name, "--quiet")
                gguf = os.path.join(program.folder, name + "-gguf")
                done = subprocess.run([program.path, "export", "-m", os.path.join(program.folder, name), "--to", "gguf", "--weights", "float32",
                                       "-o", gguf, "--quiet"], capture_output=True, text=True)
                reason = reason_to_refuse(family, model)
                if reason is not None:
                    refused += 1
                    checks.say(done.returncode != 0 and reason in done.stderr, f"{label}: refused: {done.stderr.strip()[-120:]}")
                else:
                    if done.returncode != 0:
                        sys.exit(f"{label}: {done.stderr}")
                    tagged = [f"{language} {test[0]}" for language in t5_parity.TARGETS] if family == "madlad" else []
                    lines = test[:TEXTS] + tagged + [line for line in multilingual.ODD if line not in t5_parity.SPECIAL]
                    compare(checks, functions, label, os.path.join(gguf, "model.gguf"), model, tokenizer, tokens, lines)
                    exported += 1
                shutil.rmtree(folder)
                number += 1
    print("all equal" if checks.failed == 0 else f"{checks.failed} checks failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
