#!/usr/bin/env python3
"""translate-train in jobs of a real Slurm: two nodes, which are namespaces of this machine (namespace_hosts.py), with munge and a controller.

    tests/dist/slurm.py TRANSLATE_TRAIN [--mpi LIBTRAFO_MPI] [--install]

The lines of docs/guide/launchers.md: srun with --launcher slurm, and with --launcher mpi where Slurm or mpirun starts MPI; the script for
sbatch. Files are the bytes of one process. A killed task ends all tasks with an error that names its rank; scancel, with and without
--signal=TERM, saves and stops all; a job goes on with another number of tasks; a requeued job goes on by itself; two jobs run side by side.
Needs root, Slurm and munge: --install installs Debian's. Without them it says so and ends with 77. But for that, nothing outside the namespaces
is changed. CI does not run it.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import namespace_hosts
import ranks
from ranks import fail

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "scontrol", "squeue")
LAST, OPTIONS = 18, "--save-freq 6u --after 18u"
LONG = "--save-freq 100u --after 1000000u"
NODES = 2
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "BOOT_FAIL", "DEADLINE")
CONFIGURATION = """\
ClusterName=trafo
SlurmctldHost=control
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/%n
TmpFS={folder}/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=host[0-{last}] CPUs=8
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def wait_until(what, condition, seconds=60):
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > seconds:
            raise RuntimeError(f"{what} did not happen within {seconds} seconds")
        time.sleep(0.05)


def said_by(*command):
    return subprocess.run(command, text=True, capture_output=True).stdout


class Slurm:
    def __init__(self, cluster, folder):
        self.folder = folder
        munge = folder / "munge"
        munge.mkdir(mode=0o700)
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o400)
        (folder / "state").mkdir()
        (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder, last=NODES - 1))
        os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
        self.start("munged", ["munged", "--foreground", "--force", *(f"--{name}-file={munge}/{name}" for name in ("key", "log", "pid", "seed")),
                              f"--socket={munge}/socket"])
        wait_until("the start of munged", (munge / "socket").exists)
        self.start("slurmctld", ["slurmctld", "-D"])
        for host in cluster.hosts:
            (folder / host.name).mkdir()
            self.start(host.name, host.command("slurmd", "-D"))
        try:
            wait_until("that all nodes are idle", lambda: said_by("sinfo", "-h", "-o", "%T %D").split() == ["idle", str(NODES)])
        except RuntimeError:
            for log in folder.glob("*.log"):
                print(f"slurm: {log.name}: {log.read_text()[-2000:]}", file=sys.stderr)
            raise

    def start(self, name, command):
        with (self.folder / f"{name}.log").open("w") as log:
            subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


class SlurmRuns(ranks.Runs):
    def __init__(self, program, library, folder):
        super().__init__(program, library, folder)
        self.environment |= {"SLURM_CONF": os.environ["SLURM_CONF"], "TRAFO_JOB_TOKEN": ranks.TOKEN}

    def srun(self, tasks, run, options, launcher="slurm", srun=""):
        """A step of `tasks` tasks on both nodes."""
        command = ["srun", *srun.split(), "--nodes", str(min(tasks, NODES)), "--ntasks", str(tasks), *self.command(run, f"{options} --launcher {launcher}")]
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def sbatch(self, name, lines, *options):
        """The number of the job."""
        script = self.folder / f"{name}.sh"
        script.write_text("#!/bin/sh\n" + lines)
        done = subprocess.run(["sbatch", "--parsable", f"--output={self.folder}/{name}.out", "--open-mode=append", *options, str(script)],
                              cwd=self.folder, env={key: value for key, value in self.environment.items() if key != "TRAFO_JOB_TOKEN"}, text=True, capture_output=True)
        if done.returncode != 0:
            raise RuntimeError(f"sbatch: {done.stderr}")
        return done.stdout.strip()

    def state(self, job):
        """Its state, and the exit status and signal of its script."""
        shown = said_by("scontrol", "show", "job", job)
        return re.search(r"JobState=(\S+)", shown)[1], re.search(r"ExitCode=(\S+)", shown)[1]

    def wait_for_end(self, job, seconds=120):
        wait_until(f"the end of job {job}", lambda: self.state(job)[0] in ENDED, seconds)
        return self.state(job)

    def must(self, job, label, expected=0):
        code, said = self.finish(job)
        if code != expected:
            fail(f"{label}: ended with {code}: {said[-3000:]}")
        return said

    def must_be_equal(self, run, label, last=LAST):
        self.compare("alone", run, last, label)
        print(f"slurm: {label}: equal files", flush=True)

    def wait_for_update(self, run, update, seconds=60):
        wait_until(f"update {update} of {run}", lambda: self.updates(run) >= update, seconds)

    def saved(self, run):
        return max((int(path.name) for path in (self.folder / run / "ckpt").iterdir() if path.name.isdigit()), default=0)

    def must_resume(self, run, label, tasks):
        """Two updates more, as one process does them."""
        last = self.saved(run) + 2
        self.must(self.srun(tasks, run, f"--save-freq 100u --after {last}u"), label)
        self.train(0, f"uncut-{run}", f"--save-freq 100u --after {last}u")
        self.compare(f"uncut-{run}", run, last, label)
        print(f"slurm: {label}: saved at update {last - 2}, goes on with {tasks} tasks to the same files", flush=True)


