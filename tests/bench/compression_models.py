"""The models of compression_table.py: how each is made, with translate-train, in the directory --work."""
import gzip
import os
import re
import shutil
import sys
import time
from typing import NamedTuple

from program import TranslateTrain

TEACHER, TINY, STUDENT = "teacher", "tiny", "student"
SAMPLED_TEACHER, SECOND_TEACHER = "teacher, sampled", "teacher, seed 2"
ORIGINAL, DISTILLED, BOTH, OF_THREE = "original", "distilled", "original and distilled", "original and distilled by three teachers"
# The translations of the training text, by who made them.
DISTILLATIONS = {DISTILLED: TEACHER, "distilled, sampled": SAMPLED_TEACHER, "distilled, seed 2": SECOND_TEACHER}
# The parts of a text that a recipe names.
TEXTS = {ORIGINAL: [ORIGINAL], DISTILLED: [DISTILLED], BOTH: [ORIGINAL, DISTILLED], OF_THREE: [ORIGINAL, *DISTILLATIONS]}
CODES = {"int8": [], "int4": ["--bits", "4"], "int4, GPTQ": ["--bits", "4", "--method", "gptq"]}
PLAIN = ["float32", "int8"]
TUNED = "--learn-rate 0.0005 --lr-warmup 100"  # the default of --tuning-flags
SAMPLED = " --sentencepiece-alphas 0.5"
GRADUAL = " --prune-sparsity 0.8 --prune-end 2000 --prune-every 100"


class Recipe(NamedTuple):
    """train: from nothing, to --after. tune: goes on with `base`. prune: `base` without what is needed least.

    In `flags`, {task} is the preset of the teacher, {tuned} what --tuning-flags says, {teacher} and {sampled} the runs of the teacher and
    of the teacher with sampled segmentations, which the recipe then needs. `text` is what is trained on. `forms` are the weights that are measured. `timed`: its speed is measured; models of one shape
    have one speed. factorize: `base` with matrices of low rank. `share`: of the updates of --after or --tuning.
    """
    name: str
    how: str
    base: str
    flags: str
    text: str = ORIGINAL
    forms: list = PLAIN
    timed: bool = False
    share: float = 1


def students(name, flags, text=ORIGINAL):
    """Three seeds: how much training by chance differs decides about small gains."""
    return [Recipe(name + seed.replace(" --", ", "), "train", "", f"--task student-tiny{flags}{seed}", text)
            for seed in ("", " --seed 2", " --seed 3")]


