#!/usr/bin/env bash
# Builds the library with Zig's Clang for systems that Debian 12 has no C++ compiler for.
#
#   tests/tools/zig.sh musl     libtrafo.a and a static program on musl: it trains, is killed, resumes and translates here, in an empty root
#   tests/tools/zig.sh macos    for macOS on arm64: libtrafo.dylib, libtrafo.a, programs in C that link them, and translate-train. Nothing runs;
#                               mach_o.py checks exports, imports, names, versions and run paths
#   tests/tools/zig.sh windows  for Windows with its Universal C Runtime: engine/os and tests/os, libtrafo.a, trafo.dll and a program that links
#                               either: it trains, is killed, resumes and translates. All runs under Wine
#
# By hand, and without optimization. Zig comes from PyPI (ziglang, 100 MB); the libraries that the engine needs from scripts/third-party.sh.
# Exit status 77: Zig cannot be had here, and nothing was checked.
set -euo pipefail
cd "$(dirname "$0")/../.."
kind=${1:-}
[[ $# -eq 1 && $kind =~ ^(musl|macos|windows)$ ]] || { echo "usage: tests/tools/zig.sh musl | macos | windows" >&2; exit 2; }
fail() { echo "zig: $*" >&2; exit 1; }
package=$PWD/build/zig/package tools=$PWD/build/zig/$kind build=build/zig/$kind-build oldest_macos=13.3
if [[ ! -e $package/ziglang/zig ]] && ! python3 -m pip install -q --target "$package" ziglang==0.17.1; then
  echo "zig: skipped, ziglang cannot be had here"
  exit 77
fi
case $kind in
  musl) target=x86_64-linux-musl system=Linux processor=x86_64 ;;
  macos) target=aarch64-macos.$oldest_macos system=Darwin processor=arm64 ;;
  windows) target=x86_64-windows-gnu system=Windows processor=x86_64 ;;
esac
mkdir -p "$tools"
for tool in cc c++ ar ranlib; do
  options="-target $target -fno-sanitize=undefined"
  [[ $tool == c* ]] || options=
  printf '#!/bin/sh\nexec %s %s %s "$@"\n' "$package/ziglang/zig" "$tool" "$options" >"$tools/$tool"
