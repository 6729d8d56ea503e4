#!/usr/bin/env python3
"""Usage: generate_unicode_categories.py [--check]

Writes two tables of Unicode's characters:

  engine/metrics/generated/unicode_categories.h   which are numbers, punctuation and symbols, from Python's unicodedata; BLEU's
                                                  reference implementation uses the same module
  engine/text/unicode/generated/unicode_data.h    categories, lower case and normal forms for tokenizers, from the package
                                                  unicodedata2 16.0.0 (PyPI); without it this file is left as it is

--check writes nothing and fails if a file is stale. A file of another Unicode version than the module's is not compared; if none is
compared, the exit code is 77.
"""
import pathlib
import re
import sys
import unicodedata

try:
    import unicodedata2
except ImportError:
    unicodedata2 = None

ROOT = pathlib.Path(__file__).resolve().parents[1]
METRICS_FILE = ROOT / "engine/metrics/generated/unicode_categories.h"
TEXT_FILE = ROOT / "engine/text/unicode/generated/unicode_data.h"
TEXT_VERSION = "16.0.0"
WIDTH = 100
SURROGATES = range(0xD800, 0xE000)

# The `tokenizers` library, whose ids are the reference, has categories of Unicode 16 in its regular expressions, normal forms of
# Unicode 9, and the punctuation and the nonspacing marks of Unicode 8. Characters that came later, by table:
AFTER_9 = """7fd 897-89f 8ca-8d3 9fe c3c d3b-d3c eba 1715 1abf-1ace 1df6-1dfa 32ff a7f2-a7f4 a82c ab69 105c9 105e4 10781-10785 10787-107b0
    107b2-107ba 10d24-10d27 10d69-10d6d 10eab-10eac 10efd-10eff 10f46-10f50 10f82-10f85 11070 1133b 11383 11385 1138e 11391 113c5
    113c7-113c8 113ce-113d0 1145e 11839-1183a 11938 1193d-1193e 11943 119e0 11a34 11a47 11a99 11d42 11d44-11d45 11d97 11f41-11f42
    16121-16128 1612f 16d68-16d6a 16ff0-16ff1 1ccd6-1ccf9 1e030-1e06d 1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef
    1f16c 1fbf0-1fbf9"""
PUNCTUATION_AFTER_8 = """61d 9fd a76 c77 c84 1b4e-1b4f 1b7d-1b7f 2e43-2e4f 2e52-2e5d 10d6e 10ead 10f55-10f59 10f86-10f89 113d4-113d5
    113d7-113d8 1144b-1144f 1145a-1145b 1145d 11660-1166c 116b9 1183b 11944-11946 119e2 11a3f-11a46 11a9a-11a9c 11a9e-11aa2 11b00-11b09
    11be1 11c41-11c45 11c70-11c71 11ef7-11ef8 11f43-11f4f 11fff 12ff1-12ff2 16d6d-16d6f 16e97-16e9a 16fe2 1e5ff 1e95e-1e95f"""
PUNCTUATION_OF_8 = "166d 111c9"  # and no longer
MARKS_AFTER_8 = """7fd 897-89f 8ca-8e1 9fe afa-aff b55 c04 c3c d00 d3b-d3c d81 eba ece 180f 1885-1886 1abf-1ace 1df6-1dfb a82c a8c5 a8ff a9bd
    10d24-10d27 10d69-10d6d 10eab-10eac 10efc-10eff 10f46-10f50 10f82-10f85 11070 11073-11074 110c2 111c9 111cf 1123e 11241 1133b
    113bb-113c0 113ce 113d0 113d2 113e1-113e2 11438-1143f 11442-11444 11446 1145e 1182f-11837 11839-1183a 1193b-1193c 1193e 11943
    119d4-119d7 119da-119db 119e0 11a01-11a0a 11a33-11a38 11a3b-11a3e 11a47 11a51-11a56 11a59-11a5b 11a8a-11a96 11a98-11a99 11c30-11c36
    11c38-11c3d 11c3f 11c92-11ca7 11caa-11cb0 11cb2-11cb3 11cb5-11cb6 11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d45 11d47 11d90-11d91 11d95
    11d97 11ef3-11ef4 11f00-11f01 11f36-11f3a 11f40 11f42 11f5a 13440 13447-13455 1611e-16129 1612d-1612f 16f4f 16fe4 1cf00-1cf2d
    1cf30-1cf46 1e000-1e006 1e008-1e018 1e01b-1e021 1e023-1e024 1e026-1e02a 1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef
    1e944-1e94a"""