# The order follows the work: models that others wait for come first.
RECIPES = [
    Recipe(TEACHER, "train", "", "--task {task}", forms=["float32", *CODES], timed=True),
    Recipe(SAMPLED_TEACHER, "train", "", "--task {task}" + SAMPLED),
    Recipe(SECOND_TEACHER, "train", "", "--task {task} --seed 2"),
    *students("student, sampled, three teachers by words", SAMPLED + " --teacher {sampled}", OF_THREE),
    *students("student, sampled", SAMPLED),
    *(Recipe(f"teacher, seed {seed}", "train", "", f"--task {{task}} --seed {seed}") for seed in (3, 4, 5)),
    Recipe(TINY, "train", "", "--task tiny", forms=["float32", *CODES], timed=True),
    Recipe("tiny, tuned", "tune", TINY, "{tuned}", forms=["float32", *CODES]),
    Recipe("tiny, --quantize-bits 8", "tune", TINY, "{tuned} --quantize-bits 8"),
    Recipe("tiny, --quantize-bits 4", "tune", TINY, "{tuned} --quantize-bits 4", forms=["float32", "int4"]),
    Recipe("tiny, --quantize-bits 4 from the start", "train", "", "--task tiny --quantize-bits 4", forms=["float32", "int4"]),
    Recipe(STUDENT, "train", "", "--task student-tiny", timed=True),
    Recipe("student, distilled", "train", "", "--task student-tiny", BOTH, forms=["float32", *CODES]),
    Recipe("student, distilled text alone", "train", "", "--task student-tiny", DISTILLED),
    Recipe("teacher, ffn 33 %", "prune", TEACHER, "--ffn 0.33"),
    Recipe("teacher, ffn 33 %, tuned", "tune", "teacher, ffn 33 %", "{tuned}", timed=True),
    Recipe("teacher, ffn 66 %", "prune", TEACHER, "--ffn 0.66"),
    Recipe("teacher, ffn 66 %, tuned", "tune", "teacher, ffn 66 %", "{tuned}", share=0.5),
    Recipe("teacher, ffn 33 % in two steps", "prune", "teacher, ffn 66 %, tuned", "--ffn 0.5"),
    Recipe("teacher, ffn 33 % in two steps, tuned", "tune", "teacher, ffn 33 % in two steps", "{tuned}"),
    Recipe("teacher, ffn 33 %, distilled", "tune", "teacher, ffn 33 %", "{tuned}", BOTH),
    Recipe("teacher, ffn 33 %, by the teacher", "tune", "teacher, ffn 33 %", "{tuned} --teacher {teacher}"),
    Recipe("student, distilled, ffn 50 %", "prune", "student, distilled", "--ffn 0.5"),
    Recipe("student, distilled, ffn 50 %, distilled", "tune", "student, distilled, ffn 50 %", "{tuned}", BOTH, timed=True),
    Recipe("student, distilled, --quantize-bits 4", "tune", "student, distilled", "{tuned} --quantize-bits 4", BOTH,
           forms=["float32", "int4"]),
    Recipe("teacher, heads 50 %", "prune", TEACHER, "--heads 0.5"),
    Recipe("teacher, heads 50 %, distilled", "tune", "teacher, heads 50 %", "{tuned}", BOTH, timed=True),
    Recipe("teacher, half the decoder", "prune", TEACHER, "--layers {encoder} {half_decoder}"),
    Recipe("teacher, half the decoder, distilled", "tune", "teacher, half the decoder", "{tuned}", BOTH, timed=True),
    Recipe("teacher, all three", "prune", TEACHER, "--ffn 0.33 --heads 0.5 --layers {encoder} {half_decoder}"),
    Recipe("teacher, all three, distilled", "tune", "teacher, all three", "{tuned}", BOTH, timed=True),
    Recipe("tiny, distilled", "train", "", "--task tiny", BOTH),
    Recipe("teacher, 80 % zeros", "tune", TEACHER, "{tuned}" + GRADUAL),
    Recipe("teacher, 80 % zeros, distilled", "tune", TEACHER, "{tuned}" + GRADUAL, BOTH),
    Recipe("tiny, 80 % zeros", "tune", TINY, "{tuned}" + GRADUAL),
    Recipe("tiny, 80 % zeros, distilled", "tune", TINY, "{tuned}" + GRADUAL, BOTH),
    Recipe("tiny, 2 of 4", "prune", TINY, "--pattern 2:4 --score wanda"),
    Recipe("tiny, 2 of 4, tuned", "tune", "tiny, 2 of 4", "{tuned} --keep-zeros on"),
    Recipe("teacher, low rank 50 %", "factorize", TEACHER, "--ratio 0.5"),
    Recipe("teacher, low rank 50 %, tuned", "tune", "teacher, low rank 50 %", "{tuned}", timed=True),
    Recipe("teacher, low rank 50 %, distilled", "tune", "teacher, low rank 50 %", "{tuned}", BOTH),
    Recipe("tiny, low rank 50 %", "factorize", TINY, "--ratio 0.5"),
    Recipe("tiny, low rank 50 %, tuned", "tune", "tiny, low rank 50 %", "{tuned}", timed=True),
    Recipe("tiny, shared decoder layers", "train", "", "--task tiny --transformer-tied-layers 1 1 3 3"),
    Recipe("tiny, shared layers", "train", "", "--task tiny --transformer-tied-layers 1 1 3 3 --transformer-tied-encoder-layers 1 1 3 3"),
    Recipe("tiny, layer drop", "train", "", "--task tiny --layer-drop 0.1"),
    Recipe("tiny, layer drop, half the decoder", "prune", "tiny, layer drop", "--layers {encoder} {half_decoder}"),
    Recipe("tiny, half the decoder", "prune", TINY, "--layers {encoder} {half_decoder}"),
    *students("student, sampled, three teachers", SAMPLED, OF_THREE),
    Recipe("teacher, --quantize-bits 8", "tune", TEACHER, "{tuned} --quantize-bits 8"),
    Recipe("student, sampled, by words", "train", "", "--task student-tiny" + SAMPLED + " --teacher {sampled}"),
]

