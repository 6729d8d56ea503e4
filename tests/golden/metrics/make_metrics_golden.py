#!/usr/bin/env python3
"""Writes metrics_golden.json: segments in many scripts with the scores of sacreBLEU (pip install sacrebleu==2.6.0).

Usage: make_metrics_golden.py OUTPUT [RANDOM_CASES]
"""
import json
import random
import sys

from sacrebleu.metrics import BLEU, CHRF, TER

CASES = {
    "german": (
        ["Der Hund läuft schnell über die Straße.", "Zwei Männer – einer alt, einer jung – sitzen.",
         "Er sagte: „Ich komme um 8.30 Uhr.“", "Das kostet 1.234,56 €, also ca. 5% mehr."],
        ["Der Hund rennt schnell über die Straße.", "Zwei Männer – ein alter, ein junger – sitzen da.",
         "Er sagte: „Ich komme um 8:30 Uhr.“", "Das kostet 1.234,56 €, also etwa 5 % mehr."]),
    "english": (
        ["A well-known man's dog isn't here, is it?", "He paid $1,000.50 in 2020-2021 (or later).",
         "U.S. and E.U. leaders met at 10 a.m..", "\"Quoted\" 'text' -- and dashes - here."],
        ["A well-known man's dog is not here, is it?", "He paid $1,000.50 in 2020-2021, or later.",
         "U.S. and E.U. leaders met at 10 a.m.", "\"Quoted\" 'text' - and dashes -- there."]),
    "chinese": (
        ["你好，世界！今天天气很好。", "他在2020年3月买了3.5公斤苹果。", "我们　去　北京"],
        ["你好，世界！今天天气不错。", "他在2020年3月买了三公斤苹果。", "我们 去 北京。"]),
    "arabic": (
        ["مرحبا بالعالم، كيف حالك؟", "الكتاب على الطاولة.", "وصل ٣٫٥ مليون زائر"],
        ["مرحبا أيها العالم، كيف حالك؟", "الكتاب فوق الطاولة.", "وصل ٣٫٥ مليون زائر."]),
    "emoji": (
        ["I ❤️ you 😀😀!", "👩‍👩‍👧‍👦 family", "thumbs 👍🏽 up"], ["I ❤️ you 😀!", "👩‍👩‍👧 family", "thumbs 👍 up"]),
    "combining": (
        ["cafe\u0301 nai\u0308ve re\u0301sume\u0301", "é e\u0301", "हिन्दी में लिखा है।"],
        ["café naïve re\u0301sume\u0301", "e\u0301 é", "हिंदी में लिखा है।"]),
    "entities": (
        ["a &lt;b&gt; c &amp; d &quot;e&quot;", "&amp;lt; &amp;amp; x&y;", "x <skipped> y<skipped>z", "&apos; &#39; &nbsp;"],
        ["a <b> c & d \"e\"", "&lt; &amp; x & y ;", "x y z", "' ' &nbsp;"]),
    "numbers": (
        ["1,000,000.00 3.14. .5 5. ,5 5,", "10-20 1-a a-1 -5 5- --5", "1.2.3,4 v1.0-rc.2 12:30", "a.b.c ... ,,, .,.,"],
        ["1,000,000.00 3.14 . .5 5. ,5 5 ,", "10-20 1 -a a-1 -5 5 - - -5", "1.2.3,4 v1.0-rc2 12:30", "a. b. c …,,, .,.,"]),
    "hyphens": (
        ["state-of-the-art soft\u00adhyphen", "non\u2011breaking – en — em", "line-\nbreak and\nnewline", "2-3-4 -"],
        ["state-of-the-art softhyphen", "non-breaking - en -- em", "linebreak and newline", "2-3-4-"]),
    "spaces": (
        ["  leading and trailing  \t", "non\u00a0breaking\u2009thin\u3000wide\u200bzero", "a\u2028b\u2029c\u0085d\x1ce", "tab\tbed \r"],
        ["leading and trailing", "non breaking thin wide\u200bzero", "a b c d e", "tab bed"]),
    "empty_hypotheses": (["", "A man sleeps.", " "], ["A dog runs.", "A man sleeps.", "Nothing here."]),
    "empty_references": (["A dog runs.", "A man sleeps."], ["", "A man sleeps."]),
    "all_empty_hypotheses": (["", ""], ["A dog.", "A man."]),
    "no_match": (["xyz uvw abc", "qqq"], ["Der Hund läuft", "eins zwei"]),
    "short": (["a b", "c"], ["a b", "c d"]),
    "no_fourgram": (["the cat sat down here", "a dog"], ["the cat lay down there", "one dog"]),
    "longer_than_reference": (["the the the the the the the cat sat on the mat"], ["the cat sat on the mat"]),
    "identical": (["Exactly the same, 100%!", "Zweite Zeile."], ["Exactly the same, 100%!", "Zweite Zeile."]),
    "case": (
        ["DER HUND LÄUFT ÜBER DIE STRASSE", "ÀÉÎÕÜ ŁÓDŹ ẞ", "ΟΔΥΣΣΕΥΣ ΣΑΣ Σ", "İSTANBUL IĞDIR", "МОСКВА ԱԲԳ ႠႡ Ꭰ 𐐀"],
        ["der hund läuft über die strasse", "àéîõü łódź ß", "οδυσσευς σας σ", "i̇stanbul iğdir", "москва աբգ ⴀⴁ ꭰ 𐐨"]),
    "cyrillic_japanese_thai": (
        ["Привет, мир! Как дела?", "これはペンです。「はい」と言った。", "สวัสดีชาวโลก"],
        ["Привет, мир. Как твои дела?", "これは本です。「はい」と言った。", "สวัสดีชาวโลก ครับ"]),
    "moved_words": (
        ["in the morning the old man reads the paper slowly", "yesterday I bought two books and a pen in town",
         "e f g h a b c d", "a b a b a b c", "one two three four five six seven eight nine ten eleven twelve", "x y z " * 30, "q"],
        ["the old man slowly reads the paper in the morning", "in town I bought a pen and two books yesterday", "a b c d e f g h",
         "c b a b a b a", "twelve one two three four five six seven eight nine ten eleven", "z x y " * 28, "p q r s t u v " * 12]),
    "punctuation_of_many_scripts": (
        ["Warum – „so“? «Oui», dit-il… 5·3 ‰ 3′", "قال: «نعم»، ثم ذهب؟ ١٢٫٥٪", "वह गया। १२,३४५ रु॰ है॥", "ราคา ฿1,234.50 ฯลฯ", "他说：“３．５％”、《书》※→☆",
         "𝔘nicode 😀+🇩🇪 ½²Ⅷ ①", "a_b $5 ^x` ~y |z <w> 1+1=2 ¬± ×÷", "\ufeffthin\u2009space\u2028line", "བོད་ཡིག། ភាសាខ្មែរ។"],
        ["Warum - „so“? «Oui» dit-il … 5·4 ‰ 3′", "قال «نعم»؛ ثم ذهب؟ ١٢٫٦٪", "वह गया। १२,३४६ रु॰ है॥", "ราคา ฿1,234.75 ฯลฯ", "他说: “３．６％”、《书》※→★",
         "𝔘nicode 😀 + 🇩🇪 ½²Ⅶ ②", "a_b $6 ^x` ~y |z <v> 1+1=3 ¬± ×", "\ufeffthin space line", "བོད་ཡིག །ភាសា ខ្មែរ។"]),
    "chinese_words_and_latin": (
        ["使用GPT-4和Python3.11，准确率为97.5%。", "（见图1）“人工智能”——AI——很重要！", "𠀀𠀁㐂ㄅㄆ㈱㍿Ａ，Ｂ。ﾊﾝｶｸ", "A股上涨1,234.56点,成交额5-6亿"],
        ["使用GPT-4与Python 3.11，准确率达97.5%。", "（见图2）“人工智能”—AI—很重要。", "𠀀𠀂㐂ㄅㄇ㈱㌀Ａ、Ｂ。ﾊﾝｶ", "A股上涨1,234.65点, 成交额5-7亿"]),
    "ascii_punctuation": (
        ["!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "a!b\"c#d$e%f&g'h(i)j*k+l,m-n.o/p", "http://a.b/c?d=e&f=g user@host.org"],
        ["! \" # $ % & ' ( ) * + , - . / : ; < = > ? @ [ \\ ] ^ _ ` { | } ~", "a ! b c d e f g h i j k l m n o p",
         "http://a.b/c?d=e user@host.org"]),
}
PIECES = ["a", "b", "Hund", "der", "the", ".", ",", "-", "1", "23", "4.5", "6,7", "&amp;", "&lt;", "&quot;", "&", ";", "<skipped>", "!", "?",
          "'", "\"", "(", ")", "é", "e\u0301", "ß", "Ü", "你", "好", "。", "،", "م", "ر", "😀", "\u00a0", "\u3000", "\u200b", "\u2009", "\t",
          " ", " ", " ", " ", " ", " ", "\u0301", "/", "$", "%", "…", "–", "-\n", "\n", "Σ", "σ", "À"]


