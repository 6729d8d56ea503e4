#!/usr/bin/env python3
"""Ids of imported MarianMT directories against MarianTokenizer, and their weights from files of torch.

    python3 tests/parity/marian_parity.py [--translate-train build/release/translate-train] [--library build/release/libtrafo.so]
                                          [--data FOLDER] [--directory DIR ...] [--long]

Makes directories like OPUS-MT's: two SentencePiece models that were trained on different texts, over one vocab.json in another order, which
lacks some subwords and has language tags. A tiny random MarianMTModel is beside each, its weights in a zip file of torch or in torch's older
format. Of each imported directory: the ids of sources and of targets, with and without special tokens in the text, the texts that ids give
back, the log-probabilities of pairs (to 1e-4 a token), and the files that an export writes. --directory takes a real one, of which
config.json, vocab.json, source.spm, target.spm and tokenizer_config.json are read.

Directories with separate vocabularies follow: marian_separate.py says what is compared.

Texts: sentences, technical strings, tags, 26 scripts; with --long more of them, and all text files of --data. Two segmentations of a text
may have the same score, as 3 33 and 33 3. Releases of SentencePiece choose differently then; such lines are counted apart.

Exit codes: 0 all equal, 1 not, 77 the packages cannot be had here.
"""
import argparse
import ctypes
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
import marian_separate  # noqa: E402
import own_environment  # noqa: E402
import tokenizer_cases  # noqa: E402
from tokenizer_parity import Trafo, load_library  # noqa: E402

PACKAGES = ["transformers==5.23.0", "torch==2.15.0", "sentencepiece==0.2.3", "peft==0.21.2"]
FILES = ["vocab.json", "source.spm", "target.spm", "tokenizer_config.json"]
TOLERANCE = 1e-4
TECHNICAL = ["igloo", "x=y+1;", "https://example.org/a?b=c&d=%20e", "foo_bar(baz[0], *args)", "C:\\temp\\x.txt", "1,234.56 km/h", "user@host",
             "v2.0.1-rc3", "#include <vector>", "{'a': [1, 2]}", "<b>bold</b>", "%s: %d%%", "αβγ", "a/b/c", "...", "--flag=value", "²³", "€5"]


# ---- directories ----

