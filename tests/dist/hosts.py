#!/usr/bin/env python3
"""translate-train on three hosts without a launcher: they write the files of one process, and no host that is lost hangs the others.

    tests/dist/hosts.py TRANSLATE_TRAIN [--mpi LIBTRAFO_MPI] [--long]

The hosts are namespaces of this machine (namespace_hosts.py): each has its own name, addresses, link and disk, so ranks other than 0 do not
see the run directory. Where the kernel has netem, each link delays packets by 1 ms. Needs root, or a kernel that lets users make
namespaces; elsewhere it says so and ends with 77. A link is cut in the middle of a run; a host never comes; the master is a wrong
address; two jobs meet at one port; SIGTERM reaches the rank of another host. --mpi: mpirun also
starts ranks on the hosts, and a link is cut. --long: also a cut link with the default timeout, which takes a minute.
"""
import argparse
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

PORT = 29400
LAST, OPTIONS = 18, "--save-freq 6u --after 18u"
LONG = "--save-freq 6u --after 100000u"
SECONDS = 5  # of --rank-timeout and --join-timeout


class Ranks:
    """A process on each of some hosts."""

    def __init__(self, runs, starts, environment):
        self.logs = [pathlib.Path(f"{runs.scratch}/{runs.count()}.log") for _ in starts]
        self.processes = []
        for (host, command), log in zip(starts, self.logs):
            with log.open("w") as out:
                self.processes.append(subprocess.Popen(host.command(*command, folder=runs.private), env=environment, stdout=out, stderr=subprocess.STDOUT))

    @staticmethod
    def joined(one, other):
        one.processes += other.processes
        one.logs += other.logs
        return one

    def poll(self):
        codes = [process.poll() for process in self.processes]
        return None if None in codes else codes

    def finish(self, seconds=60):
        """Exit status and output of each, and how long the last one took to end by itself."""
        begin = time.monotonic()
        while self.poll() is None and time.monotonic() - begin < seconds:
            time.sleep(0.02)
        took = time.monotonic() - begin
        for number, process in enumerate(self.processes):
            if process.poll() is None:
                process.kill()
                fail(f"rank {number} did not end within {seconds} seconds: {self.logs[number].read_text()[-2000:]}")
                process.wait()
        return [process.returncode for process in self.processes], [log.read_text() for log in self.logs], took


class HostRuns(ranks.Runs):
    """`folder` is the disk of the first host, seen from here; `private` its name on each host."""

    def __init__(self, program, library, cluster, scratch, private):
        super().__init__(program, library, cluster[0].path(private))
        self.cluster, self.scratch, self.private, self.logs = cluster, scratch, private, 0

    def count(self):
        self.logs += 1
        return self.logs

    def on_hosts(self, hosts, run, options, master=f"host0:{PORT}", token=ranks.TOKEN, first=0, nodes=None, ranks_each=1, vocabulary=True):
        """A node on each host of `hosts`, with the ranks from `first`. Without `vocabulary` each trains its own."""
        starts = [(self.cluster[number], self.command(run, f"{options} --nodes {nodes or len(hosts)} --node-rank {rank} --master {master}"))
                  for rank, number in enumerate(hosts, first)]
        for _, command in starts:
            if ranks_each > 1:
                at = command.index("--device")
                command[at:at + 2] = ["--devices", ",".join(["cpu"] * ranks_each)]
            if not vocabulary:
                at = command.index("--vocabs")
                del command[at:at + 2]
        return Ranks(self, starts, {**self.environment, **({"TRAFO_JOB_TOKEN": token} if token else {})})

    def alone(self, run, options):
        return Ranks(self, [(self.cluster[0], self.command(run, options))], self.environment)

    def must(self, job, label, expected=0):
        codes, said, _ = job.finish(120)
        if any(code != expected for code in codes):
            fail(f"{label}: ended with {codes}: {said}")
        return said

    def must_fail(self, label, job, messages, seconds):
        """All ranks end by themselves with an error that has the rank's message of `messages`."""
        codes, said, took = job.finish(seconds + 30)
        for rank, message in enumerate(messages):
            if codes[rank] not in range(1, 128) or not re.search(message, said[rank]):  # a signal has ended no rank
                fail(f"{label}: rank {rank} ends with {codes[rank]} and says {said[rank][-1000:]!r}, not '{message}'")
        if took > seconds:
            fail(f"{label}: the ranks end after {took:.1f} seconds")
        print(f"hosts: {label}: " + " | ".join(text.strip().splitlines()[-1] for text in said if text.strip()), flush=True)

    def must_be_of_host_0(self, run):
        if not (self.folder / run / "config.yml").exists():
            fail(f"host0 has no {run}")
        for host in self.cluster.hosts[1:]:
            if (path := host.path(f"{self.private}/{run}")).exists():
                fail(f"{host.name} has {run}: {[each.name for each in path.iterdir()]}")


