#!/usr/bin/env python3
"""sbom_test.py CMAKE SOURCE_DIR BUILD_DIR VERSION: trafo.cdx.json names everything that is linked, with version and licence, and nothing
that is not there; the same build gives the same bytes; it is installed with the library."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

cmake, source, build, version = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4]
failures = []


def check(condition, message):
    if not condition:
        failures.append(message)


def needed(file):
    text = subprocess.run(["readelf", "-d", str(file)], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", text))


content = (build / "trafo.cdx.json").read_bytes()
bom = json.loads(content)
check(bom["bomFormat"] == "CycloneDX" and bom["specVersion"] == "1.5" and bom["version"] == 1, "this is no CycloneDX 1.5 document")
check(bom["metadata"]["component"]["version"] == version, f"it is of version {bom['metadata']['component']['version']}, not {version}")

components = bom["components"]
copies = [copy for entry in components for copy in entry.get("components", [])]
references = [entry["bom-ref"] for entry in components + copies]
check(len(set(references)) == len(references), "two components have one bom-ref")
for entry in components + copies:
    check(entry["type"] == "library" and entry["name"] and entry["purl"].startswith("pkg:"), f"{entry['bom-ref']} lacks type, name or purl")
    check(re.match(r"v?[0-9]", entry["version"].split(":")[-1]), f"{entry['name']} has the version {entry['version']!r}")
    expressions = [licence.get("expression", "") for licence in entry.get("licenses", [])]
    check(len(expressions) == 1 and re.fullmatch(r"[A-Za-z0-9.+()\- ]+", expressions[0]), f"{entry['name']} has no licence")
    for digest in entry.get("hashes", []):
        check(digest["alg"] == "SHA-256" and re.fullmatch(r"[0-9a-f]{64}", digest["content"]), f"{entry['name']} has a bad hash")
for dependency in bom["dependencies"]:
    for reference in dependency["dependsOn"]:
        check(reference in references, f"the dependency {reference} is no component")

properties = [{value["name"]: value["value"] for value in entry["properties"]} for entry in components]
linked = {(each["trafo:soname"], file) for each in properties if "trafo:soname" in each for file in each["trafo:by"].split(", ")}
# CUDA's libraries are no packages of the system.
built = [path for path in [build / "translate-train", *build.glob("libtrafo*.so")] if path.exists() and path.name != "libtrafo_cuda.so"]
check({"libtrafo.so", "translate-train"} <= {path.name for path in built}, "the build has no library or no program")
wanted = {(name, path.name) for path in built for name in needed(path) if not name.startswith("libtrafo")}
check(linked == wanted, f"linked but not listed: {sorted(wanted - linked)}; listed but not linked: {sorted(linked - wanted)}")
# Whoever links another version looks into its folder third_party and adds it to scripts/sbom.py.
check({"protobuf-lite", "darts-clone", "esaxx"} <= {copy["name"] for copy in copies}, "what SentencePiece has copied into itself is missing")
for name in ("SentencePiece", "Highway", "zlib", "nlohmann-json", "nvidia-cublas", "nvidia-cuda-runtime"):
    check(any(entry["name"] == name for entry in components), f"{name} is missing")

lock = tomllib.loads((source / "bindings/rust/Cargo.lock").read_text())
crates = {(package["name"], package["version"]) for package in lock["package"] if "checksum" in package}
listed = {(entry["name"], entry["version"]) for entry in components if entry["purl"].startswith("pkg:cargo/")}
check(crates == listed, f"crates differ from Cargo.lock: {sorted(crates ^ listed)}")
modules = re.findall(r"^\s*(?:require\s+)?([a-z0-9.-]+\.[a-z]+/\S+) v", (source / "bindings/go/trafo/go.mod").read_text(), re.M)
modules = [name for name in modules if not name.startswith("github.com/trafo-engine/")]
check(sorted(modules) == sorted(entry["name"] for entry in components if entry["purl"].startswith("pkg:golang/")), "Go modules differ from go.mod")

with tempfile.TemporaryDirectory() as folder:
    again = pathlib.Path(folder) / "again.json"
    subprocess.run([sys.executable, str(source / "scripts/sbom.py"), str(build), version, str(again)], check=True)
    check(again.read_bytes() == content, "a second run gives other bytes (or the file is older than the build)")
    subprocess.run([cmake, "--install", str(build), "--prefix", f"{folder}/prefix", "--component", "library"], check=True, capture_output=True)
    installed = pathlib.Path(folder) / "prefix/share/trafo/trafo.cdx.json"
    check(installed.is_file() and installed.read_bytes() == content, "it is not installed with the library")

# A library with the sources of scripts/third-party.sh inside: their versions, licences and hashes.
table = [line.split() for line in (source / "scripts/third-party.txt").read_text().splitlines() if not line.startswith("#")]
with tempfile.TemporaryDirectory() as folder:
    bundled = pathlib.Path(folder) / "bundled.json"
    (pathlib.Path(folder) / "empty").mkdir()
    subprocess.run([sys.executable, str(source / "scripts/sbom.py"), f"{folder}/empty", version, str(bundled), str(source / "scripts/third-party.txt")],
                   check=True)
    inside = [entry for entry in json.loads(bundled.read_text())["components"] if "?arch=source" in entry["purl"]]
listed = {(entry["purl"].split("/")[2].split("@")[0], entry["version"], entry["hashes"][0]["content"]) for entry in inside}
check(listed == {(name, number, digest) for digest, name, number, file in table if file.endswith(".dsc")}, f"bundled libraries: {sorted(listed)}")
check(all(entry["licenses"][0]["expression"] for entry in inside), "a bundled library has no licence")

for failure in failures:
    print(f"sbom_test: {failure}", file=sys.stderr)
if not failures:
    print(f"sbom_test: {len(components)} components ok")
sys.exit(1 if failures else 0)