def train_pair(folder, name, texts, kinds, size):
    """Two models, a vocab.json of both in another order without every 50th subword, and tags."""
    folder.mkdir()
    known = set()
    for side, kind, lines in zip(("source", "target"), kinds, texts):
        known.update(marian_separate.train_side(folder, side, kind, size, lines))
    choice = random.Random(name)
    known = [piece for i, piece in enumerate(sorted(known)) if i % 50 != 7]
    choice.shuffle(known)
    names = [*known[:40], "</s>", *known[40:90], "<unk>", *known[90:], ">>deu<<", ">>fra<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(names)}, ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "a", "target_lang": "b", "separate_vocabs": False}))
    return folder


def copied(directory, folder):
    folder.mkdir()
    for name in FILES:
        if (directory / name).exists():
            shutil.copy(directory / name, folder / name)
    return folder


def add_model(folder, older):
    """A random model with the vocabulary of the folder, as torch saves it."""
    import torch
    from transformers import MarianConfig, MarianMTModel
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    torch.manual_seed(len(vocabulary))
    model = MarianMTModel(MarianConfig(
        vocab_size=max(vocabulary.values()) + 1, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=1024, scale_embedding=True,
        pad_token_id=vocabulary["<pad>"], eos_token_id=vocabulary["</s>"], decoder_start_token_id=vocabulary["<pad>"],
        forced_eos_token_id=None)).eval()
    model.config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin", _use_new_zipfile_serialization=not older)
    return model


# ---- the comparison ----

class Checks:
    def __init__(self):
        self.failed = 0

    def say(self, good, text):
        self.failed += not good
        print(f"{'ok' if good else 'FAILED':8}{text}", flush=True)

    def lines(self, name, lines, ours, theirs, is_tie=lambda ours, theirs: False):
        """Returns the lines that differ."""
        other = [i for i in range(len(lines)) if ours[i] != theirs[i]]
        wrong = [i for i in other if not is_tie(ours[i], theirs[i])]
        ties = f", {len(other) - len(wrong)} with another segmentation of the same score" if len(other) > len(wrong) else ""
        self.say(not wrong, f"{name}: {len(lines) - len(wrong)} of {len(lines)}{ties}")
        for i in wrong[:3]:
            print("        ", ascii(lines[i])[:200], str(ours[i])[:120], str(theirs[i])[:120])
        return {lines[i] for i in other}


def parsing(tokenizer):
    """The same vocabulary, reading special tokens in texts."""
    other = object.__new__(Trafo)
    other.c, other.handle = tokenizer.c, ctypes.c_void_p()
    tokenizer.c.trafo_tokenizer_parse_special.restype = ctypes.c_void_p
    other.check(tokenizer.c.trafo_tokenizer_parse_special(tokenizer.handle, ctypes.byref(other.handle)))
    return other


def tie(theirs):
    """Whether two lists of ids are the same subwords in another order, of the same text: a unigram model scores them alike."""
    def text(ids):
        return "".join(theirs.convert_ids_to_tokens(ids))

    return lambda a, b: sorted(a) == sorted(b) and text(a) == text(b)


def check_ids(checks, name, library, file, theirs, lines):
    ours = Trafo(library, file)
    eos = theirs.eos_token_id
    other = set()
    for special in (True, False):
        theirs.split_special_tokens = not special
        encoder = parsing(ours) if special else ours
        cases = [text + mark for text in lines[:200] for mark in ("</s>", " <unk> b", "<pad> >>deu<< c")] if special else lines
        other = checks.lines(f"{name}, {'special tokens' if special else 'ids'}", cases, [encoder.encode(line.encode()) + [eos] for line in cases],
                             [theirs(line).input_ids for line in cases], tie(theirs))
    theirs.split_special_tokens = True
    # Of a text in the vocabulary: <unk> is U+2047 here and nothing there.
    found = [ids for ids in (theirs(text_target=line).input_ids for line in lines) if theirs.unk_token_id not in ids]
    checks.lines(f"{name}, text back", [str(ids) for ids in found], [ours.decode(ids).decode() for ids in found],
                 [theirs.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False) for ids in found])
    return other


def check_scores(checks, name, program, start, model, theirs, lines):
    """Sources and targets reach the model as they should if the log-probabilities are equal."""
    import torch
    pairs = [(a, b) for a, b in zip(lines, lines[1:] + lines[:1]) if a.strip() and b.strip() and not set("\t\n\r\v\f\x85") & set(a + b)][:200]
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as file:
        file.writelines(f"{a}\t{b}\n" for a, b in pairs)
        file.flush()
        output = program("score", "-m", start, "--tsv", file.name, "--quiet", "--device", "cpu")
    ours = [float(line) for line in output.splitlines()]
    worst = 0
    for (source, target), score in zip(pairs, ours, strict=True):
        labels = theirs(text_target=target, return_tensors="pt").input_ids
        with torch.no_grad():
            logits = model(**theirs(source, return_tensors="pt"), labels=labels).logits
        expected = torch.log_softmax(logits[0].double(), -1).gather(-1, labels[0][:, None]).sum().item()
        worst = max(worst, abs(score - expected) / labels.shape[1])
    checks.say(worst <= TOLERANCE, f"{name}: log-probabilities of {len(pairs)} pairs within {worst:.1e} a token")


def check(checks, name, folder, library, program, lines, older):
    import transformers
    model = add_model(folder, older)
    theirs = transformers.MarianTokenizer.from_pretrained(folder)
    start, again = folder.parent / f"{folder.name}-start", folder.parent / f"{folder.name}-again"
    program("import", "--from", folder, "-o", start, "--quiet")
    other = check_ids(checks, f"{name}, sources", library, start / "vocab.marian", theirs, lines)
    program("export", "-m", start, "--to", "hf-marian", "-o", again, "--quiet")
    same = [file for file in FILES if (folder / file).exists() and (folder / file).read_bytes() == (again / file).read_bytes()]
    checks.say(same == [file for file in FILES if (folder / file).exists()], f"{name}: exported as it came: {', '.join(same)}")
    # The other way round, so that the ids of targets are seen, too.
    turned = copied(folder, folder.parent / f"{folder.name}-turned")
    shutil.copy(folder / "source.spm", turned / "target.spm")
    shutil.copy(folder / "target.spm", turned / "source.spm")
    for file in ("config.json", "pytorch_model.bin"):
        shutil.copy(folder / file, turned / file)
    program("import", "--from", turned, "-o", folder.parent / f"{folder.name}-turned-start", "--quiet")
    ours = Trafo(library, folder.parent / f"{folder.name}-turned-start/vocab.marian")
    other |= checks.lines(f"{name}, targets, ids", lines, [ours.encode(line.encode()) + [theirs.eos_token_id] for line in lines],
                          [theirs(text_target=line).input_ids for line in lines], tie(theirs))
    check_scores(checks, name, program, start, model, theirs, [line for line in lines if line not in other])