# Pairs of (model, weights) that are compared by paired bootstrap, besides each with the teacher and with its own float32 form.
COMPARED = [
    (("student, distilled", "int8"), (STUDENT, "float32")),
    (("tiny, distilled", "int8"), (TINY, "float32")),
    (("tiny, --quantize-bits 8", "int8"), ("tiny, tuned", "float32")),
    (("tiny, --quantize-bits 4", "int4"), ("tiny, tuned", "float32")),
    (("tiny, --quantize-bits 4", "int4"), ("tiny, tuned", "int4")),
    (("teacher, --quantize-bits 8", "int8"), (TEACHER, "float32")),
    (("tiny, --quantize-bits 4 from the start", "int4"), (TINY, "float32")),
    (("tiny, --quantize-bits 4 from the start", "int4"), (TINY, "int4")),
    (("student, sampled, by words", "int8"), ("student, sampled", "int8")),
    *(((f"student, sampled, {how}{seed}", "int8"), (f"student, sampled{seed}", "int8"))
      for how in ("three teachers", "three teachers by words") for seed in ("", ", seed 2", ", seed 3")),
    (("tiny, shared decoder layers", "float32"), (TINY, "float32")),
    (("tiny, shared layers", "float32"), (TINY, "float32")),
    (("tiny, layer drop", "float32"), (TINY, "float32")),
    (("tiny, layer drop, half the decoder", "float32"), ("tiny, half the decoder", "float32")),
]


TEACHERS = {"teacher": TEACHER, "sampled": SAMPLED_TEACHER}


