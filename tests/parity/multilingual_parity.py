#!/usr/bin/env python3
"""M2M100, NLLB-200, mBART-50 and BART of transformers against translate-train: tokens, log-probabilities, translations, fine-tuning, exports.

    python3 tests/parity/multilingual_parity.py [--translate-train build/release/translate-train]

Trains SentencePiece models, makes directories of NllbTokenizer (tokenizer.json), M2M100Tokenizer (vocab.json in another order, without
some subwords and with others), MBart50Tokenizer (tokenizer.json, or sentencepiece.bpe.model as in Facebook's directories) and BartTokenizer
(byte-level BPE, no languages), each with a random tiny model of its class: five configurations of each. The imported vocabulary gives the
ids of transformers' tokenizer. The imported model gives the log-probabilities of pairs of sentences to 1e-4 a token and the greedy
translations that transformers gives with forced_bos_token_id. The exported directory loads in AutoTokenizer and the class of the model with
the same ids and log-probabilities. A model that is fine-tuned, whole and with a LoRA adapter, answers the same in transformers after its
export; the adapter answers the same in PEFT on the original directory. Wrong languages change the scores. A language that add-tokens
adds to NLLB, and a word that it adds to BART, have the ids and give the model that add_tokens and resize_token_embeddings of transformers
give with the same first rows; all of the above holds for them as well. --short: one configuration of each.

The environment and the exit codes are as in export_parity.py.
"""
import ctypes
import json
import os
import random
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import export_parity as parity
from tokenizer_parity import Trafo, load_library

CODES = ["deu_Latn", "eng_Latn", "fra_Latn", "zul_Latn"]
_m2m = ("M2M100", "hf-m2m100", dict(activation_function=["relu", "gelu", "swish"]))
FAMILIES = {  # two languages, the class of the model, the format of its export, what the class has more of
    "nllb": (("eng_Latn", "fra_Latn"), *_m2m), "m2m100": (("en", "fr"), *_m2m),
    "mbart50": (("en_XX", "fr_XX"), "MBart", "hf-mbart",
                dict(activation_function=["gelu", "gelu_new", "relu"], decoder_start_token_id=[2], forced_eos_token_id=[None])),
    "bart": (None, "Bart", "hf-bart", dict(activation_function=["gelu", "relu"], forced_eos_token_id=[None])),
}
# Names that MBart50Tokenizer finds in a text as unigrams with the score 0, which SentencePiece, and so the first MBart50Tokenizer, does not.
UNIGRAMS = {"</s>", "<mask>"}
ODD = ["a  b", " a", "naïve 東京 🙂", "</s>", "eng_Latn x", "__en__ x", "x__fr__", "<mask>", "1,234.56 km/h", "ﬁ Ⅳ", ">>fr<< x", "東京 x"]
# Texts without subwords: here a source has no language then, and SentencePiece takes spaces away that NllbTokenizer keeps.
EMPTY = ["", " ", "▁"]
SENTENCES, LONGEST = 20, 16
# The family, a token that it gets, and the token whose rows that begins with; none: the mean of its subwords.
ADDED = {"nllb": ("mrj_Cyrl", "eng_Latn"), "bart": ("quuxword", None)}


