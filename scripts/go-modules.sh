#!/usr/bin/env bash
# Makes the Go modules as a module proxy serves them: the package trafo, and for each platform the module with a prebuilt libtrafo.a that it
# imports there.
#
#   scripts/go-modules.sh [--output FOLDER] LIBRARY...     (default: build/go-modules)
#
# LIBRARY: a build with TRAFO_THIRD_PARTY (scripts/third-party.sh) or an installation of it, for any of the platforms; or linux-amd64,
# linux-arm64 or windows-amd64, which is built here in build/go-PLATFORM. On Debian 12, the other platform's compiler is in the package
# g++-aarch64-linux-gnu or g++-mingw-w64-x86-64-posix. FOLDER gets
#   proxy/                   for GOPROXY=file://FOLDER/proxy. The module of a platform that no LIBRARY is for has no libtrafo.a, and says so
#   trafo-go-lib/PLATFORM/   the tree to publish as github.com/trafo-engine/trafo-go-lib, tagged PLATFORM/vVERSION
#
# The package trafo itself is published by a tag bindings/go/trafo/vVERSION of this repository.
set -euo pipefail
script=$(realpath "$0")
output=$(realpath -m "$(dirname "$script")/../build/go-modules")
if [[ ${1:-} == --output && $# -ge 2 ]]; then
  output=$(realpath -m "$2")
  shift 2
fi
[[ $# -ge 1 && $1 != -* ]] || { echo "usage: scripts/go-modules.sh [--output FOLDER] LIBRARY..." >&2; exit 2; }
fail() { echo "go-modules: $*" >&2; exit 1; }
root=$(realpath "$(dirname "$script")/..")
declare -A libraries=() strips=([linux-amd64]=strip [linux-arm64]=aarch64-linux-gnu-strip [windows-amd64]=x86_64-w64-mingw32-strip)
[[ $(uname -sm) == "Linux x86_64" ]] || fail "the modules are made on Linux, x86-64"

# The platform that the objects of a libtrafo.a are for.
platform_of() {
  python3 - "$1" <<'PYTHON'
import struct
import sys

with open(sys.argv[1], "rb") as archive:
    archive.seek(8)
    while header := archive.read(60):
        size = int(header[48:58])
        start = archive.read(min(size, 20))
        if not header.startswith(b"/ ") and not header.startswith(b"//"):
            break
        archive.seek(size - len(start) + size % 2, 1)
    else:
        sys.exit("empty")
if start.startswith(b"\x7fELF"):
    machine = struct.unpack_from("<H", start, 18)[0]
    print({62: "linux-amd64", 183: "linux-arm64"}.get(machine, f"another processor ({machine})"))
else:  # an object of Windows, or a large one, which begins with 0 and 0xffff
    machine = struct.unpack_from("<H", start, 6 if start.startswith(b"\0\0\xff\xff") else 0)[0]
    print("windows-amd64" if machine == 0x8664 else f"another system or processor ({machine})")
PYTHON
}

build() {  # a platform
  local toolchain=()
  case $1 in
    linux-arm64) toolchain=(--toolchain cmake/aarch64-linux-gnu.cmake -DTRAFO_SYSROOT=) ;;
    windows-amd64) toolchain=(--toolchain cmake/windows-x86_64.cmake) ;;
  esac
  scripts/third-party.sh >&2
  cmake -S . -B "build/go-$1" "${toolchain[@]}" -DCMAKE_BUILD_TYPE=Release -DTRAFO_THIRD_PARTY="$root/build/third-party" -DTRAFO_MPI=OFF \
    -DTRAFO_UNITY_SIZE=24 -DTRAFO_BUILD_APPS=OFF -DTRAFO_BUILD_TESTS=OFF -DTRAFO_BUILD_BENCH=OFF \
    -DCMAKE_C_COMPILER_LAUNCHER="$root/cmake/ccache.sh" -DCMAKE_CXX_COMPILER_LAUNCHER="$root/cmake/ccache.sh" >&2
  cmake --build "build/go-$1" --target trafo_static --parallel "$(nproc)" >&2
}

for library in "$@"; do
  if [[ -n ${strips[$library]:-} ]]; then
    (cd "$root" && build "$library")
    library=$root/build/go-$library
  fi
  library=$(realpath "$library")
  [[ -f $library/libtrafo.a ]] || fail "$library has no libtrafo.a"
  pc=$library/trafo.pc
  [[ -f $pc ]] || pc=$library/pkgconfig/trafo.pc
  [[ -f $pc ]] || fail "$library has no trafo.pc, which says what its libtrafo.a needs"
  ! grep -q '^Libs.private:.*sentencepiece' "$pc" ||
    fail "the libtrafo.a of $library needs SentencePiece of the system; build it with -DTRAFO_THIRD_PARTY (scripts/third-party.sh)"
  platform=$(platform_of "$library/libtrafo.a")
  [[ -n ${strips[$platform]:-} ]] || fail "the libtrafo.a of $library is for $platform"
  libraries[$platform]=$library
done

cd "$root"
version=v$(sed -n 's/^project(trafo VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
for platform in "${!strips[@]}"; do
  grep -qx "	github.com/trafo-engine/trafo-go-lib/$platform $version" bindings/go/trafo/go.mod ||
    fail "go.mod of the package requires another version of $platform than $version"
done
rm -rf "$output"
for platform in "${!strips[@]}"; do
  tree=$output/trafo-go-lib/$platform
  [[ -n ${libraries[$platform]:-} ]] || tree=$output/without-library/$platform
  mkdir -p "$tree"
  cp bindings/go/lib/"$platform"/{go.mod,lib.go,README.md} LICENSE "$tree"
  [[ -n ${libraries[$platform]:-} ]] || continue
  "${strips[$platform]}" --strip-debug --enable-deterministic-archives -o "$tree/libtrafo.a" "${libraries[$platform]}/libtrafo.a"
  nothing=$(mktemp -d)
  python3 scripts/sbom.py "$nothing" "${version#v}" "$tree/trafo.cdx.json" scripts/third-party.txt
  rmdir "$nothing"
done

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
    print(f"go-modules: {module} {version}, {size} bytes" + ("" if "libtrafo.a" in names or "LICENSE" not in names else ", without a library"))


package = pathlib.Path("bindings/go/trafo")
serve("github.com/trafo-engine/trafo/bindings/go/trafo", package, tracked(package))
for tree in sorted([*output.glob("trafo-go-lib/*"), *output.glob("without-library/*")], key=lambda tree: tree.name):
    serve(f"github.com/trafo-engine/trafo-go-lib/{tree.name}", tree, sorted(path.name for path in tree.iterdir()))
shutil.rmtree(output / "without-library", ignore_errors=True)
PYTHON
