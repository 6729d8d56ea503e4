#!/usr/bin/env python3
"""Builds the server's image from the Dockerfile, runs it as the Kubernetes manifest says, and restarts it under load.

    tests/tools/image_test.py                     the stage `server`, with the program that `go build` makes here: two minutes
    tests/tools/image_test.py --from-source       all stages, and the image `cli`: compiles the library in the image, with
                                                  this host's compiler cache if there is one
    tests/tools/image_test.py --restarts 20       a longer rolling restart
    tests/tools/image_test.py --model FOLDER      with the model of translate-train quantize; default: one trained here
    tests/tools/image_test.py --base IMAGE        on an image of a registry; default: Debian 12 by debootstrap, as debian:12-slim is made

Checks: the image's user, a read-only file system, no capabilities, the manifest's limits of memory and processors; /healthz, /readyz and
/metrics; answers equal to a baseline file that the program wrote outside of the container; SIGTERM ends it with status 0; 64 clients
lose no answer while containers are replaced (rolling_test.go). Prints the image's size, the time to ready, and the memory at rest and
under load.

Needs root, buildah, podman, debootstrap (scripts/install-dependencies.sh --images), Go, and libtrafo.a and translate-train in --build.
Images are kept in --storage. Exit status: 0 all is well, 1 something is not, 77 images cannot be built or run here; it says why.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import toy_corpus

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVER = ROOT / "bindings/go/trafo/examples/translate-server"
SKIPPED = 77
BASE = "localhost/trafo-image-test-base:12"
IMAGES = {"server": "localhost/trafo-image-test-server:latest", "cli": "localhost/trafo-image-test-cli:latest"}
PACKAGES_OF_HOST = ("buildah", "podman", "crun", "debootstrap")
# Files that debian:12-slim leaves out.
EXCLUDED = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/groff/*", "/usr/share/lintian/*"]
CLIENTS, LINES_OF_A_REQUEST, LOAD_SECONDS = 64, 8, 20


def skip(why):
    print(f"image_test: SKIPPED, nothing was checked: {why}")
    sys.exit(SKIPPED)


def fail(what):
    sys.exit(f"image_test: {what}")


def expect(right, what):
    if not right:
        fail(what)
    print(f"ok: {what}", flush=True)


def run(command, **how):
    how = {"check": True, "text": True, **how}
    try:
        return subprocess.run([str(part) for part in command], **how)
    except subprocess.CalledProcessError as error:
        fail(f"{' '.join(map(str, command))}: status {error.returncode}\n{error.stdout or ''}{error.stderr or ''}")


def output_of(command, **how):
    return run(command, capture_output=True, **how).stdout.strip()


class Engine:
    """buildah and podman with a separate storage."""

    def __init__(self, folder):
        self.storage = ["--root", folder / "images", "--runroot", folder / "run"]
        self.ways = None

    def buildah(self, *arguments, **how):
        return run(["buildah", *self.storage, *arguments], **how)

    def podman(self, *arguments):
        return [str(part) for part in ["podman", *self.storage, *arguments]]

    def has(self, image):
        return subprocess.run(self.podman("image", "exists", image)).returncode == 0

    def container(self, *arguments):
        """The command that runs a container. The rights of hosts differ: root without all capabilities may raise no limit, and crun
        refuses a host with both versions of control groups, one of which is then hidden from it (and from nobody else)."""
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
        hidden = ["unshare", "--mount", "sh", "-c", 'umount /sys/fs/cgroup/unified && exec "$@"', "sh"]
        if self.ways is None:
            said = ""
            for before, options in (([], []), ([], limits), (hidden, limits)):
                tried = subprocess.run([*before, *self.podman("run", "--rm", "--pull=never", "--network", "host", *options), BASE, "true"],
                                       capture_output=True, text=True)
                if tried.returncode == 0:
                    self.ways = before, options
                    break
                said += tried.stderr
            else:
                skip(f"podman runs no container here: {said.strip()}")
        before, options = self.ways
        return [*before, *self.podman("run", "--rm", "--pull=never", "--network", "host", *options, *arguments)]


def make_base(engine, base):
    if base:
        if subprocess.run(engine.podman("pull", base)).returncode != 0:
            skip(f"{base} cannot be pulled")
        run(engine.podman("tag", base, BASE))
        return
    if engine.has(BASE):
        return
    print("making Debian 12 with debootstrap", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "root"
        made = subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root], capture_output=True, text=True)
        if made.returncode != 0:
            skip(f"debootstrap: {made.stdout[-300:]}{made.stderr[-300:]}")
        rules = "".join(f"path-exclude {pattern}\n" for pattern in EXCLUDED) + "path-include /usr/share/doc/*/copyright\n"
        (root / "etc/dpkg/dpkg.cfg.d/slim").write_text(rules + "force-unsafe-io\n")
        (root / "etc/apt/apt.conf.d/slim").write_text('Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache ""; Acquire::Languages "none";\n'
                                                      'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb"; };\n')
        for pattern in EXCLUDED:
            for path in (root / pattern.strip("/*")).rglob("*"):
                if path.is_file() and path.name != "copyright" or path.is_symlink():
                    path.unlink()
        for path in [*(root / "var/lib/apt/lists").glob("*_*"), *(root / "var/cache/apt").rglob("*.*")]:
            path.unlink()
        trusted = root / "usr/local/share/ca-certificates"
        trusted.mkdir(parents=True, exist_ok=True)
        for certificate in pathlib.Path("/usr/local/share/ca-certificates").glob("*.crt"):  # those this host trusts beside Debian's
            shutil.copy(certificate, trusted)
        run(["tar", "-C", root, "--numeric-owner", "-cf", f"{folder}/base.tar", "."])
        run(engine.podman("import", f"{folder}/base.tar", BASE), capture_output=True)


def make_model(folder, build):
    """An int8 model, as translate-train quantize writes it."""
    print("training a small model", flush=True)
    toy_corpus.write(folder, 2000, 100)
    program = build / "translate-train"
    run([program, "train", "-t", folder / "t.src", folder / "t.trg", "--valid-sets", folder / "v.src", folder / "v.trg", "--model", folder / "run",
         "--dim-vocabs", "70", "--after", "200u", "--mini-batch-words", "500", "--learn-rate", "0.003", "--lr-warmup", "50", "--enc-depth", "1",
         "--dec-depth", "1", "--dim-emb", "64", "--transformer-dim-ffn", "128", "--transformer-heads", "2", "--device", "cpu", "--quiet"])
    run([program, "quantize", "-m", folder / "run", "-o", folder / "model", "--quiet"])
    return folder / "model", (folder / "v.src").read_text(encoding="utf-8").splitlines()


def copy_tracked(context):
    """A build context: a copy of what git has."""
    listed = output_of(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]).split("\0")
    for name in filter(None, listed):
        source, target = ROOT / name, context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink() or source.is_file():
            shutil.copy2(source, target, follow_symlinks=False)


def build_arguments():
    return ["--isolation", "chroot", "--network", "host", "--pull-never", "--layers", "--build-arg", f"BASE={BASE}"]


def cache_arguments():
    """This host's compiler cache. The options and the language are those of scripts/test.sh: others compile all again."""
    cache = output_of(["ccache", "--get-config", "cache_dir"]) if shutil.which("ccache") else ""
    if not os.path.isdir(cache):
        return []
    return ["--volume", f"{cache}:/var/cache/ccache", "--build-arg", "CMAKE_OPTIONS=-DTRAFO_WERROR=ON",
            "--build-arg", f"LANG={os.environ.get('LANG', '')}"]


