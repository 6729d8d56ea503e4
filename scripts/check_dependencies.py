#!/usr/bin/env python3
"""The checks of scripts/check-dependencies.sh that need no network: the bill of materials against the pins and the known advisories.

    scripts/check_dependencies.py BUILD/trafo.cdx.json

Every component has a version; what is pinned (CUDA's packages, Rust's crates, Go's modules) is in it as it is pinned and has a hash. A
component with a fault that scripts/advisories.toml knows is at a fixed version, or the table says why the fault does no harm.
"""

import json
import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]


def parts(version):
    """A version as numbers. Of a Debian package, the version of its program: 1:0.1.97-3+b1 is 0.1.97."""
    upstream = version.split(":", 1)[-1].split("-", 1)[0].split("+", 1)[0]
    return [int(number) for number in re.findall(r"\d+", upstream)]


def with_copies(components):
    """The components, and after each those that it contains."""
    for each in components:
        yield each
        yield from with_copies(each.get("components", []))


def problems(components, advisories, pins):
    """(what is wrong, what is known and answered), a line each."""
    components = list(with_copies(components))
    wrong, answered = [], []
    for each in components:
        if not each.get("version") or each["version"] == "unknown":
            wrong.append(f"{each['name']}: the bill of materials has no version of it")
    for advisory in advisories:
        # One library may be there as several files.
        versions = sorted({each["version"] for each in components if each["name"] == advisory["component"]})
        for version in versions:
            if parts(version) >= parts(advisory["fixed"]):
                continue
            line = f"{advisory['component']} {version}: {advisory['id']}, fixed in {advisory['fixed']}"
            if advisory.get("answer"):
                answered.append(f"{line}; here: {advisory['answer']}")
            else:
                wrong.append(f"{line}: {advisory['about']}")
    listed = {(each["name"], each["version"]): each for each in components}
    for name, version, hashed in pins:
        entry = listed.get((name, version))
        if entry is None:
            wrong.append(f"{name} {version} is pinned and not in the bill of materials")
        elif hashed and not entry.get("hashes"):
            wrong.append(f"{name} {version} has no hash in the bill of materials")
    return wrong, answered


def read_pins():
    cuda = (ROOT / "scripts" / "cuda-toolkit.txt").read_text(encoding="utf-8")
    names = re.findall(r"^(\S+)==(\S+)", cuda, re.M)
    pins = [(name, version, True) for name, version in names]
    for name, version in names:
        entry = cuda[cuda.index(f"{name}=={version}"):].split("\n\n")[0]
        if "--hash=sha256:" not in entry.split("==", 2)[1]:
            sys.exit(f"scripts/cuda-toolkit.txt: {name} has no hash")
    lock = tomllib.loads((ROOT / "bindings" / "rust" / "Cargo.lock").read_text(encoding="utf-8"))
    pins += [(each["name"], each["version"], True) for each in lock["package"] if "source" in each]
    return pins


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    bill = pathlib.Path(sys.argv[1])
    if not bill.is_file():
        sys.exit(f"there is no {bill}: cmake --build --preset release --target sbom")
    components = json.loads(bill.read_text(encoding="utf-8"))["components"]
    advisories = tomllib.loads((ROOT / "scripts" / "advisories.toml").read_text(encoding="utf-8")).get("advisory", [])
    wrong, answered = problems(components, advisories, read_pins())
    for line in answered:
        print(f"known: {line}")
    for line in wrong:
        print(f"WRONG: {line}")
    print(f"bill of materials: {len(list(with_copies(components)))} components, {len(answered)} known and answered, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
