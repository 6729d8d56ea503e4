#!/usr/bin/env python3
"""Writes byte_bpe.json: small tokenizer.json files of byte-level BPE and of BPE with byte fallback, texts, and the ids and texts that the `tokenizers` library gives for
them. Needs tokenizers 0.23 (PyPI).

A case is the base file with some keys replaced. `ids` are those with encode_special_tokens, as texts are encoded by default here,
`special_ids` those without it.
"""
import json
import pathlib
import sys

from tokenizers import Tokenizer

FILE = pathlib.Path(__file__).resolve().parent / "byte_bpe.json"


def letters():
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(256 - len(plain))]


MERGES = ["h e", "Ġ t", "Ġt he", "l l", "o w", "o r", "Ġ w", "Ġw or", "l d", "Ġwor ld", "e r", "i n", "in g", "1 2", "' s", "ĠĠ ĠĠ", "Ġ Ġ",
          "Ã ©", "c a", "ca f", "caf Ã©", "Ċ Ċ", "n ing", "r un", "u n", "run ning", "H e", "He ll", "Hell o", "ã ģ", "a a", "aa aa"]


def vocabulary():
    tokens = letters()
    made = [merge.replace(" ", "") for merge in MERGES]
    return {token: i for i, token in enumerate(tokens + [t for i, t in enumerate(made) if t not in made[:i]])}


def added(content, number, special=True, normalized=False, **flags):
    first = len(vocabulary())
    return {"id": first + number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized,
            "special": special} | flags


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def sequence(*steps, key="pretokenizers", kind="Sequence"):
    return {"type": kind, key: list(steps)}


def pieces(*steps):
    """Pre-tokenizers that cut, before the bytes become letters."""
    return {"pre_tokenizer": sequence(*steps, byte_level(regex=False))}


CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
POSSESSIVE = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
BASE = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [added("<|end|>", 0), added("<tool>", 1, special=False)],
    "normalizer": None, "pre_tokenizer": byte_level(), "post_processor": None, "decoder": byte_level(),
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
              "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary(), "merges": MERGES},
}


def model(**changes):
    return {"model": BASE["model"] | changes}


def without_byte(*letters_left_out, **changes):
    tokens = [token for token in vocabulary() if token not in letters_left_out]
    merges = [m for m in MERGES if not any(x in m for x in letters_left_out)]
    return model(vocab={token: i for i, token in enumerate([*tokens, "<u>"])}, merges=merges, **changes) | {"added_tokens": [
        {**added("<|end|>", 0), "id": len(tokens) + 1}]}


# Several ways to make a subword, some of them in another order than SentencePiece's, and merges over spaces.
FALLBACK_MERGES = ["h e", "l l", "▁ t", "▁t he", "▁ w", "o r", "▁w or", "l d", "▁wor ld", "▁ ▁", "▁▁ ▁▁", "▁ the", "t he", "i n", "in g", "n ing",
                   "r un", "u n", "run ning", "c a", "ca f", "caf é", "a a", "aa aa", "a aa", "a aaa", "x ~", "H e", "He ll", "Hell o", "1 2", "\n \n"]


def fallback(merges=FALLBACK_MERGES, unk="<unk>", fuse=True, ignore_merges=False):
    """The model, decoder and added tokens as in Gemma's files."""
    made = [merge.replace(" ", "") for merge in merges]
    characters = sorted({c for merge in merges for c in merge if c != " "} | set("abcdefghijklmnopqrstuvwxyz'.,-<>|_"))
    tokens = dict.fromkeys(["<unk>", "<|end|>", *(f"<0x{byte:02X}>" for byte in range(256)), *characters, *made])
    ids = {token: i for i, token in enumerate(tokens)}
    first = len(ids)
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "model": BASE["model"] | {"unk_token": unk, "fuse_unk": fuse, "byte_fallback": True, "ignore_merges": ignore_merges, "vocab": ids,
                                  "merges": [merge.split(" ") for merge in merges]},
        "normalizer": space("Replace"), "pre_tokenizer": None,
        "decoder": sequence(*fallback_steps(), key="decoders"),
        "added_tokens": [special | {"id": 1, "content": "<|end|>"},
                         special | {"id": first, "content": "<tool>", "special": False},
                         special | {"id": first + 1, "content": "<mask>", "special": False, "lstrip": True},
                         special | {"id": first + 2, "content": "CAFÉ Naive", "special": False, "normalized": True}]}