def equal_files(runs):
    """Also over IPv6, with two ranks on each host, and with a vocabulary that each host trains."""
    runs.must(runs.alone("alone", OPTIONS), "one process")
    cases = {"three": ((0, 1, 2), OPTIONS, f"host0:{PORT}"), "v6": ((0, 2), OPTIONS, f"host0-v6:{PORT}"),
             "address": ((0, 1), OPTIONS, f"{runs.cluster[0].address}:{PORT}")}
    if not runs.cluster.has_ipv6:
        print("hosts: skipped: IPv6, which this kernel does not have", flush=True)
        del cases["v6"]
    for run, (hosts, options, master) in cases.items():
        runs.must(runs.on_hosts(hosts, run, options, master), f"{len(hosts)} hosts at {master}")
        runs.compare("alone", run, LAST, f"{run}: {len(hosts)} hosts")
        runs.must_be_of_host_0(run)
    runs.must(runs.on_hosts((0, 1), "pairs", OPTIONS, ranks_each=2), "two hosts with two ranks each")
    runs.compare("alone", "pairs", LAST, "two hosts with two ranks each")
    for hosts in ((0,), (0, 1)):
        runs.must(runs.on_hosts(hosts, f"vocabulary-{len(hosts)}", "--save-freq 6u --after 6u", vocabulary=False), "hosts that train the vocabulary")
    runs.compare("vocabulary-1", "vocabulary-2", 6, "two hosts that train the vocabulary")


def resumes(runs):
    """The other hosts do not see the run directory, and are given the same flags."""
    for hosts, after in (((0, 1, 2), 6), ((0,), 12), ((0, 2), 18)):
        options = f"--save-freq 6u --after {after}u"
        runs.must(runs.on_hosts(hosts, "resumed", options) if len(hosts) > 1 else runs.alone("resumed", options), f"resuming on {len(hosts)} hosts")
    runs.compare("alone", "resumed", LAST, "a run that changed its hosts")
    runs.must_be_of_host_0("resumed")


def wait_for_update(runs, job, run, update):
    begin = time.monotonic()
    while runs.updates(run) < update and job.poll() is None and time.monotonic() - begin < 60:
        time.sleep(0.02)
    if runs.updates(run) < update:
        fail(f"{run} has not come to update {update}: {job.finish(0)}")


def cut_links(runs, long):
    cases = {"cut-1": (1, [r"rank 1 ", r"rank [02] ", r"rank 1 "]), "cut-0": (0, [r"rank [12] ", r"rank 0 ", r"rank 0 "])}
    for run, (number, messages) in cases.items():
        job = runs.on_hosts((0, 1, 2), run, f"{LONG} --rank-timeout {SECONDS}")
        wait_for_update(runs, job, run, 8)
        runs.cluster[number].set_link("down")
        begin = time.monotonic()
        runs.must_fail(f"the link of host{number} is cut", job, [f"{message}has not come within {SECONDS} seconds" for message in messages], SECONDS + 20)
        print(f"hosts: all ended after {time.monotonic() - begin:.1f} s", flush=True)
        runs.cluster[number].set_link("up")
        last = max(int(path.name) for path in (runs.folder / run / "ckpt").iterdir() if path.name.isdigit())
        runs.must(runs.on_hosts((0, 1, 2), run, f"--save-freq 6u --after {last + 6}u"), "a run after a cut link")
        runs.must(runs.alone(f"un{run}", f"--save-freq 6u --after {last + 6}u"), "one process")
        runs.compare(f"un{run}", run, last + 6, f"a run after the link of host{number} was cut")
    if long:  # nobody has said how long to wait: the kernels find out
        job = runs.on_hosts((0, 1, 2), "cut-long", LONG)
        wait_for_update(runs, job, "cut-long", 8)
        runs.cluster[1].set_link("down")
        runs.must_fail("the link of host1 is cut, with the default timeout", job, ["rank 1 has left: its host does not answer", "rank [02] has left", "rank 1 has left"], 70)
        runs.cluster[1].set_link("up")


