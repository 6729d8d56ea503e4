#!/usr/bin/env bash
# Makes the Go modules as a module proxy serves them: the package trafo, and the module with a prebuilt libtrafo.a that it imports.
#
#   scripts/go-modules.sh LIBRARY_FOLDER [OUTPUT_FOLDER]     (default: build/go-modules)
#
# LIBRARY_FOLDER: a build with TRAFO_THIRD_PARTY (scripts/third-party.sh), or an installation of it. OUTPUT_FOLDER gets
#   proxy/                      for GOPROXY=file://OUTPUT_FOLDER/proxy
#   trafo-go-lib/linux-amd64/   the tree to publish as github.com/trafo-engine/trafo-go-lib, tagged linux-amd64/vVERSION
#
# The package trafo itself is published by a tag bindings/go/trafo/vVERSION of this repository.
set -euo pipefail
script=$(realpath "$0")
[[ $# -ge 1 && $# -le 2 && $1 != -* ]] || { echo "usage: scripts/go-modules.sh LIBRARY_FOLDER [OUTPUT_FOLDER]" >&2; exit 2; }
library=$(realpath "$1")
output=$(realpath -m "${2:-$(dirname "$script")/../build/go-modules}")
cd "$(dirname "$script")/.."
fail() { echo "go-modules: $*" >&2; exit 1; }

[[ $(uname -sm) == "Linux x86_64" ]] || fail "the prebuilt library is for Linux on x86-64, and made there"
[[ -f $library/libtrafo.a ]] || fail "$library has no libtrafo.a"
pc=$library/trafo.pc
[[ -f $pc ]] || pc=$library/pkgconfig/trafo.pc
[[ -f $pc ]] || fail "$library has no trafo.pc, which says what its libtrafo.a needs"
! grep -q '^Libs.private:.*sentencepiece' "$pc" ||
  fail "the libtrafo.a of $library needs SentencePiece of the system; build it with -DTRAFO_THIRD_PARTY (scripts/third-party.sh)"
version=v$(sed -n 's/^project(trafo VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
grep -qx "require github.com/trafo-engine/trafo-go-lib/linux-amd64 $version" bindings/go/trafo/go.mod ||
  fail "go.mod of the package requires another version than $version"

rm -rf "$output"
tree=$output/trafo-go-lib/linux-amd64
mkdir -p "$tree"
cp bindings/go/lib/linux-amd64/{go.mod,lib.go,README.md} LICENSE "$tree"
strip --strip-debug --enable-deterministic-archives -o "$tree/libtrafo.a" "$library/libtrafo.a"
nothing=$(mktemp -d)
python3 scripts/sbom.py "$nothing" "${version#v}" "$tree/trafo.cdx.json" scripts/third-party.txt
rmdir "$nothing"

python3 - "$output" "$version" <<'PYTHON'
import pathlib
import shutil
import subprocess
import sys
import zipfile

output, version = pathlib.Path(sys.argv[1]), sys.argv[2]


def tracked(folder):
    """Files of a folder that Git tracks, or will, without links."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "."], cwd=folder, capture_output=True, check=True)
    names = sorted(name for name in listed.stdout.decode().split("\0") if name)
    return [name for name in names if (folder / name).is_file() and not (folder / name).is_symlink()]


def serve(module, folder, names):
    place = output / "proxy" / module / "@v"
    place.mkdir(parents=True)
    (place / "list").write_text(version + "\n")
    (place / f"{version}.info").write_text(f'{{"Version":"{version}"}}\n')
    shutil.copyfile(folder / "go.mod", place / f"{version}.mod")
    with zipfile.ZipFile(place / f"{version}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            entry = zipfile.ZipInfo(f"{module}@{version}/{name}")  # of 1980: the same files give the same bytes
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, (folder / name).read_bytes())
        if "LICENSE" not in names:
            archive.write("LICENSE", f"{module}@{version}/LICENSE")
    size = (place / f"{version}.zip").stat().st_size
    print(f"go-modules: {module} {version}, {size} bytes")


package = pathlib.Path("bindings/go/trafo")
serve("github.com/trafo-engine/trafo/bindings/go/trafo", package, tracked(package))
tree = output / "trafo-go-lib/linux-amd64"
serve("github.com/trafo-engine/trafo-go-lib/linux-amd64", tree, sorted(path.name for path in tree.iterdir()))
PYTHON