def space(kind):
    return {"Replace": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, "Prepend": {"type": "Prepend", "prepend": "▁"}}[kind]


def fallback_steps(*more):
    return [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, *more]


def metaspace(scheme, cut):
    return {"normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}}


def llama(strip=1):
    """Llama 2: a space in front of each run of text, and without it again."""
    return {"normalizer": sequence(space("Prepend"), space("Replace"), key="normalizers"),
            "decoder": sequence(*fallback_steps({"type": "Strip", "content": " ", "start": strip, "stop": 0}), key="decoders")}


def normalized_special(*normalizers, **flags):
    """Special tokens that are found in the normal form of a text, and tokens of other kinds beside them."""
    case = fallback()
    first = len(case["model"]["vocab"])
    tokens = [dict(normalized=True), dict(normalized=True), dict(normalized=False), dict(special=False, single_word=True),
              dict(special=False, normalized=True)]
    names = ["<t1>", "</t1>", "Ends", "word", "1</t1>"]
    added_tokens = [{**added(name, 0), **flag, **flags, "id": first + i} if i < 2 else {**added(name, 0), **flag, "id": first + i}
                    for i, (name, flag) in enumerate(zip(names, tokens))]
    return case | {"normalizer": sequence(*normalizers, key="normalizers"), "added_tokens": case["added_tokens"][:1] + added_tokens}


FALLBACK_CASES = {
    "fallback": fallback(),
    "fallback without fuse": fallback(fuse=False),
    "fallback ignore merges": fallback(ignore_merges=True, merges=FALLBACK_MERGES),
    "fallback no unknown": fallback(unk=None),
    "fallback gemma 3": fallback() | {"pre_tokenizer": split(" ", "MergedWithPrevious", kind="String")},
    "fallback llama": fallback() | llama(),
    "fallback strips more": fallback() | llama(2),
    "fallback metaspace first": fallback() | metaspace("first", False),
    "fallback metaspace first cut": fallback() | metaspace("first", True),
    "fallback metaspace always": fallback() | metaspace("always", False),
    "fallback metaspace never cut": fallback() | metaspace("never", True),
    "fallback nfc": fallback() | {"normalizer": sequence({"type": "NFC"}, space("Replace"), key="normalizers")},
    "fallback words": fallback() | {"pre_tokenizer": split(r"\d|[^\d]+")},
    "normalized special": normalized_special(space("Replace")),
    "normalized special llama": normalized_special(space("Prepend"), space("Replace")),
    "normalized special lower": normalized_special({"type": "Lowercase"}, space("Replace")),
    "normalized special strip": normalized_special({"type": "Strip", "strip_left": True, "strip_right": True}),
    "normalized special nfkc": normalized_special({"type": "NFKC"}, space("Replace"), single_word=True),
    "normalized special spaces": normalized_special({"type": "NFKC"}, lstrip=True, rstrip=True),
}

CASES = {
    "gpt2": {},
    "prefix space": {"pre_tokenizer": byte_level(prefix=True)},
    "pairs of merges": model(merges=[m.split(" ") for m in MERGES]),
    "ignore merges": model(ignore_merges=True, merges=MERGES[:-1]),
    "cl100k": pieces(split(CL100K)),
    "cl100k inverted": pieces(split(CL100K, "Removed", True)),
    "possessive": pieces(split(POSSESSIVE)),
    "o200k": pieces(split(O200K, "Removed", True)),
    "bloom": pieces(split(BLOOM)),
    "three splits": pieces(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(r"[A-Za-z]+|\s+(?!\S)|\s+")),
    "intersection": pieces(split(r"[\p{L}&&[^a-m]]+|[^\p{L}]+?x")),
    "assertions": pieces(split(r"^the|ld$|\A.|\w\z")),
    "look": pieces(split(r"(?=\p{Lu})|o(?=w)|l(?!l)")),
    "words": pieces(split(r"\w+|\d|\W")),
    "text removed": pieces(split(" w", "Removed", kind="String")),
    "merged with previous": pieces(split("l", "MergedWithPrevious", kind="String")),
    "merged with next": pieces(split("l", "MergedWithNext", kind="String")),
    "contiguous": pieces(split("[lo]", "Contiguous")),
    "digits": pieces({"type": "Digits", "individual_digits": False}),
    "digits each": pieces({"type": "Digits", "individual_digits": True}),
    "punctuation": pieces({"type": "Punctuation", "behavior": "Isolated"}),
    "punctuation contiguous": pieces({"type": "Punctuation", "behavior": "Contiguous"}),
    "whitespace": pieces({"type": "Whitespace"}),
    "whitespace split": pieces({"type": "WhitespaceSplit"}),
    "after the letters": {"pre_tokenizer": sequence({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(prefix=True),
                                                    {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]"))},
    "nfc": {"normalizer": {"type": "NFC"}},
    "nfd": {"normalizer": {"type": "NFD"}},
    "nfkc lower": {"normalizer": sequence({"type": "NFKC"}, {"type": "Lowercase"}, key="normalizers")},
    "nfkd": {"normalizer": {"type": "NFKD"}},
    "replace": {"normalizer": sequence({"type": "Replace", "pattern": {"String": "ll"}, "content": "L"},
                                       {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "  "},
                                       {"type": "Prepend", "prepend": "aa"}, key="normalizers")},
    "strip": {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
    "added": {"added_tokens": [
        added("<|end|>", 0), added("<tool>", 1, special=False, rstrip=True), added("<mask>", 2, special=False, lstrip=True),
        added("word", 3, special=False, single_word=True), added("<tool>er", 4, special=False), added("   ", 5, special=False),
        added("NAIVE", 6, special=False, normalized=True)], "normalizer": {"type": "Lowercase"}},
    "unknown": without_byte("x", "~", unk_token="<u>"),
    "fused unknown": without_byte("x", "~", unk_token="<u>", fuse_unk=True),
    "left out": without_byte("x", "~"),
    **FALLBACK_CASES,
}
TEXTS = ["", "Hello the world", " the world's running", "HELLO'S 12345 café CAFÉ Naive NAIVE", "a\n\n b \t c   \r\n  d", "xx~~x the ~x",
         "日本語のテキスト あああ", "e\u0301\u0323 \u1e69 \ufb01 ﬀ \u212b \u2126 ½ ² ㎏", "aaaaaaaa aaa", "<tool>  x <tool>er <|end|>the <mask> y",
         "word words sword word. -word", "don't WE'LL I\u2019m 'ſ'S", "lllow ll ow; l.l,l", "İstanbul ǅ ΑΣ", "\u0600 ؟ … «a» ।", "   ", "1a2b33c444d5555",
         "<t1>A the</t1><t1>the <T1> ing</t1>", "the </t1> Endsword word x1</t1>Ends<t1>word<t1>", "<ｔ1>x \u00a0<t1>\u00a0 </t1>é<t1> wordEnds",
         "🙂👩\u200d👩\u200d👧 ​x", "naïve\u00a0text\u2003end\u0085", "ⅷ ٣ ১২৩ Ⓐ b\u200dc _x_"]


def main():
    if sys.argv[1:]:
        sys.exit(__doc__)
    cases = []
    for name, changes in CASES.items():
        tokenizer = Tokenizer.from_str(json.dumps(BASE | changes))
        case = {"name": name, "changes": changes, "ids": [], "special_ids": [], "decoded": []}
        for text in TEXTS:
            for key, plain in (("ids", True), ("special_ids", False)):
                tokenizer.encode_special_tokens = plain
                case[key].append(tokenizer.encode(text, add_special_tokens=False).ids)
            case["decoded"].append(tokenizer.decode(case["ids"][-1]))
        cases.append(case)
    FILE.write_text(json.dumps({"base": BASE, "texts": TEXTS, "cases": cases}, ensure_ascii=False) + "\n")
    print(f"{FILE.name}: {len(cases)} files, {len(TEXTS)} texts")


if __name__ == "__main__":
    main()
