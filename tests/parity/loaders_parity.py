#!/usr/bin/env python3
"""Exported directories in programs that load what transformers and optimum write.

    python3 tests/parity/loaders_parity.py [--translate-train build/release/translate-train] [--data FOLDER] [--long]

transformers 4.57: the usual lines of code with hf-marian, hf-gpt2 and hf-llama, and AutoTokenizer, as export_parity.py and
tokenizer_cases.py compare them with transformers 5. optimum: ORTModelForSeq2SeqLM and ORTModelForCausalLM load the directories of
--to onnx and generate; float32 gives our greedy translations, the share of int8 is told.

--long also installs Intel Neural Compressor and auto-round. Neural Compressor loads hf-llama and rounds it to 8 and 4 bits: every linear
layer becomes one of its class, and log-probabilities stay near. auto-round loads and rounds it to 4 bits: every group of each layer has at
most 16 values, near the weights. transformers in their environment loads hf-compressed, as compressed_parity.py has it.

Needs nothing: packages go into separate environments (--environment and its name with -long). Exit codes: 0 all equal, 1 not, 77 the
packages cannot be had here.
"""
import os
import subprocess
import sys
import time

import export_parity
from export_parity import LONGEST, Checks, batches

PACKAGES = ["transformers==4.57.3", "torch==2.15.0", "optimum-onnx==0.1.0", "onnxruntime==1.32.0", "sentencepiece==0.2.3",
            "ctranslate2==4.8.5", "protobuf==7.36.2", "accelerate==1.15.0"]
LONG_PACKAGES = ["neural_compressor[pt]==3.10", "auto-round==0.16.1", "torch==2.15.0", "sentencepiece==0.2.3", "compressed-tensors==0.20.0",
                 "protobuf==7.36.2"]


def generated(model, tokenizer, lines, prompt):
    """Greedy texts; prompt: whether the output begins with the source."""
    import torch
    texts = []
    for each in batches(lines):
        inputs = tokenizer(each, return_tensors="pt", padding=True)
        with torch.no_grad():
            output = model.generate(**inputs, max_new_tokens=LONGEST, num_beams=1, do_sample=False)
        texts += tokenizer.batch_decode(output[:, inputs.input_ids.shape[1]:] if prompt else output, skip_special_tokens=True)
    return texts


# ---- optimum ----

def check_optimum(checks, program, run, test):
    from optimum.onnxruntime import ORTModelForCausalLM, ORTModelForSeq2SeqLM
    from transformers import AutoTokenizer, MarianTokenizer
    ours = program.greedy(run, test)
    for weights in ("float32", "int8"):
        folder = os.path.join(program.folder, f"{run}-onnx-{weights}")
        program.run("export", "-m", run, "--to", "onnx", "--weights", weights, "-o", folder, "--quiet")
        is_lm = os.path.exists(os.path.join(folder, "model.onnx"))
        tokenizer = (AutoTokenizer if is_lm else MarianTokenizer).from_pretrained(folder)
        model = (ORTModelForCausalLM if is_lm else ORTModelForSeq2SeqLM).from_pretrained(folder)
        texts = generated(model, tokenizer, test, is_lm)
        if weights == "float32":
            checks.translations(f"optimum ({run})", ours, texts)
        else:
            same = sum(a.strip() == b.strip() for a, b in zip(ours, texts, strict=True))
            print(f"        optimum ({run}, int8): {same} of {len(ours)} translations are those of float32", flush=True)


def check_short(program, train, test, reference, arguments):
    import tokenizer_cases
    checks = Checks()
    post = program.train("post", export_parity.beam_updates(arguments), "--enc-depth", "2", "--transformer-norm", "post")
    lm = program.train("lm", arguments.updates, "--arch", "decoder-lm")
    llama = program.train("llama", arguments.updates, "--task", "llama", "--transformer-kv-heads", "2")
    export_parity.check_marian(checks, program, post, "hf-marian", test, reference)
    export_parity.check_lm(checks, program, lm, "hf-gpt2", test, reference)
    export_parity.check_lm(checks, program, llama, "hf-llama", test, reference)
    for run in (post, lm, llama):
        check_optimum(checks, program, run, test)
    tokenizer_cases.check(checks, program, tokenizer_cases.short_lines(), test)
    return checks


# ---- Neural Compressor, auto-round ----

