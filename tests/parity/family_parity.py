#!/usr/bin/env python3
"""Every decoder-only family that can be imported, from its own class of transformers and back.

    python3 tests/parity/family_parity.py [--translate-train build/release/translate-train] [--family NAME ...] [--write]

For each family, configurations that import_cases.py draws: random weights, settings of the family, types of weights, one file or
several. The imported model gives the log-probabilities of given ids to 1e-4 a token and the greedy continuations of transformers. The
exported directory loads in the family's class (Mistral and Phi-3: Llama's, with a window Mistral's) with the same log-probabilities. A LoRA adapter that
translate-train trained gives the same in PEFT, on the ORIGINAL directory (Phi-3, whose matrices are joined: on the exported one).

Prints a table. --write: puts it into docs/lab/interop-notes.md between its two marks. Without it, and with all families and the usual
number of configurations, the families, classes and counts of the page must be those of the run.

The environment and the exit codes are as in export_parity.py.
"""
import os
import random
import re
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import export_parity as parity
import import_cases

FAMILIES = [family for family in import_cases.FAMILIES if family not in import_cases.TRANSLATES]
NOTES = os.path.join(parity.ROOT, "docs/lab/interop-notes.md")
BEGIN, END = "<!-- family_parity.py writes this table -->\n", "<!-- end of the table -->\n"
HEAD = ("| family | configurations | log-probability of a token | greedy | exported as, its log-probability | LoRA in PEFT |\n"
        "|---|---|---|---|---|---|\n")
ROWS, LONGEST = 20, 12


class Gaps:
    """The largest differences of a family."""
    def __init__(self):
        self.imported = self.exported = self.adapter = 0.0
        self.same = self.texts = self.configurations = 0
        self.classes = set()

    def row(self, family):
        gap = lambda value: f"{value:.0e}"
        return (f"| {family} | {self.configurations} | {gap(self.imported)} | {self.same} of {self.texts} | "
                f"{', '.join(sorted(self.classes))}, {gap(self.exported)} | {gap(self.adapter)} |\n")


def rows_of(number, tokens):
    draw = random.Random(number)
    row = lambda: [draw.randrange(260, tokens) for _ in range(draw.randint(3, 14))]
    return [row() for _ in range(ROWS)], [row() + [2] for _ in range(ROWS)]


