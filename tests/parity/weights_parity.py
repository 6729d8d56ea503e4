#!/usr/bin/env python3
"""Exports with weights in fewer bits, and tokenizers, as the programs read them that they are written for.

    python3 tests/parity/weights_parity.py [--translate-train build/release/translate-train] [--data FOLDER]

Trains an encoder-decoder and small models of the forms of Llama and Qwen3. CTranslate2: every type of weights of a Llama model is, byte for byte, what
CTranslate2's own converter makes of the directory for transformers, and greedy translations are ours. GGUF: the gguf package reads
every tensor, its own quantisation gives the same bytes, what it reads is within a block's rounding of the weights, and transformers
(gguf_file) gives our log-probabilities and ids. llama.cpp (in the package xllamacpp) gives our ids and greedy translations.
Tokenizers: AutoTokenizer gives our ids on lines in many scripts, for unigram and BPE, with and without byte tokens. --tokenizers: only
these, on the whole corpus and thousands of lines, and the normal form of every character and of every entry of the character map.

Needs nothing: packages go into a separate environment (--environment, kept between runs). Exit codes: 0 all equal, 1 not,
77 the packages cannot be had here.
"""
import json
import os
import shutil
import struct
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/tools"))
import export_parity
import tokenizer_cases
from export_parity import LONGEST, Checks, encode_all, lm_log_probabilities

CTRANSLATE2_TYPES = ["float32", "float16", "bfloat16", "int16", "int8"]
# The share of greedy translations that are ours; of the types that round, where the two best tokens are nearly as good.
CTRANSLATE2_SAME = {"float32": 0.99, "float16": 0.97, "bfloat16": 0.9, "int16": 0.95, "int8": 0.9}
GGUF_TYPES = ["f32", "f16", "q8_0", "q4_0"]
GGUF_LOG_PROBABILITY = {"f32": 1e-4, "f16": 5e-3}  # a token
# Of the translations of the model with the weights that were read. llama.cpp rounds activations to 8 bits where weights are blocks.
LLAMA_CPP_SAME = {"f32": 0.99, "f16": 0.97, "q8_0": 0.9, "q4_0": 0.9}


# ---- CTranslate2 ----

def read_model_bin(path):
    """{name: (type, shape, bytes)}, {alias: name} of a CTranslate2 model."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0

    def take(form):
        nonlocal at
        value = struct.unpack_from("<" + form, data, at)[0]
        at += struct.calcsize("<" + form)
        return value

    def text():
        nonlocal at
        length = take("H")
        at += length
        return data[at - length:at - 1].decode()

    take("I"), text(), take("I")
    variables = {}
    for _ in range(take("I")):
        name = text()
        shape = tuple(take("I") for _ in range(take("B")))
        kind, size = take("B"), take("I")
        variables[name] = (kind, shape, data[at:at + size])
        at += size
    return variables, {text(): text() for _ in range(take("I"))}


def check_against_converter(checks, program, run):
    """CTranslate2's converter for Llama models makes our files from our directory for transformers."""
    import ctranslate2
    folder = os.path.join(program.folder, run + "-hf")
    program.run("export", "-m", run, "--to", "hf-llama", "-o", folder, "--quiet")
    for weights in CTRANSLATE2_TYPES:
        ours, theirs = (os.path.join(program.folder, f"{run}-{weights}-{who}") for who in ("ours", "theirs"))
        program.run("export", "-m", run, "--to", "ctranslate2", "--weights", weights, "-o", ours, "--quiet")
        ctranslate2.converters.TransformersConverter(folder).convert(theirs, quantization=weights)
        a, b = (read_model_bin(os.path.join(each, "model.bin")) for each in (ours, theirs))
        different = [name for name in a[0].keys() | b[0].keys() if a[0].get(name) != b[0].get(name)]
        checks.say(not different and a[1] == b[1], f"CTranslate2 {weights} ({run}): {len(b[0])} variables are its converter's"
                   + (f", but not {', '.join(sorted(different)[:4])}" if different else ""))
        configs = [json.load(open(os.path.join(each, "config.json"), encoding="utf-8")) for each in (ours, theirs)]
        checks.say(all(configs[0].get(key) == value for key, value in configs[1].items()), f"CTranslate2 {weights}: config.json")