ROUNDED = {8: 0.05, 4: 0.5}  # of the log-probability of a token


def linear_layers(model):
    import torch
    return {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear) and name != "lm_head"}


def check_neural_compressor(checks, program, run, folder, spm, test, reference):
    from neural_compressor.torch.quantization import RTNConfig, convert, prepare
    from transformers import AutoModelForCausalLM, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder)
    source, target = (export_parity.encode_all(spm, lines) for lines in (test, reference))
    scores, ours = program.scores(run, test, reference), program.greedy(run, test)
    for bits, gap in ROUNDED.items():
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        layers = linear_layers(model).keys()
        rounded = convert(prepare(model, RTNConfig(bits=bits, group_size=32, dtype="int")))
        kinds = {name: type(module).__name__ for name, module in rounded.named_modules()}
        checks.say(layers and all(kinds[name] == "INCWeightOnlyLinear" for name in layers),
                   f"Neural Compressor, {bits} bits ({run}): its layers are in the place of {len(layers)}")
        checks.log_probabilities(f"Neural Compressor, {bits} bits ({run})", scores,
                                 export_parity.lm_log_probabilities(rounded, source, target), [len(t) for t in target], gap)
        same = sum(a.strip() == b.strip() for a, b in zip(ours, generated(rounded, tokenizer, test, True), strict=True))
        print(f"        Neural Compressor, {bits} bits ({run}): {same} of {len(ours)} translations are those of float32", flush=True)


def check_auto_round(checks, run, folder):
    import torch
    from auto_round import AutoRound
    from transformers import AutoModelForCausalLM, AutoTokenizer
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    before = {name: layer.weight.detach().clone() for name, layer in linear_layers(model).items()}
    rounded, _ = AutoRound(model, AutoTokenizer.from_pretrained(folder), scheme="W4A16", iters=0, group_size=32, disable_opt_rtn=True,
                           device_map="cpu").quantize()
    layers = linear_layers(rounded)
    wrong = []
    for name, weight in before.items():
        groups, original = (each.detach().float().reshape(-1, 32) for each in (layers[name].weight, weight))
        few = max(len(group.unique()) for group in groups) <= 16
        step = original.abs().amax(1, keepdim=True) / 7
        # Half a step, or a whole one at the end of the range; bfloat16 has 8 bits.
        if not few or ((groups - original).abs() > step * 1.01 + original.abs() / 128).any():
            wrong.append(name)
    checks.say(layers.keys() == before.keys() and not wrong, f"auto-round ({run}): {len(before)} layers have 16 values in a group, each near "
               "the weight" + (f", but not {', '.join(wrong[:4])}" if wrong else ""))


def check_long(program, train, test, reference, arguments):
    import sentencepiece

    import compressed_parity
    checks = Checks()
    run = program.train("llama", arguments.updates, "--task", "llama", "--transformer-kv-heads", "2")
    folder = os.path.join(program.folder, run + "-hf")
    program.run("export", "-m", run, "--to", "hf-llama", "-o", folder, "--quiet")
    spm = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "tokenizer.model"))
    check_neural_compressor(checks, program, run, folder, spm, test, reference)
    check_auto_round(checks, run, folder)
    for weights in ("int8", "int4"):
        compressed_parity.check(checks, program, run, weights, test, reference)
    return checks


def main():
    parser = export_parity.argument_parser(__doc__)
    parser.set_defaults(environment=os.path.join(export_parity.ROOT, "build/loaders-environment"))
    parser.add_argument("--long", action="store_true", help="also Neural Compressor and auto-round")
    parser.add_argument("--only-long", action="store_true", help="only those")
    arguments = parser.parse_args()
    if arguments.long and not arguments.only_long:  # in an environment that is not this one
        command = [sys.executable, *[flag for flag in sys.argv if flag != "--long"]]
        short, long = (subprocess.run(command + more).returncode for more in ([], ["--only-long"]))
        sys.exit(short or long)
    if arguments.only_long:
        arguments.environment += "-long"
    export_parity.enter(arguments, LONG_PACKAGES if arguments.only_long else PACKAGES)
    began = time.time()
    with export_parity.workplace(arguments) as (program, train, test, reference):
        checks = (check_long if arguments.only_long else check_short)(program, train, test, reference, arguments)
    export_parity.finish(checks, began)


if __name__ == "__main__":
    main()