class Family:
    def __init__(self, program, checks, spm_file):
        import sentencepiece
        self.program, self.checks, self.spm_file = program, checks, spm_file
        self.spm = sentencepiece.SentencePieceProcessor(model_file=spm_file)

    def lines(self, rows):
        return [" ".join(map(str, row)) for row in rows]

    def scores(self, source, target, *model):
        for side, rows in (("ids.src", source), ("ids.trg", target)):
            parity.write_lines(os.path.join(self.program.folder, side), self.lines(rows))
        lines = self.program.run("score", "--ids", "-t", "ids.src", "ids.trg", "--device", "cpu", "--quiet", "-m", *model)
        return [float(line) for line in lines]

    def gap(self, label, ours, theirs, target):
        gap = max(abs(a - b) / len(row) for a, b, row in zip(ours, theirs, target))
        self.checks.say(gap <= parity.LOG_PROBABILITY_TOLERANCE, f"{label}: a token differs by at most {gap:.1e}")
        return gap

    def check(self, case, gaps):
        import torch
        import transformers
        from peft import PeftModel
        tokens = len(self.spm)
        case.spare, case.resaved, case.vocabulary = 0, False, "bpe"
        case.spm = self.spm_file
        model = case.save(tokens)
        if case.refused_by is not None:
            return False
        case.save_tokenizer(self.spm)
        name, run = case.name, self.program.run
        label = f"{case.name}: " + ", ".join(text for text in case.about if text)
        run("import", "--from", case.folder, "-o", name + "-imported", "--quiet")
        source, target = rows_of(case.number, tokens)
        ours = self.scores(source, target, name + "-imported")
        gaps.imported = max(gaps.imported, self.gap(label, ours, parity.lm_log_probabilities(model, source, target), target))
        never = [i for i in range(tokens) if self.spm.is_unknown(i) or self.spm.is_control(i) and i != 2]
        import_cases.LONGEST = LONGEST
        theirs = self.lines(case.generated(model, row, never) for row in source)
        texts = run("translate", "-m", name + "-imported", "--ids", "--end-source", "off", "--beam-size", "1", "--normalize", "0",
                    "--max-length", str(LONGEST), "--device", "cpu", "--quiet", lines=self.lines(source))
        self.checks.translations(label, texts, theirs)
        gaps.same += sum(a == b for a, b in zip(texts, theirs))
        gaps.texts += len(theirs)

        form = "hf-gpt2" if case.family == "gpt2" else "hf-llama"
        exported = os.path.join(self.program.folder, name + "-exported")
        run("export", "-m", name + "-imported", "--to", form, "-o", exported, "--quiet")
        again, info = transformers.AutoModelForCausalLM.from_pretrained(exported, output_loading_info=True, dtype=torch.float32)
        self.checks.say(not info["missing_keys"] and not info["unexpected_keys"], f"{label}: every tensor of {type(again).__name__}")
        gaps.classes.add(type(again).__name__)
        gaps.exported = max(gaps.exported, self.gap(label + ": exported", ours, parity.lm_log_probabilities(again.eval(), source, target), target))

        run("train", "-t", "train.src", "train.trg", "--model", name + "-lora", "--pretrained-model", name + "-imported", "--lora-rank", "2",
            "--after", "4u", "--mini-batch-words", "300", "--lr-warmup", "1", "--learn-rate", "0.01", "--device", "cpu", "--cpu-threads", "1",
            "--quiet")
        base = exported if case.family == "phi3" else case.folder
        kind = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        adapted = PeftModel.from_pretrained(kind, os.path.join(self.program.folder, name + "-lora", "adapter")).eval()
        ours_adapted = self.scores(source, target, name + "-imported", "--adapter", name + "-lora")
        change = max(abs(a - b) / len(row) for a, b, row in zip(ours, ours_adapted, target))
        self.checks.say(change > 1e-3, f"{label}: the adapter changes a token by up to {change:.2g}")
        gaps.adapter = max(gaps.adapter, self.gap(label + ": adapter in PEFT", ours_adapted,
                                                  parity.lm_log_probabilities(adapted, source, target), target))
        gaps.configurations += 1
        for kind in ("-imported", "-exported", "-lora", ""):
            shutil.rmtree(os.path.join(self.program.folder, name + kind))
        return True


def without_gaps(table):
    return re.sub(r"\de[+-]\d+", "", table)


def main():
    parser = parity.argument_parser(__doc__)
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--configurations", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the table into docs/lab/interop-notes.md")
    arguments = parser.parse_args()
    parity.enter(arguments, [*parity.PACKAGES, "peft==0.21.2"])
    rows = []
    with parity.workplace(arguments) as (program, train, _, _):
        checks = parity.Checks()
        spms = import_cases.vocabularies(program.folder, [side for pair in train[:1500] for side in pair])
        family = Family(program, checks, spms["bpe"])
        for name in arguments.family:
            gaps, number = Gaps(), import_cases.FAMILIES.index(name)
            while gaps.configurations < arguments.configurations:
                family.check(import_cases.Case(number, program, spms), gaps)
                number += len(import_cases.FAMILIES)
            rows.append(gaps.row(name))
            print(rows[-1], end="", flush=True)
    table = HEAD + "".join(rows)
    print(table, end="")
    with open(NOTES, encoding="utf-8") as file:
        before, rest = file.read().split(BEGIN)
    now, after = rest.split(END)
    whole = arguments.family == FAMILIES and arguments.configurations == parser.get_default("configurations")
    if arguments.write and checks.failed == 0:
        with open(NOTES, "w", encoding="utf-8") as file:
            file.write(before + BEGIN + table + END + after)
    elif whole:
        checks.say(without_gaps(now) == without_gaps(table), "the table of docs/lab/interop-notes.md has these families, classes and counts")
    print("all equal" if checks.failed == 0 else f"{checks.failed} checks failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
