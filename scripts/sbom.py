#!/usr/bin/env python3
"""Writes the software bill of materials: everything that is linked into Trafo or builds its bindings, with version, licence and hash.

    scripts/sbom.py BUILD_FOLDER VERSION OUTPUT.cdx.json [FILES.txt]

FILES.txt: scripts/portable/files.txt or scripts/third-party.txt, where libraries are linked statically that were built from the sources
it names.

CycloneDX 1.5. Libraries are those that the built files ask for, with the version of the package that is installed here; header-only ones
with the version of their headers; CUDA's as scripts/cuda-toolkit.txt pins them; Rust's as Cargo.lock does. The same build gives the
same bytes. A library that is not in the table below is listed without a licence, which the test sbom_test refuses.
"""

import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]

# By the name that a linked file asks for, without its version: name, licence (SPDX), where it comes from.
LINKED = {
    "libsentencepiece": ("SentencePiece", "Apache-2.0", "https://github.com/google/sentencepiece"),
    "libsentencepiece_train": ("SentencePiece", "Apache-2.0", "https://github.com/google/sentencepiece"),
    "libhwy": ("Highway", "Apache-2.0 OR BSD-3-Clause", "https://github.com/google/highway"),
    "libz": ("zlib", "Zlib", "https://zlib.net"),
    "libfmt": ("fmt", "MIT", "https://github.com/fmtlib/fmt"),
    "libspdlog": ("spdlog", "MIT", "https://github.com/gabime/spdlog"),
    "libyaml-cpp": ("yaml-cpp", "MIT", "https://github.com/jbeder/yaml-cpp"),
    "libmpi": ("Open MPI", "BSD-3-Clause", "https://www.open-mpi.org"),
    "libmpich": ("MPICH", "mpich2", "https://www.mpich.org"),
    "libstdc++": ("libstdc++", "GPL-3.0-or-later WITH GCC-exception-3.1", "https://gcc.gnu.org"),
    "libgcc_s": ("libgcc", "GPL-3.0-or-later WITH GCC-exception-3.1", "https://gcc.gnu.org"),
    "libc": ("glibc", "LGPL-2.1-or-later", "https://www.gnu.org/software/libc/"),
    "libm": ("glibc", "LGPL-2.1-or-later", "https://www.gnu.org/software/libc/"),
    "ld-linux-x86-64": ("glibc", "LGPL-2.1-or-later", "https://www.gnu.org/software/libc/"),
    "ld-linux-aarch64": ("glibc", "LGPL-2.1-or-later", "https://www.gnu.org/software/libc/"),
}
# Code that a library has copied into itself, by its own version: name, version (none: upstream gives it none), licence, home. Read
# from the folder third_party of its sources.
SENTENCEPIECE_COPIES = [
    ("protobuf-lite", "3.14.0", "BSD-3-Clause", "https://github.com/protocolbuffers/protobuf"),
    ("darts-clone", "0.32", "BSD-3-Clause", "https://github.com/s-yata/darts-clone"),
    ("esaxx", None, "MIT", "https://github.com/hillbig/esaxx"),
    ("abseil (parts)", None, "Apache-2.0", "https://abseil.io"),
]
COPIES = {("SentencePiece", version): SENTENCEPIECE_COPIES for version in ("0.1.97", "0.1.99", "0.2.0")}
# Headers that are compiled in: name, pkg-config name, a header with its version and how that is written, licence, home.
HEADERS = [
    ("nlohmann-json", "nlohmann_json", "nlohmann/json.hpp", r"version (\d+\.\d+\.\d+)", "MIT", "https://github.com/nlohmann/json"),
    ("CLI11", "CLI11", "CLI/Version.hpp", r'CLI11_VERSION "([^"]+)"', "BSD-3-Clause", "https://github.com/CLIUtils/CLI11"),
]
CUDA = {
    "nvidia-cuda-runtime": "linked into libtrafo_cuda.so",
    "nvidia-cublas": "linked into libtrafo_cuda.so",
    "nvidia-nvtx": "headers of libtrafo_cuda.so",
    "nvidia-cuda-nvcc": "compiler of libtrafo_cuda.so",
    "nvidia-cuda-crt": "compiler of libtrafo_cuda.so",
    "nvidia-nvvm": "compiler of libtrafo_cuda.so",
    "nvidia-cuda-cccl": "headers of libtrafo_cuda.so",
}
# Licences of crates that are not "MIT OR Apache-2.0"; each is read from its own manifest.
CRATES = {
    "aho-corasick": "Unlicense OR MIT", "memchr": "Unlicense OR MIT", "bindgen": "BSD-3-Clause", "clang-sys": "Apache-2.0",
    "libloading": "ISC", "nom": "MIT", "zmij": "MIT", "unicode-ident": "(MIT OR Apache-2.0) AND Unicode-3.0",
}
OURS = {"trafo-engine", "trafo-sys"}
# Files of a build whose libraries are listed (cuda_components() has the ones of libtrafo_cuda.so); plugins are not in every
# build.
BUILT = ("libtrafo.so", "translate-train", "libtrafo_mpi.so", "libtrafo_tcp.so")
PLUGINS = {"libtrafo_mpi.so", "libtrafo_tcp.so"}


