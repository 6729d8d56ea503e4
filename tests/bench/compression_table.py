#!/usr/bin/env python3
"""What each way of making a model smaller costs and brings: one row a method, on German-English text (Multi30k).

    python3 tests/bench/compression_table.py --data DIR [--work DIR] [--train-only | --no-training] [--device cuda]

--data has train.de.gz, train.en.gz, val.*.gz and test_2016_flickr.*.gz. The script trains a teacher, a small model on the original
text and one on the teacher's translations, prunes the teacher in several ways and fine-tunes what is left, on the original text and
on the teacher's translations. --train-only stops there, --no-training measures runs that another machine has trained: --work is the
directory that both share. A model that is there already is not made again.

Every model is measured on the CPU as float32 and as int8: parameters, bytes of model.safetensors and of the same file in gzip, peak
memory of a process that translates one line, BLEU and chrF with 95 % intervals (bootstrap, 1,000 resamples), the difference in BLEU
from the teacher with the p-value of a paired bootstrap, cross-entropy a token, and target words a second with each of --threads for
all lines in batches and for --single lines one after the other. Loading is subtracted. Needs Python alone.
"""
import argparse
import concurrent.futures
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TEACHER, STUDENT, DISTILLED = "teacher", "student", "student-distilled"
# name: flags of prune.
PRUNED = {
    "ffn-33": ["--ffn", "0.33"],
    "heads-50": ["--heads", "0.5"],
    "decoder-half": ["--layers", "{encoder}", "{half_decoder}"],
    "ffn-33-heads-50-decoder-half": ["--ffn", "0.33", "--heads", "0.5", "--layers", "{encoder}", "{half_decoder}"],
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"), help="where translate-train is")
    parser.add_argument("--data", required=True)
    parser.add_argument("--work", default="compression", help="where runs and models are kept (default compression)")
    parser.add_argument("--device", default="auto", help="that trains and distills (default auto)")
    parser.add_argument("--task", default="small", help="preset of the teacher (default small)")
    parser.add_argument("--epochs", type=int, default=20, help="of the teacher and of the students (default 20)")
    parser.add_argument("--tuning-epochs", type=int, default=8, help="of pruned models (default 8)")
    parser.add_argument("--calibration", type=int, default=500, help="pairs that prune measures on (default 500)")
    parser.add_argument("--threads", default="1,2", help="of the speeds (default 1,2)")
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--single", type=int, default=100, help="lines that are translated one after the other (default 100)")
    parser.add_argument("--rounds", type=int, default=3, help="of each speed; the median counts (default 3)")
    parser.add_argument("--jobs", type=int, default=1,
                        help="models that are trained or measured at once; above 1, they disturb each other's speeds (default 1)")
    parser.add_argument("--teacher-flags", default="", help="flags of the teacher's training, such as --dim-vocabs")
    parser.add_argument("--only", help="names of models, separated by commas")
    parser.add_argument("--train-only", action="store_true")
    parser.add_argument("--no-training", action="store_true")
    return parser.parse_args()


class Models:
    """Trains, prunes and measures with translate-train, all in the directory --work."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.program = os.path.join(arguments.build, "translate-train")
        os.makedirs(arguments.work, exist_ok=True)
        self.text = {}
        for name in ("train", "val", "test_2016_flickr"):
            for side in ("de", "en"):
                target = self.path(f"{name}.{side}")
                if not os.path.exists(target):
                    with gzip.open(os.path.join(arguments.data, f"{name}.{side}.gz"), "rb") as source:
                        data = source.read()
                    with open(target, "wb") as out:
                        out.write(data)
                self.text[f"{name}.{side}"] = target
        for side in ("de", "en"):
            self.text[f"sample.{side}"] = self.first_lines(f"train.{side}", arguments.calibration, f"sample.{side}")
            self.text[f"line.{side}"] = self.first_lines(f"test_2016_flickr.{side}", 1, f"line.{side}")
            self.text[f"single.{side}"] = self.first_lines(f"test_2016_flickr.{side}", arguments.single, f"single.{side}")

    def path(self, *parts):
        return os.path.join(self.arguments.work, *parts)

    def first_lines(self, name, count, target):
        with open(self.text[name], encoding="utf-8") as source:
            lines = [line for _, line in zip(range(count), source)]
        with open(self.path(target), "w", encoding="utf-8") as out:
            out.writelines(lines)
        return self.path(target)

    def run(self, *words, **more):
        result = subprocess.run([self.program, *words], capture_output=True, text=True, **more)
        if result.returncode != 0:
            raise SystemExit(f"{' '.join(words)}\n{result.stderr}")
        return result

    def train(self, name, pairs, flags, epochs):
        folder = self.path("runs", name)
        if os.path.exists(os.path.join(folder, "done")):
            return folder
        self.run("train", "--train-sets", *pairs, "--valid-sets", self.text["val.de"], self.text["val.en"], "--model", folder,
                 "--device", self.arguments.device, "--after", f"{epochs}e", "--valid-freq", "2e", "--save-freq", "2e", "--quiet", *flags)
        open(os.path.join(folder, "done"), "w").close()
        print(f"trained {name}", file=sys.stderr, flush=True)
        return folder

    def original(self):
        return [self.text["train.de"], self.text["train.en"]]

    def distilled(self):
        pairs = [self.path("distilled.de"), self.path("distilled.en")]
        if not all(os.path.exists(path) for path in pairs):
            self.run("distill", "-m", self.path("runs", TEACHER), "--train-sets", *self.original(), "-o", *pairs, "--pick", "bleu",
                     "--device", self.arguments.device, "--quiet")
        return pairs

    def prune(self, name, flags):
        folder = self.path("pruned", name)
        if not os.path.exists(os.path.join(folder, "model.safetensors")):
            self.run("prune", "-m", self.path("runs", TEACHER), "-t", self.text["sample.de"], self.text["sample.en"], "-o", folder,
                     "--device", self.arguments.device, "--quiet", *flags)
        return folder

    def make_all(self):
        """Trains and prunes what is missing."""
        arguments = self.arguments
        self.train(TEACHER, self.original(), ["--task", arguments.task, *arguments.teacher_flags.split()], arguments.epochs)
        student = ["--task", "student-tiny", "--vocabs", self.path("runs", TEACHER, "vocab.spm")]
        info = json.loads(self.run("info", self.path("runs", TEACHER), "--json").stdout)
        depths = {"encoder": str(depth_of(info, "encoder_layers")), "half_decoder": str(max(1, depth_of(info, "decoder_layers") // 2))}
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as jobs:
            first = [jobs.submit(self.distilled), jobs.submit(self.train, STUDENT, self.original(), student, arguments.epochs)]
            first += [jobs.submit(self.prune, name, [flag.format(**depths) for flag in flags]) for name, flags in PRUNED.items()]
            for job in first:
                job.result()
            second = [jobs.submit(self.train, DISTILLED, self.distilled(), student, arguments.epochs)]
            for name in PRUNED:
                pretrained = ["--pretrained-model", self.path("pruned", name)]
                for kind, pairs in (("tuned", self.original()), ("distilled", self.distilled())):
                    second.append(jobs.submit(self.train, f"{name}-{kind}", pairs, pretrained, arguments.tuning_epochs))
            for job in second:
                job.result()

    def found(self):
        """name: folder of every model that is there, the teacher first."""
        models = {}
        for kind in ("runs", "pruned"):
            if os.path.isdir(self.path(kind)):
                for name in sorted(os.listdir(self.path(kind))):
                    models[name] = self.path(kind, name)
        if TEACHER not in models:
            sys.exit(f"{self.path('runs', TEACHER)}: there is no teacher")
        wanted = self.arguments.only.split(",") if self.arguments.only else list(models)
        order = [TEACHER, *(name for name in models if name != TEACHER and name in wanted)]
        return {name: models[name] for name in order}

    def int8(self, name, folder):
        target = self.path("int8", name)
        if not os.path.exists(os.path.join(target, "model.safetensors")):
            self.run("quantize", "-m", folder, "-o", target, "--quiet")
        return target

    def float32(self, name, folder):
        """A folder with the model alone, where the model is in a run."""
        if os.path.exists(os.path.join(folder, "model.safetensors")):
            return folder
        info = json.loads(self.run("info", folder, "--json").stdout)
        target = self.path("float32", name)
        if not os.path.exists(os.path.join(target, "model.safetensors")):
            os.makedirs(target, exist_ok=True)
            shutil.copyfile(model_file(folder, info), os.path.join(target, "model.safetensors"))
            shutil.copyfile(os.path.join(folder, "vocab.spm"), os.path.join(target, "vocab.spm"))
        return target

    def translate(self, folder, source, output, threads, *flags):
        """(seconds, peak bytes) of the process."""
        command = [self.program, "translate", "-m", folder, "--device", "cpu", "--cpu-threads", str(threads), "--beam-size",
                   str(self.arguments.beam), "-i", source, "-o", output, "--quiet", *flags]
        begin = time.monotonic()
        process = subprocess.Popen(command)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"{' '.join(command)}: exit status {status}")
        return time.monotonic() - begin, usage.ru_maxrss * 1024

    def speed(self, name, folder, source, threads, *flags):
        """Target words a second."""
        out = self.path("translations", f"{name}.timed")
        seconds = []
        for _ in range(self.arguments.rounds):
            loading, _ = self.translate(folder, os.devnull, out, threads)
            whole, _ = self.translate(folder, source, out, threads, *flags)
            seconds.append(whole - loading)
        if statistics.median(seconds) <= 0:
            raise SystemExit(f"{name}: {source} is translated in less time than loading varies by; give more lines (--single)")
        with open(out, encoding="utf-8") as lines:
            return sum(len(line.split()) for line in lines) / statistics.median(seconds)

    def measure(self, name, folder):
        arguments = self.arguments
        file = os.path.join(folder, "model.safetensors")
        packed = gzip_bytes(file)
        hypotheses = self.path("translations", name)
        _, peak = self.translate(folder, self.text["line.de"], hypotheses, 1)
        self.translate(folder, self.text["test_2016_flickr.de"], hypotheses, os.cpu_count())
        reference = ["--ref", self.text["test_2016_flickr.en"]]
        baseline = [] if name == TEACHER else ["--baseline", self.path("translations", TEACHER)]
        scores = json.loads(self.run("eval", "--hyp", hypotheses, *reference, "--confidence", "on", *baseline, "--json").stdout)
        scored = json.loads(self.run("score", "-m", folder, "--device", "cpu", "--quiet", "--json", "-t",
                                     self.text["test_2016_flickr.de"], self.text["test_2016_flickr.en"]).stdout)
        info = json.loads(self.run("info", file, "--json").stdout)
        row = {"name": name, "parameters": info["model"]["parameters"], "bytes": os.path.getsize(file), "gzip": packed, "peak": peak,
               "scores": scores, "cross_entropy": scored["cross_entropy"]}
        for threads in map(int, arguments.threads.split(",")):
            row[f"all {threads}"] = self.speed(name, folder, self.text["test_2016_flickr.de"], threads)
            row[f"one {threads}"] = self.speed(name, folder, self.text["single.de"], threads, "--maxi-batch", "1")
        return row


def gzip_bytes(file):
    # In pieces: the peak memory of a child process is at least what its parent has when it starts it.
    packer, count = zlib.compressobj(6, zlib.DEFLATED, 31), 0
    with open(file, "rb") as data:
        while piece := data.read(1 << 20):
            count += len(packer.compress(piece))
    return count + len(packer.flush())


def depth_of(info, stack):
    return info["run"]["checkpoint"]["model"][stack]


def model_file(run, info):
    """The model of a run's best checkpoint by BLEU, as other commands choose it."""
    pointers = info["run"]["pointers"]
    return os.path.join(run, "ckpt", pointers.get("best-bleu", pointers["latest"]), "model.safetensors")


def table(rows, threads):
    """Markdown."""
    teacher = rows[0]
    speeds = [f"words/s, {count} thread{'s' if count != '1' else ''}, {what}" for count in threads for what in ("all", "one")]
    lines = ["| model | parameters | file | gzip / file | peak memory | BLEU | from the teacher | chrF | cross-entropy | "
             + " | ".join(speeds) + " |", "|" + "---|" * (9 + len(speeds))]
    for row in rows:
        bleu, chrf = row["scores"]["bleu"], row["scores"]["chrf"]
        change = "-"
        if "baseline" in bleu:
            change = f"{bleu['score'] - bleu['baseline']['score']:+.2f} (p = {bleu['p_value']:.3f})"
        cells = [row["name"], f"{row['parameters'] / 1e6:.2f} M", f"{row['bytes'] / 1e6:.2f} MB", f"{row['gzip'] / row['bytes']:.2f}",
                 f"{row['peak'] / 1e6:.0f} MB", f"{bleu['score']:.2f} ± {bleu['half_width']:.2f}", change,
                 f"{chrf['score']:.2f} ± {chrf['half_width']:.2f}", f"{row['cross_entropy']:.3f}"]
        for count in threads:
            for what in ("all", "one"):
                speed = row[f"{what} {count}"]
                cells.append(f"{speed:.0f} ({speed / teacher[f'{what} {count}']:.2f} x)")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main():
    arguments = parse_arguments()
    models = Models(arguments)
    if not arguments.no_training:
        models.make_all()
    if arguments.train_only:
        return
    os.makedirs(models.path("translations"), exist_ok=True)

    def both(name, folder):
        folder = models.float32(name, folder)
        rows = [models.measure(name, folder), models.measure(f"{name} int8", models.int8(name, folder))]
        print(f"measured {name}", file=sys.stderr, flush=True)
        return rows

    found = models.found()
    rows = both(TEACHER, found.pop(TEACHER))  # the baseline of the others
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as jobs:
        for measured in jobs.map(both, found, found.values()):
            rows += measured
    print("\n".join(table(rows, arguments.threads.split(","))))


if __name__ == "__main__":
    main()