def texts(arguments):
    lines = tokenizer_cases.long_lines() if arguments.long else tokenizer_cases.short_lines()
    lines += TECHNICAL + [f"{tag}{gap}{line}" for line in lines[:40] + TECHNICAL for tag in (">>deu<<", ">>por<<", ">>xx<<", ">><<", ">>", "<<")
                          for gap in ("", " ", "  ")]
    lines += [f"see >>deu<< {line}" for line in TECHNICAL]
    if arguments.data:
        for file in sorted(pathlib.Path(arguments.data).rglob("*")):
            if file.suffix in (".de", ".en", ".fr", ".cs", ".txt"):
                lines += file.read_text(encoding="utf-8").splitlines()
    return [line for line in dict.fromkeys(lines) if "\0" not in line]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--translate-train", default=ROOT / "build/release/translate-train")
    parser.add_argument("--library", default=ROOT / "build/release/libtrafo.so")
    parser.add_argument("--data", help="folder with more texts")
    parser.add_argument("--directory", nargs="+", default=[], type=pathlib.Path, help="real directories of MarianMT")
    parser.add_argument("--environment", default=str(ROOT / "build/parity-environment"))
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--separate", action="store_true", help="directories with separate vocabularies alone")
    arguments = parser.parse_args()
    try:
        import sentencepiece  # noqa: F401
        import torch  # noqa: F401
        import transformers
    except ImportError:
        own_environment.enter(arguments.environment, PACKAGES)
    transformers.logging.set_verbosity_error()

    def program(*words):
        done = subprocess.run([arguments.translate_train, *map(str, words)], capture_output=True, text=True, encoding="utf-8")
        if done.returncode != 0:
            sys.exit(f"translate-train {' '.join(map(str, words))}: {done.stderr}")
        return done.stdout

    checks, library, lines = Checks(), load_library(arguments.library), texts(arguments)
    # Of some scripts: the others are <unk>.
    scripts = [line for script in list(tokenizer_cases.SCRIPTS)[:10] for line in tokenizer_cases.script_lines(script, 100) if line.strip()]
    pages = [line for page in sorted((ROOT / "docs").rglob("*.md")) for line in page.read_text(encoding="utf-8").splitlines() if line.strip()]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folders = {
            "unigram": train_pair(folder / "unigram", "unigram", (pages, scripts), ("unigram", "unigram"), 3000),
            "unigram and BPE": train_pair(folder / "mixed", "mixed", (scripts, pages), ("unigram", "bpe"), 2000),
            "BPE": train_pair(folder / "bpe", "bpe", (pages[::2], pages[1::2]), ("bpe", "bpe"), 1500)}
        folders |= {directory.name: copied(directory, folder / f"real-{i}") for i, directory in enumerate(arguments.directory)}
        for i, (name, each) in enumerate(folders.items() if not arguments.separate else ()):
            check(checks, name, each, library, program, lines, older=i % 2 == 1)
        for i, (name, case) in enumerate(marian_separate.CASES.items()):
            marian_separate.check_separate(checks, name, case, folder / f"separate-{i}", library, program, lines[:400], (pages, pages[::-1][:1500]),
                                           sys.modules[__name__])
    print(f"{'all equal' if checks.failed == 0 else f'{checks.failed} failed'}, {len(lines)} lines, {len(folders)} directories")
    sys.exit(0 if checks.failed == 0 else 1)


if __name__ == "__main__":
    main()