MARKS_OF_8 = "1734 1171e"  # and no longer
# Lower case of Unicode 15 and 16, which not every Python knows.
LOWER = {0x1C89: 0x1C8A, 0xA7CB: 0x264, 0xA7CC: 0xA7CD, 0xA7DA: 0xA7DB, 0xA7DC: 0x19B} | {c: c + 0x20 for c in range(0x10D50, 0x10D66)}


def characters():
    return (c for c in range(sys.maxunicode + 1) if c not in SURROGATES)


def listed(text):
    codes = set()
    for entry in text.split():
        first, _, last = entry.partition("-")
        codes.update(range(int(first, 16), int(last or first, 16) + 1))
    return codes


def table(entries):
    """The entries in lines of at most WIDTH characters."""
    lines, line = [], "   "
    for entry in entries:
        if len(line) + 1 + len(entry) > WIDTH:
            lines.append(line)
            line = "   "
        line += " " + entry
    return [*lines, line]


def runs(value_of):
    """[first, last, value] of neighbours with one value."""
    found = []
    for code in range(sys.maxunicode + 1):
        value = value_of(code)
        if found and found[-1][2] == value:
            found[-1][1] = code
        else:
            found.append([code, code, value])
    return found


def metrics_header():
    kinds = runs(lambda code: unicodedata.category(chr(code))[0])
    lines = ["// Written by scripts/generate_unicode_categories.py: change that.",
             f"// The general categories N, P and S of Unicode {unicodedata.unidata_version}, as ranges of code points.", "// clang-format off",
             "#pragma once", "", "#include <cstdint>", "", "namespace trafo {", "",
             "// Unicode's letters: N numbers, P punctuation, S symbols.",
             "enum class UnicodeCategory : uint8_t { other, N, P, S };", "",
             "struct UnicodeRange {", "  char32_t first, last;", "  UnicodeCategory category;", "};", "",
             "namespace unicode {", "using enum UnicodeCategory;", "",
             "// Sorted; ranges do not overlap.", "inline constexpr UnicodeRange kCategories[] = {"]
    entries = [f"{{{first:#x}, {last:#x}, {kind}}}," for first, last, kind in kinds if kind in "NPS"]
    return "\n".join([*lines, *table(entries), "};", "", "}  // namespace unicode", "", "}  // namespace trafo"]) + "\n"


def shared_text(texts):
    """A text that has each of the texts somewhere."""
    pool = ""
    for text in sorted(set(texts), key=lambda text: (-len(text), text)):
        if text in pool:
            continue
        overlap = next(size for size in range(len(text) - 1, -1, -1) if pool.endswith(text[:size]))
        pool += text[overlap:]
    return pool