def of_mpi(runs):
    """mpirun reaches the hosts by a script that is called as ssh is."""
    agent = runs.scratch / "agent"
    agent.write_text("#!/bin/sh\ncase $1 in\n" + "".join(f"{host.name}) pid={host.holder.pid};;\n" for host in runs.cluster.hosts) +
                     'esac\nshift\nexec nsenter --target $pid --net --mount --uts sh -c "$*"\n')
    agent.chmod(0o755)

    def started(run, options):
        command = ["mpirun", "--bind-to", "none", "--host", ",".join(host.name for host in runs.cluster.hosts), "--mca", "plm_rsh_agent", str(agent),
                   "-x", "TRAFO_MPI_LIBRARY", "--wdir", str(runs.private), "-n", str(len(runs.cluster.hosts)), *runs.command(run, options)]
        return Ranks(runs, [(runs.cluster[0], command)], runs.environment)

    runs.must(started("of-mpirun", OPTIONS), "mpirun on three hosts")
    runs.compare("alone", "of-mpirun", LAST, "mpirun on three hosts")
    runs.must_be_of_host_0("of-mpirun")
    job = started("of-mpirun-cut", f"{LONG} --rank-timeout {SECONDS}")
    wait_for_update(runs, job, "of-mpirun-cut", 8)
    if len(living(runs)) != 3:
        fail(f"mpirun on three hosts has the ranks {living(runs)}")
    runs.cluster[1].set_link("down")
    begin = time.monotonic()
    while living(runs) and time.monotonic() - begin < SECONDS + 20:
        time.sleep(0.1)
    took, left, missed = time.monotonic() - begin, living(runs), "rank 1 has not come within"
    while missed not in (said := job.logs[0].read_text()) and time.monotonic() - begin < SECONDS + 30:  # mpirun passes it on later
        time.sleep(0.1)
    if left or missed not in said:
        fail(f"the link of host1 is cut under mpirun: after {took:.1f} seconds the processes {left} are there: {said[-1500:]}")
    print(f"hosts: the link of host1 is cut under mpirun: all ranks ended after {took:.1f} s", flush=True)
    job.processes[0].kill()  # it waits for its own process on the host that is cut off
    job.processes[0].wait()
    runs.cluster[1].set_link("up")


