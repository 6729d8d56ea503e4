#!/usr/bin/env python3
"""LoRA adapters of translate-train in PEFT, and PEFT's in translate-train.

    python3 tests/parity/peft_parity.py [--translate-train build/release/translate-train] [--data FOLDER]

For MarianMT, Pegasus, GPT-2, Llama and Qwen3: trains a base and an adapter on it, loads the exported base and the adapter in PEFT, and compares the
log-probabilities of tokens to 1e-4. Then PEFT makes adapters, which translate-train loads. The merged model must give the same.

The environment and the exit codes are as in export_parity.py.
"""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import export_parity as parity

FORMS = {  # the flags of a base; the modules that PEFT's own adapters have
    "hf-marian": (["--enc-depth", "2", "--transformer-norm", "post"], ["q_proj", "v_proj", "fc2"]),
    "hf-pegasus": (["--enc-depth", "2"], ["k_proj", "out_proj", "fc1"]),
    "hf-gpt2": (["--arch", "decoder-lm"], ["c_attn", "mlp.c_proj"]),
    "hf-llama": (["--task", "llama", "--transformer-kv-heads", "2"], ["k_proj", "o_proj", "gate_proj"]),
    "hf-llama of qwen3": (["--task", "qwen3", "--transformer-kv-heads", "2"], ["q_proj", "k_proj", "down_proj"]),
}


def log_probabilities(form, model, source, target):
    scores = parity.marian_log_probabilities if form in ("hf-marian", "hf-pegasus") else parity.lm_log_probabilities
    return scores(model, source, target)


def check_form(checks, program, form, updates, test, reference):
    import sentencepiece
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import GPT2LMHeadModel, LlamaForCausalLM, MarianMTModel, PegasusForConditionalGeneration, Qwen3ForCausalLM
    kind = {"hf-marian": MarianMTModel, "hf-pegasus": PegasusForConditionalGeneration, "hf-gpt2": GPT2LMHeadModel,
            "hf-llama": LlamaForCausalLM, "hf-llama of qwen3": Qwen3ForCausalLM}[form]
    flags, modules = FORMS[form]
    base = program.train(form + "-base", updates, *flags)
    run = form + "-lora"
    program.run("train", "-t", "train.src", "train.trg", "--model", run, "--pretrained-model", base, "--lora-rank", "4",
                "--lora-alpha", "16", "--after", f"{updates}u", "--mini-batch-words", "1500", "--lr-warmup", "10", "--learn-rate",
                "0.01", "--device", "cpu", "--cpu-threads", "1", "--quiet")
    exported = os.path.join(program.folder, form)
    program.run("export", "-m", base, "--to", form.split()[0], "-o", exported, "--quiet")
    spm = sentencepiece.SentencePieceProcessor(model_file=os.path.join(program.folder, base, "vocab.spm"))
    source, target = parity.encode_all(spm, test), parity.encode_all(spm, reference)
    lengths = [len(ids) for ids in target]

    def ours(*model):
        parity.write_lines(os.path.join(program.folder, "score.src"), test)
        parity.write_lines(os.path.join(program.folder, "score.trg"), reference)
        lines = program.run("score", "-t", "score.src", "score.trg", "--device", "cpu", "--quiet", "-m", *model)
        return [float(line) for line in lines]

    def theirs(adapter):
        model = PeftModel.from_pretrained(kind.from_pretrained(exported), os.path.join(program.folder, adapter)).eval()
        return log_probabilities(form, model, source, target)

    plain, adapted = ours(base), ours(base, "--adapter", run)
    change = max(abs(a - b) / n for a, b, n in zip(plain, adapted, lengths))
    checks.say(change > 0.01, f"{form}: the adapter changes a token by up to {change:.2g}")
    checks.log_probabilities(f"{form}, an adapter in PEFT", adapted, theirs(run + "/adapter"), lengths)
    checks.log_probabilities(f"{form}, the run and its adapter", adapted, ours(run), lengths, 1e-6)
    program.run("merge", "-m", base, "--adapter", run, "-o", form + "-merged", "--quiet")
    checks.log_probabilities(f"{form}, merged", adapted, ours(form + "-merged"), lengths)
    for rank_stabilized in (False, True):
        torch.manual_seed(6)
        name = f"{form}-peft-{rank_stabilized}"
        config = LoraConfig(r=3, lora_alpha=5, target_modules=modules, init_lora_weights=False, use_rslora=rank_stabilized,
                            fan_in_fan_out=form == "hf-gpt2")
        get_peft_model(kind.from_pretrained(exported), config).save_pretrained(os.path.join(program.folder, name))
        checks.log_probabilities(f"{form}, an adapter of PEFT{', rsLoRA' if rank_stabilized else ''}", ours(base, "--adapter", name),
                                 theirs(name), lengths)


def main():
    arguments = parity.argument_parser(__doc__).parse_args()
    parity.enter(arguments, [*parity.PACKAGES, "peft==0.21.2"])
    began = time.time()
    with parity.workplace(arguments) as (program, _, test, reference):
        checks = parity.Checks()
        for form in FORMS:
            check_form(checks, program, form, arguments.updates // 3, test[:40], reference[:40])
    print(f"{'all equal' if checks.failed == 0 else f'{checks.failed} checks failed'}, {time.time() - began:.0f} s")
    sys.exit(checks.failed != 0)


if __name__ == "__main__":
    main()
