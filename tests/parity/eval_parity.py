#!/usr/bin/env python3
"""translate-train eval against sacreBLEU: BLEU by every tokenizer with its counts and its signature, chrF2, TER, several references,
bootstrap intervals and the paired test. The text: damaged sentences with odd characters, and messages of Django in its languages.

    python3 tests/parity/eval_parity.py [--translate-train build/release/translate-train]

Needs nothing: the packages go into a separate environment (--environment, kept between runs). Exit codes: 0 all equal, 1 not,
77 the packages cannot be had here.
"""
import argparse
import glob
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

PACKAGES = ["sacrebleu==2.6.0", "Django==5.2.19", "sentencepiece==0.2.3", "mecab-python3==1.0.12", "ipadic==1.0.0"]
TOKENIZERS = ["13a", "none", "zh", "intl", "char", "ja-mecab"]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/tools"))
import own_environment

# Each: sentences of one kind. Hypotheses are made of them by damage(), with a separate seed.
SENTENCES = {
    "english": ["The old bridge was closed for repairs.", "She reads two newspapers every morning, but never on Sundays.",
                "Nobody knew why the lights went out.", "A dog ran across the wet street and barked at us."],
    "mixed_case": ["NATO and the EU met in BRUSSELS.", "iPhone, eBay and McDonald's are Names.", "THE END of the Story",
                   "Ärger über ÄRZTE in ÖSTERREICH"],
    "numbers": ["It cost 1,234,567.89 euros in 2019.", "From 3.5% to 12,5 %: a rise of 9-10 points.", "Call +49-30-123456 at 8:30, room 4.2b.",
                "The ratio is 16:9, not 4/3, i.e. 1.78.", "In 1990-1995, 5-year-olds got $3.- each."],
    "quotes": ["\"Stop!\", he said - 'now'.", "„Warum?“ fragte sie; «pourquoi» répondit-il…", "It’s John’s “idea”, isn’t it?",
               "(See [3], {4} and <5>.) #tag @home a_b ~c ^d `e` $f |g \\h"],
    "html": ["Fish &amp; chips &lt;b&gt;bold&lt;/b&gt; &quot;quoted&quot;", "a &apos;b&apos; &#39;c&#39; &nbsp;d", "x < y > z & w",
             "<skipped> nothing here <skipped>", "&amp;quot; twice &amp;amp; more"],
    "chinese": ["今天天气很好，我们去公园散步。", "他说：“你好！”然后离开了。", "价格是１２３．４５元（含税）。", "这本书有300页，很有意思。"],
    "arabic": ["ذهب الولد إلى المدرسة صباحًا.", "هل تريد قهوة، أم شاي؟", "السعر ١٢٣٫٤٥ ريال؛ شكرًا!", "كتب «رسالة» طويلة في 2020."],
    "devanagari": ["राम घर गया।", "क्या आप हिन्दी बोलते हैं?", "कीमत १,२३४ रुपये है, ठीक है।", "यह एक अच्छी किताब है॥"],
    "emoji": ["Great job 👍🏽👍!", "👨‍👩‍👧‍👦 family time ❤️", "I 😀 you 😀😀 😀, ok?", "flag 🇩🇪 and 🏴‍☠️ pirate"],
    "accents": ["naïve café — déjà vu", "e\u0301tude and \u00e9tude differ", "straße, STRASSE, ẞ", "ŒUVRE ﬁne ½ Ⅷ ＡＢＣ"],
    "spaces": ["  two  spaces  inside ", "tab\there and\u00a0no-break\u3000ideographic", "trailing space ", "\u2009thin\u200bzero\ufeffwidth"],
    "russian": ["Привет, мир! Как дела?", "В 2021 году — 15,3 % больше.", "«Да», — сказал он.", "Москва - столица России."],
    "japanese_korean": ["私は学生です。", "東京タワーは333メートルだ。", "안녕하세요, 반갑습니다!", "가격은 1,000원입니다."],
    "punctuation_only": ["...", "!!! ???", "-- - ---", ", . , .", "1.", ".5", "5,", "-"],
}
EXTRA = {  # hypotheses, references
    "empty_lines": (["", "some words here", "", "the last line"], ["a reference", "", "", "the last line"]),
    "all_empty_hypotheses": (["", "", ""], ["a b c d", "e f", "g"]),
    "identical": (["the same five words here"] * 3, ["the same five words here"] * 3),
    "nothing_in_common": (["aaa bbb ccc ddd", "eee"], ["www xxx yyy zzz", "vvv"]),
    "short": (["a", "b c"], ["a", "b d"]),
    "one_line": (["It is , well , a test ."], ["It is, well, a test."]),
}