def living(runs):
    """The processes of the program, on all hosts."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and (folder / "cmdline").read_bytes().split(b"\0")[0] == runs.program.encode():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def joins(runs):
    """Nobody joins whom nobody knows, and who is missing is named."""
    options, late = f"--after 4u --join-timeout {SECONDS}", f"has not joined within {SECONDS} seconds"
    elsewhere = f"rank 0 {late} at {{}}, port 29401: .*"
    cases = [
        ("host2 never comes", (0, 1), {"nodes": 3}, [f"rank 2 {late}"] * 2),
        ("host0 never comes", (1, 2), {"nodes": 3, "first": 1, "master": "host0:29401"}, [elsewhere.format("host0") + "Connection refused"] * 2),
        ("the master's name is unknown", (1,), {"nodes": 2, "first": 1, "master": "nowhere:29401"}, [elsewhere.format("nowhere") + "(not known|resolution)"]),
        ("no host has the master's address", (1,), {"nodes": 2, "first": 1, "master": "10.18.0.99:29401"}, [elsewhere.format("10.18.0.99") + "(No route to host|does not answer)"]),
        ("the master is another host", (0, 1), {"master": "host1:29402"}, [f"rank 1 {late}", f"rank 0 {late} at host1, port 29402: .*Connection refused"]),
        ("without a token", (0, 1), {"token": None}, ["TRAFO_JOB_TOKEN is not set"] * 2),
    ]
    # Rank 0 gives up first, so rank 1 hears of it only if both have started at about the same time: this one is alone.
    label, hosts, how, messages = cases.pop(0)
    runs.must_fail(label, runs.on_hosts(hosts, "joins-alone", options, **how), messages, SECONDS + 20)
    # The others have nothing to do with each other, and wait together.
    jobs = [runs.on_hosts(hosts, f"joins-{number}", options, **how) for number, (_, hosts, how, _) in enumerate(cases)]
    for job, (label, _, _, messages) in zip(jobs, cases):
        runs.must_fail(label, job, messages, SECONDS + 20)


def two_jobs(runs):
    """At one port. It is free again once all ranks of a job have joined."""
    late = f"--after 4u --join-timeout {SECONDS}"
    waits = runs.on_hosts((0,), "waits", f"--after 4u --join-timeout {24 * SECONDS}", nodes=2)
    wait_until_port_is_open(runs)
    calls = [  # what comes to the rank 0 that waits
        ("two jobs wait at one port", runs.on_hosts((0,), "second", late, nodes=2), f"cannot listen at host0, port {PORT}: Address already in use"),
        ("a rank of another job", runs.on_hosts((2,), "second", late, first=1, nodes=2, token="0123456789abcdef" * 4), "has another token: it is of another job"),
        ("a rank of a larger job", runs.on_hosts((2,), "second", late, first=1, nodes=3), "rank 1 joins a group of 3, rank 0 one of 2"),
    ]
    for label, job, message in calls:
        runs.must_fail(label, job, [message], SECONDS + 20)
    runs.must(Ranks.joined(waits, runs.on_hosts((1,), "waits", late, first=1, nodes=2)), "a job that others have called")
    begun = runs.on_hosts((0, 1), "terminated", LONG)
    wait_for_update(runs, begun, "terminated", 4)
    runs.must(runs.on_hosts((0, 1), "beside", OPTIONS), "a job at the port of one that has begun")
    runs.compare("alone", "beside", LAST, "a job at the port of one that has begun")
    terminated(runs, begun)


def wait_until_port_is_open(runs):
    """Nobody has called: a call would count as one without the token."""
    begin = time.monotonic()
    tables = [table for table in ("/proc/net/tcp", "/proc/net/tcp6") if pathlib.Path(table).exists()]
    while not re.search(rf":{PORT:04X} [0-9A-F]+:0000 0A ", runs.cluster[0].run("cat", *tables)):  # 0A: it listens
        if time.monotonic() - begin > 60:
            raise RuntimeError(f"nobody listens at port {PORT}")
        time.sleep(0.05)


def terminated(runs, job):
    """All ranks say that the run has not come to its end, not only the one that the signal has reached."""
    job.processes[1].send_signal(signal.SIGTERM)
    runs.must(job, "SIGTERM to the rank of host1", 128 + signal.SIGTERM)
    last = max(int(path.name) for path in (runs.folder / "terminated" / "ckpt").iterdir() if path.name.isdigit()) + 2
    runs.must(runs.on_hosts((0, 2), "terminated", f"--save-freq 6u --after {last}u"), "a run after SIGTERM")
    runs.must(runs.alone("unstopped", f"--save-freq 6u --after {last}u"), "one process")
    runs.compare("unstopped", "terminated", last, "a run that SIGTERM has stopped")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--mpi", metavar="LIBTRAFO_MPI")
    parser.add_argument("--long", action="store_true")
    arguments = parser.parse_args()
    namespace_hosts.enter("hosts")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hosts-") as name:
        scratch = pathlib.Path(name).resolve()
        private = scratch / "private"
        private.mkdir()
        cluster = namespace_hosts.Cluster(3, scratch, private)
        library = arguments.mpi and str(pathlib.Path(arguments.mpi).resolve())
        runs = HostRuns(str(pathlib.Path(arguments.program).resolve()), library, cluster, scratch, private)
        print(f"hosts: packets are {'' if cluster.has_delay else 'not '}delayed", flush=True)
        for host in cluster.hosts:
            ranks.write_corpus(host.path(private))
            host.run(runs.program, "vocab", "--train-sets", "train.a", "train.b", "--dim-vocabs", "120", "--soft-limit", folder=private)
        equal_files(runs)
        resumes(runs)
        cut_links(runs, arguments.long)
        if library and shutil.which("mpirun"):
            of_mpi(runs)
        else:
            print("hosts: without --mpi or mpirun, nothing was tried with MPI", flush=True)
        joins(runs)
        two_jobs(runs)
    print(f"hosts: {len(ranks.failures)} failures, {time.monotonic() - begin:.0f} seconds")
    return 1 if ranks.failures else 0


if __name__ == "__main__":
    sys.exit(main())
