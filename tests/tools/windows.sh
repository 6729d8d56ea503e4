#!/usr/bin/env bash
# Cross-builds Trafo for Windows on x86-64 and runs it under Wine.
#
#   tests/tools/windows.sh --layer    engine/os and the files of engine/io above it, with tests/os: descriptors, locks, atomic replacement,
#                                     long and foreign paths, memory, processes
#   tests/tools/windows.sh            also trafo.dll and translate-train.exe: tests/windows/wine_test.py, and programs in Go and Rust
#   tests/tools/windows.sh --long     also the tests of ops
#
# On Debian 12, as root or with sudo: installs mingw-w64, Wine and the sources of Google Test. If build/release has translate-train for this
# machine, checkpoints must have the same bytes as there. The programs in Go and Rust run if there are Go and rustup, which installs Rust's
# target x86_64-pc-windows-gnu.
set -euo pipefail
cd "$(dirname "$0")/../.."
[[ $# -eq 0 || ($# -eq 1 && $1 =~ ^--(layer|long)$) ]] || { echo "usage: tests/tools/windows.sh [--layer | --long]" >&2; exit 2; }
root=$PWD build=$PWD/build/windows
export WINE=/usr/lib/wine/wine64

missing=() as_root=()
for package in g++-mingw-w64-x86-64-posix wine64 googletest; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if [[ ${#missing[@]} -gt 0 ]]; then
  [[ $EUID -eq 0 ]] || as_root=(sudo)
  if ! { "${as_root[@]}" apt-get update -qq && "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; }; then
    echo "windows: skipped, the packages ${missing[*]} cannot be had here"
    exit 77
  fi
fi
# A separate home for Wine, without windows and sound.
export WINEPREFIX=$PWD/build/wine WINEARCH=win64 WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml=" DISPLAY=
mkdir -p build

cmake -S tests/os -B build/windows-os -G Ninja --toolchain "$PWD/cmake/windows-x86_64.cmake" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DCMAKE_C_COMPILER_LAUNCHER="$PWD/cmake/ccache.sh" -DCMAKE_CXX_COMPILER_LAUNCHER="$PWD/cmake/ccache.sh" >/dev/null
cmake --build build/windows-os
"$WINE" build/windows-os/os_tests.exe
[[ ${1:-} != --layer ]] || exit 0

scripts/third-party.sh --program
cmake --preset windows -DTRAFO_WERROR=ON -DTRAFO_BUILD_TESTS=ON >/dev/null
cmake --build "$build"
# The files need no DLL but each other and the system's.
for file in trafo.dll translate-train.exe; do
  for name in $(x86_64-w64-mingw32-objdump -p "$build/$file" | sed -n 's/.*DLL Name: //p'); do
    [[ ${name,,} =~ ^(trafo|kernel32|msvcrt|bcrypt|advapi32|shell32|user32)\.dll$ ]] || { echo "windows: $file needs $name" >&2; exit 1; }
  done
done
# Runtimes of Go and Rust need a DLL that Wine has from version 9 on.
random=$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll
[[ -e $random ]] || x86_64-w64-mingw32-gcc-posix -std=c11 -O1 -Wall -Wextra -Werror -shared -static-libgcc tests/windows/bcryptprimitives.c -o "$random"
linux=()
[[ ! -x build/release/translate-train ]] || linux=(build/release)
python3 tests/windows/wine_test.py "$build" "${linux[@]}"
if [[ ${1:-} == --long ]]; then
  cmake --build "$build" --target op_tests
  "$WINE" "$build/tests/op_tests.exe" --gtest_brief=1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$build/trafo.dll" "$work"
# says WORDS COMMAND...: the last line of a program in $work is WORDS
says() {
  local last
  last=$(cd "$work" && "${@:2}" | tail -n 1 | tr -d '\r')
  [[ $last == "$1" ]] || { echo "windows: $2 $3 says: $last" >&2; exit 1; }
}
if command -v go >/dev/null; then
  awk '/^```go/ { inside = 1; next } /^```/ { inside = 0 } inside' bindings/go/trafo/README.md >"$work/main.go"
  (cd "$work" && cat >go.mod <<MOD
module example.com/program
go 1.24
require github.com/trafo-engine/trafo/bindings/go/trafo v0.0.0
replace github.com/trafo-engine/trafo/bindings/go/trafo => $root/bindings/go/trafo
MOD
    for platform in linux-amd64 linux-arm64 windows-amd64; do
      go mod edit -replace "github.com/trafo-engine/trafo-go-lib/$platform=$root/bindings/go/lib/$platform"
    done
    GOOS=windows GOARCH=amd64 CGO_ENABLED=1 CC=x86_64-w64-mingw32-gcc-posix CGO_LDFLAGS="-L$build" GOFLAGS=-mod=mod \
      go build -tags trafo_system -o program.exe .)
  says "good evening" "$WINE" program.exe
  echo "windows: a program in Go trains and translates"
else
  echo "windows: there is no go; the program in Go did not run"
fi
if command -v rustup >/dev/null; then
  rustup -q target add x86_64-pc-windows-gnu
  mkdir -p "$work/rust/src"
  cp tests/tools/from_packages.rs "$work/rust/src/main.rs"
  cat >"$work/rust/Cargo.toml" <<TOML
[package]
name = "program"
version = "0.1.0"
edition = "2024"
[dependencies]
trafo = { package = "trafo-engine", path = "$root/bindings/rust/trafo" }
TOML
  (cd "$work/rust" && TRAFO_LIB_DIR=$build TRAFO_LINK=shared \
    CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=x86_64-w64-mingw32-gcc-posix cargo build -q --target x86_64-pc-windows-gnu)
  cp "$work/rust/target/x86_64-pc-windows-gnu/debug/program.exe" "$work/rust-program.exe"
  said=$(cd "$work" && "$WINE" rust-program.exe run 40 && "$WINE" rust-program.exe run 100)
  grep -q "resumed after 40 updates" <<<"$said" || { echo "windows: the program in Rust says: $said" >&2; exit 1; }
  says "good evening" "$WINE" rust-program.exe run 100
  echo "windows: a program in Rust trains, resumes and translates"
else
  echo "windows: there is no rustup; the program in Rust did not run"
fi
echo "windows: passed"
