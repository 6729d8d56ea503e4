#!/usr/bin/env python3
"""Cost and gain of each way of making a model smaller, on German-English text (Multi30k): one command makes the whole table.

    python3 tests/bench/compression_table.py --data DIR [--work DIR] [--phases make,quality,speed] [--device cuda]

--data has train.de.gz, train.en.gz, val.*.gz and test_2016_flickr.*.gz. compression_models.py lists the models: a teacher, small
models on the original text and with the teacher's translations of it, quantization-aware training, pruned and factorized models, shared layers,
layer drop, and chains of these.
The phases may run one after the other on different machines that share --work. Existing results are not made or measured again.

Every model is measured on the CPU with float32, int8 and some with int4 weights. Quality: BLEU and chrF with 95 % intervals (bootstrap,
1,000 resamples), differences with the p-value of a paired bootstrap, and cross-entropy a token. Size: parameters, bytes of
model.safetensors and of the same file in gzip, peak memory of a process that translates one line. Speed: target words a second with each of
--threads, for all lines in batches and for --single lines one after the other, without the time to load. The forms of a model are timed
alternately, and --speed-jobs models at once, each on separate processor cores. Needs Python alone.
"""
import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import zlib

import compression_models
from compression_models import DISTILLATIONS, RECIPES, TEACHER, TUNED

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"), help="where translate-train is")
    parser.add_argument("--data", required=True)
    parser.add_argument("--work", default="compression", help="where models and measurements are kept (default compression)")
    parser.add_argument("--phases", default="make,quality,speed", help="of make, quality, speed (default all); the table follows. table: it alone")
    parser.add_argument("--only", help="a regular expression: models whose names match it")
    making = parser.add_argument_group("making")
    making.add_argument("--device", default="auto", help="that trains and distills (default auto)")
    making.add_argument("--task", default="small", help="preset of the teacher (default small)")
    making.add_argument("--dim-vocabs", type=int, default=8000)
    making.add_argument("--after", default="0u", help="end of training (default 0u: early stopping)")
    making.add_argument("--student-after", help="end of training of students (default: --after)")
    making.add_argument("--valid-freq", default="1ku", help="of training (default 1ku)")
    making.add_argument("--tuning", default="4000u", help="end of fine-tuning (default 4000u)")
    making.add_argument("--tuning-valid-freq", default="500u")
    making.add_argument("--tuning-flags", default=TUNED, help=f"of fine-tuning (default {TUNED})")
    making.add_argument("--train-flags", default="", help="more flags of every training")
    making.add_argument("--calibration", type=int, default=500, help="pairs that prune, factorize and GPTQ measure on (default 500)")
    making.add_argument("--jobs", type=int, default=1, help="models that are made at once (default 1)")
    making.add_argument("--cpu-threads", type=int, default=0, help="of each of them (default 0: every core)")
    making.add_argument("--making-seconds", type=float, help="then what is not made is given up (default: no end)")
    measuring = parser.add_argument_group("measuring")
    measuring.add_argument("--beam", type=int, default=5, help="of the translations (default 5)")
    measuring.add_argument("--speed-beam", type=int, default=1, help="of the speeds (default 1)")
    measuring.add_argument("--quality-jobs", type=int, default=1)
    measuring.add_argument("--quality-threads", type=int, default=0, help="of each of them (default 0: every core)")
    measuring.add_argument("--threads", default="1,2", help="of the speeds (default 1,2)")
    measuring.add_argument("--single", type=int, default=100, help="lines that are translated one after the other (default 100)")
    measuring.add_argument("--rounds", type=int, default=3, help="of each speed; the median counts (default 3)")
    measuring.add_argument("--speed-jobs", type=int, default=1, help="models that are timed at once, on cores of their own (default 1)")
    return parser.parse_args()


# ---- quality and size ----