def check_ctranslate2(checks, program, run, test):
    import ctranslate2
    import sentencepiece
    reference = program.greedy(run, test)
    never = [["<s>"], ["<pad>"]]
    for weights in CTRANSLATE2_TYPES:
        folder = os.path.join(program.folder, f"{run}-{weights}")
        program.run("export", "-m", run, "--to", "ctranslate2", "--weights", weights, "-o", folder, "--quiet")
        spm = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "vocab.spm"))
        subwords = [spm.encode(line, out_type=str) for line in test]
        compute = weights if weights.startswith("int") and weights in ctranslate2.get_supported_compute_types("cpu") else "float32"
        options = dict(device="cpu", compute_type=compute, intra_threads=1)
        if os.path.exists(os.path.join(folder, "vocabulary.json")):
            results = ctranslate2.Generator(folder, **options).generate_batch(
                [tokens + ["</s>"] for tokens in subwords], beam_size=1, max_length=LONGEST, sampling_topk=1,
                include_prompt_in_result=False, disable_unk=True, suppress_sequences=never)
            tokens = [result.sequences[0] for result in results]
        else:
            results = ctranslate2.Translator(folder, **options).translate_batch(
                subwords, beam_size=1, max_decoding_length=LONGEST, disable_unk=True, suppress_sequences=never)
            tokens = [result.hypotheses[0] for result in results]
        texts = [spm.decode([spm.piece_to_id(token) for token in each]) for each in tokens]
        checks.translations(f"CTranslate2 {weights} ({run})", reference, texts, CTRANSLATE2_SAME[weights])


# ---- GGUF ----

GGUF_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
              "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
              "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
              "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}


def gguf_name(name):
    name, kind = name.rsplit(".", 1)
    if not name.startswith("model.layers."):
        return f"{GGUF_NAMES[name]}.{kind}"
    _, _, layer, part = name.split(".", 3)
    return f"blk.{layer}.{GGUF_NAMES[part]}.{kind}"