def build_images(engine, options, folder, model):
    """From a copy of what git has, with the model in it, as a build context of docker has them."""
    context = folder / "context"
    copy_tracked(context)
    shutil.copytree(model, context / "model")
    arguments = build_arguments()
    if options.from_source:
        arguments += cache_arguments()
    else:
        (folder / "program").mkdir()
        shutil.copy2(folder / "translate-server", folder / "program")
        arguments += ["--build-context", f"server-build={folder / 'program'}"]
    for target in ["server", "cli"] if options.from_source else ["server"]:
        began = time.monotonic()
        engine.buildah("build", *arguments, "--target", target, "-t", IMAGES[target], context, stdout=subprocess.DEVNULL)
        size = int(output_of(engine.podman("image", "inspect", "--format", "{{.Size}}", IMAGES[target])))
        print(f"ok: the image {target} is built in {time.monotonic() - began:.0f} s: {size / 1e6:.1f} MB", flush=True)
    base = int(output_of(engine.podman("image", "inspect", "--format", "{{.Size}}", BASE)))
    print(f"the base image: {base / 1e6:.1f} MB", flush=True)


def manifest_options(path=SERVER / "kubernetes.yaml"):
    """The manifest's limits and rights as options of podman. deployment_test.go compares the rest of the manifest with the image."""
    manifest = path.read_text(encoding="utf-8")
    processors, memory = re.search(r'limits: \{cpu: "(\d+)", memory: (\d+)Mi\}', manifest).groups()
    for text in ("readOnlyRootFilesystem: true", "capabilities: {drop: [ALL]}", "allowPrivilegeEscalation: false"):
        if text not in manifest:
            fail(f"{path} has no {text}")
    return ["--memory", memory + "m", "--cpus", processors, "--read-only", "--read-only-tmpfs=false", "--cap-drop", "all",
            "--security-opt", "no-new-privileges"], int(memory)


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def status_of(pid):
    return dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def check_rights(engine, image, pid, memory):
    """A container's process has the image's user and what the manifest gives it."""
    status = status_of(pid)
    user = output_of(engine.podman("image", "inspect", "--format", "{{.User}}", image)).split(":")[0]
    expect(user.isdigit() and user != "0" and set(status["Uid"].split()) == {user}, f"the process has the image's user, {user}")
    expect(int(status["CapEff"], 16) == 0 and int(status["CapBnd"], 16) == 0 and status["NoNewPrivs"] == "1", "it has no capabilities")
    groups = pathlib.Path(f"/proc/{pid}/cgroup").read_text()
    found = re.search(r"^\d+:memory:(.*)$", groups, re.M)
    path = f"/sys/fs/cgroup/memory{found[1]}/memory.limit_in_bytes" if found else f"/sys/fs/cgroup{groups.split('::')[1].strip()}/memory.max"
    expect(pathlib.Path(path).read_text().strip() == str(memory << 20), f"it may use the manifest's {memory} MiB")
    mounts = pathlib.Path(f"/proc/{pid}/mountinfo").read_text()
    expect(re.search(r" / / ro[ ,]", mounts) is not None, "its file system is read-only")