def damage(sentence, choice, between=" ", most=3):
    """A translation that is partly right: words left out, doubled, exchanged, in other case, letters lost, spaces about. With
    between="" the same happens to characters."""
    words = sentence.split(" ") if between else list(sentence)
    for _ in range(choice.randint(0, most)):
        at = choice.randrange(len(words)) if words else 0
        kind = choice.randrange(6)
        if not words:
            break
        if kind == 0:
            del words[at]
        elif kind == 1:
            words.insert(at, words[at])
        elif kind == 2:
            other = choice.randrange(len(words))
            words[at], words[other] = words[other], words[at]
        elif kind == 3:
            words[at] = words[at].upper()
        elif kind == 4:
            words[at] = words[at][1:]
        else:
            words[at] = words[at].replace(".", " .").replace(",", " ,")
    return between.join(words)


def pairs():
    for number, (name, sentences) in enumerate(SENTENCES.items()):
        choice = random.Random(number)
        references = [choice.choice(sentences) + choice.choice(["", " " + choice.choice(sentences)]) for _ in range(40)]
        yield name, [damage(reference, choice) for reference in references], references
    choice = random.Random(99)
    every = [sentence for sentences in SENTENCES.values() for sentence in sentences]
    references = [choice.choice(every) for _ in range(300)]
    yield "everything", [damage(reference, choice) for reference in references], references
    for name, (hypotheses, references) in EXTRA.items():
        yield name, hypotheses, references


def messages(path):
    """Original to translation, of a GNU .mo file: seven numbers, then tables of (length, position)."""
    with open(path, "rb") as file:
        data = file.read()
    order = "<" if data[:4] == b"\xde\x12\x04\x95" else ">"
    count, originals, translations = struct.unpack(order + "3I", data[8:20])

    def text(table, index):
        length, position = struct.unpack_from(order + "2I", data, table + 8 * index)
        return data[position:position + length].decode("utf-8").split("\0")[0]  # the first form of a plural
    return {text(originals, i): text(translations, i) for i in range(count)}


def django_messages():
    """Of every language: its messages by their English text, those that are one line."""
    import django
    languages = {}
    root = os.path.dirname(django.__file__)
    for path in sorted(glob.glob(f"{root}/conf/locale/*/LC_MESSAGES/django.mo") +
                       glob.glob(f"{root}/contrib/*/locale/*/LC_MESSAGES/*.mo")):
        lines = languages.setdefault(path.split(os.sep)[-3], {})
        for original, line in messages(path).items():
            if original and line and line == " ".join(line.splitlines()):
                lines[original] = line
    return languages


def real_pairs(languages, lines_of_each):
    """Of every language: damaged messages and the messages."""
    for number, (name, lines) in enumerate(sorted(languages.items())):
        choice = random.Random(1000 + number)
        references = sorted(lines.values(), key=lambda line: (-len(line), line))[:lines_of_each]  # sentences before single words
        if len(references) < 10:
            continue
        few_spaces = sum(line.count(" ") for line in references) < 0.08 * sum(map(len, references))
        yield name, [damage(line, choice, "" if few_spaces else " ", 6) for line in references], references


# Languages that are written so alike that one is a translation of the other.
NEIGHBOURS = [("es", "es_AR", "es_MX", "es_CO", "es_VE"), ("pt", "pt_BR"), ("zh_Hans", "zh_Hant"), ("nb", "nn", "da"), ("id", "ms"),
              ("sr", "sr_Latn"), ("ru", "uk", "be", "bg"), ("hi", "mr", "ne"), ("fa", "ar"), ("ja", "zh_Hant")]


