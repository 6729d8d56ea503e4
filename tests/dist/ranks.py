#!/usr/bin/env python3
"""translate-train with several processes: any number of ranks writes the same files, and no failure of a rank hangs or loses anything.

    tests/dist/ranks.py TRANSLATE_TRAIN [--mpi LIBTRAFO_MPI] [--long] [--kills N] [--seed S]

Without a launcher, with mpirun -n 1, 2 and 4, and over TCP with the environments of torchrun and Slurm and with --nodes, all with four
lanes: the checkpoint files are byte-equal for float32, for 8-bit states with EMA and two batches a lane, with epochs that end inside an
update, and with skipped updates. Runs change the number of ranks, and how they are started, when they resume. A random rank is killed
(SIGKILL), stopped (SIGSTOP) or asked to end (SIGTERM). Ranks with different options are refused. Eight ranks as threads, over MPI and
over TCP write the run directory of one process with eight lanes, take the memory that was planned, and end within 15 seconds when one
is killed. Without --mpi or mpirun all of it is over TCP. --long: the whole matrix of resumes, more options that differ, and 200 kills.
"""

import argparse
import json
import os
import pathlib
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

TOKEN = secrets.token_hex(32)  # of all jobs of this process
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]
MODEL = ("--enc-depth 1 --dec-depth 1 --dim-emb 32 --transformer-dim-ffn 64 --transformer-heads 2 --max-length 40 --mini-batch-words 200 "
         "--vocabs vocab.spm --train-sets train.a train.b --valid-sets valid.a valid.b --valid-metrics ce-mean-words bleu chrf --valid-freq 6u "
         "--early-stopping 0 --autotune-gemm off --progress off --device cpu --cpu-threads 1 --disp-freq 2u --lanes 4").split()
