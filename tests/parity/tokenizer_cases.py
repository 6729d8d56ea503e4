"""Texts in many scripts, and what AutoTokenizer makes of them: weights_parity.py runs a few of them, with --tokenizers all.

The ids are compared with the ids of SentencePiece and vocab.spm, for unigram and BPE, with and without byte tokens. The normal form of
every character and of every entry of the character map is compared as well.
"""
import os
import random
import struct
import unicodedata

import eval_parity

SCRIPT_LINES = 280  # of each script in the long form
SPACES = "\u0020\u00a0\u2003\u3000\t"

# Letters and marks as ranges, the marks from the place of a bar. "~": written decomposed as well.
SCRIPTS = {
    "Vietnamese": ("~", "aeiouyăâêôơưđbcghklmnt", "\u0300\u0301\u0303\u0309\u0323\u0302\u0306\u031b"),
    "Latin": ("~", "a-zÀ-ɏḀ-ỹ", "\u0300-\u0345"),
    "Greek": ("~", "Α-Ωα-ω\u1f00-\u1ffc", "\u0300\u0301\u0308\u0313\u0314\u0342\u0345"),
    "Cyrillic": ("~", "А-яѐ-ѵӁ-ӹ", "\u0300\u0306\u0308\u0483"),
    "Armenian": ("", "ա-և", ""),
    "Georgian": ("", "ა-ჺᲐ-Ჰ", ""),
    "Hebrew": ("~", "\u05d0-\u05ea\ufb1d-\ufb4f", "\u05b0-\u05bd\u05c1\u05c2"),
    "Arabic": ("~", "\u0622-\u064a\ufb50-\ufbb1\ufe70-\ufefc", "\u064b-\u0655\u0670"),
    "Devanagari": ("~", "\u0904-\u0939\u0958-\u095f", "\u093c\u093e-\u094d\u0901-\u0903"),
    "Bengali": ("~", "\u0985-\u09b9\u09dc-\u09df", "\u09bc\u09be-\u09cd\u09d7"),
    "Tamil": ("~", "அ-ஹ", "\u0bbe-\u0bcd\u0bd7"),
    "Telugu": ("~", "అ-హ", "\u0c3e-\u0c4d\u0c55\u0c56"),
    "Kannada": ("~", "ಅ-ಹ", "\u0cbc\u0cbe-\u0ccd\u0cd5\u0cd6"),
    "Malayalam": ("~", "അ-ഹ", "\u0d3e-\u0d4d\u0d57"),
    "Sinhala": ("~", "අ-ෆ", "\u0dca\u0dcf-\u0ddf"),
    "Thai": ("", "ก-ฮะเ-ไ", "\u0e31\u0e33-\u0e3a\u0e47-\u0e4e"),
    "Lao": ("", "ກ-ຮະໜໝ", "\u0eb1\u0eb3-\u0ebc\u0ec8-\u0ecd"),
    "Tibetan": ("~", "ཀ-ཬ", "\u0f71-\u0f84\u0f90-\u0fbc"),
    "Burmese": ("~", "က-ဪ", "\u102b-\u103e\u1037\u1039\u103a"),
    "Khmer": ("", "ក-ឳ", "\u17b6-\u17d3"),
    "Ethiopic": ("", "ሀ-ፚ", ""),
    "Korean": ("~", "가-힣ㄱ-ㅣﾡ-ￜ", "\u1100-\u1112\u1161-\u1175\u11a8-\u11c2"),
    "Japanese": ("~", "ぁ-ゖァ-ヺｦ-ﾝ一-龥", "\uff9e\uff9f\u3099\u309a"),
    "Chinese": ("", "\u4e00-\u9fa5\uf900-\ufad9\u2f00-\u2fd5", ""),
    "emoji": ("", "😀-🙏🚀-🛥❤☝✌👨👩👧🇦-🇿", "\u200d\ufe0f\U0001f3fb-\U0001f3ff"),
    "signs": ("", "ﬀ-ﬆ①-⓿¼-¾²³ªº㌀-㏿𝐀-𝟿Ａ-ｚ!-~", "\u0300-\u0315\u200b\u200d\u00ad"),
}


def expanded(ranges):
    result, i = [], 0
    while i < len(ranges):
        if ranges[i + 1:i + 2] == "-" and i + 2 < len(ranges):
            result += map(chr, range(ord(ranges[i]), ord(ranges[i + 2]) + 1))
            i += 3
        else:
            result.append(ranges[i])
            i += 1
    return [c for c in result if unicodedata.category(c) not in ("Cn", "Cs")]