def equal_files(runs):
    runs.train(0, "alone", OPTIONS)
    for tasks in (1, 2, 4):
        runs.must(runs.srun(tasks, f"srun-{tasks}", OPTIONS), f"srun with {tasks} tasks")
        runs.must_be_equal(f"srun-{tasks}", f"srun -n {tasks}, --launcher slurm")
    if not runs.environment.get("TRAFO_MPI_LIBRARY"):
        return print("slurm: no --mpi: nothing was tried with MPI")
    if not re.search(r"\bpmix\b", said_by("srun", "--mpi=list")):
        return fail("Slurm has no plugin for PMIx")
    runs.must(runs.srun(2, "pmix", OPTIONS, "mpi", "--mpi=pmix"), "srun --mpi=pmix")
    runs.must_be_equal("pmix", "srun --mpi=pmix -n 2, --launcher mpi")


def of_script(runs):
    command = " ".join(runs.command("script", OPTIONS))
    lines = f"#SBATCH --nodes 2 --ntasks-per-node 2 --cpus-per-task 2\nexport TRAFO_JOB_TOKEN=$(openssl rand -hex 32)\nsrun {command} --launcher slurm\n"
    state = runs.wait_for_end(runs.sbatch("script", lines))
    if state != ("COMPLETED", "0:0"):
        fail(f"the script ends as {state}: {(runs.folder / 'script.out').read_text()[-2000:]}")
    runs.must_be_equal("script", "sbatch, two nodes with two tasks each")
    if runs.environment.get("TRAFO_MPI_LIBRARY"):
        command = " ".join(runs.command("mpirun", OPTIONS))
        mpirun = " ".join(["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"])
        state = runs.wait_for_end(runs.sbatch("mpirun", f"{mpirun} {command}\n", "--nodes=2", "--ntasks-per-node=2"))
        if state != ("COMPLETED", "0:0"):
            return fail(f"mpirun in a script ends as {state}: {(runs.folder / 'mpirun.out').read_text()[-2000:]}")
        runs.must_be_equal("mpirun", "sbatch with mpirun, two nodes with two tasks each")


def without_launcher(runs):
    """Each task would train alone."""
    code, said = runs.finish(runs.srun(2, "unsaid", OPTIONS, "auto"))
    if code == 0 or "srun has started 2 tasks: --launcher slurm makes them the ranks of one run" not in said or (runs.folder / "unsaid").exists():
        fail(f"srun without --launcher ends with {code}: {said[-1000:]}")


def time_limit(runs):
    """Slurm says it a while before, and the tasks save. It needs up to a minute."""
    command = " ".join(runs.command("limited", LONG))
    lines = f"export TRAFO_JOB_TOKEN=$(openssl rand -hex 32)\nsrun {command} --launcher slurm\n"
    job = runs.sbatch("limited", lines, "--nodes=2", "--ntasks-per-node=1", "--time=1", "--signal=TERM@30")
    state = runs.wait_for_end(job)
    text = (runs.folder / "limited.out").read_text()
    if "interrupted, everything is saved" not in text:
        fail(f"a job near its time limit ends as {state} without saving: {text[-2000:]}")
    print(f"slurm: --time=1 --signal=TERM@30: {state}", flush=True)
    runs.must_resume("limited", "after the signal before the time limit", 2)


def killed_task(runs):
    # srun may lose what a task on another node says last, so each task has a file.
    job = runs.srun(4, "killed", LONG, srun=f"--error={runs.folder}/killed.%t")
    runs.wait_for_update("killed", 110)
    begin = time.monotonic()
    os.kill(runs.pids("killed")[2], signal.SIGKILL)
    code, said = runs.finish(job, 60)
    seconds = time.monotonic() - begin
    for rank in (0, 1, 3):
        text = (runs.folder / f"killed.{rank}").read_text()
        if "error: " + (f"[rank {rank}] " if rank else "") + "rank 2 has left: its connection has " not in text:
            fail(f"rank {rank} does not name the rank that was killed: {text[-1000:]!r}")
    if code == 0 or seconds > 15:
        fail(f"a killed task ends srun with {code} after {seconds:.1f} seconds")
    print(f"slurm: a killed task: srun ended with {code} after {seconds:.1f} s", flush=True)
    runs.must_resume("killed", "after a killed task", 2)


