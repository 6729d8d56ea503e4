#!/usr/bin/env python3
"""Writes wordpiece.json: small tokenizer.json files of WordPiece, texts, and the ids and texts that the `tokenizers` library gives for
them. Needs tokenizers 0.23 (PyPI).

A case is the base file with some keys replaced. `ids` are those with encode_special_tokens, as texts are encoded by default here,
`special_ids` those without it. `made` is the file that the library's BertWordPieceTokenizer has for the vocabulary of the base as a
vocab.txt.
"""
import json
import pathlib
import sys

from tokenizers import Tokenizer
from tokenizers.implementations import BertWordPieceTokenizer

FILE = pathlib.Path(__file__).resolve().parent / "wordpiece.json"

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = """the cat cats sat on mat . , ! ? ' - [ ] ( ) < > = un want runn hello Hello caf café cafe Café world 1 12 123 a b c d e f g h i j k l m n o p q r s t
    u v w x y z A B é É ü ß ñ 中 文 日 本 語 한 국 ᄒ ᅡ ᆫ ก า ا ل के न do not n't don t i̇ i̇x ς σ ffi \u0301 ##\u0301 ##s ##ed ##want ##ing ##able ##a ##b ##c ##d ##e ##f ##g ##h
    ##i ##j ##k ##l ##m ##n ##o ##p ##q ##r ##t ##u ##v ##w ##x ##y ##z ##é ##中 ##文 ##ᅡ ##ᆫ ##1 ##23 ##ld ##orld ## # ##." ##caf 's 'm cls sep mask""".split()
VOCABULARY = {token: i for i, token in enumerate(dict.fromkeys(SPECIAL + WORDS))}


def added(content, number=None, special=True, normalized=False, **flags):
    return {"id": VOCABULARY[content] if number is None else len(VOCABULARY) + number, "content": content, "single_word": False,
            "lstrip": False, "rstrip": False, "normalized": normalized, "special": special} | flags


def normalizer(clean=True, chinese=True, strip=None, lower=True):
    return {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese, "strip_accents": strip, "lowercase": lower}


def model(**changes):
    return {"model": BASE["model"] | changes}


def token_of(name):
    return {"id": name, "ids": [VOCABULARY[name]], "tokens": [name]}


TEMPLATE = {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {name: token_of(name) for name in ("[CLS]", "[SEP]")}}
BASE = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [added(token) for token in SPECIAL],
    "normalizer": normalizer(), "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": TEMPLATE,
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
              "vocab": VOCABULARY},
}
CASES = {
    "uncased": {},
    "cased": {"normalizer": normalizer(lower=False)},
    "cased without accents": {"normalizer": normalizer(lower=False, strip=True)},
    "uncased with accents": {"normalizer": normalizer(strip=False)},
    "not cleaned": {"normalizer": normalizer(clean=False)},
    "Chinese words": {"normalizer": normalizer(chinese=False)},
    "no normalizer": {"normalizer": None},
    "NFC and lower case": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}},
    "BertNormalizer in a sequence": {"normalizer": {"type": "Sequence", "normalizers": [normalizer(), {"type": "NFC"}]}},
    "words of 5 characters": model(max_input_chars_per_word=5),
    "words of no character": model(max_input_chars_per_word=0),
    "another prefix": model(continuing_subword_prefix="#"),
    "no prefix": model(continuing_subword_prefix=""),
    "another unknown token": model(unk_token="[MASK]"),
    "without type": {"model": {key: value for key, value in BASE["model"].items() if key != "type"}},
    "Whitespace": {"pre_tokenizer": {"type": "Whitespace"}},
    "WhitespaceSplit and Punctuation": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "WhitespaceSplit"}, {"type": "Punctuation"}]}},
    "one word": {"pre_tokenizer": None},
    "added tokens": {"added_tokens": [*BASE["added_tokens"], added("<tool>", 0, special=False), added("Hello World", 1, special=False, normalized=True),
                                      added("<x>", 2, special=False, lstrip=True, rstrip=True), added("mat", None, special=False, single_word=True)]},
    "no clean-up": {"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False}},
    "decoder with another prefix": {"decoder": {"type": "WordPiece", "prefix": "#", "cleanup": True}},
    "no decoder": {"decoder": None},
    "BertProcessing": {"post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}},
}
TEXTS = [
    "", " ", "the cat sat on the mat.", "The  Cats, don't sat!", "unwanted running unwantable", "xyzzy hello-world hello  world",
    "Café CAFÉ cafe\u0301 caf\u00e9s naïve \u0301 e\u0301\u0327", "中文 日本語 中文a한국 한 국", "가 각", "tab\there\nline\r\nend\x0bpage\x0c.", "a\u200bb\u00adc\u200dd\ufeffe\x01f\x7fg\ufffdh",
    "a\u00a0b\u2003c\u3000d\u0085e\u2028f", "[CLS] the cat [SEP] [MASK] [cls] [UNK]", "the [MASK]sat", "İ İx ΑΣ Σ ß ﬃ", "'s I'm don't ( a ) < b > ! ?", "the ' mat",
    "\U0001f600 \U0002a6df\U0002b820\U0002b920 \uf900", "ก่า กำ الا के", "1 12 123 1234 12.3", "##s ##a # ##", "h" * 5 + " " + "h" * 6 + " " + "a" * 100 + " " + "a" * 101,
    "Hello World hello world HELLO WORLD", "a <tool> b<tool>", "a  <x>  b mat mats mat.", "$+<=>^`|~ ©®™ “quoted” ‹x› …", "e\u20dd e\u0903 e\u1abf e\u0300\u0345", "\ue000a\U000f0000b\U000e0001c",
]


def results(tokenizer):
    ids = []
    for plain in (True, False):
        tokenizer.encode_special_tokens = plain
        ids.append([tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS])
    return {"ids": ids[0], "decoded": [tokenizer.decode(each) for each in ids[0]], "special_ids": ids[1]}


def main():
    cases = [{"name": name, "changes": changes} | results(Tokenizer.from_str(json.dumps(BASE | changes))) for name, changes in CASES.items()]
    made = []
    for settings in ({}, {"lowercase": False}, {"strip_accents": False, "handle_chinese_chars": False}):
        tokenizer = BertWordPieceTokenizer(VOCABULARY, **settings)._tokenizer
        made.append({"settings": settings} | results(tokenizer))
    FILE.write_text(json.dumps({"base": BASE, "texts": TEXTS, "cases": cases, "made": made}, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(f"{len(cases)} cases, {len(TEXTS)} texts", file=sys.stderr)


if __name__ == "__main__":
    main()
