#!/usr/bin/env python3
"""M2M100 and NLLB-200 directories against transformers: ids, log-probabilities, translations, exports, a trained model.

    python3 tests/parity/m2m100_parity.py [--translate-train build/release/translate-train]

Trains SentencePiece models, makes directories of NllbTokenizer (tokenizer.json) and M2M100Tokenizer (vocab.json in another order), each
with a random tiny M2M100ForConditionalGeneration: five configurations of each. The imported model gives the log-probabilities of pairs
of sentences to 1e-4 a token and the greedy translations that transformers gives with forced_bos_token_id. The exported directory loads in
AutoTokenizer and M2M100ForConditionalGeneration with the same ids and log-probabilities. A model that is fine-tuned, whole and with a
LoRA adapter, answers the same in transformers after its export.

The environment and the exit codes are as in export_parity.py.
"""
import json
import os
import random
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import export_parity as parity

CODES = ["deu_Latn", "eng_Latn", "fra_Latn", "zul_Latn"]
LANGUAGES = {"nllb": ("eng_Latn", "fra_Latn"), "m2m100": ("en", "fr")}
ODD = ["", " ", "a  b", " a", "naïve 東京 🙂", "</s>", "eng_Latn x", "__en__ x", "x__fr__", "<mask>", "▁", "1,234.56 km/h", "ﬁ Ⅳ"]
SENTENCES, LONGEST = 20, 16


def save_tokenizer(family, kind, lines, folder):
    """The tokenizer in `folder`."""
    import sentencepiece
    import transformers
    os.makedirs(folder)
    file = os.path.join(folder, "sentencepiece.bpe")
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=file, model_type=kind, vocab_size=180,
                                             hard_vocab_limit=False, minloglevel=2, unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    os.remove(file + ".vocab")
    source, target = LANGUAGES[family]
    if family == "nllb":
        tokenizer = transformers.NllbTokenizer.from_pretrained(folder, src_lang=source, tgt_lang=target, extra_special_tokens=CODES)
        os.remove(file + ".model")
    else:
        spm = sentencepiece.SentencePieceProcessor(model_file=file + ".model")
        pieces = [spm.id_to_piece(i) for i in range(3, len(spm))]
        random.Random(3).shuffle(pieces)
        names = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
        with open(os.path.join(folder, "vocab.json"), "w", encoding="utf-8") as out:
            json.dump({name: i for i, name in enumerate(names)}, out)
        tokenizer = transformers.M2M100Tokenizer(os.path.join(folder, "vocab.json"), file + ".model", src_lang=source, tgt_lang=target)
    tokenizer.save_pretrained(folder)
    return tokenizer


def save_model(number, tokenizer, folder):
    import torch
    import transformers
    choice = random.Random(number).choice
    tokens = 1 + max(tokenizer.convert_tokens_to_ids(tokenizer.src_lang), token_of(tokenizer, tokenizer.tgt_lang), len(tokenizer) - 1)
    if hasattr(tokenizer, "lang_token_to_id"):
        tokens = 1 + max(tokenizer.lang_token_to_id.values())
    config = transformers.M2M100Config(
        vocab_size=tokens + choice([0, 8]), d_model=choice([32, 36]), encoder_layers=2, decoder_layers=choice([1, 2]),
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=choice([48, 56]), decoder_ffn_dim=48,
        max_position_embeddings=128, init_std=0.2, scale_embedding=choice([True, False]),
        activation_function=choice(["relu", "gelu", "swish"]))
    torch.manual_seed(number)
    model = transformers.M2M100ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.to(choice([torch.float32, torch.bfloat16])).save_pretrained(folder)
    return transformers.M2M100ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval(), tokens


def token_of(tokenizer, code):
    return tokenizer.lang_token_to_id[f"__{code}__"] if hasattr(tokenizer, "lang_token_to_id") else tokenizer.convert_tokens_to_ids(code)


def encoded(tokenizer, sources, targets):
    tokenizer.split_special_tokens = True  # names in a text are text, as they are here
    return [tokenizer(line).input_ids for line in sources], [tokenizer(text_target=line).input_ids for line in targets]