def cancelled(runs):
    command = " ".join(runs.command("cancelled", LONG))
    lines = f"export TRAFO_JOB_TOKEN=$(openssl rand -hex 32)\nsrun {command} --launcher slurm\n"
    for how, run, tasks in ((["--signal=TERM"], "signalled", 3), ([], "cancelled", 1)):
        job = runs.sbatch(run, lines.replace(" cancelled ", f" {run} "), "--nodes=2", "--ntasks-per-node=2")
        runs.wait_for_update(run, 10)
        subprocess.run(["scancel", *how, job], check=True)
        state = runs.wait_for_end(job)
        print(f"slurm: scancel {' '.join(how)}: {state}", flush=True)
        text = (runs.folder / f"{run}.out").read_text()
        if "interrupted, everything is saved" not in text:
            fail(f"scancel {how} stops without saving: {text[-2000:]}")
        runs.must_resume(run, f"after scancel {' '.join(how)}", tasks)


def requeued(runs):
    """The job starts again by itself, and goes on."""
    command = " ".join(runs.command("requeued", "--save-freq 100u --after 600u"))
    lines = f"export TRAFO_JOB_TOKEN=$(openssl rand -hex 32)\nsrun {command} --launcher slurm\n"
    job = runs.sbatch("requeued", lines, "--nodes=2", "--ntasks-per-node=1", "--requeue")
    runs.wait_for_update("requeued", 110)
    subprocess.run(["scontrol", "requeue", job], check=True)
    wait_until("the requeue", lambda: runs.state(job)[0] in ("PENDING", "REQUEUED"), 60)
    # Slurm starts it again after two minutes, unless it is asked to.
    subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], check=True)
    state = runs.wait_for_end(job, 240)
    text = (runs.folder / "requeued.out").read_text()
    if state != ("COMPLETED", "0:0") or "resuming requeued at update" not in text:
        fail(f"a requeued job ends as {state}: {text[-2000:]}")
    runs.train(0, "unqueued", "--save-freq 100u --after 600u")
    runs.compare("unqueued", "requeued", 600, "a requeued job")
    print(f"slurm: scontrol requeue: {re.search('resuming requeued at update.*', text)[0]}, {state}", flush=True)


def side_by_side(runs):
    jobs = [runs.srun(2, f"beside-{number}", OPTIONS) for number in range(3)]
    for number, job in enumerate(jobs):
        runs.must(job, f"job {number} of three at a time")
        runs.must_be_equal(f"beside-{number}", f"job {number} of three at a time")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--mpi", metavar="LIBTRAFO_MPI")
    parser.add_argument("--install", action="store_true")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("slurm: skipped: it needs root")
        return namespace_hosts.SKIPPED
    if arguments.install and not all(map(shutil.which, PROGRAMS)):
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "slurm-wlm", "munge"], check=True,
                       env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    if missing := [name for name in PROGRAMS if not shutil.which(name)]:
        print(f"slurm: skipped: there is no {', '.join(missing)}; --install installs slurm-wlm and munge")
        return namespace_hosts.SKIPPED
    namespace_hosts.enter("slurm")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        scratch = pathlib.Path(name).resolve()
        folder = scratch / "shared"  # as on a cluster, all nodes have it
        folder.mkdir()
        cluster = namespace_hosts.Cluster(NODES, scratch)
        Slurm(cluster, scratch)
        library = arguments.mpi and str(pathlib.Path(arguments.mpi).resolve())
        runs = SlurmRuns(str(pathlib.Path(arguments.program).resolve()), library, folder)
        ranks.write_corpus(folder)
        subprocess.run([runs.program, "vocab", "--train-sets", "train.a", "train.b", "--dim-vocabs", "120", "--soft-limit"], cwd=folder, check=True, capture_output=True)
        for case in (equal_files, of_script, without_launcher, side_by_side, killed_task, cancelled, requeued, time_limit):
            case(runs)
    print(f"slurm: {len(ranks.failures)} failures, {time.monotonic() - begin:.0f} seconds")
    return 1 if ranks.failures else 0


if __name__ == "__main__":
    sys.exit(main())