class Measurements:
    """Results as JSON files in --work, one for each model, form and kind."""

    def __init__(self, models, arguments):
        self.models, self.arguments = models, arguments
        for folder in ("results", "translations"):
            os.makedirs(models.path(folder), exist_ok=True)

    def file(self, kind, name, form):
        return self.models.path("results", os.path.basename(self.models.folder(name)) + "_" + form.replace(", ", "-") + f".{kind}.json")

    def read(self, kind, name, form):
        path = self.file(kind, name, form)
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def write(self, kind, name, form, values):
        with open(self.file(kind, name, form) + ".part", "w", encoding="utf-8") as file:
            json.dump(values, file)
        os.replace(self.file(kind, name, form) + ".part", self.file(kind, name, form))

    def hypotheses(self, name, form):
        return self.models.path("translations", os.path.basename(self.models.folder(name)) + "_" + form.replace(", ", "-"))

    def start(self, folder, source, output, threads, beam, flags=(), cores=None):
        command = [self.models.program, "translate", "-m", folder, "--device", "cpu", "--cpu-threads", str(threads), "--beam-size",
                   str(beam), "-i", source, "-o", output, "--quiet", *flags]
        return subprocess.Popen(command, preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None)

    def translate(self, *arguments, **more):
        """Seconds."""
        begin = time.monotonic()
        process = self.start(*arguments, **more)
        if process.wait() != 0:
            raise RuntimeError(f"{' '.join(process.args)}: exit status {process.returncode}")
        return time.monotonic() - begin

    def peak_memory(self, folder):
        """Bytes of a process that translates one line. VmHWM is read while it runs, because the figure that wait gives is at least the
        memory of this Python process."""
        source, output = self.models.text["line.de"], self.models.path("translations", "line")
        process, peak = self.start(folder, source, output, 1, self.arguments.speed_beam), 0
        while process.poll() is None:
            with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
                peak = max([peak, *(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))])
            time.sleep(0.0005)
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(process.args)}: exit status {process.returncode}")
        return peak

    def quality(self, name, form):
        if self.read("quality", name, form):
            return
        folder, text = self.models.form(name, form), self.models.text
        file, hypotheses = os.path.join(folder, "model.safetensors"), self.hypotheses(name, form)
        self.translate(folder, text["test_2016_flickr.de"], hypotheses, self.arguments.quality_threads, self.arguments.beam)
        scored = self.models.json("score", "-m", folder, "--device", "cpu", "--cpu-threads", str(self.arguments.quality_threads),
                                  "--quiet", "-t", text["test_2016_flickr.de"], text["test_2016_flickr.en"])
        info = self.models.json("info", file)
        self.write("quality", name, form, {
            "parameters": info["model"]["parameters"], "bytes": os.path.getsize(file), "gzip": gzip_bytes(file),
            "peak": self.peak_memory(folder), "scores": self.compare(hypotheses), "cross_entropy": scored["cross_entropy"]})
        print(f"measured the quality of {name}, {form}", file=sys.stderr, flush=True)

    def compare(self, hypotheses, baseline=None):
        """BLEU and chrF with intervals; with a baseline its scores and the p-values."""
        flags = ["--baseline", baseline] if baseline else []
        return self.models.json("eval", "--hyp", hypotheses, "--ref", self.models.text["test_2016_flickr.en"], "--confidence", "on", *flags)

    # ---- speed ----

    def speeds(self, recipe, cores):
        """Of all forms of a model, round by round, so that what else happens on the machine meets all of them."""
        forms = [form for form in recipe.forms if "GPTQ" not in form]  # it runs as int4 does
        if all(self.read("speed", recipe.name, form) for form in forms):
            return
        texts = {"all": (self.models.text["test_2016_flickr.de"], ()), "one": (self.models.text["single.de"], ("--maxi-batch", "1"))}
        seconds, words = {}, {}
        for _ in range(self.arguments.rounds):
            for threads in map(int, self.arguments.threads.split(",")):
                for form in forms:
                    folder, out = self.models.form(recipe.name, form), self.hypotheses(recipe.name, form) + ".timed"
                    loading = self.translate(folder, os.devnull, out, threads, self.arguments.speed_beam, cores=cores[:threads])
                    for what, (source, flags) in texts.items():
                        whole = self.translate(folder, source, out, threads, self.arguments.speed_beam, flags, cores[:threads])
                        seconds.setdefault((form, f"{what} {threads}"), []).append(whole - loading)
                        with open(out, encoding="utf-8") as lines:
                            words[form, what] = sum(len(line.split()) for line in lines)
        for form in forms:
            times = {key: statistics.median(values) for (one, key), values in seconds.items() if one == form}
            if min(times.values()) <= 0:
                raise RuntimeError(f"{recipe.name}: translated in less time than loading varies by; give more lines (--single)")
            self.write("speed", recipe.name, form, {key: words[form, key.split()[0]] / value for key, value in times.items()})
        print(f"measured the speed of {recipe.name}", file=sys.stderr, flush=True)