class Server:
    """A running server; in a container, its process on the host."""

    def __init__(self, command, name=None, engine=None):
        began = time.monotonic()
        self.process = subprocess.Popen([*command, "-listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
        said = ""
        for line in self.process.stderr:
            said += line
            if found := re.search(r"translating on (http://\S+)", line):
                self.url = found[1]
                break
        else:
            fail(f"{' '.join(map(str, command))} does not listen: {said}")
        while get(self.url + "/readyz")[0] != 200:
            if time.monotonic() - began > 60:
                fail("/readyz does not give 200 in 60 s")
            time.sleep(0.005)
        self.seconds = time.monotonic() - began
        self.pid = int(output_of(engine.podman("inspect", "--format", "{{.State.Pid}}", name))) if name else self.process.pid

    def status(self):
        return status_of(self.pid)

    def megabytes(self, what):
        return int(self.status()[what].split()[0]) * 1024 / 1e6

    def end(self):
        """SIGTERM, to podman, which passes it on."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        time.sleep(1)
        draining = get(self.url + "/readyz")[0]
        return draining, self.process.wait(60), time.monotonic() - began


def load(server, lines):
    """CLIENTS ask without a pause; gives how many requests were answered and how many were not."""
    end = time.monotonic() + LOAD_SECONDS

    def client(number):
        answered = lost = 0
        while time.monotonic() < end:
            text = [lines[(number + answered + i) % len(lines)] for i in range(LINES_OF_A_REQUEST)]
            request = urllib.request.Request(server.url + "/translate", json.dumps({"text": text}).encode())
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    answered += len(json.load(answer)["translations"]) == len(text)
            except (OSError, ValueError) as error:
                print(error)
                lost += 1
        return answered, lost

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        results = list(pool.map(client, range(CLIENTS)))
    return sum(answered for answered, _ in results), sum(lost for _, lost in results)


def compare(server, baseline, *arguments):
    done = subprocess.run([sys.executable, SERVER / "compare_answers.py", "--server", server.url, "--baseline", baseline, *arguments],
                          capture_output=True, text=True)
    print(done.stdout + done.stderr, end="", flush=True)
    return done.returncode


def check_container(engine, lines, baseline):
    rights, memory = manifest_options()
    name = f"trafo-image-test-{os.getpid()}"
    server = Server(engine.container("--name", name, *rights, IMAGES["server"]), name, engine)
    print(f"ready after {server.seconds:.2f} s, with the start of the container", flush=True)
    check_rights(engine, IMAGES["server"], server.pid, memory)
    rest = server.megabytes("VmRSS")
    expect(get(server.url + "/healthz")[0] == 200 and get(server.url + "/readyz")[0] == 200, "/healthz and /readyz give 200")
    expect(compare(server, baseline) == 0, "its answers are those of the baseline file")
    answered, lost = load(server, lines)
    expect(lost == 0 and answered > 0, f"{CLIENTS} clients lose none of {answered} requests with {LINES_OF_A_REQUEST} lines in {LOAD_SECONDS} s")
    print(f"resident memory: {rest:.0f} MB at rest, {server.megabytes('VmRSS'):.0f} MB after the load, {server.megabytes('VmHWM'):.0f} MB at most",
          flush=True)
    metrics = get(server.url + "/metrics")[1]
    counted = re.search(r'^translate_requests_total\{[^}]*200[^}]*\} (\d+)', metrics, re.M)
    expect(counted is not None and int(counted[1]) >= answered, f"/metrics counts {counted and counted[1]} answered requests")
    draining, code, seconds = server.end()
    expect(draining == 503 and code == 0, f"after SIGTERM /readyz gives 503, and it ends with status 0 after {seconds:.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--storage", type=pathlib.Path, default=ROOT / "build/image-test")
    parser.add_argument("--base")
    parser.add_argument("--model", type=pathlib.Path, help="with --lines")
    parser.add_argument("--lines", type=pathlib.Path, help="a file with what to translate")
    parser.add_argument("--from-source", action="store_true")
    parser.add_argument("--restarts", type=int, default=2)
    options = parser.parse_args()
    if (options.model is None) != (options.lines is None):
        parser.error("--model and --lines belong together")
    missing = [name for name in (*PACKAGES_OF_HOST, "go") if shutil.which(name) is None]
    if missing:
        skip(f"there is no {', '.join(missing)} (scripts/install-dependencies.sh --images)")
    if os.geteuid() != 0:
        skip("run as root: debootstrap and the limits of containers need it")
    options.storage.mkdir(parents=True, exist_ok=True)
    engine = Engine(options.storage)
    make_base(engine, options.base)
    engine.container()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        if options.model:
            model, lines = options.model, options.lines.read_text(encoding="utf-8").splitlines()
        else:
            model, lines = make_model(folder, options.build.resolve())
        (folder / "lines.txt").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        run(["go", "-C", ROOT / "bindings/go/trafo", "build", "-trimpath", "-o", folder / "translate-server", "./examples/translate-server"])
        build_images(engine, options, folder, model)

        baseline = folder / "answers.jsonl"
        outside = Server([folder / "translate-server", "-model", model, "-device", "cpu"])
        expect(compare(outside, baseline, "--write", folder / "lines.txt") == 0, "the program writes the baseline outside of a container")
        outside.end()
        try:
            check_container(engine, lines, baseline)
            if options.from_source:
                said = output_of(engine.container(IMAGES["cli"], "--version"))
                expect("translate-train" in said, f"the image cli says: {said.splitlines()[0]}")
            replica = engine.container(*manifest_options()[0], IMAGES["server"])
            if any(" " in part for part in replica):  # the test splits the command at spaces
                script = folder / "replica"
                script.write_text("#!/bin/sh\nexec " + " ".join(f"'{part}'" for part in replica) + ' "$@"\n')
                script.chmod(0o755)
                replica = [str(script)]
            run(["go", "test", "-count=1", "-v", "-timeout", "60m", "-run", "ARollingRestart", ".", "-args", "-restarts", options.restarts,
                 "-replica", " ".join(replica), "-lines", folder / "lines.txt"], cwd=SERVER)
        finally:
            subprocess.run(engine.podman("rm", "--all", "--force", "--time", "0"), capture_output=True)
    print("image_test: all is well")


if __name__ == "__main__":
    main()
