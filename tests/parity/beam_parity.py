#!/usr/bin/env python3
"""Beam search at short length limits, penalties and given beginnings of translations, against CTranslate2 and transformers.

    python3 tests/parity/beam_parity.py [--long] [--translate-train build/release/translate-train]

Trains a small model on the demo's corpus (examples/demo) and translates its test lines with several beams and length limits. Checks
for each limit: --n-best N gives N hypotheses of each line, the mean score of the best hypothesis does not fall when the beam grows,
and BLEU is within 0.5 of CTranslate2's with the same model, beam and limit. --long: 500 lines, beams 1, 2, 5, 10 and 20, and five
limits; otherwise 100 lines, three beams and two limits. Then compares repetition penalty, n-grams that may not repeat and given
beginnings: greedy with transformers, beam search with CTranslate2.

Needs nothing: packages go into the environment of export_parity.py. Exit codes: 0 all good, 1 not, 77 the packages cannot be had
here.
"""
import os
import subprocess
import sys
import tempfile

from export_parity import LONGEST, PACKAGES, Checks, Program, argument_parser, batches, enter, read_lines, write_lines

LIMITS = {False: (8, 12), True: (6, 8, 10, 12, 20)}
BEAMS = {False: (1, 5, 20), True: (1, 2, 5, 10, 20)}
BLEU_GAP = 0.5
GREEDY_SAME = 0.98  # two near-equal candidates may change places by rounding
BEAM_SAME = 0.95  # CTranslate2 ends a search when so many hypotheses are finished, ours when none can be better


def demo_corpus(program, arguments):
    """The demo's corpus in the program's folder; test lines and their references."""
    maker = os.path.join(os.path.dirname(os.path.abspath(arguments.translate_train)), "examples/demo-corpus")
    subprocess.run([maker, program.folder], check=True, stdout=subprocess.DEVNULL)
    for name, language in (("train.src", "de"), ("train.trg", "en")):
        os.replace(os.path.join(program.folder, "train." + language), os.path.join(program.folder, name))
    lines = 500 if arguments.long else 100
    return [read_lines(os.path.join(program.folder, "test." + language))[:lines] for language in ("de", "en")]


class Ours:
    def __init__(self, program, run):
        self.program, self.run = program, run

    def hypotheses(self, lines, beam, limit, *flags):
        """A list of (text, score) for each line."""
        output = self.program.run("translate", "-m", self.run, "--beam-size", str(beam), "--n-best", str(beam), "--max-length",
                                  str(limit), "--device", "cpu", "--quiet", *flags, lines=lines)
        result = [[] for _ in lines]
        for line in output:
            number, text, _, score = line.split(" ||| ")
            result[int(number)].append((text, float(score)))
        return result


class CTranslate2:
    def __init__(self, program, run):
        import ctranslate2
        import sentencepiece
        folder = os.path.join(program.folder, run + "-ctranslate2")
        program.run("export", "-m", run, "--to", "ctranslate2", "-o", folder, "--quiet")
        self.spm = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "vocab.spm"))
        self.translator = ctranslate2.Translator(folder, device="cpu", compute_type="float32", intra_threads=1)

    def best(self, lines, beam, limit, prefixes=None, patience=1, **options):
        subwords = lambda texts: [self.spm.encode(text, out_type=str) for text in texts]
        results = self.translator.translate_batch(
            subwords(lines), target_prefix=subwords(prefixes) if prefixes else None, beam_size=beam, max_decoding_length=limit,
            length_penalty=1, patience=patience, disable_unk=True, suppress_sequences=[["<s>"], ["<pad>"]], **options)
        return [self.spm.decode([self.spm.piece_to_id(t) for t in result.hypotheses[0]]) for result in results]


def check_limits(checks, program, ours, theirs, test, reference, long):
    print(f"{'limit':>5} {'beam':>4} {'BLEU':>7} {'CTranslate2':>11} {'mean score':>10}")
    for limit in LIMITS[long]:
        before = None
        for beam in BEAMS[long]:
            found = ours.hypotheses(test, beam, limit)
            mean = sum(hypotheses[0][1] for hypotheses in found) / len(found)
            ours_bleu = program.bleu([hypotheses[0][0] for hypotheses in found], reference)
            # By default CTranslate2 stops when `beam` hypotheses are finished, although an unfinished one may be better.
            their_bleu = program.bleu(theirs.best(test, beam, limit, patience=2 if beam > 1 else 1), reference)
            print(f"{limit:5} {beam:4} {ours_bleu:7.2f} {their_bleu:11.2f} {mean:10.5f}", flush=True)
            what = f"limit {limit}, beam {beam}"
            checks.say(all(len(hypotheses) == beam for hypotheses in found), f"{what}: {beam} hypotheses of each line")
            checks.say(abs(ours_bleu - their_bleu) <= BLEU_GAP, f"{what}: BLEU within {BLEU_GAP} of CTranslate2's")
            checks.say(before is None or mean >= before, f"{what}: the mean score has not fallen")
            before = mean