FILES = ("model.safetensors", "optimizer.safetensors", "unsmoothed.safetensors", "state.json")
# A launcher ends what is left of a job so many seconds after one has failed.
LAUNCHER_PATIENCE = 10
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE")
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


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Job:
    """The processes of a job without mpirun. As torchrun does, it ends all when one has failed."""

    def __init__(self, commands, environments, folder):
        self.processes = [subprocess.Popen(command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                          for command, environment in zip(commands, environments)]

    def poll(self):
        codes = [process.poll() for process in self.processes]
        return None if None in codes else max(codes, key=abs)

    def communicate(self, timeout):
        end, failed_at = time.monotonic() + timeout, None
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("the job", timeout)
            if failed_at is None and any(process.poll() for process in self.processes):
                failed_at = time.monotonic()
            if failed_at is not None and time.monotonic() > failed_at + LAUNCHER_PATIENCE:
                self.kill()
            time.sleep(0.02)
        return "".join(process.communicate()[0] for process in self.processes), None

    def kill(self):
        for process in self.processes:
            process.kill()

    @property
    def returncode(self):
        return self.poll()


class Runs:
    def __init__(self, program, library, folder):
        self.program, self.folder = program, pathlib.Path(folder)
        self.environment = {**os.environ, **ENVIRONMENT}
        for name in list(self.environment):
            if name in LAUNCHERS or name.startswith("SLURM_"):
                del self.environment[name]
        if library:
            self.environment["TRAFO_MPI_LIBRARY"] = library
        # Launchers of several processes where a test does not choose one.
        self.launchers = (["mpi"] if library else []) + ["torchrun"]
        self.launcher = self.launchers[0]

    def command(self, run, options):
        return replaced([self.program, "train", *MODEL, "--model", run], options.split())

    def start(self, ranks, run, options, launcher=None):
        """ranks: 0 is no launcher; a list is a job whose ranks have these options besides."""
        train, launcher = self.command(run, options), launcher or self.launcher
        if launcher == "threads":
            at = train.index("--device")
            train[at:at + 2] = ["--devices", ",".join(["cpu"] * ranks)]
        if ranks == 0 or launcher == "threads":
            return subprocess.Popen(train, cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        own = ranks if isinstance(ranks, list) else [""] * (ranks // 2 if launcher == "devices" else ranks)
        commands = [replaced(train, more.split()) for more in own]
        if launcher == "mpi":
            job = MPIRUN[:]
            for number, command in enumerate(commands):
                job += [":"] * (number > 0) + ["-n", "1", *command]
            return subprocess.Popen(job, cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        size, port, environments = len(own), free_port(), []
        for rank in range(size):
            environment = {**self.environment, "TRAFO_JOB_TOKEN": TOKEN}
            if launcher == "torchrun":
                environment |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size),
                                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            elif launcher == "slurm":
                environment |= {"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(size), "SLURM_LOCALID": str(rank), "SLURM_JOB_ID": str(port),
                                "SLURM_STEP_NODELIST": "localhost,other[1-3]"}
                commands[rank] += ["--launcher", "slurm"]
            elif launcher == "devices":  # two ranks a node
                at = commands[rank].index("--device")
                commands[rank][at:at + 2] = ["--devices", "cpu,cpu"]
                commands[rank] += ["--nodes", str(size), "--node-rank", str(rank), "--master", f"[::1]:{port}"]
            else:
                commands[rank] += ["--nodes", str(size), "--node-rank", str(rank), "--master", f"localhost:{port}"]
            environments.append(environment)
        return Job(commands, environments, self.folder)

    def finish(self, job, seconds=120):
        try:
            said, _ = job.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            job.kill()
            said, _ = job.communicate(timeout=60)
            fail(f"a job did not end within {seconds} seconds: {said[-2000:]}")
        return job.returncode, said

    def train(self, ranks, run, options, expected=0, launcher=None):
        code, said = self.finish(self.start(ranks, run, options, launcher))
        if code != expected:
            fail(f"{run} with {ranks or 'no'} ranks over {launcher or self.launcher} ends with {code}: {said[-2000:]}")
        return said

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
                rank = re.search(rb"(?:^|\0)(?:OMPI_COMM_WORLD_RANK|RANK|SLURM_PROCID)=(\d+)", (folder / "environ").read_bytes())
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
        found["config.yml"] = re.sub(rb"^#.*|^devices?:.*(\n +.*|\n- .*)*", b"", found["config.yml"], flags=re.M)  # with its checksum
        return found

    def directory(self, run):
        """All files of a run directory, without times, speeds, devices and what depends on them."""
        found = {str(path.relative_to(self.folder / run)): path.read_bytes() for path in (self.folder / run).rglob("*") if path.is_file()}
        for name in found:
            if name.endswith("state.json"):
                found[name] = re.sub(rb'"train_seconds": [^,\n]*', b"", found[name])
            elif name.endswith("manifest.json"):
                manifest = json.loads(found[name])
                del manifest["crc32"], manifest["files"]["state.json"]
                found[name] = json.dumps(manifest).encode()
        found["config.yml"] = self.files(run, 0)["config.yml"]
        found["metrics.jsonl"] = json.dumps(numbers(self, run)).encode()
        found["train.log"] = b""
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
    "bf16": ("--save-freq 4u --after 8u --communication-dtype bf16", 8, 0),  # gradients on the wire
    # The first update makes the weights huge, and the second is skipped until the run has diverged.
    "skipped": ("--save-freq 1u --after 4u --learn-rate 999999 --lr-decay constant --lr-warmup 0 --weight-decay 1 --clip-norm 0", 1, 3),
}


def records(runs, run):
    return [json.loads(line) for line in (runs.folder / run / "metrics.jsonl").read_text().splitlines()]


def numbers(runs, run):
    """A run's output about its updates, without times and speeds."""
    keys = ("type", "update", "epoch", "loss", "nll", "grad_norm", "learning_rate", "target_tokens", "ce-mean-words", "bleu", "chrf", "skipped_updates")
    return [{key: record.get(key) for key in keys} for record in records(runs, run) if record["type"] in ("train", "skipped", "valid")]


def translations(runs, run):
    """Of the validation sentences, by file."""
    return {path.name: path.read_bytes() for path in (runs.folder / run / "valid").glob("*")}


def starts(runs):
    """Pairs of a number of ranks and a launcher."""
    of_launchers = [(ranks, launcher) for launcher in runs.launchers for ranks in (1, 2, 4)]
    return [(0, None), *of_launchers, (2, "slurm"), (2, "nodes"), (4, "devices")]


def equal_files(runs, long):
    short = {("float32", 1), ("8bit", 1), ("bf16", 1), ("bf16", 4), ("skipped", 1), ("skipped", 2)}
    for mode, (options, updates, code) in MODES.items():
        for ranks, launcher in starts(runs):
            is_other = launcher in ("slurm", "nodes", "devices")
            if not long and ((mode, ranks) in short or (is_other and mode != "float32") or (launcher != runs.launcher and mode in ("8bit", "bf16") and ranks == 2)):
                continue
            run = f"{mode}-{launcher}-{ranks}" if ranks else f"{mode}-0"
            runs.train(ranks, run, options, code, launcher)
            if ranks:
                label = f"{mode} on {ranks} ranks of {launcher}"
                runs.compare(f"{mode}-0", run, updates, label)
                if numbers(runs, run) != numbers(runs, f"{mode}-0"):
                    fail(f"{label}: other losses or metrics than without ranks")
                if translations(runs, run) != translations(runs, f"{mode}-0"):
                    fail(f"{label}: other translations of the validation sentences")
    if not any(record["type"] == "skipped" for record in records(runs, "skipped-0")):
        fail("no update of the mode 'skipped' was skipped")
    if not translations(runs, "float32-0") or not any("bleu" in record for record in numbers(runs, "float32-0")):
        fail("nothing was translated")
    if max(record.get("epoch", 0) for record in records(runs, "float32-0")) < 2:
        fail("no epoch has ended")


def resumes(runs, long):
    options, updates = "--save-freq 6u", MODES["float32"][1]
    chains = [(a, b) for a in (1, 2, 4) for b in (1, 2, 4)] if long else [(4, 2, 1), (1, 4)]
    for chain in chains:
        run = "resume-" + "-".join(map(str, chain))
        for step, ranks in enumerate(chain):
            launcher = runs.launchers[step % len(runs.launchers)]
            runs.train(ranks, run, f"{options} --after {updates * (step + 1) // len(chain)}u", launcher=launcher)
        runs.compare("float32-0", run, updates, f"a run on {chain} ranks")


def kills(runs, count, chance):
    """Kills random ranks in the course of runs that are long enough to be hit in the middle, and resumes them with other ranks."""
    updates = 120
    options = f"--save-freq 5u --valid-freq 30u --disp-freq 1u --after {updates}u"
    runs.train(0, "unkilled", options)
    killed = training = round_ = 0
    by_launcher = dict.fromkeys(runs.launchers, 0)
    while killed < count:
        run = f"killed-{round_}"
        round_ += 1
        for _ in range(4):  # kills of one run
            launcher = runs.launchers[killed % len(runs.launchers)]
            before = runs.updates(run)
            job = runs.start(chance.choice((2, 4)), run, options, launcher)
            wait_for_update(runs, job, run, before + chance.randrange(updates // 3))
            time.sleep(chance.uniform(0, 0.3 if runs.updates(run) == before else 0.03))
            processes = runs.pids(run)
            if job.poll() is not None or not processes:
                runs.finish(job, 30)
                continue
            at = runs.updates(run)
            os.kill(processes[chance.choice(sorted(processes))], signal.SIGKILL)
            code, said = runs.finish(job, 30)
            killed += 1
            training += before < at < updates
            by_launcher[launcher] += 1
            if code == 0 and runs.updates(run) < updates:
                fail(f"{launcher} succeeds although a rank was killed: {said[-2000:]}")
            if killed >= count or runs.updates(run) >= updates:
                break
        runs.train(chance.choice((0, 1, 2, 4)), run, options, launcher=chance.choice(runs.launchers))
        if not (runs.folder / run / "ckpt" / str(updates)).exists():
            fail(f"{run} has no last checkpoint")
        else:
            runs.compare("unkilled", run, updates, f"{run} after kills of ranks")
        shutil.rmtree(runs.folder / run)
    print("ranks: kills:", ", ".join(f"{count} of {launcher}" for launcher, count in by_launcher.items()), f"({training} while it trained)")
    if training < count // 2:
        fail(f"only {training} of {count} kills came while a run trained")


def wait_for_update(runs, job, run, update):
    begin = time.monotonic()
    while runs.updates(run) < update and job.poll() is None and time.monotonic() - begin < 60:
        time.sleep(0.02)


def hung(runs, launcher):
    run = f"hung-{launcher}"
    job = runs.start(2, run, "--save-freq 6u --after 100000u --rank-timeout 2", launcher)
    wait_for_update(runs, job, run, 4)
    os.kill(runs.pids(run)[1], signal.SIGSTOP)
    begin = time.monotonic()
    code, said = runs.finish(job, 30)
    if code == 0 or "rank 1 has not come within 2 seconds" not in said:
        fail(f"a hung rank of {launcher} is not named: {code} {said[-2000:]}")
    if time.monotonic() - begin > 15:
        fail(f"a hung rank of {launcher} ends the job after {time.monotonic() - begin:.0f} seconds")


def killed(runs):
    """Without mpirun nobody ends the others: they find out."""
    job = runs.start(4, "dead", "--save-freq 6u --after 100000u", "torchrun")
    wait_for_update(runs, job, "dead", 4)
    begin = time.monotonic()
    os.kill(runs.pids("dead")[2], signal.SIGKILL)
    others = [process for rank, process in enumerate(job.processes) if rank != 2]
    while time.monotonic() - begin < 30 and any(process.poll() is None for process in others):
        time.sleep(0.02)
    seconds = time.monotonic() - begin
    _, said = runs.finish(job, 30)
    if seconds > 10:
        fail(f"a killed rank ends the others after {seconds:.1f} seconds")
    for rank in (0, 1, 3):
        if not re.search((rf"\[rank {rank}\] " if rank else r"(?m)^(?!\[rank)") + r".*rank 2 has left: its connection", said):
            fail(f"rank {rank} does not name the rank that was killed: {said[-3000:]}")


def terminated(runs, launcher):
    run, uncut = f"terminated-{launcher}", f"uncut-{launcher}"
    job = runs.start(2, run, "--save-freq 1000u --after 100000u", launcher)
    wait_for_update(runs, job, run, 4)
    os.kill(runs.pids(run)[1], signal.SIGTERM)
    code, said = runs.finish(job, 30)
    # Of all ranks: who takes the job for done when rank 0 has ended well, as Kubernetes does, would not start it again.
    codes = {process.returncode for process in job.processes} if isinstance(job, Job) else {code}
    if codes != {128 + signal.SIGTERM}:
        fail(f"SIGTERM to one rank of {launcher} ends the job with {codes}: {said[-2000:]}")
    saved = [int(path.name) for path in (runs.folder / run / "ckpt").iterdir() if path.name.isdigit()]
    if not saved:
        return fail(f"SIGTERM to one rank of {launcher} saves nothing: {said[-2000:]}")
    runs.train(1, run, f"--save-freq 1000u --after {max(saved) + 2}u")
    runs.train(0, uncut, f"--save-freq 1000u --after {max(saved) + 2}u")
    runs.compare(uncut, run, max(saved) + 2, "a run that SIGTERM has stopped")


def failed_callback(runs, launcher):
    """Rank 0 alone writes the records of a run. If it cannot, all ranks end with its error, not as if someone had stopped them."""
    run = f"unrecorded-{launcher}"
    job = runs.start(2, run, "--after 100000u --tensorboard train.a/events", launcher)
    code, said = runs.finish(job, 30)
    codes = {process.returncode for process in job.processes} if isinstance(job, Job) else {code}
    reasons = [line for line in said.splitlines() if "error: " in line and "train.a/events: Not a directory" in line]
    by_both = {"[rank 1]" in line for line in reasons} == {False, True}
    if codes != {1} or not (by_both or launcher == "mpi" and reasons):  # mpirun ends a rank as soon as another has ended
        fail(f"a callback of rank 0 that fails ends the ranks of {launcher} with {codes}: {said[-2000:]}")


EIGHT = "--lanes 8 --dim-emb 128 --transformer-dim-ffn 512 --save-freq 4u"  # 15 shards of weights: no rank of eight has none


def eight(runs, long):
    """Eight ranks, as of a host with eight GPUs."""
    launchers = ["threads", *runs.launchers, *(["devices"] if long else [])]
    forms = {"float32": "", "bf16": " --communication-dtype bf16 --optimizer-states 8bit --exponential-smoothing 1e-2"}

    def memory(said):
        planned, taken = re.search(r"planned peak ([\d.]+) MiB", said), re.search(r"target tokens, .* memory ([\d.]+) MiB", said)
        return (planned and planned[1], taken and taken[1])

    def same(run, one, label):
        a, b = runs.directory(one), runs.directory(run)
        if different := [name for name in sorted({*a, *b}) if a.get(name) != b.get(name)]:
            fail(f"{label}: {one} and {run} differ in {different}")

    for form, more in forms.items():
        if form != "float32" and not long:
            continue
        options, one = f"{EIGHT} --valid-freq 4u{more}", f"eight-{form}"
        alone = memory(runs.train(0, one, options + " --after 8u"))
        for launcher in launchers:
            run = f"{one}-{launcher}"
            for ranks in (2, 4, 8) if long else (8,):
                whole = f"{run}-{ranks}"
                planned, taken = memory(runs.train(ranks, whole, options + " --after 8u", launcher=launcher))
                same(whole, one, f"{form} on {ranks} ranks of {launcher}")
                if taken is None or planned != taken or alone[0] != alone[1] or float(taken) >= float(alone[1]):
                    fail(f"{ranks} ranks of {launcher} have planned {planned} MiB and taken {taken}, one {alone[0]} and {alone[1]}")
            for before, after in [(8, 2), (8, 1), (2, 8), (1, 8), (4, 8), (8, 8)] if long else [(8, 2)]:
                resumed = f"{run}-{before}-{after}"
                for ranks, updates in ((before, 4), (after, 8)):
                    runs.train(ranks, resumed, f"{options} --after {updates}u", launcher=launcher if ranks > 1 else None)
                same(resumed, one, f"{form} on {before}, then {after} ranks of {launcher}")
    for launcher in runs.launchers:
        one_of_eight_killed(runs, launcher, range(8) if long else (5,))


def one_of_eight_killed(runs, launcher, victims):
    for victim in victims:
        run = f"eight-killed-{launcher}-{victim}"
        job = runs.start(8, run, EIGHT + " --after 100000u --valid-freq 100000u --disp-freq 1u", launcher)
        wait_for_update(runs, job, run, 4)
        processes = runs.pids(run)
        begin = time.monotonic()
        os.kill(processes[victim], signal.SIGKILL)
        while time.monotonic() - begin < 60 and any(pathlib.Path(f"/proc/{pid}/cwd").exists() for rank, pid in processes.items() if rank != victim):
            time.sleep(0.02)
        seconds = time.monotonic() - begin
        code, said = runs.finish(job, 30)
        print(f"ranks: rank {victim} of 8 over {launcher} killed: the others ended after {seconds:.1f} seconds")
        if len(processes) != 8 or code == 0 or seconds > 15:
            fail(f"a killed rank of eight of {launcher} ends the job with {code} after {seconds:.1f} seconds: {said[-2000:]}")


def mismatches(runs, long):
    different = {"--seed 2": "seed is 2, on rank 0 it is 1"}
    if long:
        different.update({
            "--learn-rate 0.5": "--learn-rate is 0.5",
            "--mini-batch-words 300": "--mini-batch-words is 300",
            "--train-sets valid.a valid.b": "corpus",
            "--dim-emb 16": "rank 1 differs from rank 0",
            "--optimizer-states 8bit": "differs from rank 0",
            "--communication-dtype bf16": '--communication-dtype is "bf16"',
        })
    for launcher in runs.launchers:
        for number, (options, message) in enumerate(different.items()):
            code, said = runs.finish(runs.start(["", options], f"different-{launcher}-{number}", "--after 4u", launcher))
            if code == 0 or message not in said or "rank 1" not in said:
                fail(f"ranks of {launcher} that differ in {options}: {code} {said[-2000:]}")
        if long:  # an error of one rank alone, before it joins
            code, said = runs.finish(runs.start(["", "--vocabs missing.spm"], f"missing-{launcher}", "--after 4u --rank-timeout 20", launcher))
            if code == 0 or "missing.spm" not in said:
                fail(f"a rank of {launcher} without a vocabulary: {code} {said[-2000:]}")


def refusals(runs):
    """Faults of the environment or the command line are named before anything is read."""
    torchrun = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400"}
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "node[1-2]"}
    nodes = "--nodes 2 --node-rank 0 --master localhost:29400"
    cases = [
        ({**torchrun, "RANK": "2"}, "", "RANK is 2 and WORLD_SIZE is 2"),
        ({**torchrun, "WORLD_SIZE": "two"}, "", "WORLD_SIZE=two, which is no number"),
        ({**torchrun, "MASTER_ADDR": "node7"}, "", "ranks meet at node7:29400, and TRAFO_JOB_TOKEN is not set"),
        ({**torchrun, "MASTER_PORT": "70000"}, "", "MASTER_PORT=70000, which is no number from 0 to 65535"),
        (torchrun, "--devices cpu,cpu", "under torchrun each process is one rank"),
        ({"RANK": "0"}, "--launcher torchrun", "the environment has no WORLD_SIZE"),
        (slurm, "--launcher slurm", "ranks meet at node1:20707, and TRAFO_JOB_TOKEN is not set"),
        ({**slurm, "SLURM_STEP_ID": "1"}, "--launcher slurm", "ranks meet at node1:20708"),
        ({**slurm, "SLURM_JOB_ID": "8"}, "--launcher slurm", "ranks meet at node1:20808"),
        ({**slurm, "SLURM_STEP_NODELIST": "node[1-2"}, "--launcher slurm", "names no host"),
        ({}, "--launcher slurm", "the environment has no SLURM_PROCID: start the processes with srun"),
        ({**slurm, "SLURM_STEP_NUM_TASKS": "2"}, "", "srun has started 2 tasks: --launcher slurm makes them the ranks of one run"),
        ({}, "--nodes 2 --master localhost:29400", "--node-rank is missing"),
        ({}, "--nodes 2 --node-rank 0", "--master HOST:PORT is missing"),
        ({}, "--nodes 2 --node-rank 2 --master localhost:1", "--node-rank is 2 and --nodes is 2"),
        ({}, "--nodes 2 --node-rank 0 --master localhost", "TRAFO_JOB_TOKEN"),
        ({}, nodes + " --launcher mpi", "--nodes is instead of --launcher mpi"),
        ({}, "--master localhost:29400", "--master is for --nodes"),
        ({}, "--node-rank 1", "--nodes is missing"),
        ({"TRAFO_JOB_TOKEN": "short"}, nodes, "TRAFO_JOB_TOKEN must be at least 64 hexadecimal digits"),
        ({"TRAFO_JOB_TOKEN": "a sentence that is as long as a secret of 64 digits, but guessable"}, nodes, "TRAFO_JOB_TOKEN must be at least 64 hexadecimal digits"),
        ({"TRAFO_JOB_TOKEN": "0" * 64}, nodes, "token can be guessed"),
    ]
    for environment, options, message in cases:
        command = runs.command("refused", options)
        if "--devices" in command:
            del command[command.index("--device"):command.index("--device") + 2]
        job = subprocess.run(command, cwd=runs.folder, env={**runs.environment, **environment}, text=True,
                             capture_output=True, timeout=60)
        if job.returncode == 0 or message not in job.stderr:
            fail(f"{environment} {options}: {job.returncode} {job.stderr[-500:]}, not '{message}'")
    if (runs.folder / "refused").exists():
        fail("a refused run has made its directory")


def host_secrets(runs):
    """Without TRAFO_JOB_TOKEN the ranks of a host meet with a secret from a file that nobody else can read. Another file is refused."""
    folder, port = runs.folder / "runtime", str(free_port())
    folder.mkdir()
    secret = folder / f"trafo-secret-{os.geteuid()}"
    torchrun = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "XDG_RUNTIME_DIR": str(folder)}

    def start(rank):
        return subprocess.Popen(runs.command("secret", "--after 2u"), cwd=runs.folder, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, env={**runs.environment, **torchrun, "RANK": str(rank), "LOCAL_RANK": str(rank)})

    def link():
        secret.symlink_to("/etc/hostname")

    def write(text, mode):
        secret.write_text(text)
        secret.chmod(mode)

    cases = [(link, "cannot be opened"), (lambda: write("0123456789abcdef" * 4, 0o644), "is not a file that this user alone can read"),
             (lambda: write("hello", 0o600), "does not hold 64 hexadecimal digits")]
    for make, message in cases:
        make()
        job = start(0)
        said, _ = job.communicate(timeout=60)
        if job.returncode == 0 or message not in said:
            fail(f"a bad secret of the host: {job.returncode} {said[-500:]}, not '{message}'")
        secret.unlink()
    for rank, job in enumerate([start(0), start(1)]):
        said, _ = job.communicate(timeout=120)
        if job.returncode != 0:
            fail(f"rank {rank} with the secret of the host: {job.returncode} {said[-500:]}")
    if secret.stat().st_mode & 0o777 != 0o600 or not re.fullmatch("[0-9a-f]{64}", secret.read_text()):
        fail("the secret of the host is not one of 64 hexadecimal digits that its user alone can read")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--mpi", metavar="LIBTRAFO_MPI")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--seed", type=int, default=18)
    arguments = parser.parse_args()
    if arguments.mpi and not shutil.which("mpirun"):
        print("ranks: there is no mpirun, so all processes exchange over TCP")
        arguments.mpi = None
    count = arguments.kills if arguments.kills is not None else 200 if arguments.long else 2
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        folder = pathlib.Path(name).resolve()
        write_corpus(folder)
        library = arguments.mpi and str(pathlib.Path(arguments.mpi).resolve())
        runs = Runs(str(pathlib.Path(arguments.program).resolve()), library, folder)
        subprocess.run([runs.program, "vocab", "--train-sets", "train.a", "train.b", "--dim-vocabs", "120", "--soft-limit"],
                       cwd=folder, check=True, capture_output=True)
        equal_files(runs, arguments.long)
        resumes(runs, arguments.long)
        refusals(runs)
        host_secrets(runs)
        for launcher in runs.launchers:
            terminated(runs, launcher)
            hung(runs, launcher)
            failed_callback(runs, launcher)
        killed(runs)
        eight(runs, arguments.long)
        mismatches(runs, arguments.long)
        kills(runs, count, random.Random(arguments.seed))
    print(f"ranks: {len(failures)} failures, {time.monotonic() - begin:.0f} seconds")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