def gzip_bytes(file):
    packer, count = zlib.compressobj(6, zlib.DEFLATED, 31), 0
    with open(file, "rb") as data:
        while piece := data.read(1 << 20):
            count += len(packer.compress(piece))
    return count + len(packer.flush())


def cores_apart(jobs, threads):
    """`jobs` lists of logical processors, each of a separate physical core as long as there are enough; None of one job."""
    if jobs == 1:
        return [sorted(os.sched_getaffinity(0))]
    first, others, seen = [], [], set()
    for core in sorted(os.sched_getaffinity(0)):
        path = f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
        siblings = open(path, encoding="ascii").read() if os.path.exists(path) else str(core)
        (others if siblings in seen else first).append(core)
        seen.add(siblings)
    order = first + others
    if len(order) < jobs * threads:
        sys.exit(f"--speed-jobs {jobs}: with {threads} threads each, the {len(order)} processors are too few")
    return [order[job * threads:(job + 1) * threads] for job in range(jobs)]


# ---- the phases ----

def make_and_measure(models, measurements, recipes, phases, arguments):
    """Makes models as soon as what they need is there, and measures each one's quality as soon as it is made. Returns the failures."""
    failures, made, lock = [], set(), threading.Condition()
    waiting = list(recipes) if "make" in phases else []

    def work():
        while True:
            with lock:
                todo = next((r for r in waiting if models.needs(r) <= made), None)
                while waiting and todo is None and running[0] > 0:
                    lock.wait()
                    todo = next((r for r in waiting if models.needs(r) <= made), None)
                if todo is None:
                    return
                waiting.remove(todo)
                running[0] += 1
            try:
                models.make(todo)
                with lock:
                    made.add(todo.name)
                    lock.notify_all()
                measure(todo)
                for text in (text for text, teacher in DISTILLATIONS.items() if teacher == todo.name):
                    if any(text in models.needs(recipe) for recipe in recipes):
                        models.distill(text)
                        with lock:
                            made.add(text)
                            lock.notify_all()
            except (RuntimeError, OSError) as error:
                failures.append(f"{todo.name}: {error}")
                print(f"failed: {todo.name}", file=sys.stderr, flush=True)
            finally:
                with lock:
                    running[0] -= 1
                    lock.notify_all()

    def measure(recipe):
        if "quality" in phases:
            measured.extend(quality.submit(measurements.quality, recipe.name, form) for form in recipe.forms)

    running, measured = [0], []
    with concurrent.futures.ThreadPoolExecutor(arguments.quality_jobs) as quality:
        if "make" in phases:
            models.vocabulary()
            workers = [threading.Thread(target=work) for _ in range(arguments.jobs)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            failures += [f"{recipe.name}: not made, it needs {', '.join(models.needs(recipe) - made)}" for recipe in waiting]
        else:
            for recipe in recipes:
                if models.is_made(recipe):
                    measure(recipe)
        for job in measured:
            if job.exception():
                failures.append(str(job.exception()))
    return failures


def time_all(models, measurements, recipes, arguments):
    threads = max(map(int, arguments.threads.split(",")))
    cores = cores_apart(arguments.speed_jobs, threads)
    waiting = [recipe for recipe in recipes if recipe.timed and models.is_made(recipe)]
    for recipe in waiting:
        for form in recipe.forms:
            models.form(recipe.name, form)
    lock = threading.Lock()
    failures = []

    def work(mine):
        while True:
            with lock:
                if not waiting:
                    return
                recipe = waiting.pop(0)
            try:
                measurements.speeds(recipe, mine)
            except (RuntimeError, OSError) as error:
                failures.append(f"{recipe.name}: {error}")

    workers = [threading.Thread(target=work, args=(mine,)) for mine in cores]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return failures


# ---- the tables ----

def quality_table(measurements, recipes):
    lines = ["| model | weights | parameters | file, MB | gzip, MB | peak, MB | BLEU | from its float32 | from the teacher | chrF | "
             "cross-entropy |", "|" + "---|" * 11]

    def change(hypotheses, baseline):
        if not os.path.exists(baseline) or hypotheses == baseline:
            return "-"
        bleu = measurements.compare(hypotheses, baseline)["bleu"]
        return f"{bleu['score'] - bleu['baseline']['score']:+.2f}, p = {bleu['p_value']:.3f}"

    for recipe in recipes:
        for form in recipe.forms:
            row = measurements.read("quality", recipe.name, form)
            if row is None:
                continue
            bleu, chrf, hypotheses = row["scores"]["bleu"], row["scores"]["chrf"], measurements.hypotheses(recipe.name, form)
            lines.append("| " + " | ".join([
                recipe.name, form, f"{row['parameters'] / 1e6:.2f} M", f"{row['bytes'] / 1e6:.2f}", f"{row['gzip'] / 1e6:.2f}",
                f"{row['peak'] / 1e6:.0f}",
                f"{bleu['score']:.2f} ± {bleu['half_width']:.2f}", change(hypotheses, measurements.hypotheses(recipe.name, "float32")),
                change(hypotheses, measurements.hypotheses(TEACHER, "float32")), f"{chrf['score']:.2f} ± {chrf['half_width']:.2f}",
                f"{row['cross_entropy']:.3f}"]) + " |")
    return lines


def comparisons(measurements):
    """Pairs of models that answer one question each."""
    lines = ["| model | against | difference in BLEU |", "|---|---|---|"]
    for (name, form), (other, other_form) in compression_models.COMPARED:
        hypotheses, baseline = measurements.hypotheses(name, form), measurements.hypotheses(other, other_form)
        if os.path.exists(hypotheses) and os.path.exists(baseline):
            bleu = measurements.compare(hypotheses, baseline)["bleu"]
            change = bleu["score"] - bleu["baseline"]["score"]
            lines.append(f"| {name}, {form} | {other}, {other_form} | {change:+.2f}, p = {bleu['p_value']:.3f} |")
    return lines


def speed_table(measurements, recipes, arguments):
    columns = [f"{what} {threads}" for threads in arguments.threads.split(",") for what in ("all", "one")]
    titles = [f"{'all lines' if key.startswith('all') else 'one line'}, {key[4:]} thread{'s' if key[4:] != '1' else ''}" for key in columns]
    teacher = measurements.read("speed", TEACHER, "float32")
    lines = [f"Target words a second, beam {arguments.speed_beam} (against the teacher in float32; against its own float32):", "",
             "| model | weights | " + " | ".join(titles) + " |", "|" + "---|" * (2 + len(columns))]
    for recipe in recipes:
        own = measurements.read("speed", recipe.name, "float32")
        for form in recipe.forms:
            row = measurements.read("speed", recipe.name, form)
            if row is None or teacher is None:
                continue
            cells = [f"{row[key]:,.0f} ({row[key] / teacher[key]:.2f} x; {row[key] / own[key]:.2f} x)" for key in columns]
            lines.append("| " + " | ".join([recipe.name, form, *cells]) + " |")
    return lines


def main():
    arguments = parse_arguments()
    phases = arguments.phases.split(",")
    if not set(phases) <= {"make", "quality", "speed", "table"}:
        sys.exit(f"--phases {arguments.phases}: make, quality, speed and table are known")
    models = compression_models.Models(arguments)
    measurements = Measurements(models, arguments)
    recipes = compression_models.chosen(arguments.only)
    failures = make_and_measure(models, measurements, recipes, phases, arguments) if {"make", "quality"} & set(phases) else []
    if "speed" in phases:
        failures += time_all(models, measurements, recipes, arguments)
    print("\n".join([*quality_table(measurements, RECIPES), "", *comparisons(measurements), "",
                     *speed_table(measurements, RECIPES, arguments)]))
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