def reordered(name, values, config, back):
    """Rows of queries and keys of a llama: in each head, rows of its two halves alternate; or back."""
    if config["model_type"] != "llama" or ".q_proj." not in name and ".k_proj." not in name:
        return values
    heads = config["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
    half = values.shape[0] // heads // 2
    order = (heads, half, 2, -1) if back else (heads, 2, half, -1)
    return values.reshape(order).swapaxes(1, 2).reshape(values.shape)


def check_gguf_tensors(checks, program, run, weights, folder):
    import gguf
    import numpy as np
    with open(os.path.join(program.folder, run + "-hf/config.json"), encoding="utf-8") as file:
        config = json.load(file)
    from safetensors.numpy import load_file, save_file
    originals = load_file(os.path.join(program.folder, run + "-hf/model.safetensors"))
    wanted = {gguf_name(name): reordered(name, values, config, back=False) for name, values in originals.items()}
    reader = gguf.GGUFReader(os.path.join(folder, "model.gguf"))
    same = {tensor.name for tensor in reader.tensors} == wanted.keys()
    bytes_equal, worst, rounded = True, 0.0, {}
    for tensor in reader.tensors:
        values = wanted[tensor.name]
        stored = np.asarray(tensor.data)
        bytes_equal &= gguf.quants.quantize(values, tensor.tensor_type).tobytes() == stored.tobytes()
        read = gguf.quants.dequantize(stored, tensor.tensor_type).reshape(values.shape)
        rounded[tensor.name] = read
        error = np.abs(read - values).reshape(-1, 32 if values.ndim == 2 else values.size)
        largest = np.abs(values).reshape(error.shape).max(axis=1, keepdims=True)
        # Steps of a block: 1 / 127 of its largest value, half of it away; 1 / 8, up to a whole one away; float16: 2^-11 of a value.
        steps = {"F32": 0, "F16": 2**-11, "Q8_0": 0.5 / 127, "Q4_0": 1 / 8}[tensor.tensor_type.name]
        scale_rounding = 0 if tensor.tensor_type.name in ("F32", "F16") else 2**-11
        worst = max(worst, float((error - largest * (steps + scale_rounding) * 1.001 - 2e-7).max()))
    kinds = sorted({tensor.tensor_type.name for tensor in reader.tensors})
    checks.say(same and bytes_equal, f"GGUF {weights} ({run}): {len(wanted)} tensors ({', '.join(kinds)}) are the gguf package's bytes")
    checks.say(worst <= 0, f"GGUF {weights} ({run}): within the rounding of a block")
    fields = {name: field.contents() for name, field in reader.fields.items()}
    import sentencepiece
    spm = sentencepiece.SentencePieceProcessor(model_file=os.path.join(program.folder, run + "-hf/tokenizer.model"))
    kind = config["model_type"]
    good = (fields["general.architecture"] == kind and fields[kind + ".embedding_length"] == config["hidden_size"]
            and fields[kind + ".attention.head_count_kv"] == config["num_key_value_heads"]
            and fields[kind + ".context_length"] == config["max_position_embeddings"]
            and fields["tokenizer.ggml.tokens"] == [spm.id_to_piece(i) for i in range(len(spm))]
            and fields["tokenizer.ggml.eos_token_id"] == spm.eos_id() and fields["tokenizer.ggml.add_bos_token"] is False)
    checks.say(good, f"GGUF {weights} ({run}): metadata and vocabulary")
    # The model with the weights as they are read, for us.
    copy = os.path.join(program.folder, f"{run}-{weights}-rounded-hf")
    shutil.copytree(os.path.join(program.folder, run + "-hf"), copy)
    save_file({name: np.ascontiguousarray(reordered(name, rounded[gguf_name(name)], config, back=True)) for name in originals},
              os.path.join(copy, "model.safetensors"))
    program.run("import", "--from", copy, "-o", copy + "-imported", "--quiet")
    return spm, copy + "-imported"


def check_gguf(checks, program, run, test, reference, types, translated, in_transformers=True):
    """types: of the files; translated: of those that llama.cpp translates with."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    scores = program.scores(run, test, reference)
    for weights in types:
        folder = os.path.join(program.folder, f"{run}-{weights}-gguf")
        program.run("export", "-m", run, "--to", "gguf", "--weights", weights, "-o", folder, "--quiet")
        spm, rounded = check_gguf_tensors(checks, program, run, weights, folder)
        if in_transformers and weights in GGUF_LOG_PROBABILITY:
            import torch
            model = AutoModelForCausalLM.from_pretrained(folder, gguf_file="model.gguf", dtype=torch.float32).eval()
            source, target = encode_all(spm, test), encode_all(spm, reference)
            checks.log_probabilities(f"transformers, gguf_file {weights} ({run})", scores,
                                     lm_log_probabilities(model, source, target), [len(t) for t in target],
                                     GGUF_LOG_PROBABILITY[weights])
        if weights in translated:
            check_llama_cpp(checks, f"{weights} ({run})", os.path.join(folder, "model.gguf"), spm, test,
                            program.greedy(rounded, test), LLAMA_CPP_SAME[weights])
    if not in_transformers:
        return
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file="model.gguf")
    checks.say(tokenizer(test, add_special_tokens=False).input_ids == [spm.encode(line) for line in test],
               f"transformers, gguf_file ({run}): our ids")


def relatives(program, updates):
    """A trained Qwen3, the same stretched by YaRN, and a random Qwen2 with YaRN."""
    import sentencepiece
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM
    run = program.train("qwen3", 2 * updates, "--task", "qwen3", "--vocabs", "bpe.spm", "--transformer-kv-heads", "2")
    folder = os.path.join(program.folder, "relative")
    program.run("export", "-m", run, "--to", "hf-llama", "-o", folder, "--quiet")
    yarn = dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=32)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config | dict(rope_scaling=None, rope_parameters=yarn), file)
    program.run("import", "--from", folder, "-o", "qwen3-yarn", "--quiet")
    shutil.rmtree(folder)
    os.makedirs(folder)
    shutil.copy(os.path.join(program.folder, "bpe.spm"), os.path.join(folder, "tokenizer.model"))
    tokens = len(sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model")))
    torch.manual_seed(8)
    model = Qwen2ForCausalLM(Qwen2Config(
        vocab_size=tokens, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=512, initializer_range=0.2, bos_token_id=1, eos_token_id=2, rope_parameters=yarn))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".bias"):
                parameter.normal_(std=0.3)
        model.lm_head.weight[3:259] = 0  # a byte is never the most likely: ends of lines would be among them
    model.save_pretrained(folder)
    program.run("import", "--from", folder, "-o", "qwen2-yarn", "--quiet")
    return [run, "qwen3-yarn", "qwen2-yarn"]


def check_classes(checks, program, test):
    """Random models of classes that no preset trains, in the architectures of llama.cpp."""
    import sentencepiece
    import torch
    import transformers
    file = os.path.join(program.folder, "bpe.spm")
    spm = sentencepiece.SentencePieceProcessor(model_file=file)
    common = dict(vocab_size=len(spm), hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2,
                  max_position_embeddings=160, initializer_range=0.2, bos_token_id=spm.bos_id(), eos_token_id=spm.eos_id(), pad_token_id=None,
                  rope_parameters={"rope_type": "default", "rope_theta": 1e3})
    for name, settings in {
            "SmolLM3": dict(num_hidden_layers=5, tie_word_embeddings=True, no_rope_layers=[1, 1, 1, 0, 1]),
            "Granite": dict(num_hidden_layers=2, embedding_multiplier=6.0, attention_multiplier=0.125, residual_multiplier=0.5, logits_scaling=3.0),
            "Olmo2": dict(num_hidden_layers=2),
            "HunYuanDenseV1": dict(num_hidden_layers=2, head_dim=12),
            "Gemma2": dict(num_hidden_layers=3, head_dim=12, query_pre_attn_scalar=12, sliding_window=6, attn_logit_softcapping=2.0,
                           final_logit_softcapping=4.0),
            "Gemma3Text": dict(num_hidden_layers=7, head_dim=12, query_pre_attn_scalar=12, sliding_window=6, rope_parameters={
                "full_attention": {"rope_type": "linear", "rope_theta": 1e5, "factor": 4.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})}.items():
        torch.manual_seed(3)
        config = getattr(transformers, name + "Config")(**{**common, **settings})
        model = getattr(transformers, name.removesuffix("Text") + "ForCausalLM")(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.2 * torch.randn_like(parameter))
            model.get_output_embeddings().weight[3:259] = 0  # a byte is never the most likely
        folder = os.path.join(program.folder, name)
        model.save_pretrained(folder)
        shutil.copy(file, os.path.join(folder, "tokenizer.model"))
        program.run("import", "--from", folder, "-o", name + "-imported", "--quiet")
        program.run("export", "-m", name + "-imported", "--to", "gguf", "--weights", "float32", "-o", name + "-gguf", "--quiet")
        check_llama_cpp(checks, name, os.path.join(program.folder, name + "-gguf", "model.gguf"), spm, test,
                        program.greedy(name + "-imported", test), 0.9 if name.startswith("Gemma") else LLAMA_CPP_SAME["f32"])  # GELU in float16


def check_llama_cpp(checks, name, file, spm, test, reference, share):
    import urllib.request

    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path = file
    params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 1024, 1, False, -1
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32  # not rounded to float16
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)

    def ask(path, **request):
        data = json.dumps(request).encode()
        post = urllib.request.Request(server.listening_address + path, data=data, headers={"Content-Type": "application/json"})
        with urllib.request.urlopen(post, timeout=60) as response:
            return json.load(response)

    prompts = [spm.encode(line) + [spm.eos_id()] for line in test]
    ids = [ask("/tokenize", content=line + "</s>", add_special=True, parse_special=True)["tokens"] for line in test]
    checks.say(ids == prompts, f"llama.cpp, {name}: our ids, {sum(a == b for a, b in zip(ids, prompts))} of {len(test)}")
    never = [[token, False] for token in (spm.unk_id(), spm.bos_id(), spm.pad_id())]
    texts = []
    for prompt in prompts:
        answer = ask("/completion", prompt=prompt, n_predict=LONGEST, temperature=0, top_k=1, return_tokens=True, logit_bias=never)
        texts.append(spm.decode([token for token in answer["tokens"] if token != spm.eos_id()]))
    checks.translations(f"llama.cpp, {name}", reference, texts, share)


def main():
    parser = export_parity.argument_parser(__doc__)
    parser.add_argument("--tokenizers", action="store_true", help="only tokenizers, with more lines and the normal form of all characters")
    arguments = parser.parse_args()
    export_parity.enter(arguments, export_parity.PACKAGES)
    began = time.time()
    with export_parity.workplace(arguments) as (program, train, test, reference):
        checks = Checks()
        if arguments.tokenizers:
            lines = tokenizer_cases.long_lines()
            texts = [side for pair in train for side in pair] + test + reference
            checks.say(len(lines) >= 5000, f"{len(lines)} lines in {len(tokenizer_cases.SCRIPTS)} scripts, {len(texts)} of the corpus")
            tokenizer_cases.check_normal_forms(checks, *tokenizer_cases.check(checks, program, lines, texts))
            export_parity.finish(checks, began)
        tokenizer_cases.check(checks, program, tokenizer_cases.short_lines(), test)
        program.run("vocab", "-t", "train.src", "train.trg", "-o", "bpe.spm", "--dim-vocabs", "400", "--soft-limit", "--bpe",
                    "--byte-fallback", "--quiet")
        llama = ["--task", "llama", "--vocabs", "bpe.spm"]
        shared = program.train("shared", 4 * arguments.updates, *llama, "--transformer-kv-heads", "2")
        untied = program.train("untied", arguments.updates, *llama, "--tied-embeddings-all", "off")
        for run in (shared, untied):
            check_against_converter(checks, program, run)
        check_gguf(checks, program, shared, test, reference, GGUF_TYPES, GGUF_TYPES)
        check_gguf(checks, program, untied, test, reference, ["f32", "q4_0"], ["f32"])
        for run in relatives(program, arguments.updates):
            program.run("export", "-m", run, "--to", "hf-llama", "-o", run + "-hf", "--quiet")
            # transformers takes 128 for the width of a head, and reads no keys of YaRN.
            check_gguf(checks, program, run, test, reference, ["f32"], ["f32"], in_transformers=False)
        check_classes(checks, program, test)
        check_ctranslate2(checks, program, shared, test)
        check_ctranslate2(checks, program, program.train("post", 2 * arguments.updates, "--enc-depth", "2"), test)
    export_parity.finish(checks, began)


if __name__ == "__main__":
    main()
