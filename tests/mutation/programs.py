"""The programs that mutation tests run: one run with limits, and what a test of it noticed."""

import fnmatch
import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import relink  # noqa: E402

BINARIES = {"unit_tests": "tests/unit_tests", "op_tests": "tests/op_tests", "train_tests": "tests/train_tests",
            "parity_tests": "tests/parity_tests", "dist_tests": "tests/dist_tests",
            "c_api_test": "tests/capi/c_api_test", "misuse_suite": "tests/misuse_suite",
            "cli_tests": "tests/cli/cli_tests", "c_api_threads_test": "tests/capi/c_api_threads_test",
            "process_test": "tests/reliability/process_test", "host_state": "tests/reliability/host_state", "save_faults": "tests/save_faults"}
# Programs of the release build that take the copy's library.
WITH_LIBRARY = {"c_api_test", "misuse_suite", "cli_tests", "c_api_threads_test", "process_test", "host_state"}
# The text after the colon is an argument.
WITHOUT_GTEST = {"c_api_test", "misuse_suite", "c_api_threads_test", "process_test", "host_state", "save_faults"}
SECONDS = 240  # a test that a mutation keeps from ending has noticed it
ADDRESS_SPACE_KIB = 256 << 20  # the meta device reserves much and uses none
RESIDENT_BYTES = 4 << 30       # a wrong size must not take the memory of the machine
POLL_SECONDS = 0.02
PAGE = os.sysconf("SC_PAGE_SIZE")


class Outcome:
    """Exit status, output, wall-clock seconds, and why the run was stopped, if it was."""

    def __init__(self, status, output, seconds, stopped):
        self.status, self.output, self.seconds, self.stopped = status, output, seconds, stopped

    def failure(self, name):
        """None if all passed, else what did not."""
        if self.stopped:
            return f"{name} ({self.stopped})"
        if self.status == 0:
            return None
        failed = re.search(r"^\[  FAILED  \] (\S+?)[,\s]", self.output, re.MULTILINE)
        if failed:
            return f"{name} {failed[1]}"
        lines = [line for line in self.output.splitlines() if line.strip()]
        return f"{name} ({'signal ' + str(-self.status) if self.status < 0 else (lines[-1][:80] if lines else 'failed')})"

    def names_no_test(self):
        """Whether the filter of Google Test let nothing run. A test that skips itself has run, and passes with 0 tests."""
        return self.status == 0 and "0 tests from 0 test suites ran" in self.output


def resident(process):
    """Bytes of a process and of what it started, in memory."""
    try:
        own = int(pathlib.Path(f"/proc/{process}/statm").read_text().split()[1]) * PAGE
        children = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (OSError, IndexError, ValueError):  # it has ended
        return 0
    return own + sum(map(resident, children))


def run(command, environment, seconds, cpu_seconds=0):
    """Runs `command` in an empty folder, with a limit on its time, on its processor time (0: none) and on its memory."""
    limits = f"ulimit -v {ADDRESS_SPACE_KIB}; " + (f"ulimit -t {int(cpu_seconds)}; " if cpu_seconds else "") + "ulimit -c 0; "
    with tempfile.TemporaryDirectory(prefix="trafo-mutation-", ignore_cleanup_errors=True) as folder:
        with open(os.path.join(folder, "output"), "w+b") as sink:
            work = os.path.join(folder, "work")
            os.mkdir(work)
            begin, stopped, turns = time.monotonic(), None, 0
            process = subprocess.Popen(["bash", "-c", limits + 'exec "$@"', "bash", *map(str, command)], cwd=work, stdin=subprocess.DEVNULL,
                                       env=dict(os.environ, **environment, TMPDIR=work), stdout=sink, stderr=subprocess.STDOUT,
                                       start_new_session=True)
            while process.poll() is None and not stopped:
                time.sleep(POLL_SECONDS)
                turns += 1
                if time.monotonic() - begin > seconds:
                    stopped = "did not end"
                elif turns % 8 == 0 and resident(process.pid) > RESIDENT_BYTES:
                    stopped = "took too much memory"
            took = time.monotonic() - begin
            try:  # also what it left behind
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            status = process.wait()
            if status in (-signal.SIGXCPU, -signal.SIGKILL) and not stopped:
                stopped = "did not end"
            sink.seek(0)
            output = sink.read().decode(errors="replace")
    return Outcome(status, output, took, stopped)


def path_of(binary, folder):
    return (relink.RELEASE if binary in WITH_LIBRARY else folder) / BINARIES[binary]


@functools.cache
def tests_of(binary):
    """Names of the tests of a program of Google Test in the release build; none where it has not been built."""
    path = path_of(binary, relink.RELEASE)
    if binary in WITHOUT_GTEST or not path.is_file():
        return []
    listed = subprocess.run([path, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
    names, suite = [], ""
    for line in listed.splitlines():
        word = line.split("#")[0].strip()
        suite = suite if line.startswith("  ") else word
        names += [suite + word] if line.startswith("  ") else []
    return names


def names_a_test(entry):
    """Whether an entry's filter fits a test. True where the program has not been built."""
    binary, _, pattern = entry.partition(":")
    names, (wanted, _, unwanted) = tests_of(binary), pattern.partition("-")
    return not pattern or not names or any(
        any(fnmatch.fnmatchcase(name, each) for each in wanted.split(":")) and
        not any(fnmatch.fnmatchcase(name, each) for each in unwanted.split(":")) for name in names)


def run_entry(entry, folder, environment, seconds=SECONDS, cpu_seconds=0):
    """Runs BINARY, BINARY:GTEST_FILTER or, without Google Test, BINARY:ARGUMENT, of the programs that are linked in `folder`."""
    binary, _, pattern = entry.partition(":")
    command = [path_of(binary, folder)]
    if binary not in WITHOUT_GTEST:
        command += ["--gtest_brief=1", "--gtest_fail_fast"]
        if pattern:
            command.append(f"--gtest_filter={pattern}")
    elif pattern:
        command.append(pattern)
    plugins = {f"TRAFO_{name.upper()}_LIBRARY": str(path) for name in ("tcp", "mpi") if (path := folder / f"libtrafo_{name}.so").is_file()}
    done = run(command, dict(environment, LD_LIBRARY_PATH=str(folder), TRAFO_MPI_RANKS=str(folder / "tests/mpi_ranks"), **plugins),
               seconds, cpu_seconds)
    if done.names_no_test():
        sys.exit(f"{entry} names no test")
    return done
