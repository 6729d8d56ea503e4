#!/usr/bin/env python3
"""T5, T5 1.1, mT5, ByT5 and MADLAD-400 of transformers against translate-train: tokens, log-probabilities, translations, fine-tuning, exports.

    python3 tests/parity/t5_parity.py [--translate-train build/release/translate-train]

Trains SentencePiece models, makes directories of T5Tokenizer (tokenizer.json, or spiece.model alone) and ByT5Tokenizer, each with a random
tiny model of its class: five configurations of each. The checks are those of multilingual_parity.py, whose rows are without languages here:
ids of texts, log-probabilities of pairs to 1e-4 a token, greedy translations, the exported directory in AutoTokenizer and in
T5ForConditionalGeneration, a fine-tuned model and a LoRA adapter, that adapter in PEFT on the original directory. --short: one
configuration of each.

The environment and the exit codes are as in export_parity.py.
"""
import json
import os
import random
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import export_parity as parity
import multilingual_parity as multilingual
from tokenizer_parity import load_library

FORMAT = "hf-t5"
GATED = ["gated-gelu", "gated-silu"]
FAMILIES = {  # the class of the model, its feed-forward blocks, whether its output matrix is the embedding and hidden states are scaled
    "t5": ("T5", ["relu", "gelu_new"], True), "t5-1.1": ("T5", GATED, False), "mt5": ("MT5", GATED, False), "byt5": ("T5", GATED, False),
    "madlad": ("T5", GATED, False),
}
SPECIAL = {"</s>"}  # T5Tokenizer has it as a unigram, SentencePiece does not
TARGETS = ["<2de>", "<2fr>"]  # MADLAD-400 has the language of the target in front of the source


def save_tokenizer(family, number, lines, folder):
    import sentencepiece
    import transformers
    os.makedirs(folder)
    if family == "byt5":
        tokenizer = transformers.ByT5Tokenizer()
        tokenizer.save_pretrained(folder)
        return tokenizer
    file = os.path.join(folder, "spiece")
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=file, model_type="unigram", vocab_size=180,
                                             hard_vocab_limit=False, minloglevel=2, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
                                             user_defined_symbols=TARGETS if family == "madlad" else [])
    os.remove(file + ".vocab")
    tokenizer = transformers.T5Tokenizer.from_pretrained(folder, extra_ids=100 if family.startswith("t5") else 0)
    tokenizer.save_pretrained(folder)
    # Of every second one spiece.model alone. One with symbols of a user is not written for AutoTokenizer.
    spm_alone = number % 2 == 1 and family != "madlad"
    left_out = os.path.join(folder, "tokenizer.json" if spm_alone else "spiece.model")
    if os.path.exists(left_out):
        os.remove(left_out)
    return tokenizer


def save_model(family, number, tokenizer, folder):
    import torch
    import transformers
    kind, projections, tied = FAMILIES[family]
    of_model = getattr(transformers, kind + "ForConditionalGeneration")
    choice = random.Random(number).choice
    tokens = 259 if family == "byt5" else len(tokenizer)
    config = getattr(transformers, kind + "Config")(
        vocab_size=384 if family == "byt5" else tokens + choice([0, 8]), d_model=choice([32, 36]), d_kv=choice([8, 12]), d_ff=choice([48, 56]),
        num_layers=2, num_decoder_layers=choice([1, 2]), num_heads=4, relative_attention_num_buckets=choice([8, 32]),
        relative_attention_max_distance=choice([20, 128]), feed_forward_proj=projections[number % 2], decoder_start_token_id=0,
        tie_word_embeddings=tied, pad_token_id=0, eos_token_id=1)
    torch.manual_seed(number)
    model = of_model(config).eval()
    with torch.no_grad():
        if not tied:
            model.lm_head.weight = torch.nn.Parameter(0.3 * torch.randn_like(model.shared.weight))
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            if "relative_attention_bias" in name:
                parameter.normal_(std=1.0)
    model.to(choice([torch.float32, torch.bfloat16])).save_pretrained(folder)
    if number % 2:  # as transformers 4 and the published directories have it
        file = os.path.join(folder, "config.json")
        with open(file, encoding="utf-8") as old:
            written = json.load(old)
        for key in ("scale_decoder_outputs", "dense_act_fn", "is_gated_act"):
            written.pop(key, None)
        written["tie_word_embeddings"] = tied
        with open(file, "w", encoding="utf-8") as new:
            json.dump(written, new)
    model = of_model.from_pretrained(folder, dtype=torch.float32).eval()
    assert tied == (model.lm_head.weight.data_ptr() == model.shared.weight.data_ptr())
    return model, tokens