done
chmod +x "$package/ziglang/zig" "$tools"/*
export CCACHE_COMPILERTYPE=clang
began=$SECONDS
configure() {  # folder, further options
  cmake -S "$1" -B "$build" -G Ninja --toolchain "$PWD/cmake/zig.cmake" -DTRAFO_ZIG="$tools" -DTRAFO_ZIG_SYSTEM=$system \
    -DTRAFO_ZIG_PROCESSOR=$processor -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O0 \
    -DCMAKE_C_COMPILER_LAUNCHER="$PWD/cmake/ccache.sh" -DCMAKE_CXX_COMPILER_LAUNCHER="$PWD/cmake/ccache.sh" "${@:2}" >/dev/null
}
library_alone=(-DTRAFO_UNITY_LIBRARY=ON -DTRAFO_MPI=OFF -DTRAFO_BUILD_TESTS=OFF -DTRAFO_BUILD_BENCH=OFF)
program=$build/kill_and_resume
compile_program() {  # options
  "$tools/cc" -std=c11 -O1 -Wall -Wextra -Werror -I. -Icapi/include "$@" -c tests/tools/kill_and_resume.c -o "$program.o"
}

if [[ $kind == windows ]]; then
  objdump=$(command -v x86_64-w64-mingw32-objdump || command -v llvm-objdump) || fail "there is no objdump for files of Windows"
  export WINEPREFIX=$PWD/build/wine WINEARCH=win64 WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml=" DISPLAY=''
  wine=/usr/lib/wine/wine64
  uses_ucrt() {  # file, other DLL
    local names name
    names=$("$objdump" -p "$1" | sed -n 's/.*DLL Name: //p')
    [[ $names == *api-ms-win-crt-* ]] || fail "$1 does not use the Universal C Runtime"
    for name in $names; do
      [[ ${name,,} =~ ^(api-ms-win-crt-.*|kernel32|ntdll|bcrypt|advapi32|shell32|user32|ws2_32${2:+|$2})\.dll$ ]] || fail "$1 needs $name"
    done
  }
  configure tests/os
  cmake --build "$build"
  uses_ucrt "$build/os_tests.exe"
  # path::string() of LLVM's C++ library has the code page of Windows in place of UTF-8, and the engine calls it: names that the code page lacks
  # are errors.
  "$wine" "$build/os_tests.exe" --gtest_filter=-OsNames.LongAndForeignPaths

  build=$build-library program=$build/kill_and_resume
  scripts/third-party.sh
  configure . "${library_alone[@]}" -DTRAFO_BUILD_APPS=OFF -DTRAFO_THIRD_PARTY="$PWD/build/third-party" -DTRAFO_WERROR=ON
  cmake --build "$build" --target trafo trafo_static
  compile_program
  "$tools/c++" "$program.o" "$build/libtrafo.dll.a" -o "$program.exe"
  "$tools/c++" -static "$program.o" "$build/libtrafo.a" -lbcrypt -o "$program-static.exe"
  uses_ucrt "$build/trafo.dll"
  uses_ucrt "$program.exe" trafo
  uses_ucrt "$program-static.exe"
  echo "zig: trafo.dll, libtrafo.a and programs with the Universal C Runtime after $((SECONDS - began)) s"
  for name in "$program.exe" "$program-static.exe"; do
    tests/tools/kill_and_resume.sh "$wine" "$name"
  done
  exit 0
fi

if [[ $kind == macos ]]; then
  scripts/third-party.sh --program
  configure . "${library_alone[@]}" -DTRAFO_THIRD_PARTY="$PWD/build/third-party-program" -DTRAFO_WERROR=ON
  cmake --build "$build" --target trafo trafo_static translate-train
  "$tools/c++" -std=c++20 -Wall -Wextra -Werror -I. -c engine/os/sockets_posix.cc -o "$build/sockets.o"  # in no file for macOS
  compile_program
  "$tools/cc" "$program.o" "$build/libtrafo.dylib" -Wl,-rpath,@loader_path -o "$program"
  "$tools/c++" "$program.o" "$build/libtrafo.a" -o "$program-static"
  echo "zig: the library and programs for macOS on arm64 after $((SECONDS - began)) s"
  python3 tests/tools/mach_o.py "$build/libtrafo.dylib" capi/abi/symbols.txt "$package/ziglang/lib/libc/darwin/libSystem.tbd" "$oldest_macos" \
    "$program" @loader_path "$build/translate-train" "@loader_path/../lib @loader_path"
  exit 0
fi

scripts/third-party.sh
configure . "${library_alone[@]}" -DTRAFO_BUILD_APPS=OFF -DTRAFO_THIRD_PARTY="$PWD/build/third-party"
cmake --build "$build" --target trafo_static
# Threads of musl have stacks of 128 KiB, if the program asks for no other ones.
compile_program -D_GNU_SOURCE
"$tools/c++" -static -s -Wl,-z,stack-size=8388608 "$program.o" "$build/libtrafo.a" -o "$program"
! readelf -lW "$program" | grep -q INTERP || fail "the program is not static"
echo "zig: libtrafo.a on musl after $((SECONDS - began)) s; a static program has $(stat -c %s "$program") bytes"
tests/tools/kill_and_resume.sh "$program"
if [[ $EUID -eq 0 ]]; then
  root=$(mktemp -d)
  trap 'rm -rf "$root"' EXIT
  cp "$program" "$root/program"
  mkdir "$root/dev"
  # As a container has it.
  mknod -m 444 "$root/dev/urandom" c 1 9 || { echo "zig: no empty root here: devices cannot be made"; exit 0; }
  [[ $(chroot "$root" /program /run 60 | tail -n 1) == "four four one" ]] || fail "the program does not run in an empty root"
  echo "zig: the program trains and translates in a root that has no other file but /dev/urandom"
fi
