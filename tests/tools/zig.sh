#!/usr/bin/env bash
# Builds the library with Zig's Clang for systems that Debian 12 has no C++ compiler for.
#
#   tests/tools/zig.sh musl     libtrafo.a and a static program on musl: it trains, is killed, resumes and translates here, in an empty root,
#                               without optimization
#   tests/tools/zig.sh macos    compiles the files of engine/os alone, for arm64, without sockets and end signals
#
# By hand. Zig comes from PyPI (ziglang, 100 MB); the libraries that the engine needs from scripts/third-party.sh. Exit status 77: Zig cannot
# be had here, and nothing was checked.
set -euo pipefail
cd "$(dirname "$0")/../.."
kind=${1:-}
[[ $# -eq 1 && $kind =~ ^(musl|macos)$ ]] || { echo "usage: tests/tools/zig.sh musl | macos" >&2; exit 2; }
fail() { echo "zig: $*" >&2; exit 1; }
package=$PWD/build/zig/package tools=$PWD/build/zig/$kind build=build/zig/$kind-build
if [[ ! -e $package/ziglang/zig ]] && ! python3 -m pip install -q --target "$package" ziglang==0.17.1; then
  echo "zig: skipped, ziglang cannot be had here"
  exit 77
fi
case $kind in
  musl) target=x86_64-linux-musl system=Linux processor=x86_64 ;;
  macos) target=aarch64-macos system=Darwin processor=arm64 ;;
esac
mkdir -p "$tools"
for tool in cc c++ ar ranlib; do
  options="-target $target -fno-sanitize=undefined"
  [[ $tool == c* ]] || options=
  printf '#!/bin/sh\nexec %s %s %s "$@"\n' "$package/ziglang/zig" "$tool" "$options" >"$tools/$tool"
done
chmod +x "$package/ziglang/zig" "$tools"/*

if [[ $kind == macos ]]; then
  for name in file memory names process processor program shared_library terminal threads; do
    "$tools/c++" -std=c++20 -O0 -Wall -Wextra -Werror -I. -c engine/os/${name}_posix.cc -o "$tools/$name.o"
  done
  echo "zig: engine/os compiles for macOS on arm64, but for sockets and end signals"
  exit 0
fi

scripts/third-party.sh
began=$SECONDS
cmake -S . -B "$build" -G Ninja --toolchain "$PWD/cmake/zig.cmake" -DTRAFO_ZIG="$tools" -DTRAFO_ZIG_SYSTEM=$system \
  -DTRAFO_ZIG_PROCESSOR=$processor -DTRAFO_THIRD_PARTY="$PWD/build/third-party" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O0 \
  -DTRAFO_UNITY_LIBRARY=ON -DTRAFO_MPI=OFF -DTRAFO_BUILD_APPS=OFF -DTRAFO_BUILD_TESTS=OFF -DTRAFO_BUILD_BENCH=OFF >/dev/null
program=$build/kill_and_resume
cmake --build "$build" --target trafo_static
# Threads of musl have stacks of 128 KiB, if the program asks for no other ones.
"$tools/cc" -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror -I. -Icapi/include -c tests/tools/kill_and_resume.c -o "$program.o"
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
