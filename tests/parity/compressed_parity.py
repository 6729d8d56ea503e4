#!/usr/bin/env python3
"""Exports of translate-train as hf-compressed, read by compressed-tensors and run by transformers.

    python3 tests/parity/compressed_parity.py [--translate-train build/release/translate-train] [--data FOLDER]

Trains small Llama models, with tied and untied embeddings and in Qwen2's form. For int8 (W8A8) and int4 (W4A16): every tensor has the
bytes that compressed-tensors makes of the float32 weights, transformers finds every tensor it wants and no other, and its
log-probabilities and greedy translations equal translate-train's with the weights that the package reads back. In int8 transformers
also rounds activations: its log-probabilities are within INT8_GAP. Translations are compared with those of the weights that the
package reads back, for which transformers rounds no activations.

Needs nothing: packages go into a separate environment (--environment, kept between runs). Exit codes: 0 all equal, 1 not,
77 the packages cannot be had here.
"""
import json
import os
import shutil
import sys
import time

import export_parity
from export_parity import LONGEST, Checks, batches, encode_all, lm_log_probabilities

PACKAGES = [*export_parity.PACKAGES, "compressed-tensors==0.20.0"]
INT8_GAP = 0.05  # of the log-probability of a token: activations have 8 bits


def schemes(folder):
    """The scheme that the directory names, as compressed-tensors reads it, and its compressor."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = QuantizationConfig.model_validate(json.load(file)["quantization_config"])
    return config.config_groups["group_0"], BaseCompressor.get_value_from_registry(config.format), config.ignore


def scale_of(weight, scheme):
    from compressed_tensors.quantization.utils import calculate_qparams
    groups = weight if scheme.weights.strategy == "channel" else weight.reshape(weight.shape[0], -1, scheme.weights.group_size)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scale, _ = calculate_qparams(low, high, scheme.weights)
    return scale.reshape(weight.shape[0], -1)


def check_bytes(checks, name, plain, folder):
    """Returns {name: float32 weights} as the package reads them."""
    import torch
    from safetensors.torch import load_file
    scheme, compressor, ignored = schemes(folder)
    floats, stored = (load_file(os.path.join(each, "model.safetensors")) for each in (plain, folder))
    different, read, matrices = [], {}, 0
    for tensor, weight in floats.items():
        module = tensor.removesuffix(".weight")
        if weight.dim() == 1 or module in (*ignored, "model.embed_tokens"):
            wanted = {tensor: weight}
            read[tensor] = weight
        else:
            matrices += 1
            made = compressor.compress({"weight": weight, "weight_scale": scale_of(weight, scheme)}, scheme)
            wanted = {f"{module}.{part}": value for part, value in made.items()}
            parts = {part: stored[f"{module}.{part}"] for part in made if f"{module}.{part}" in stored}
            read[tensor] = compressor.decompress(parts, scheme)["weight"]
        for part, value in wanted.items():
            found = stored.pop(part, None)
            if found is None or found.dtype != value.dtype or not torch.equal(found, value):
                different.append(part)
    checks.say(not different and not stored and matrices >= 14, f"{name}: {matrices} matrices have the bytes of compressed-tensors"
               + (f", but not {', '.join(sorted(different + list(stored))[:4])}" if different or stored else ""))
    return read


def check(checks, program, run, weights, test, reference):
    import sentencepiece
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
    plain, folder = (os.path.join(program.folder, f"{run}-{form}") for form in ("hf", weights))
    if not os.path.exists(plain):
        program.run("export", "-m", run, "--to", "hf-llama", "-o", plain, "--quiet")
    program.run("export", "-m", run, "--to", "hf-compressed", "--weights", weights, "-o", folder, "--quiet")
    name = f"compressed-tensors {weights} ({run})"
    read = check_bytes(checks, name, plain, folder)
    rounded = os.path.join(program.folder, f"{run}-{weights}-rounded")
    shutil.copytree(plain, rounded)
    save_file({tensor: value.contiguous() for tensor, value in read.items()}, os.path.join(rounded, "model.safetensors"))
    ours = rounded + "-imported"
    program.run("import", "--from", rounded, "-o", ours, "--quiet")

    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    checks.say(not any(info.values()), f"{name}: transformers has every tensor and no other")
    # transformers 5 takes Qwen2's own tokenizer for every model of that type.
    tokenizer = (PreTrainedTokenizerFast if run == "qwen2" else AutoTokenizer).from_pretrained(folder)
    model = model.eval()
    spm = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
    target = encode_all(spm, reference)
    checks.log_probabilities(name, program.scores(ours, test, reference), lm_log_probabilities(model, encode_all(spm, test), target),
                             [len(t) for t in target], INT8_GAP if weights == "int8" else export_parity.LOG_PROBABILITY_TOLERANCE)
    texts = []
    if weights == "int8":
        model = AutoModelForCausalLM.from_pretrained(rounded).eval()
    for lines in batches(test):
        inputs = tokenizer(lines, return_tensors="pt", padding=True)
        with torch.no_grad():
            output = model.generate(**inputs, max_new_tokens=LONGEST)
        texts += tokenizer.batch_decode(output[:, inputs.input_ids.shape[1]:], skip_special_tokens=True)
    checks.translations(name, program.greedy(ours, test), texts)


def make_qwen2(program, run):
    """The model in Qwen2's form, with biases of queries, keys and values, as a new model of translate-train."""
    import torch
    from safetensors.torch import load_file, save_file
    folder = os.path.join(program.folder, "qwen2-made")
    shutil.copytree(os.path.join(program.folder, run + "-hf"), folder)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config.update(model_type="qwen2", architectures=["Qwen2ForCausalLM"], use_sliding_window=False)
    for key in ("attention_bias", "mlp_bias", "pretraining_tp"):
        del config[key]
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    torch.manual_seed(4)
    path = os.path.join(folder, "model.safetensors")
    weights = load_file(path)
    for name in [name for name in weights if name.split(".")[-2] in ("q_proj", "k_proj", "v_proj")]:
        weights[name.replace(".weight", ".bias")] = 0.1 * torch.randn(weights[name].shape[0])
    save_file(weights, path)
    program.run("import", "--from", folder, "-o", "qwen2", "--quiet")
    return "qwen2"


def main():
    arguments = export_parity.argument_parser(__doc__).parse_args()
    export_parity.enter(arguments, PACKAGES)
    began = time.time()
    with export_parity.workplace(arguments) as (program, train, test, reference):
        checks = Checks()
        shared = program.train("shared", arguments.updates, "--task", "llama", "--transformer-kv-heads", "2")
        untied = program.train("untied", arguments.updates // 3, "--task", "llama", "--tied-embeddings-all", "off")
        for run in (shared, untied):
            for weights in ("int8", "int4"):
                check(checks, program, run, weights, test, reference)
        qwen2 = make_qwen2(program, shared)
        for weights in ("int8", "int4"):
            check(checks, program, qwen2, weights, test[:40], reference[:40])
    export_parity.finish(checks, began)


if __name__ == "__main__":
    main()
