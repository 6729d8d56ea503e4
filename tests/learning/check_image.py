#!/usr/bin/env python3
"""Builds the image of the learning service, runs it as the Kubernetes manifest says, kills it and replaces it.

    tests/learning/check_image.py [--program FILE] [--base-model FOLDER]
    tests/learning/check_image.py --manifest        only compares the manifest with the image and the service
    tests/learning/check_image.py --from-source     all stages of the Dockerfile: compiles the library in the image

The program and the small base are those that `cargo test` in examples/learning-service leaves (scripts/test.sh). Checks: the manifest
against the image; the image's user, a read-only file system, no capabilities, the manifest's limits; the token; a round in the container;
corrections and the version are there after SIGKILL and a new container on the same volume; SIGTERM ends it with status 0.

Needs what tests/tools/image_test.py needs, and its base image, which is made if it is missing. Exit status: 0 all is well, 1 something
is not, 77 images cannot be built or run here; it says why.
"""
import argparse
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
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))
import image_test
from check_service import TARGET, sentences
from image_test import expect, fail, get, skip

IMAGE = "localhost/trafo-image-test-learning:latest"
MANIFEST = ROOT / "examples/learning-service/kubernetes.yaml"
TOKEN = "a-token-of-the-test"


def build_image(engine, options, folder):
    context = folder / "context"
    image_test.copy_tracked(context)
    shutil.copytree(options.base_model, context / "base")
    arguments = image_test.build_arguments()
    if options.from_source:
        arguments += image_test.cache_arguments()
    else:
        (folder / "program").mkdir()
        shutil.copy2(options.program, folder / "program/learning-service")
        arguments += ["--build-context", f"learning-build={folder / 'program'}"]
    began = time.monotonic()
    engine.buildah("build", *arguments, "--target", "learning", "-t", IMAGE, context, stdout=subprocess.DEVNULL)
    print(f"ok: the image is built in {time.monotonic() - began:.0f} s", flush=True)


def check_manifest():
    """The image, the manifest and the service must agree; a cluster would tell too late."""
    manifest = MANIFEST.read_text(encoding="utf-8")
    stage = (ROOT / "Dockerfile").read_text(encoding="utf-8").split(" AS learning\n")[1]
    command = json.loads(re.search(r"ENTRYPOINT (.*)", stage)[1])
    settings = (ROOT / "examples/learning-service/src/settings.rs").read_text(encoding="utf-8")
    given = dict(zip(command[1::2], command[2::2]))
    for option in given:
        expect(f'"{option}" =>' in settings, f"the service has the option {option}")
    port = given["--address"].rsplit(":", 1)[1]
    places = [re.search(pattern, text)[1] for pattern, text in (
        (r"EXPOSE (\d+)", stage), (r"containerPort: (\d+)", manifest), (r'prometheus.io/port: "(\d+)"', manifest))]
    expect(set(places) == {port}, f"the port is {port} everywhere")
    volume = re.search(r"VOLUME (\S+)", stage)[1]
    expect(volume == given["--data"] == re.search(r"mountPath: (\S+)\}", manifest)[1], f"{volume} is the volume everywhere")
    user = re.search(r"USER (\d+):", stage)[1]
    users = re.findall(r"(?:runAsUser|runAsGroup|fsGroup): (\d+)", manifest)
    expect(user != "0" and set(users) == {user} and len(users) == 3, f"the user is {user} everywhere")
    main = (ROOT / "examples/learning-service/src/main.rs").read_text(encoding="utf-8")
    patience = int(re.search(r"shutdown\(Duration::from_secs\((\d+)\)\)", main)[1])
    expect(int(re.search(r"terminationGracePeriodSeconds: (\d+)", manifest)[1]) > patience, f"the cluster waits longer than {patience} s")
    expect("replicas: 1\n" in manifest and "type: Recreate" in manifest, "there is one replica at a time")


class Container:
    def __init__(self, engine, rights, data):
        self.name = f"trafo-learning-test-{os.getpid()}-{time.monotonic_ns()}"
        command = engine.container("--name", self.name, *rights, "--env", f"LEARNING_SERVICE_TOKEN={TOKEN}", "--volume", f"{data}:/data", IMAGE,
                                   "--address", "127.0.0.1:0", "--batch", "1000", "--beam", "1", "--updates", "60", "--learning-rate", "0.01",
                                   "--replay", "100", "--regression-loss", "100")
        began = time.monotonic()
        self.engine, self.process = engine, subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline()
        found = re.search(r"http://\S+", said)
        if not found:
            fail(f"the container does not start: {said}")
        self.url, self.seconds = found[0], time.monotonic() - began
        self.pid = int(image_test.output_of(engine.podman("inspect", "--format", "{{.State.Pid}}", self.name)))

    def call(self, path, body=None):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode() if body else None, {"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(60)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def wait_for_version(container):
    for _ in range(1200):
        versions = container.call("/versions?domain=tools")["versions"]
        if versions and versions[0]["state"] != "learning":
            return versions[0]
        time.sleep(0.1)
    fail("no version in two minutes")


def check_container(engine, data):
    rights, memory = image_test.manifest_options(MANIFEST)
    container = Container(engine, rights, data)
    print(f"ready after {container.seconds:.2f} s, with the start of the container", flush=True)
    image_test.check_rights(engine, IMAGE, container.pid, memory)
    expect(get(container.url + "/healthz")[0] == get(container.url + "/readyz")[0] == 200, "/healthz and /readyz give 200 without a token")
    expect(get(container.url + "/domains")[0] == 401, "other requests need the token")
    for source, right in list(sentences())[:40]:
        container.call("/corrections", {"domain": "tools", "who": "Otto", "source": source, "said": "?", "right": right})
    container.call("/learn", {"domain": "tools"})
    version = wait_for_version(container)
    expect(version["state"] == "good" and version["current"], "it learns a version and serves it")
    container.kill()

    container = Container(engine, rights, data)
    expect(len(container.call("/people/Otto")["corrections"]) == 40, "after SIGKILL and in a new container, all corrections are there")
    expect(container.call("/translate", {"domain": "tools", "text": "bald"})["version"] == 1, "and the version is served")
    expect(container.end() == 0, "SIGTERM ends it with status 0")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", type=pathlib.Path, default=TARGET / "debug/learning-service")
    parser.add_argument("--base-model", type=pathlib.Path, default=TARGET / "tmp/base-of-service")
    parser.add_argument("--storage", type=pathlib.Path, default=ROOT / "build/image-test")
    parser.add_argument("--base")
    parser.add_argument("--from-source", action="store_true")
    parser.add_argument("--manifest", action="store_true")
    options = parser.parse_args()
    check_manifest()
    if options.manifest:
        return
    missing = [name for name in image_test.PACKAGES_OF_HOST if shutil.which(name) is None]
    if missing:
        skip(f"there is no {', '.join(missing)} (scripts/install-dependencies.sh --images)")
    if os.geteuid() != 0:
        skip("run as root: debootstrap and the limits of containers need it")
    options.storage.mkdir(parents=True, exist_ok=True)
    engine = image_test.Engine(options.storage)
    image_test.make_base(engine, options.base)
    engine.container()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        folder.chmod(0o755)
        build_image(engine, options, folder)
        data = folder / "data"
        data.mkdir()
        os.chown(data, 65532, 65532)
        try:
            check_container(engine, data)
        finally:
            subprocess.run(engine.podman("rm", "--all", "--force", "--time", "0"), capture_output=True)
    print("check_image: all is well")


if __name__ == "__main__":
    main()