def neighbouring(languages):
    """The first language's messages beside the messages of all others."""
    for names in NEIGHBOURS:
        common = set.intersection(*(set(languages[name]) for name in names))
        yield "-".join(names), [[languages[name][original] for original in sorted(common)] for name in names]


def write_lines(path, lines):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)
    return path


class Program:
    def __init__(self, path, folder):
        self.path, self.folder = path, folder

    def evaluate(self, hypotheses, reference_sets, *flags, baseline=None, json_too=True):
        """eval's JSON object; with json_too=False its text."""
        def file(name, lines):
            return write_lines(os.path.join(self.folder, name), lines)
        command = [self.path, "eval", "--hyp", file("hyp", hypotheses), *flags, "--ref"]
        command += [file(f"ref{i}", lines) for i, lines in enumerate(reference_sets)]
        if baseline is not None:
            command += ["--baseline", file("baseline", baseline)]
        done = subprocess.run(command + ["--metrics", "ter", "--json"] * json_too, capture_output=True, encoding="utf-8")
        if done.returncode != 0:
            sys.exit(f"translate-train eval: exit code {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout) if json_too else done.stdout


class Checks:
    def __init__(self):
        self.count = self.failed = 0

    def compare(self, name, differences, summary):
        """`differences`: lines, none if all is equal."""
        self.count += 1
        self.failed += bool(differences)
        if differences:
            print(f"FAILED  {name}: {summary}", *differences, sep="\n          ", flush=True)
        else:
            print(f"ok      {name}: {summary}", flush=True)


def near(a, b):
    return abs(a - b) <= 1e-9 * max(1, abs(a), abs(b))


def without_version(signature):
    """The parts of a signature, less the program's version and the checksum of a model, which sacreBLEU's has not."""
    return [part for part in str(signature).split("|") if not re.match("(version|trafo|model):", part)]


TER_SCORES = {}


def corpus_ter(hypotheses, reference_sets):
    """sacreBLEU's, which is slow, and does not depend on the tokenizer of BLEU."""
    from sacrebleu.metrics import TER
    key = repr((hypotheses, reference_sets))
    if key not in TER_SCORES:
        TER_SCORES[key] = TER().corpus_score(hypotheses, reference_sets).score
    return TER_SCORES[key]


def compare_scores(checks, name, mine, bleu, chrf, hypotheses, reference_sets):
    theirs = bleu.corpus_score(hypotheses, reference_sets)
    theirs_chrf = chrf.corpus_score(hypotheses, reference_sets)
    theirs_ter = corpus_ter(hypotheses, reference_sets)
    b = mine["bleu"]
    rows = [("BLEU", b["score"], theirs.score), ("chrF2", mine["chrf"]["score"], theirs_chrf.score),
            ("TER", mine["ter"]["score"], theirs_ter),
            ("brevity penalty", b["brevity_penalty"], theirs.bp), ("hypothesis tokens", b["hypothesis_tokens"], theirs.sys_len),
            ("reference tokens", b["reference_tokens"], theirs.ref_len), ("lines", mine["lines"], len(hypotheses)),
            ("references", mine["references"], len(reference_sets))]
    for n in range(4):
        rows += [(f"precision {n + 1}", b["precisions"][n], theirs.precisions[n]), (f"matches {n + 1}", b["matches"][n], theirs.counts[n]),
                 (f"totals {n + 1}", b["totals"][n], theirs.totals[n])]
    differences = [f"{what}: {ours} and {other}" for what, ours, other in rows if not near(ours, other)]
    for metric, own in ((bleu, b), (chrf, mine["chrf"])):
        if without_version(own["signature"]) != without_version(metric.get_signature()):
            differences.append(f"signature: {own['signature']} and {metric.get_signature()}")
    checks.compare(name, differences, f"BLEU {b['score']:.2f} and {theirs.score:.2f}, "
                                      f"chrF2 {mine['chrf']['score']:.2f} and {theirs_chrf.score:.2f}, "
                                      f"TER {mine['ter']['score']:.2f} and {theirs_ter:.2f}")


def check_tokenizers(checks, program, cases, cases_of_letters):
    from sacrebleu.metrics import BLEU, CHRF
    for name, hypotheses, references in cases:
        for tokenizer in TOKENIZERS:
            for lowercase in cases_of_letters:
                flags = ["--tokenize", tokenizer] + ["--lowercase"] * lowercase
                mine = program.evaluate(hypotheses, [references], *flags)
                compare_scores(checks, f"{name} {' '.join(flags)}", mine, BLEU(tokenize=tokenizer, lowercase=lowercase), CHRF(),
                               hypotheses, [references])


def check_subwords(checks, program, cases, languages):
    """flores200 with a SentencePiece model that is made here: sacreBLEU takes the file of that name instead of FLORES-200's."""
    from sacrebleu.metrics import BLEU, CHRF
    text = write_lines(os.path.join(program.folder, "text"), [line for lines in languages.values() for line in list(lines.values())[:100]])
    os.makedirs(os.path.join(program.folder, "models"))
    model = os.path.join(program.folder, "models", "flores200sacrebleuspm")
    subprocess.run([program.path, "vocab", "-t", text, "--dim-vocabs", "6000", "--soft-limit", "-o", model, "--quiet"], check=True)
    for name, hypotheses, references in cases:
        mine = program.evaluate(hypotheses, [references], "--tokenize", "flores200", "--tokenize-model", model)
        compare_scores(checks, f"{name} --tokenize flores200", mine, BLEU(tokenize="flores200"), CHRF(), hypotheses, [references])


def check_several_references(checks, program, cases):
    from sacrebleu.metrics import BLEU, CHRF
    for name, (hypotheses, *reference_sets) in cases:
        for tokenizer in TOKENIZERS:
            mine = program.evaluate(hypotheses, reference_sets, "--tokenize", tokenizer)
            compare_scores(checks, f"{name}, references: {len(reference_sets)}, {tokenizer}", mine, BLEU(tokenize=tokenizer), CHRF(),
                           hypotheses, reference_sets)


def check_text(checks, program, name, hypotheses, references):
    """The line that eval prints without --json: the parts of BLEU as sacreBLEU writes them."""
    from sacrebleu.metrics import BLEU, CHRF
    want = [str(metric.corpus_score(hypotheses, [references])).split(" = ", 1)[1] for metric in (BLEU(), CHRF())]
    lines = program.evaluate(hypotheses, [references], json_too=False).splitlines()
    got = [line.split(" = ", 1)[1] for line in lines]
    checks.compare(f"{name}, as text", [] if got == want else [f"{got} and {want}"], got[0])


def check_bootstrap(checks, program, name, systems, reference_sets, tokenizer, resamples):
    """Mean, interval and p-value, which are random in both programs: they may differ by five standard errors. Of n resamples with
    standard deviation s, the mean has s / sqrt(n). Half the distance of the quantiles at 2.5 and 97.5 % of a normal distribution has
    sqrt(p (1 - p)) / density / sqrt(2) s / sqrt(n) = 1.89 s / sqrt(n). Two programs have sqrt(2) times as much."""
    from sacrebleu.metrics import BLEU, CHRF
    from sacrebleu.significance import PairedTest
    baseline, hypotheses = systems
    mine = program.evaluate(hypotheses, reference_sets, "--tokenize", tokenizer, "--resamples", str(resamples), baseline=baseline)
    metrics = {"BLEU": BLEU(tokenize=tokenizer, references=reference_sets), "chrF2": CHRF(references=reference_sets)}
    signatures, results = PairedTest([("baseline", baseline), ("system", hypotheses)], metrics, references=None, test_type="bs",
                            n_samples=resamples)()
    root = resamples ** 0.5
    for metric, own in (("BLEU", mine["bleu"]), ("chrF2", mine["chrf"])):
        differences = []
        for theirs, ours in zip(results[metric], (own["baseline"], own)):
            s = theirs.ci / 1.96
            if not near(ours["score"], theirs.score):
                differences.append(f"score: {ours['score']} and {theirs.score}")
            if abs(ours["mean"] - theirs.mean) > 5 * 2 ** 0.5 * s / root + 1e-9:
                differences.append(f"mean: {ours['mean']} and {theirs.mean}, s {s}")
            if abs(ours["half_width"] - theirs.ci) > 5 * 2 ** 0.5 * 1.89 * s / root + 1e-9:
                differences.append(f"half width: {ours['half_width']} and {theirs.ci}")
        p = results[metric][1].p_value
        if abs(own["p_value"] - p) > 5 * (2 * p * (1 - p) / resamples) ** 0.5 + 2 / resamples:
            differences.append(f"p-value: {own['p_value']} and {p}")
        if without_version(own["signature"]) != without_version(signatures[metric]):
            differences.append(f"signature: {own['signature']} and {signatures[metric]}")
        theirs = results[metric][1]
        checks.compare(f"{name}, references: {len(reference_sets)}, {metric} of {resamples} resamples", differences,
                       f"{own['mean']:.2f} ± {own['half_width']:.2f} and {theirs.mean:.2f} ± {theirs.ci:.2f}, "
                       f"p {own['p_value']:.4f} and {p:.4f}")
    # --confidence alone draws the same lines.
    alone = program.evaluate(hypotheses, reference_sets, "--tokenize", tokenizer, "--confidence", "--resamples", str(resamples))
    same = all(alone[m][key] == mine[m][key] for m in ("bleu", "chrf") for key in ("score", "mean", "half_width", "signature"))
    checks.compare(f"{name}, --confidence", [] if same else [f"{alone} and {mine}"], f"{alone['bleu']['signature']}")


def check_all_bootstraps(checks, program, languages, resamples):
    # Systems from far apart to alike: by how often a line is damaged at most.
    choice = random.Random(7)
    for language, tokenizer, between, most in (("de", "13a", " ", (12, 2)), ("zh_Hans", "zh", "", (13, 12)), ("th", "char", "", (12, 10)),
                                               ("ar", "intl", " ", (5, 5)), ("hi", "none", " ", (6, 5))):
        references = sorted(languages[language].values(), key=lambda line: (-len(line), line))[:150]
        baseline, system = [[damage(line, choice, between, m) for line in references] for m in most]
        check_bootstrap(checks, program, language, (baseline, system), [references], tokenizer, resamples)
    _, (system, baseline, *reference_sets) = next(neighbouring(languages))
    check_bootstrap(checks, program, "Spanish", (baseline, system), reference_sets, "13a", resamples)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--translate-train", default=os.path.join(ROOT, "build/release/translate-train"))
    parser.add_argument("--environment", default=os.path.join(ROOT, "build/eval-environment"))
    parser.add_argument("--lines", type=int, default=60, help="messages of each language, the longest (60)")
    parser.add_argument("--resamples", type=int, default=4000)
    arguments = parser.parse_args()
    own_environment.enter(arguments.environment, PACKAGES)
    import ipadic
    os.environ["TRAFO_MECAB_DICTIONARY"] = ipadic.DICDIR
    languages = django_messages()
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SACREBLEU"] = folder  # before sacreBLEU is imported
        program = Program(arguments.translate_train, folder)
        check_tokenizers(checks, program, pairs(), (False, True))
        check_tokenizers(checks, program, real_pairs(languages, arguments.lines), (False,))
        check_subwords(checks, program, [*pairs(), *real_pairs(languages, arguments.lines)], languages)
        check_several_references(checks, program, neighbouring(languages))
        for case in pairs():
            check_text(checks, program, *case)
        check_all_bootstraps(checks, program, languages, arguments.resamples)
    print(f"{checks.count - checks.failed} of {checks.count} comparisons are equal")
    sys.exit(checks.failed != 0)


if __name__ == "__main__":
    main()