def script_lines(name, count):
    """Words of letters with marks: composed, decomposed, and with marks in an order of chance."""
    form, letters, marks = SCRIPTS[name]
    letters, marks = expanded(letters), expanded(marks)
    choice = random.Random(name)
    words = []
    for _ in range(120):
        word = ""
        for _ in range(choice.randint(1, 7)):
            word += choice.choice(letters)
            if marks and choice.random() < 0.6:
                word += "".join(choice.choice(marks) for _ in range(choice.choice([1, 1, 1, 2, 2, 3])))
        words.append(word)
    lines = []
    for _ in range(count):
        line = ""
        for _ in range(choice.randint(1, 9)):
            line += choice.choice(words) + (" " if choice.random() < 0.9 else choice.choice(SPACES) * choice.randint(1, 2))
        lines.append(unicodedata.normalize(choice.choice(["NFC", "NFD", "NFKD"]), line) if form == "~" and choice.random() < 0.5 else line)
    return lines


def short_lines():
    lines = [line for sentences in eval_parity.SENTENCES.values() for line in sentences]
    choice = random.Random(3)
    lines += [eval_parity.damage(line, choice) for line in lines for _ in range(4)]
    # Decomposed as some keyboards and file systems write it.
    composed = lines + ["Tiếng Việt có dấu: một, hai, ba, người", "한국어 문장입니다", "Ελλάδα, ά έ ή ί", "Žluťoučký kůň"]
    lines = composed + [unicodedata.normalize("NFD", line) for line in composed]
    # Marks that NFC exchanges or composes past each other, and signs that lose what follows them in the library's own step.
    lines += ["a\u0327\u0302", "a\u0302\u0323", "ê\u0323", "မြန်မာ့", "½\u0301x", "ﬁ\u0307", "ª\u0301", "\u0301a", "ｶ\u0301ﾞ", "\ufdd0a\ufdd1\u0301"]
    lines += ["", " ", "   ", "▁", "a▁b", "  two  spaces ", "tab\there", "ﬁne ½ Ⅷ ＡＢＣ", "\u200b", "日本語テキスト", "ｶﾞｷﾞ ﾊﾟﾝ", "x▁ ", "\x01x\x01"]
    # Texts that spell tokens out.
    rng = random.Random(3)
    parts = ["</s>", "<s>", "<unk>", "<pad>", "<0x41>", "<0xFF>", "a", " ", "<", "/s>", "der", "</", "s>", "▁", "<0x4", "é", "<b>"]
    lines += ["".join(rng.choices(parts, k=rng.randint(1, 6))) for _ in range(300)]
    return lines + [line for name in SCRIPTS for line in script_lines(name, 4)]


def long_lines():
    return short_lines() + [line for name in SCRIPTS for line in script_lines(name, SCRIPT_LINES)]


def check(checks, program, lines, test):
    """lines: those in many scripts, a part of the vocabulary; test: others."""
    import sentencepiece
    from transformers import AutoTokenizer, __version__
    with open(os.path.join(program.folder, "scripts.txt"), "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines[:1000] if line.strip())
    lines = lines + test
    for kind in ([], ["--bpe"]):
        for bytes_too in ([], ["--byte-fallback"]):
            name = "-".join(flag.strip("-") for flag in ["tokenizer", *(kind or ["unigram"]), *bytes_too])
            program.run("vocab", "-t", "train.src", "train.trg", "scripts.txt", "-o", name + ".spm", "--dim-vocabs",
                        "2000", "--character-coverage", "0.98", "--soft-limit", "--quiet", *kind, *bytes_too)
            program.train(name, 1, "--arch", "decoder-lm", "--vocabs", name + ".spm")
            folder = os.path.join(program.folder, name + "-hf")
            program.run("export", "-m", name, "--to", "hf-gpt2", "-o", folder, "--quiet")
            spm = sentencepiece.SentencePieceProcessor(model_file=os.path.join(program.folder, name + ".spm"))
            ours = [spm.encode(line) + [spm.eos_id()] for line in lines]
            for fast in (True, False):
                tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=fast)
                theirs = tokenizer(lines).input_ids
                wrong = [line for line, a, b in zip(lines, ours, theirs) if a != b]
                checks.say(not wrong, f"AutoTokenizer {__version__}, {name}, {'fast' if fast else 'slow'}: {len(lines) - len(wrong)} "
                           f"of {len(lines)} lines have our ids" + (f", not {sorted(set(wrong))[:5]!r}" if wrong else ""))
            texts = tokenizer.batch_decode(ours, skip_special_tokens=True)
            wrong = [line for line, ids, text in zip(lines, ours, texts)
                     if text != spm.decode(ids) and spm.unk_id() not in ids]
            checks.say(not wrong, f"AutoTokenizer, {name}: our text back" + (f", not {wrong[:5]!r}" if wrong else ""))
            check_imported_again(checks, program, name, folder, lines, ours)
    return folder, spm