class Models(TranslateTrain):
    """Makes what is missing; a model that is there already is not made again."""

    def __init__(self, arguments):
        super().__init__(arguments.build)
        self.arguments = arguments
        self.making_ends = time.monotonic() + arguments.making_seconds if arguments.making_seconds else None
        os.makedirs(arguments.work, exist_ok=True)
        self.text = {}
        for name in ("train", "val", "test_2016_flickr"):
            for side in ("de", "en"):
                self.text[f"{name}.{side}"] = self.unpacked(f"{name}.{side}")
        for side in ("de", "en"):
            self.text[f"sample.{side}"] = self.first_lines(f"train.{side}", arguments.calibration, f"sample.{side}")
            self.text[f"line.{side}"] = self.first_lines(f"test_2016_flickr.{side}", 1, f"line.{side}")
            self.text[f"single.{side}"] = self.first_lines(f"test_2016_flickr.{side}", arguments.single, f"single.{side}")

    def path(self, *parts):
        return os.path.join(self.arguments.work, *parts)

    def unpacked(self, name):
        target = self.path(name)
        if not os.path.exists(target):
            with gzip.open(os.path.join(self.arguments.data, f"{name}.gz"), "rb") as source, open(target, "wb") as out:
                shutil.copyfileobj(source, out)
        return target

    def first_lines(self, name, count, target):
        with open(self.text[name], encoding="utf-8") as source:
            lines = [line for _, line in zip(range(count), source)]
        with open(self.path(target), "w", encoding="utf-8") as out:
            out.writelines(lines)
        return self.path(target)

    # ---- texts and the vocabulary that all models share ----

    def vocabulary(self):
        target = self.path("vocab.spm")
        if not os.path.exists(target):
            self.run("vocab", "--train-sets", *self.corpus(ORIGINAL), "--dim-vocabs", str(self.arguments.dim_vocabs), "-o", target,
                     "--quiet")
        return target

    def corpus(self, text):
        return [self.text[f"train.{side}"] if text == ORIGINAL else self.path(f"{text.replace(', ', '-').replace(' ', '-')}.{side}")
                for side in ("de", "en")]

    def distill(self, text):
        """A teacher's translations of the training text; of its 8 best, the nearest to the reference."""
        if not all(os.path.exists(path) for path in self.corpus(text)):
            self.make_run("distill", "-m", self.folder(DISTILLATIONS[text]), "--train-sets", *self.corpus(ORIGINAL), "-o",
                          *self.corpus(text), "--pick", "bleu", "--beam-size", "8", "--mini-batch-words", "16384", "--device",
                          self.arguments.device, "--quiet")

    def train_sets(self, text):
        return [word for one in TEXTS[text] for word in ("--train-sets", *self.corpus(one))]

    # ---- models ----

    def folder(self, name):
        return self.path("models", name.replace(", ", "_").replace(" ", "-").replace("%", "percent"))

    def is_made(self, recipe):
        return os.path.exists(os.path.join(self.folder(recipe.name), "done"))

    @staticmethod
    def needs(recipe):
        """Names of the models and distilled texts that must be there before."""
        teachers = [name for key, name in TEACHERS.items() if f"{{{key}}}" in recipe.flags]
        return {name for name in (recipe.base, *TEXTS[recipe.text], *teachers) if name and name != ORIGINAL}

    def make_run(self, *words):
        """A command of making, which is ended with --making-seconds."""
        self.run(*words, seconds=max(0.0, self.making_ends - time.monotonic()) if self.making_ends else None)

    def updates(self, recipe):
        """Where its training ends, as --after wants it."""
        end = self.arguments.tuning if recipe.how == "tune" else self.arguments.after
        if recipe.flags.startswith("--task student") and self.arguments.student_after:
            end = self.arguments.student_after
        return end if recipe.share == 1 else f"{round(recipe.share * int(end.removesuffix('u')))}u"

    def make(self, recipe):
        folder, begin = self.folder(recipe.name), time.monotonic()
        if self.is_made(recipe):
            return
        if recipe.how in ("prune", "factorize"):
            shutil.rmtree(folder, ignore_errors=True)
            self.make_run(recipe.how, "-m", self.folder(recipe.base), "-t", self.text["sample.de"], self.text["sample.en"], "-o", folder,
                     "--device", self.arguments.device, "--quiet", *recipe.flags.format(**self.depths(recipe.base)).split())
        else:
            teachers = {key: self.folder(name) for key, name in TEACHERS.items()}
            flags = recipe.flags.format(task=self.arguments.task, tuned=self.arguments.tuning_flags, **teachers).split()
            if recipe.how == "tune":
                often = self.arguments.tuning_valid_freq
                start = ["--pretrained-model", self.folder(recipe.base), "--task", self.task_of(recipe.base)]
            else:
                often, start = self.arguments.valid_freq, ["--vocabs", self.vocabulary()]
            machine = ["--device", self.arguments.device, "--cpu-threads", str(self.arguments.cpu_threads)]
            self.make_run("train", *self.train_sets(recipe.text), "--valid-sets", self.text["val.de"], self.text["val.en"], "--model", folder,
                     *machine, "--after", self.updates(recipe), "--valid-freq", often, "--save-freq", often, "--quiet", *start, *flags,
                     *self.arguments.train_flags.split())
            info = self.json("info", folder)
            chosen = model_file(folder, info)
            shutil.copyfile(chosen, os.path.join(folder, "chosen.safetensors"))
        open(os.path.join(folder, "done"), "w").close()
        print(f"made {recipe.name} in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)

    def task_of(self, name):
        """The preset of the model that `name` came from."""
        recipe = next(recipe for recipe in RECIPES if recipe.name == name)
        return recipe.flags.split()[1].format(task=self.arguments.task) if recipe.how == "train" else self.task_of(recipe.base)

    def depths(self, name):
        model = self.json("info", self.folder(name))["run"]["checkpoint"]["model"]
        return {"encoder": str(model["encoder_layers"]), "half_decoder": str(max(1, model["decoder_layers"] // 2))}

    def form(self, name, form):
        """A folder with model.safetensors and vocab.spm of a model with such weights."""
        source = self.folder(name)
        if form != "float32":
            target = self.path("forms", os.path.basename(source) + "_" + form.replace(", ", "-"))
            if not os.path.exists(os.path.join(target, "model.safetensors")):
                calibration = ["--calibration", self.text["sample.de"], self.text["sample.en"]] if "GPTQ" in form else []
                self.run("quantize", "-m", self.form(name, "float32"), "-o", target, "--quiet", *CODES[form], *calibration)
            return target
        if os.path.exists(os.path.join(source, "model.safetensors")):
            return source
        target = self.path("forms", os.path.basename(source))
        if not os.path.exists(os.path.join(target, "vocab.spm")):
            os.makedirs(target, exist_ok=True)
            shutil.copyfile(os.path.join(source, "chosen.safetensors"), os.path.join(target, "model.safetensors"))
            shutil.copyfile(os.path.join(source, "vocab.spm"), os.path.join(target, "vocab.spm"))
        return target


def model_file(run, info):
    """The model of a run's best checkpoint by BLEU, as other commands choose it."""
    pointers = info["run"]["pointers"]
    return os.path.join(run, "ckpt", pointers.get("best-bleu", pointers["latest"]), "model.safetensors")


def chosen(pattern):
    """The recipes whose names match, and those that they need."""
    if not pattern:
        return RECIPES
    by_name, names = {recipe.name: recipe for recipe in RECIPES}, set()

    def add(recipe):
        names.add(recipe.name)
        for name in (DISTILLATIONS.get(need, need) for need in Models.needs(recipe)):
            if name not in names:
                add(by_name[name])

    for recipe in RECIPES:
        if re.search(pattern, recipe.name):
            add(recipe)
    return [recipe for recipe in RECIPES if recipe.name in names]