class Check(multilingual.Check):
    def ids(self, label, name, tokenizer, lines):
        file = next(os.path.join(self.program.folder, name, kind) for kind in ("vocab.spm", "vocab.byte")
                    if os.path.exists(os.path.join(self.program.folder, name, kind)))
        encode = multilingual.encoder(self.library, file, ())
        ours = [[*encode(line, False), tokenizer.eos_token_id] for line in lines]
        theirs = multilingual.encoded(tokenizer, lines, [])[0]
        other = [line for line, a, b in zip(lines, ours, theirs) if a != b]
        self.checks.say(not other, f"{label}: the ids of {len(lines)} texts are {type(tokenizer).__name__}'s" + "".join(map(ascii, other[:3])))
        if self.family == "madlad":  # SentencePiece has a space in front, which the import says
            line = f"{TARGETS[1]} {lines[0]}"
            self.checks.say(encode(line, False)[1:] == tokenizer(line).input_ids[:-1], f"{label}: the ids of a text with a language, after a space")

    def model(self, label, name, model, tokenizer, tokens):
        import torch
        lines, targets = self.test + self.odd, self.reference + self.odd[::-1]
        self.ids(label, name, tokenizer, lines + targets)
        source, target = multilingual.encoded(tokenizer, lines, targets)
        theirs = parity.marian_log_probabilities(multilingual.cut(model, tokens), source, target)
        self.checks.log_probabilities(label, self.scores(name, [], lines, targets), theirs, [len(row) for row in target])
        texts, never = [], [0, 2, *range(tokens, model.config.vocab_size)]
        for row in source[:len(self.test)]:
            with torch.no_grad():
                output = model.generate(torch.tensor([row]), attention_mask=torch.ones(1, len(row), dtype=torch.long), do_sample=False,
                                        num_beams=1, max_new_tokens=parity.LONGEST, max_length=None, suppress_tokens=never)[0].tolist()
            texts.append(tokenizer.decode(output, skip_special_tokens=True))
        # A text of bytes may have line breaks, which the program writes as spaces.
        ours = ["".join(self.program.run("translate", "-m", name, "--beam-size", "1", "--normalize", "0", "--max-length", str(parity.LONGEST),
                                         "--device", "cpu", "--quiet", lines=[line])) for line in self.test]
        self.checks.translations(label, ["".join(line.split()) for line in ours], ["".join(text.split()) for text in texts])

    def export(self, label, name, model, tokenizer, tokens):
        import torch
        import transformers
        folder = os.path.join(self.program.folder, name + "-exported")
        self.program.run("export", "-m", name, "--to", FORMAT, "-o", folder, "--quiet")
        again, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
        self.checks.say(type(again) is transformers.T5ForConditionalGeneration and not info["missing_keys"] and not info["unexpected_keys"],
                        f"{label}: every tensor of {type(again).__name__}")
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        lines = [*self.test, *self.odd, ""]
        self.checks.say(multilingual.encoded(theirs, lines, lines) == multilingual.encoded(tokenizer, lines, lines),
                        f"{label}: {type(theirs).__name__} of the export gives the ids of {len(lines)} texts")
        source, target = multilingual.encoded(tokenizer, self.test, self.reference)
        self.checks.log_probabilities(label + ", exported", parity.marian_log_probabilities(multilingual.cut(again.eval(), tokens), source, target),
                                      parity.marian_log_probabilities(multilingual.cut(model, tokens), source, target),
                                      [len(row) for row in target])


def main():
    parser = parity.argument_parser(__doc__)
    parser.add_argument("--configurations", type=int, default=5)
    parser.add_argument("--family", nargs="+", choices=sorted(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--short", action="store_true", help="one configuration of each class")
    arguments = parser.parse_args()
    parity.enter(arguments, [*parity.PACKAGES, "peft==0.21.2"])
    multilingual.FAMILIES.update({family: (None, FAMILIES[family][0], FORMAT, {}) for family in FAMILIES})
    with parity.workplace(arguments) as (program, train, test, reference):
        checks = parity.Checks()
        library = load_library(os.path.join(os.path.dirname(program.path), "libtrafo.so"))
        check = Check(checks, program, test, reference, library)
        texts = [side for pair in train[:1500] for side in pair]
        for family in arguments.family:
            check.family = family
            check.odd = [line for line in multilingual.ODD if family == "byt5" or line not in SPECIAL]
            for number in range(1 if arguments.short else arguments.configurations):
                name, label = f"{family}-{number}", f"{family} {number}"
                folder = os.path.join(program.folder, name + "-theirs")
                tokenizer = save_tokenizer(family, number, texts, folder)
                model, tokens = save_model(family, number, tokenizer, folder)
                program.run("import", "--from", folder, "-o", name, "--quiet")
                check.model(label, name, model, tokenizer, tokens)
                check.export(label, name, model, tokenizer, tokens)
                if number == 0:
                    multilingual.trained(check, label, name, folder, tokenizer, tokens)
                shutil.rmtree(folder)
    print("all equal" if checks.failed == 0 else f"{checks.failed} checks failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
