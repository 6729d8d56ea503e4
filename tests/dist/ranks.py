#!/usr/bin/env python3
"""translate-train under mpirun: any number of ranks writes the same files, and no failure of a rank hangs or loses anything.

    tests/dist/ranks.py TRANSLATE_TRAIN LIBTRAFO_MPI [--long] [--kills N] [--seed S]

Without a launcher, and with mpirun -n 1, 2 and 4, all with four lanes: the checkpoint files are byte-equal for float32, for 8-bit
states with EMA and two batches a lane, with epochs that end inside an update, and with skipped updates. Runs change the number of
ranks when they resume. A random rank is killed (SIGKILL), stopped (SIGSTOP) or asked to end (SIGTERM). Ranks with different options
are refused. --long: the whole matrix of resumes, more options that differ, and 200 kills.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]
MODEL = ("--enc-depth 1 --dec-depth 1 --dim-emb 32 --transformer-dim-ffn 64 --transformer-heads 2 --max-length 40 --mini-batch-words 200 "
         "--vocabs vocab.spm --train-sets train.a train.b --valid-sets valid.a valid.b --valid-metrics ce-mean-words --valid-freq 6u "
         "--early-stopping 0 --autotune-gemm off --progress off --device cpu --cpu-threads 1 --disp-freq 2u --lanes 4").split()
FILES = ("model.safetensors", "optimizer.safetensors", "unsmoothed.safetensors", "state.json")
failures = []


def fail(text):
    failures.append(text)
    print(f"ranks: {text}", file=sys.stderr)


def replaced(words, more):
    """A command line, with the flags of `more` instead of the same ones."""
    kept, flag = [], ""
    for word in words:
        flag = word if word.startswith("--") else flag
        if flag not in more:
            kept.append(word)
    return kept + more


class Runs:
    def __init__(self, program, library, folder):
        self.program, self.folder = program, pathlib.Path(folder)
        self.environment = {**os.environ, **ENVIRONMENT, "TRAFO_MPI_LIBRARY": library}

    def command(self, ranks, run, options):
        """ranks: 0 is no launcher; a list is a job whose ranks have these options besides."""
        train = [self.program, "train", *MODEL, "--model", run, *options.split()]
        if ranks == 0:
            return train
        if isinstance(ranks, list):
            job = MPIRUN[:]
            for number, more in enumerate(ranks):
                job += [":"] * (number > 0) + ["-n", "1", *replaced(train, more.split())]
            return job
        return [*MPIRUN, "-n", str(ranks), *train]

    def start(self, ranks, run, options):
        return subprocess.Popen(self.command(ranks, run, options), cwd=self.folder, env=self.environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def finish(self, job, seconds=120):
        try:
            said, _ = job.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            job.kill()
            said, _ = job.communicate()
            fail(f"a job did not end within {seconds} seconds: {said[-2000:]}")
        return job.returncode, said

    def train(self, ranks, run, options, expected=0):
        code, said = self.finish(self.start(ranks, run, options))
        if code != expected:
            fail(f"{run} with {ranks or 'no'} ranks ends with {code}: {said[-2000:]}")

    def pids(self, run):
        """rank -> process of the job that trains `run`."""
        found = {}
        for folder in pathlib.Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if words[0] != self.program.encode() or run.encode() not in words:
                    continue
                rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", (folder / "environ").read_bytes())
                if rank and os.readlink(folder / "cwd") == str(self.folder):
                    found[int(rank[1])] = int(folder.name)
            except OSError:
                continue
        return found

    def updates(self, run):
        """Of the last complete line of its log."""
        try:
            lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        except OSError:
            return 0
        numbers = [int(found[1]) for line in lines if (found := re.match(r'{"type":"train","update":(\d+)', line))]
        return max(numbers, default=0)

    def files(self, run, update):
        found = {}
        for name in FILES:
            path = self.folder / run / "ckpt" / str(update) / name
            if path.exists():
                found[name] = path.read_bytes()
        if "state.json" in found:
            found["state.json"] = re.sub(rb'"train_seconds": [^,\n]*', b"", found["state.json"])
        for name in ("config.yml", "vocab.spm"):
            found[name] = (self.folder / run / name).read_bytes().replace(run.encode(), b"RUN")
        found["config.yml"] = re.sub(rb"^#.*", b"", found["config.yml"], flags=re.M)  # with its checksum
        return found

    def compare(self, one, other, update, label):
        try:
            a, b = self.files(one, update), self.files(other, update)
        except OSError as error:
            return fail(f"{label}: {error}")
        if len(a) < 5:
            fail(f"{label}: {one} has only {sorted(a)}")
        different = [name for name in sorted({*a, *b}) if a.get(name) != b.get(name)]
        if different:
            fail(f"{label}: {one} and {other} differ in {different}")


def write_corpus(folder):
    words = random.Random(7)
    vocabulary = ["".join(words.choice("abcdefgh") for _ in range(words.randint(2, 6))) for _ in range(60)]
    for name, lines in (("train", 250), ("valid", 20)):
        pairs = [[words.choice(vocabulary) for _ in range(words.randint(3, 12))] for _ in range(lines)]
        (folder / f"{name}.a").write_text("\n".join(" ".join(pair) for pair in pairs) + "\n")
        (folder / f"{name}.b").write_text("\n".join(" ".join(word[::-1] for word in pair) for pair in pairs) + "\n")


MODES = {  # options, last checkpoint, exit code
    "float32": ("--save-freq 6u --after 18u", 18, 0),
    "8bit": ("--save-freq 4u --after 8u --optimizer-states 8bit --exponential-smoothing 1e-2 --optimizer-delay 2", 8, 0),
    # The first update makes the weights huge, and the second is skipped until the run has diverged.
    "skipped": ("--save-freq 1u --after 4u --learn-rate 999999 --lr-decay constant --lr-warmup 0 --weight-decay 1 --clip-norm 0", 1, 3),
}


def records(runs, run):
    return [json.loads(line) for line in (runs.folder / run / "metrics.jsonl").read_text().splitlines()]


def numbers(runs, run):
    """What a run says of its updates, but for times and speeds."""
    keys = ("type", "update", "epoch", "loss", "nll", "grad_norm", "learning_rate", "target_tokens", "ce-mean-words", "skipped_updates")
    return [{key: record.get(key) for key in keys} for record in records(runs, run) if record["type"] in ("train", "skipped", "valid")]


def equal_files(runs, long):
    for mode, (options, updates, code) in MODES.items():
        for ranks in (0, 1, 2, 4):
            if not long and (mode, ranks) in {("8bit", 1), ("skipped", 1), ("skipped", 2)}:
                continue
            run = f"{mode}-{ranks}"
            runs.train(ranks, run, options, code)
            if ranks:
                runs.compare(f"{mode}-0", run, updates, f"{mode} on {ranks} ranks")
                if numbers(runs, run) != numbers(runs, f"{mode}-0"):
                    fail(f"{mode} on {ranks} ranks: other losses than without ranks")
    if not any(record["type"] == "skipped" for record in records(runs, "skipped-0")):
        fail("no update of the mode 'skipped' was skipped")
    if max(record.get("epoch", 0) for record in records(runs, "float32-0")) < 2:
        fail("no epoch has ended")


def resumes(runs, long):
    options, updates = "--save-freq 6u", MODES["float32"][1]
    chains = [(a, b) for a in (1, 2, 4) for b in (1, 2, 4)] if long else [(4, 2, 1), (1, 4)]
    for chain in chains:
        run = "resume-" + "-".join(map(str, chain))
        for step, ranks in enumerate(chain):
            runs.train(ranks, run, f"{options} --after {updates * (step + 1) // len(chain)}u")
        runs.compare("float32-0", run, updates, f"a run on {chain} ranks")


def kills(runs, count, chance):
    options, updates = "--save-freq 3u", MODES["float32"][1]
    runs.train(0, "unkilled", f"{options} --after {updates}u")
    killed = round_ = 0
    while killed < count:
        run = f"killed-{round_}"
        round_ += 1
        for _ in range(4):  # kills of one run
            ranks = chance.choice((2, 4))
            job = runs.start(ranks, run, f"{options} --after {updates}u")
            begin = time.monotonic()
            moment = chance.uniform(0.2, 2.5)
            while time.monotonic() - begin < moment and job.poll() is None:
                time.sleep(0.02)
            processes = runs.pids(run)
            if job.poll() is None and processes:
                os.kill(processes[chance.choice(sorted(processes))], signal.SIGKILL)
                code, said = runs.finish(job, 30)
                killed += 1
                if code == 0 and runs.updates(run) < updates:
                    fail(f"mpirun succeeds although a rank was killed: {said[-2000:]}")
            else:
                runs.finish(job, 30)
            if killed >= count:
                break
        runs.train(chance.choice((0, 1, 2, 4)), run, f"{options} --after {updates}u")
        if not (runs.folder / run / "ckpt" / str(updates)).exists():
            fail(f"{run} has no last checkpoint")
        else:
            runs.compare("unkilled", run, updates, f"{run} after kills of ranks")
    print(f"ranks: {killed} kills")


def wait_for_update(runs, job, run, update):
    begin = time.monotonic()
    while runs.updates(run) < update and job.poll() is None and time.monotonic() - begin < 60:
        time.sleep(0.02)


def hung(runs):
    job = runs.start(2, "hung", "--save-freq 6u --after 100000u --rank-timeout 2")
    wait_for_update(runs, job, "hung", 4)
    os.kill(runs.pids("hung")[1], signal.SIGSTOP)
    begin = time.monotonic()
    code, said = runs.finish(job, 30)
    if code == 0 or "rank 1 has not come within 2 seconds" not in said:
        fail(f"a hung rank is not named: {code} {said[-2000:]}")
    if time.monotonic() - begin > 15:
        fail(f"a hung rank ends the job after {time.monotonic() - begin:.0f} seconds")


def terminated(runs):
    job = runs.start(2, "terminated", "--save-freq 1000u --after 100000u")
    wait_for_update(runs, job, "terminated", 4)
    os.kill(runs.pids("terminated")[1], signal.SIGTERM)
    code, said = runs.finish(job, 30)
    if code != 128 + signal.SIGTERM:
        fail(f"SIGTERM to one rank ends the job with {code}: {said[-2000:]}")
    saved = [int(path.name) for path in (runs.folder / "terminated/ckpt").iterdir() if path.name.isdigit()]
    if not saved:
        return fail(f"SIGTERM to one rank saves nothing: {said[-2000:]}")
    runs.train(1, "terminated", f"--save-freq 1000u --after {max(saved) + 2}u")
    runs.train(0, "uncut", f"--save-freq 1000u --after {max(saved) + 2}u")
    runs.compare("uncut", "terminated", max(saved) + 2, "a run that SIGTERM has stopped")


def mismatches(runs, long):
    different = {"--seed 2": "seed is 2, on rank 0 it is 1"}
    if long:
        different.update({
            "--learn-rate 0.5": "learning_rate is 0.5",
            "--mini-batch-words 300": "batch_tokens is 300",
            "--train-sets valid.a valid.b": "corpus",
            "--dim-emb 16": "rank 1 differs from rank 0",
            "--optimizer-states 8bit": "differs from rank 0",
        })
    for number, (options, message) in enumerate(different.items()):
        code, said = runs.finish(runs.start(["", options], f"different-{number}", "--after 4u"))
        if code == 0 or message not in said or "rank 1" not in said:
            fail(f"ranks that differ in {options}: {code} {said[-2000:]}")
    if long:  # an error of one rank alone, before it joins
        code, said = runs.finish(runs.start(["", "--vocabs missing.spm"], "missing", "--after 4u --rank-timeout 20"))
        if code == 0 or "missing.spm" not in said:
            fail(f"a rank without a vocabulary: {code} {said[-2000:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("library")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--seed", type=int, default=18)
    arguments = parser.parse_args()
    if not shutil.which("mpirun"):
        print("ranks: skipped, there is no mpirun")
        return 77
    count = arguments.kills if arguments.kills is not None else 200 if arguments.long else 2
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        folder = pathlib.Path(name).resolve()
        write_corpus(folder)
        runs = Runs(str(pathlib.Path(arguments.program).resolve()), str(pathlib.Path(arguments.library).resolve()), folder)
        subprocess.run([runs.program, "vocab", "--train-sets", "train.a", "train.b", "--dim-vocabs", "120", "--soft-limit"],
                       cwd=folder, check=True, capture_output=True)
        equal_files(runs, arguments.long)
        resumes(runs, arguments.long)
        terminated(runs)
        hung(runs)
        mismatches(runs, arguments.long)
        kills(runs, count, random.Random(arguments.seed))
    print(f"ranks: {len(failures)} failures, {time.monotonic() - begin:.0f} seconds")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