def transformers_greedy(program, run, lines, **options):
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
    folder = os.path.join(program.folder, run + "-hf")
    if not os.path.isdir(folder):
        program.run("export", "-m", run, "--to", "hf-pegasus", "-o", folder, "--quiet")
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    texts = []
    for some in batches(lines):
        with torch.no_grad():
            output = model.generate(**tokenizer(some, return_tensors="pt", padding=True), max_new_tokens=LONGEST, max_length=None,
                                    num_beams=1, do_sample=False, **options)
        texts += tokenizer.batch_decode(output, skip_special_tokens=True)
    return texts


def check_search(checks, program, run, what, test, ours, theirs):
    """Equal to CTranslate2's, or more probable: a beam search is no exact one, and theirs ends earlier."""
    other = [i for i, (a, b) in enumerate(zip(ours, theirs)) if a.strip() != b.strip()]

    def scores(texts):
        write_lines(os.path.join(program.folder, "search.src"), [test[i] for i in other])
        write_lines(os.path.join(program.folder, "search.trg"), [texts[i] for i in other])
        lines = program.run("score", "-m", run, "-t", "search.src", "search.trg", "--normalize", "--device", "cpu", "--quiet")
        return [float(line) for line in lines]

    worse = sum(a < b - 1e-4 for a, b in zip(scores(ours), scores(theirs))) if other else 0
    checks.say(len(ours) == len(theirs) and worse <= (1 - BEAM_SAME) * len(ours),
               f"{what}: {len(ours) - len(other)} of {len(ours)} translations are the same, {worse} of the others less probable")


def check_rules(checks, program, run, theirs, test, reference):
    for penalty, ngram in (1.3, 0), (1.0, 2), (1.2, 3):
        flags = ["--repetition-penalty", str(penalty), "--no-repeat-ngram-size", str(ngram)]
        options = {"repetition_penalty": penalty, "no_repeat_ngram_size": ngram}
        what = f"repetition penalty {penalty}, n-grams of {ngram}"
        greedy = program.translated(run, test, "--beam-size", "1", *flags)
        checks.translations(f"{what}: transformers, greedy", greedy, transformers_greedy(program, run, test, **options), GREEDY_SAME)
        checks.translations(f"{what}: CTranslate2, greedy", greedy, theirs.best(test, 1, LONGEST, **options), GREEDY_SAME)
        checks.translations(f"{what}: CTranslate2, beam 5", program.translated(run, test, "--beam-size", "5", *flags),
                            theirs.best(test, 5, LONGEST, **options), BEAM_SAME)
    prefixes = [" ".join(line.split()[:i % 4]) for i, line in enumerate(reference)]
    write_lines(os.path.join(program.folder, "prefixes"), prefixes)
    for beam in 1, 5:
        texts = program.translated(run, test, "--beam-size", str(beam), "--prefixes", "prefixes")
        checks.say(all(text.startswith(prefix) for text, prefix in zip(texts, prefixes)), f"beam {beam}: translations begin as given")
        what, others = f"given beginnings: CTranslate2, beam {beam}", theirs.best(test, beam, LONGEST, prefixes)
        if beam == 1:
            checks.translations(what, texts, others, GREEDY_SAME)
        else:
            check_search(checks, program, run, what, test, texts, others)


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--long", action="store_true")
    arguments = parser.parse_args()
    enter(arguments, PACKAGES)
    checks = Checks()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.work or temporary
        os.makedirs(folder, exist_ok=True)
        program = Program(arguments.translate_train, folder, 1000)
        test, reference = demo_corpus(program, arguments)
        run = program.train("run", arguments.updates, "--enc-depth", "2")
        ours, theirs = Ours(program, run), CTranslate2(program, run)
        check_limits(checks, program, ours, theirs, test, reference, arguments.long)
        check_rules(checks, program, run, theirs, test, reference)
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