def text_header():
    u = unicodedata2
    names = sorted({u.category(chr(code)) for code in characters()} | {"Cs"})
    categories = runs(lambda code: u.category(chr(code)))

    later = listed(AFTER_9)
    mappings = []  # character, what it decomposes to, flags
    for code in characters():
        text = u.decomposition(chr(code))
        if not text or code in later:
            continue
        parts = text.split()
        compatible = parts[0].startswith("<")
        to = "".join(chr(int(part, 16)) for part in parts[compatible:])
        composes = not compatible and len(to) == 2 and u.normalize("NFC", to) == chr(code)
        mappings.append((code, to, compatible * 1 + composes * 2))
    pool = shared_text(to for _, to, _ in mappings)
    assert len(pool) < 1 << 16
    assert max(len(to) for _, to, _ in mappings) < 1 << 5
    decompositions = [f"{code | len(to) << 21 | flags << 26:#x}," for code, to, flags in mappings]
    begins = [f"{pool.index(to)}," for _, to, _ in mappings]
    classes = [run for run in runs(lambda code: 0 if code in later else u.combining(chr(code))) if run[2]]

    lower = {code: [LOWER[code]] if code in LOWER else [ord(c) for c in chr(code).lower()] for code in characters()}
    assert {code for code, to in lower.items() if len(to) > 1} == {0x130}
    single = [(code, to[0]) for code, to in lower.items() if to != [code] and code != 0x130 and u.category(chr(code)) != "Cn"]

    def of_unicode_8(category, after, no_longer):
        late, early = listed(after), listed(no_longer)
        found = runs(lambda code: code in early or (u.category(chr(code)).startswith(category) and code not in late))
        return table(f"{{{first:#x}, {last:#x}}}," for first, last, yes in found if yes)

    lines = ["// Written by scripts/generate_unicode_categories.py: change that.",
             f"// General categories and lower case of Unicode {u.unidata_version}, normal forms of Unicode 9,",
             "// punctuation and nonspacing marks of Unicode 8: the versions of the `tokenizers` library, so",
             "// that vocabularies give the ids that they were trained with.",
             "// clang-format off", "#pragma once", "", "#include <cstdint>", "", "namespace trafo::unicode_data {", "",
             "// By the number in kCategoryRuns.",
             "inline constexpr const char* kCategoryNames[] = {" + ", ".join(f'"{name}"' for name in names) + "};", "",
             "// First code points of runs of one category, in rising order: the code point times 32, plus the category.",
             "inline constexpr uint32_t kCategoryRuns[] = {",
             *table(f"{first * 32 + names.index(kind)}," for first, _, kind in categories), "};", "",
             "struct Range {", "  char32_t first, last;", "};", "// ASCII's symbols are not among these.",
             "inline constexpr Range kPunctuation[] = {",
             *of_unicode_8("P", PUNCTUATION_AFTER_8, PUNCTUATION_OF_8), "};",
             "inline constexpr Range kNonspacingMarks[] = {", *of_unicode_8("Mn", MARKS_AFTER_8, MARKS_OF_8), "};", "",
             "struct Mapping {", "  char32_t from, to;", "};", "// Sorted. U+0130, whose lower case has two characters, is left out.",
             "inline constexpr Mapping kLowerCase[] = {", *table(f"{{{a:#x}, {b:#x}}}," for a, b in single), "};", "",
             "struct CombiningRange {", "  char32_t first, last;", "  uint8_t combining_class;", "};",
             "inline constexpr CombiningRange kCombining[] = {",
             *table(f"{{{first:#x}, {last:#x}, {value}}}," for first, last, value in classes), "};", "",
             "// The character, the number of its parts times 2^21, flags times 2^26. Sorted by character. One step: parts",
             "// may decompose further.", "inline constexpr uint32_t kDecompositions[] = {", *table(decompositions), "};",
             "inline constexpr uint32_t kCompatible = 1 << 26;  // in NFKC and NFKD alone",
             "inline constexpr uint32_t kComposes = 2 << 26;    // NFC and NFKC compose it",
             "// Of each, where its parts begin in kDecomposed.", "inline constexpr uint16_t kBegins[] = {", *table(begins), "};",
             "inline constexpr char32_t kDecomposed[] = {", *table(f"{ord(c):#x}," for c in pool), "};", "",
             "}  // namespace trafo::unicode_data"]
    return "\n".join(lines) + "\n"


def is_compared(file, module, text):
    """Whether the file is of the module's version; fails if it is and differs."""
    old = file.read_text()
    version = re.search(r"of Unicode ([\d.]+),", old)[1]
    if version != module.unidata_version:
        print(f"{file.name} is of Unicode {version}, {module.__name__} knows {module.unidata_version}: not compared")
        return False
    if old != text:
        sys.exit(f"{file.name} is stale: run scripts/generate_unicode_categories.py and commit what it writes")
    print(f"{file.name} is up to date with Unicode {version}")
    return True


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    files = [(METRICS_FILE, unicodedata, metrics_header)]
    if unicodedata2 is not None and unicodedata2.unidata_version == TEXT_VERSION:
        files.append((TEXT_FILE, unicodedata2, text_header))
    else:
        print(f"{TEXT_FILE.name} needs the package unicodedata2=={TEXT_VERSION}: left as it is")
    if not check:
        for file, _, header in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(header())
    elif not any([is_compared(file, module, header()) for file, module, header in files]):
        sys.exit(77)


if __name__ == "__main__":
    main()