def output_of(command):
    """The output of a command; nothing if it cannot be run."""
    if not shutil.which(command[0]):
        return ""
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def needed(file):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", output_of(["readelf", "-d", str(file)]))


def resolved(file):
    """Name that is asked for -> the file that answers."""
    listed = output_of(["ldd", str(file)])
    pairs = re.findall(r"^\s*(\S+) => (/\S+)", listed, re.M)
    pairs += [(path.rsplit("/", 1)[1], path) for path in re.findall(r"^\s*(/\S+) \(", listed, re.M)]  # the loader
    return {name: pathlib.Path(path).resolve() for name, path in pairs}


def package_of(path):
    """(package, version) of the distribution that a file belongs to, or None."""
    for candidate in (str(path), str(path).removeprefix("/usr")):
        owner = output_of(["dpkg-query", "-S", candidate]).split("\n")[0].split(":")[0]
        if owner:
            return owner, output_of(["dpkg-query", "-W", "-f", "${Version}", owner])
    return None


def component(name, version, licence, purl, home, properties, **more):
    entry = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if licence:
        entry["licenses"] = [{"expression": licence}]
    if home:
        entry["externalReferences"] = [{"type": "website", "url": home}]
    entry.update(more)
    entry["properties"] = [{"name": f"trafo:{key}", "value": value} for key, value in sorted(properties.items())]
    return entry


def copies_in(name, version):
    """The field `components` of a library that contains others."""
    upstream = version.split(":")[-1].split("-")[0]
    inside = [component(copy, own or f"0+{name.lower()}.{upstream}", licence,
                        f"pkg:generic/{copy.split()[0]}@{own or upstream}?in={name.lower()}", home, {"linked": f"inside {name}"})
              for copy, own, licence, home in COPIES.get((name, upstream), [])]
    return {"components": inside} if inside else {}


