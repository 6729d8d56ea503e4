#!/usr/bin/env python3
"""translate-train eval against sacreBLEU: BLEU and chrF2 with its defaults, to two decimals, on pairs of files with odd scripts.

    python3 tests/parity/eval_parity.py [--translate-train build/release/translate-train]

Needs nothing: sacreBLEU goes into an environment of its own (--environment, kept between runs). Exit codes: 0 all equal, 1 not, 77
the package cannot be had here.
"""
import argparse
import os
import random
import subprocess
import sys
import tempfile

PACKAGES = ["sacrebleu==2.6.0"]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/tools"))
import own_environment

# Each: sentences of one kind. Hypotheses are made of them by damage(), with a seed of their own.
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


def damage(sentence, choice):
    """A translation that is partly right: words left out, doubled, exchanged, in other case, letters lost, spaces about."""
    words = sentence.split(" ")
    for _ in range(choice.randint(0, 3)):
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
    return " ".join(words)


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


def ours(program, folder, hypotheses, references, *flags):
    paths = [os.path.join(folder, name) for name in ("hyp", "ref")]
    for path, lines in zip(paths, (hypotheses, references)):
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(line + "\n" for line in lines)
    done = subprocess.run([program, "eval", "--hyp", paths[0], "--ref", paths[1], *flags], capture_output=True, encoding="utf-8")
    if done.returncode != 0:
        sys.exit(f"translate-train eval: exit code {done.returncode}\n{done.stderr}")
    return [float(line.rsplit("= ", 1)[1]) for line in done.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--translate-train", default=os.path.join(ROOT, "build/release/translate-train"))
    parser.add_argument("--environment", default=os.path.join(ROOT, "build/eval-environment"))
    arguments = parser.parse_args()
    own_environment.enter(arguments.environment, PACKAGES)
    from sacrebleu.metrics import BLEU, CHRF
    failed = count = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, hypotheses, references in pairs():
            for flags, bleu in [((), BLEU()), (("--lowercase",), BLEU(lowercase=True))]:
                mine = ours(arguments.translate_train, folder, hypotheses, references, *flags)
                theirs = [bleu.corpus_score(hypotheses, [references]).score, CHRF().corpus_score(hypotheses, [references]).score]
                count += 1
                good = [f"{a:.2f}" for a in mine] == [f"{b:.2f}" for b in theirs]
                failed += not good
                print(f"{'ok      ' if good else 'FAILED  '}{name} {' '.join(flags)}: BLEU {mine[0]:.2f} and {theirs[0]:.2f}, "
                      f"chrF2 {mine[1]:.2f} and {theirs[1]:.2f}", flush=True)
    print(f"{count - failed} of {count} comparisons are equal")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