def save_tokenizer(family, kind, lines, folder):
    """The tokenizer in `folder`."""
    import sentencepiece
    import transformers
    os.makedirs(folder)
    if family == "bart":
        import tokenizers
        bpe = tokenizers.ByteLevelBPETokenizer()
        bpe.train_from_iterator(lines, vocab_size=400, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False)
        bpe.save_model(folder)
        tokenizer = transformers.BartTokenizer.from_pretrained(folder)
        for name in ("vocab.json", "merges.txt"):
            os.remove(os.path.join(folder, name))
        tokenizer.save_pretrained(folder)
        return tokenizer
    file = os.path.join(folder, "sentencepiece.bpe")
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=file, model_type=kind, vocab_size=180,
                                             hard_vocab_limit=False, minloglevel=2, unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    os.remove(file + ".vocab")
    source, target = FAMILIES[family][0]
    if family == "mbart50":
        tokenizer = transformers.MBart50Tokenizer.from_pretrained(folder, src_lang=source, tgt_lang=target)
    elif family == "nllb":
        tokenizer = transformers.NllbTokenizer.from_pretrained(folder, src_lang=source, tgt_lang=target, extra_special_tokens=CODES)
        os.remove(file + ".model")
    else:
        spm = sentencepiece.SentencePieceProcessor(model_file=file + ".model")
        pieces = [spm.id_to_piece(i) for i in range(3, len(spm))]
        random.Random(3).shuffle(pieces)
        # As in M2M100's own files, some subwords are missing, and vocab.json has characters that the SentencePiece model does not know.
        names = ["<s>", "<pad>", "</s>", "<unk>", *pieces[len(pieces) // 10:], "東京"]
        with open(os.path.join(folder, "vocab.json"), "w", encoding="utf-8") as out:
            json.dump({name: i for i, name in enumerate(names)}, out)
        tokenizer = transformers.M2M100Tokenizer(os.path.join(folder, "vocab.json"), file + ".model", src_lang=source, tgt_lang=target)
    tokenizer.save_pretrained(folder)
    return tokenizer


def save_model(family, number, tokenizer, folder):
    import torch
    import transformers
    _, kind, _, further = FAMILIES[family]
    of_model = getattr(transformers, kind + "ForConditionalGeneration")
    choice = random.Random(number).choice
    tokens = len(tokenizer)
    if FAMILIES[family][0]:
        tokens = max(tokens, *(1 + token_of(tokenizer, code) for code in FAMILIES[family][0]))
    if hasattr(tokenizer, "lang_token_to_id"):
        tokens = 1 + max(tokenizer.lang_token_to_id.values())
    config = getattr(transformers, kind + "Config")(
        vocab_size=tokens + choice([0, 8]), d_model=choice([32, 36]), encoder_layers=2, decoder_layers=choice([1, 2]),
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=choice([48, 56]), decoder_ffn_dim=48,
        max_position_embeddings=128, init_std=0.2, scale_embedding=choice([True, False]),
        **{key: choice(values) for key, values in further.items()})
    torch.manual_seed(number)
    model = of_model(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(std=0.2)
    if family == "bart" and number % 3 != 2:  # the others say it in config.json, if anywhere
        model.generation_config.forced_bos_token_id = 0
    model.to(choice([torch.float32, torch.bfloat16])).save_pretrained(folder)
    return of_model.from_pretrained(folder, dtype=torch.float32).eval(), tokens


def token_of(tokenizer, code):
    return tokenizer.lang_token_to_id[f"__{code}__"] if hasattr(tokenizer, "lang_token_to_id") else tokenizer.convert_tokens_to_ids(code)


def encoded(tokenizer, sources, targets):
    tokenizer.split_special_tokens = True  # names in a text are text, as they are here
    return [tokenizer(line).input_ids for line in sources], [tokenizer(text_target=line).input_ids for line in targets]


def encoder(library, file, languages):
    """Ids of a text by this vocabulary with these languages, if any: encode(text, whether it is a target)."""
    plain, chosen = Trafo(library, file), object.__new__(Trafo)
    chosen.c, chosen.handle = library, ctypes.c_void_p()
    codes = [argument for code in languages for argument in (code.encode(), ctypes.c_size_t(len(code)))]
    if languages:
        plain.check(library.trafo_tokenizer_with_languages(plain.handle, *codes, ctypes.byref(chosen.handle)))
    else:
        chosen = plain

    def encode(text, of_target):
        call = library.trafo_tokenizer_encode_target if of_target else library.trafo_tokenizer_encode
        ids, count, data = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t(), text.encode()
        chosen.check(call(chosen.handle, data, ctypes.c_size_t(len(data)), ctypes.byref(ids), ctypes.byref(count)))
        found = ids[:count.value]
        library.trafo_ids_free(ids)
        return found
    return encode


class Check:
    def __init__(self, checks, program, test, reference, library):
        self.checks, self.program, self.library = checks, program, library
        self.test, self.reference = test[:SENTENCES], reference[:SENTENCES]
        self.odd = ODD
        self.family, self.languages = "", ()

    def flags(self, source=0):
        return ["--source-language", self.languages[source], "--target-language", self.languages[1 - source]] if self.languages else []

    def ids(self, label, name, tokenizer, lines):
        file = next(os.path.join(self.program.folder, name, kind) for kind in ("vocab.spm", "vocab.marian", "tokenizer.json")
                    if os.path.exists(os.path.join(self.program.folder, name, kind)))
        encode = encoder(self.library, file, self.languages)
        ours = [[[*encode(line, target), tokenizer.eos_token_id] for line in lines] for target in (False, True)]
        theirs = encoded(tokenizer, lines, lines)
        other = [line for line, a, b in zip(lines * 2, ours[0] + ours[1], theirs[0] + theirs[1]) if a != b]
        self.checks.say(not other, f"{label}: the ids of {2 * len(lines)} texts are {type(tokenizer).__name__}'s" + "".join(map(ascii, other[:3])))
        if self.family == "bart":
            return
        unknown = sum(row.count(tokenizer.unk_token_id) for row in theirs[0])
        self.checks.say(unknown > 0, f"{label}: {unknown} of these are unknown")

    def scores(self, name, languages, source, target):
        parity.write_lines(os.path.join(self.program.folder, "score.src"), source)
        parity.write_lines(os.path.join(self.program.folder, "score.trg"), target)
        lines = self.program.run("score", "-m", name, "-t", "score.src", "score.trg", *languages, "--device", "cpu", "--quiet")
        return [float(line) for line in lines]

    def model(self, label, name, model, tokenizer, tokens):
        import torch
        languages = self.flags()
        lines, targets = self.test + self.odd, self.reference + self.odd[::-1]
        self.ids(label, name, tokenizer, lines)
        source, target = encoded(tokenizer, lines, targets)
        theirs = parity.marian_log_probabilities(cut(model, tokens), source, target)
        self.checks.log_probabilities(label, self.scores(name, languages, lines, targets), theirs, [len(row) for row in target])
        never, texts = [*([0] if self.languages else []), 1, 3, *range(tokens, model.config.vocab_size)], []
        for row in source[:SENTENCES]:
            with torch.no_grad():
                output = model.generate(torch.tensor([row]), attention_mask=torch.ones(1, len(row), dtype=torch.long), do_sample=False,
                                        num_beams=1, max_new_tokens=LONGEST + 1, max_length=None, suppress_tokens=never,
                                        forced_bos_token_id=token_of(tokenizer, self.languages[1]) if self.languages else 0)[0].tolist()
            named = set(getattr(tokenizer, "id_to_lang_token", ()))  # M2M100Tokenizer writes languages into the text
            texts.append(tokenizer.decode([token for token in output if token not in named], skip_special_tokens=True))
        def translated(lines):
            return self.program.run("translate", "-m", name, *languages, "--beam-size", "1", "--normalize", "0", "--max-length",
                                    str(LONGEST), "--device", "cpu", "--quiet", lines=lines)

        if self.family == "bart":  # a text of bytes may have line breaks; an unfinished character at its end is U+FFFD there, nothing here
            ours = ["".join(translated([line])).rstrip("\ufffd") for line in self.test]
            texts = ["".join(text.splitlines()).rstrip("\ufffd") for text in texts]
        else:
            ours = translated(self.test)
        self.checks.translations(label, ours, texts)

    def export(self, label, name, model, tokenizer, tokens):
        import torch
        import transformers
        folder = os.path.join(self.program.folder, name + "-exported")
        self.program.run("export", "-m", name, "--to", FAMILIES[self.family][2], "-o", folder, "--quiet")
        again, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
        self.checks.say(type(again) is type(model) and not info["missing_keys"] and not info["unexpected_keys"],
                        f"{label}: every tensor of {type(again).__name__}")
        theirs = transformers.AutoTokenizer.from_pretrained(folder, **dict(zip(("src_lang", "tgt_lang"), self.languages)))
        lines = self.test + self.odd + EMPTY
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
    parser.add_argument("--short", action="store_true", help="one configuration of each class")
    arguments = parser.parse_args()
    parity.enter(arguments, [*parity.PACKAGES, "peft==0.21.2"])
    with parity.workplace(arguments) as (program, train, test, reference):
        checks = parity.Checks()
        library = load_library(os.path.join(os.path.dirname(program.path), "libtrafo.so"))
        for call in (library.trafo_tokenizer_with_languages, library.trafo_tokenizer_encode_target):
            call.restype = ctypes.c_void_p
        check = Check(checks, program, test, reference, library)
        texts = [side for pair in train[:1500] for side in pair]
        for family in FAMILIES:
            check.family, check.languages = family, FAMILIES[family][0] or ()
            check.odd = [line for line in ODD if family != "mbart50" or line not in UNIGRAMS]
            for number in range(1 if arguments.short else arguments.configurations):
                name, label = f"{family}-{number}", f"{family} {number}"
                folder = os.path.join(program.folder, name + "-theirs")
                tokenizer = save_tokenizer(family, "bpe" if family == "nllb" or (family == "m2m100" and number % 2) else "unigram", texts, folder)
                if family == "mbart50" and number % 2:
                    os.remove(os.path.join(folder, "tokenizer.json"))
                elif family == "mbart50":
                    os.remove(os.path.join(folder, "sentencepiece.bpe.model"))
                model, tokens = save_model(family, number, tokenizer, folder)
                program.run("import", "--from", folder, "-o", name, "--quiet")
                check.model(label, name, model, tokenizer, tokens)
                check.export(label, name, model, tokenizer, tokens)
                if number == 0:
                    trained(check, label, name, folder, tokenizer, tokens)
                if number == 0 and family in ADDED:
                    added(check, label, name, folder, model, tokens)
                shutil.rmtree(folder)
    print("all equal" if checks.failed == 0 else f"{checks.failed} checks failed")
    return 1 if checks.failed else 0


def added(check, label, name, original, model, tokens):
    """One more token, here and in transformers."""
    import torch
    import transformers
    token, like = ADDED[check.family]
    before = check.languages, check.odd
    if like:
        check.languages = (token, check.languages[1])
    else:
        check.odd = check.odd + [token, f"a {token} b", f"a{token}b", f"{token}{token} ", f"x\u00e9{token}"]
    more = transformers.AutoTokenizer.from_pretrained(original, **dict(zip(("src_lang", "tgt_lang"), before[0])))
    rows = [token_of(more, like)] if like else more(token, add_special_tokens=False).input_ids
    more.add_tokens([token], special_tokens=like is not None)
    if like:
        more.src_lang = token
    check.checks.say(token_of(more, token) == tokens and len(rows) >= (1 if like else 2), f"{label}: {token} of {len(rows)} rows is token {tokens}")
    bias = model.final_logits_bias[0, rows].mean() if hasattr(model, "final_logits_bias") else None
    model.resize_token_embeddings(tokens + 1, mean_resizing=False)
    with torch.no_grad():
        matrix = model.get_input_embeddings().weight
        matrix[tokens] = matrix[rows].mean(0)
        if bias is not None:
            model.final_logits_bias[0, tokens] = bias
    folder = os.path.join(check.program.folder, name + "-more-theirs")
    model.save_pretrained(folder)
    check.program.run("add-tokens", "-m", name, "--tokens", token, *(["--special", "--like", like] if like else []), "-o", name + "-more", "--quiet")
    label += f" with {token}"
    check.model(label, name + "-more", model, more, tokens + 1)
    check.export(label, name + "-more", model, more, tokens + 1)
    trained(check, label, name + "-more", folder, more, tokens + 1)
    check.languages, check.odd = before


def trained(check, label, name, original, tokenizer, tokens):
    """Fine-tuning changes the model, and its export is the model that was trained."""
    import peft
    import torch
    import transformers
    languages = check.flags()
    before = check.scores(name, languages, check.test, check.reference)
    if languages:
        turned = check.scores(name, check.flags(source=1), check.test, check.reference)
        check.checks.say(min(abs(a - b) for a, b in zip(before, turned)) > 1e-3, f"{label}: other languages give other scores")
    for kind, flags in (("whole", []), ("adapter", ["--lora-rank", "4"])):
        run = f"{name}-{kind}"
        check.program.run("train", "-t", "train.src", "train.trg", "--model", run, "--pretrained-model", name, "--after", "30u",
                          "--mini-batch-words", "600", "--lr-warmup", "5", "--learn-rate", "0.003", "--device", "cpu", "--cpu-threads", "1",
                          "--quiet", *languages, *flags)
        adapted = [name, "--adapter", run] if flags else [run]
        after = check.scores(adapted[0], [*adapted[1:], *languages], check.test, check.reference)
        check.checks.say(sum(after) > sum(before) + len(after), f"{label}, {kind}: training raises {sum(before):.0f} to {sum(after):.0f}")
        folder = os.path.join(check.program.folder, run + "-exported")
        check.program.run("export", "-m", *adapted, "--to", FAMILIES[check.family][2], "-o", folder, "--quiet")
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        source, target = encoded(tokenizer, check.test, check.reference)
        check.checks.log_probabilities(f"{label}, {kind}, exported", after, parity.marian_log_probabilities(model, source, target),
                                       [len(row) for row in target])
        if flags:
            model = transformers.AutoModelForSeq2SeqLM.from_pretrained(original, dtype=torch.float32)
            model = peft.PeftModel.from_pretrained(model, os.path.join(check.program.folder, run, "adapter")).eval()
            check.checks.log_probabilities(f"{label}, adapter in PEFT", after, parity.marian_log_probabilities(cut(model, tokens), source, target),
                                           [len(row) for row in target])


if __name__ == "__main__":
    sys.exit(main())