def random_case(rng):
    def text(n):
        return "".join(rng.choice(PIECES) for _ in range(n))
    references = [text(rng.randrange(0, 30)) for _ in range(rng.randrange(1, 6))]
    hypotheses = []
    for reference in references:
        parts = reference.split(" ")
        parts = [text(2) if rng.random() < 0.15 else part for part in parts if rng.random() > 0.1]
        hypotheses.append(" ".join(parts))
    return hypotheses, references


TOKENIZERS = ["zh", "intl", "char"]


def bleu_row(hypotheses, *references, **options):
    s = BLEU(**options).corpus_score(hypotheses, list(references))
    return dict(score=s.score, precisions=s.precisions, bp=s.bp, hypothesis_length=s.sys_len, reference_length=s.ref_len,
                matches=[int(c) for c in s.counts], totals=[int(c) for c in s.totals], text=str(s))


def rotated(references):
    """A second reference of every line: the first half of its reference, then the next line's."""
    following = references[1:] + references[:1]
    return [own[:len(own) // 2] + " " + other for own, other in zip(references, following)]


def row(name, hypotheses, references):
    return dict(
        name=name, hypotheses=hypotheses, references=references,
        bleu=bleu_row(hypotheses, references),
        bleu_lowercase=bleu_row(hypotheses, references, lowercase=True),
        bleu_no_tokenizer=bleu_row(hypotheses, references, tokenize="none"),
        bleu_effective=bleu_row(hypotheses, references, effective_order=True),
        bleu_unsmoothed=bleu_row(hypotheses, references, smooth_method="none"),
        **{f"bleu_{name}": bleu_row(hypotheses, references, tokenize=name) for name in TOKENIZERS},
        more_references=rotated(references),
        bleu_two_references=bleu_row(hypotheses, references, rotated(references)),
        chrf_two_references=CHRF().corpus_score(hypotheses, [references, rotated(references)]).score,
        chrf=CHRF().corpus_score(hypotheses, [references]).score,
        chrf_lowercase=CHRF(lowercase=True).corpus_score(hypotheses, [references]).score,
        ter=TER().corpus_score(hypotheses, [references]).score,
        ter_two_references=TER().corpus_score(hypotheses, [references, rotated(references)]).score)


def main():
    rng = random.Random(1)
    rows = [row(name, *segments) for name, segments in CASES.items()]
    rows += [row(f"random_{i}", *random_case(rng)) for i in range(int(sys.argv[2]) if len(sys.argv) > 2 else 12)]
    hypotheses = sum((c[0] for c in CASES.values()), [])
    references = sum((c[1] for c in CASES.values()), [])
    rows.append(row("everything", hypotheses, references))
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump(rows, out, ensure_ascii=True, indent=0)
        out.write("\n")


main()