def check_imported_again(checks, program, name, folder, lines, ours):
    """From tokenizer.json alone, as transformers saves a directory."""
    import sentencepiece
    os.remove(os.path.join(folder, "tokenizer.model"))
    program.run("import", "--from", folder, "-o", name + "-again", "--quiet")
    again = sentencepiece.SentencePieceProcessor(model_file=os.path.join(program.folder, name + "-again", "vocab.spm"))
    wrong = [line for line, ids in zip(lines, ours) if again.encode(line) + [again.eos_id()] != ids]
    checks.say(not wrong, f"{name}, imported from tokenizer.json: {len(lines) - len(wrong)} of {len(lines)} lines have our ids"
               + (f", not {wrong[:5]!r}" if wrong else ""))


# ---- the normal form ----

def map_entries(blob):
    """{text: what it becomes} of a compiled character map, which is a double array of darts-clone and texts."""
    size = struct.unpack_from("<I", blob)[0]
    units, texts = struct.unpack_from(f"<{size // 4}I", blob, 4), blob[4 + size:]
    below = lambda at: at ^ ((units[at] >> 10) << ((units[at] & 1 << 9) >> 6))
    entries, open_nodes = {}, [(0, b"")]
    while open_nodes:
        at, text = open_nodes.pop()
        base = below(at)
        if units[at] >> 8 & 1:
            begin = units[base] & 0x7fffffff
            entries[text.decode()] = texts[begin:texts.index(b"\0", begin)].decode()
        open_nodes += [(base ^ c, text + bytes([c])) for c in range(1, 256)
                       if (base ^ c) < len(units) and units[base ^ c] & 0x800000ff == c]
    return entries


def check_characters_that_stand_alone(checks, steps, characters):
    """Those that the steps put no separator before: Unicode never composes them with one before, nor reorders them, nor puts them into a
    grapheme cluster that begins with another."""
    import re

    import regex
    pattern = next(step["pattern"]["Regex"] for step in steps if step.get("content") == "\ufdd0\ufdd0")
    ranges = re.sub(r"\\x\{(\w+)\}", lambda digits: re.escape(chr(int(digits[1], 16))), pattern[pattern.index("[^"):-1])
    separated = re.compile(ranges)
    parts = [unicodedata.decomposition(c).split() for c in characters]
    seconds = {chr(int(part[1], 16)) for part in parts if len(part) == 2 and not part[0].startswith("<")}
    alone = [c for c in characters if not separated.match(c)]
    wrong = [c for c in alone if unicodedata.combining(c) or c in seconds or regex.fullmatch(r"\X", "a" + c)]
    checks.say(len(alone) > 100000 and not wrong, f"{len(alone)} characters stand alone as Unicode says" +
               (f", but not {wrong[:5]!r}" if wrong else ""))


def check_normal_forms(checks, folder, spm):
    """Every character and every entry of the map, between letters and alone; entries with further marks; texts of chance."""
    import base64
    import json

    from tokenizers import Tokenizer
    path = os.path.join(folder, "tokenizer.json")
    normalizer = Tokenizer.from_file(path).normalizer
    with open(path, encoding="utf-8") as file:
        steps = json.load(file)["normalizer"]["normalizers"]
    blob = next(base64.b64decode(step["precompiled_charsmap"]) for step in steps if step["type"] == "Precompiled")
    entries = map_entries(blob)
    # Assumption of the steps: one by one and then NFC is what SentencePiece does at once.
    wrong = [text for text, value in entries.items()
             if unicodedata.normalize("NFC", "".join(entries.get(c, c) for c in text) if len(text) > 1 else value) != value]
    checks.say(not wrong, f"the {len(entries)} entries of the character map compose as Unicode does" + (f", not {wrong[:5]!r}" if wrong else ""))
    characters = [chr(c) for c in range(1, 0x110000) if not 0xd800 <= c < 0xe000]
    check_characters_that_stand_alone(checks, steps, characters)
    choice = random.Random(7)
    marks = [c for c in characters if unicodedata.category(c)[0] == "M"] + ["\n", "\r", "\u200d", "\u0e33"]
    lasts = sorted({c for text in entries if len(text) > 1 for c in text[1:]})
    texts = sorted(entries)
    pools = [characters, marks, lasts, texts, list("aeou ½"), ["\ufdd0", "\ufdd1", "\x01", " ", "▁"]]
    sets = {
        "characters": [c for c in characters] + ["x" + c + "y" for c in characters],
        "entries": texts + ["x" + text + "y" for text in texts],
        "entries with marks": [choice.choice(texts) + "".join(choice.choice(choice.choice([lasts, marks])) for _ in range(choice.randint(1, 3)))
                               for _ in range(100000)],
        "texts of chance": ["".join(choice.choice(choice.choice(pools)) for _ in range(choice.randint(1, 8))) for _ in range(100000)],
    }
    for name, each in sets.items():
        wrong = [text for text in each if normalizer.normalize_str(text) != spm.normalize(text)]
        checks.say(not wrong, f"normal form of {len(each)} {name}: {len(each) - len(wrong)} as SentencePiece's"
                   + (f", not {wrong[:5]!r}" if wrong else ""))