def linked_components(build):
    found = {}
    for file in BUILT:
        path = build / file
        if not path.exists():
            continue
        answers = resolved(path)
        for asked in needed(path):
            if asked.startswith("libtrafo"):
                continue
            found.setdefault(asked, (set(), answers.get(asked)))[0].add(file)
    for asked, (users, path) in sorted(found.items()):
        stem = asked.split(".so")[0]
        name, licence, home = LINKED.get(stem, (stem, "", ""))
        package = package_of(path) if path else None
        if package:
            version, purl = package[1], f"pkg:deb/debian/{package[0]}@{package[1]}?file={asked}"
        else:
            version = (path.name if path else asked).split(".so.")[-1]
            purl = f"pkg:generic/{name}@{version}?file={asked}"
        more = {"hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]} if path else {}
        if users <= PLUGINS:
            more["scope"] = "optional"
        if stem == "libsentencepiece":
            more.update(copies_in(name, version))
        yield component(name, version, licence, purl, home, {"soname": asked, "linked": "dynamically", "by": ", ".join(sorted(users))}, **more)


# By the name of Debian's source, or of the package on this system that has the static library.
STATIC = {"sentencepiece": "libsentencepiece", "highway": "libhwy", "zlib": "libz", "fmtlib": "libfmt", "spdlog": "libspdlog",
          "yaml-cpp": "libyaml-cpp", "gcc-10": "libgcc_s"}
STATIC_PACKAGES = {"libstdc++-12-dev": "libstdc++", "zlib1g-dev": "libz"}


def sources_of(files):
    """(hash, source, version) of each .dsc file and of Debian's static libgcc that a table names."""
    for line in files.read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if line.startswith("#"):
            continue
        if len(fields) == 4 and fields[3].endswith(".dsc"):  # scripts/third-party.txt
            yield fields[0], fields[1], fields[2]
        elif len(fields) == 2 and fields[1].endswith(".dsc"):  # scripts/portable/files.txt
            yield fields[0], fields[1].split("/")[1], fields[1].rsplit("_", 1)[1].removesuffix(".dsc")
        elif len(fields) == 2 and "libgcc" in fields[1]:
            yield fields[0], fields[1].split("/")[1], fields[1].rsplit("_", 2)[1]


def static_components(files):
    """Libraries that a build of scripts/portable-package.sh, or with TRAFO_THIRD_PARTY, links statically."""
    listed = set()
    for digest, source, version in sources_of(files):
        if source not in STATIC:  # headers: header_components()
            continue
        listed.add(STATIC[source])
        name, licence, home = LINKED[STATIC[source]]
        yield component(name, version, licence, f"pkg:deb/debian/{source}@{version}?arch=source", home, {"linked": "statically"},
                        hashes=[{"alg": "SHA-256", "content": digest}], **copies_in(name, version))
    if files.name == "third-party.txt":
        return
    for package, stem in STATIC_PACKAGES.items():
        if stem in listed:
            continue
        name, licence, home = LINKED[stem]
        version = output_of(["dpkg-query", "-W", "-f", "${Version}", package])
        yield component(name, version, licence, f"pkg:deb/debian/{package}@{version}", home, {"linked": "statically"})


# By the name of Debian's source of headers: the name in HEADERS.
HEADER_SOURCES = {"nlohmann-json3": "nlohmann-json"}


def header_components(files):
    """Headers that are compiled in: of the system, or of the sources that the table `files` names."""
    pinned = {HEADER_SOURCES[source]: (digest, source, version)
              for digest, source, version in (sources_of(files) if files else []) if source in HEADER_SOURCES}
    for name, module, header, pattern, licence, home in HEADERS:
        if name in pinned:
            digest, source, version = pinned[name]
            yield component(name, version, licence, f"pkg:deb/debian/{source}@{version}?arch=source", home,
                            {"linked": "headers, compiled in"}, hashes=[{"alg": "SHA-256", "content": digest}])
            continue
        path = pathlib.Path("/usr/include") / header
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        match = re.search(pattern, text)
        version = match[1] if match else output_of(["pkg-config", "--modversion", module]) or "unknown"
        more = {"hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}]} if text else {}
        yield component(name, version, licence, f"pkg:generic/{name}@{version}", home, {"linked": "headers, compiled in"}, **more)


def cuda_components():
    text = (ROOT / "scripts" / "cuda-toolkit.txt").read_text(encoding="utf-8")
    # The first hash belongs to the file for x86-64.
    pinned = re.findall(r"^(nvidia-[a-z-]+)==([0-9.]+) \\\n\s+--hash=sha256:([0-9a-f]{64})", text, re.M)
    for name, version, digest in sorted(pinned):
        yield component(name, version, "LicenseRef-NVIDIA-CUDA-EULA", f"pkg:pypi/{name}@{version}", "https://docs.nvidia.com/cuda/eula/",
                        {"linked": CUDA.get(name, "toolkit of libtrafo_cuda.so")}, scope="optional",
                        hashes=[{"alg": "SHA-256", "content": digest}])


def crate_components():
    lock = tomllib.loads((ROOT / "bindings" / "rust" / "Cargo.lock").read_text(encoding="utf-8"))
    for package in lock["package"]:
        name, version = package["name"], package["version"]
        if name in OURS:
            continue
        yield component(name, version, CRATES.get(name, "MIT OR Apache-2.0"), f"pkg:cargo/{name}@{version}", f"https://crates.io/crates/{name}",
                        {"linked": "not; builds or tests the Rust crates"}, scope="excluded",
                        hashes=[{"alg": "SHA-256", "content": package["checksum"]}])


def module_components():
    directory = ROOT / "bindings" / "go" / "trafo"
    text = (directory / "go.mod").read_text(encoding="utf-8")
    for name, version in re.findall(r"^\s*(?:require\s+)?([a-z0-9.-]+\.[a-z]+/\S+) (v\S+)", text, re.M):
        if name.startswith("github.com/trafo-engine/"):  # the module with libtrafo.a
            continue
        yield component(name, version, "", f"pkg:golang/{name}@{version}", f"https://{name}", {"linked": "into Go programs"})


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    build, version, output = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    files = pathlib.Path(sys.argv[4]) if len(sys.argv) == 5 else None
    static = static_components(files) if files else []
    components = [*linked_components(build), *static, *header_components(files), *cuda_components(), *crate_components(), *module_components()]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "library", "bom-ref": f"trafo@{version}", "name": "trafo", "version": version,
                                   "licenses": [{"expression": "Apache-2.0"}]}},
        "components": components,
        "dependencies": [{"ref": f"trafo@{version}",
                          "dependsOn": [entry["bom-ref"] for entry in components if entry.get("scope") != "excluded"]}],
    }
    output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