class Check:
    def __init__(self, checks, program, test, reference):
        self.checks, self.program = checks, program
        self.test, self.reference = test[:SENTENCES], reference[:SENTENCES]

    def ids(self, label, name, tokenizer, languages):
        """Ids of sources, by a shared library, would need C: here by scores of rows that the program encodes."""

    def scores(self, name, languages, source, target):
        parity.write_lines(os.path.join(self.program.folder, "score.src"), source)
        parity.write_lines(os.path.join(self.program.folder, "score.trg"), target)
        lines = self.program.run("score", "-m", name, "-t", "score.src", "score.trg", *languages, "--device", "cpu", "--quiet")
        return [float(line) for line in lines]

    def model(self, label, name, model, tokenizer, tokens):
        import torch
        languages = ["--source-language", tokenizer.src_lang, "--target-language", tokenizer.tgt_lang]
        lines = self.test + [line for line in ODD if line.strip()]
        targets = self.reference + [line for line in ODD if line.strip()][::-1]
        source, target = encoded(tokenizer, lines, targets)
        theirs = parity.marian_log_probabilities(cut(model, tokens), source, target)
        self.checks.log_probabilities(label, self.scores(name, languages, lines, targets), theirs, [len(row) for row in target])
        never, texts = [0, 1, 3, *range(tokens, model.config.vocab_size)], []
        for row in source[:SENTENCES]:
            with torch.no_grad():
                output = model.generate(torch.tensor([row]), attention_mask=torch.ones(1, len(row), dtype=torch.long), do_sample=False,
                                        num_beams=1, max_new_tokens=LONGEST + 1, max_length=None, suppress_tokens=never,
                                        forced_bos_token_id=token_of(tokenizer, tokenizer.tgt_lang))[0].tolist()
            texts.append(tokenizer.decode(output, skip_special_tokens=True))
        ours = self.program.run("translate", "-m", name, *languages, "--beam-size", "1", "--normalize", "0", "--max-length",
                                str(LONGEST), "--device", "cpu", "--quiet", lines=self.test)
        self.checks.translations(label, ours, texts)

    def export(self, label, name, model, tokenizer, tokens):
        import torch
        import transformers
        folder = os.path.join(self.program.folder, name + "-exported")
        self.program.run("export", "-m", name, "--to", "hf-m2m100", "-o", folder, "--quiet")
        again, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
        self.checks.say(type(again).__name__ == "M2M100ForConditionalGeneration" and not info["missing_keys"] and not info["unexpected_keys"],
                        f"{label}: every tensor of {type(again).__name__}")
        theirs = transformers.AutoTokenizer.from_pretrained(folder, src_lang=tokenizer.src_lang, tgt_lang=tokenizer.tgt_lang)
        lines = self.test + ODD
        self.checks.say(type(theirs) is type(tokenizer) and encoded(theirs, lines, lines) == encoded(tokenizer, lines, lines),
                        f"{label}: {type(theirs).__name__} of the export gives the ids of {2 * len(lines)} texts")
        source, target = encoded(tokenizer, self.test, self.reference)
        self.checks.log_probabilities(label + ", exported", parity.marian_log_probabilities(again.eval(), source, target),
                                      parity.marian_log_probabilities(cut(model, tokens), source, target), [len(row) for row in target])
        return folder


def cut(model, tokens):
    """Log-probabilities over the tokens that are not spare rows."""
    import types
    import torch

    def forward(**inputs):
        with torch.no_grad():
            return types.SimpleNamespace(logits=model(**inputs).logits[..., :tokens])
    return Callable(forward, model.config)


class Callable:
    def __init__(self, forward, config):
        self.forward, self.config = forward, config

    def __call__(self, **inputs):
        return self.forward(**inputs)


def main():
    parser = parity.argument_parser(__doc__)
    parser.add_argument("--configurations", type=int, default=5)
    arguments = parser.parse_args()
    parity.enter(arguments, [*parity.PACKAGES, "peft==0.21.2"])
    with parity.workplace(arguments) as (program, train, test, reference):
        checks = parity.Checks()
        check = Check(checks, program, test, reference)
        texts = [side for pair in train[:1500] for side in pair]
        for family in LANGUAGES:
            for number in range(arguments.configurations):
                name, label = f"{family}-{number}", f"{family} {number}"
                folder = os.path.join(program.folder, name + "-theirs")
                tokenizer = save_tokenizer(family, "bpe" if family == "nllb" or number % 2 else "unigram", texts, folder)
                model, tokens = save_model(number, tokenizer, folder)
                program.run("import", "--from", folder, "-o", name, "--quiet")
                check.model(label, name, model, tokenizer, tokens)
                check.export(label, name, model, tokenizer, tokens)
                if number == 0:
                    trained(check, label, name, tokenizer, tokens)
                shutil.rmtree(folder)
    print("all equal" if checks.failed == 0 else f"{checks.failed} checks failed")
    return 1 if checks.failed else 0


def trained(check, label, name, tokenizer, tokens):
    """Fine-tuning changes the model, and its export is the model that was trained."""
    import torch
    import transformers
    languages = ["--source-language", tokenizer.src_lang, "--target-language", tokenizer.tgt_lang]
    before = check.scores(name, languages, check.test, check.reference)
    for kind, flags in (("whole", []), ("adapter", ["--lora-rank", "4"])):
        run = f"{name}-{kind}"
        check.program.run("train", "-t", "train.src", "train.trg", "--model", run, "--pretrained-model", name, "--after", "30u",
                          "--mini-batch-words", "600", "--lr-warmup", "5", "--learn-rate", "0.003", "--device", "cpu", "--cpu-threads", "1",
                          "--quiet", *languages, *flags)
        adapted = [name, "--adapter", run] if flags else [run]
        after = check.scores(adapted[0], [*adapted[1:], *languages], check.test, check.reference)
        check.checks.say(sum(after) > sum(before) + len(after), f"{label}, {kind}: training raises {sum(before):.0f} to {sum(after):.0f}")
        folder = os.path.join(check.program.folder, run + "-exported")
        check.program.run("export", "-m", *adapted, "--to", "hf-m2m100", "-o", folder, "--quiet")
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        source, target = encoded(tokenizer, check.test, check.reference)
        check.checks.log_probabilities(f"{label}, {kind}, exported", after, parity.marian_log_probabilities(model, source, target),
                                       [len(row) for row in target])


if __name__ == "__main__":
    sys.exit(main())
