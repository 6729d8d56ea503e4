#!/usr/bin/env bash
# Cross-builds the layer of the system for Windows on x86-64 (engine/os, and the files of engine/io above it) with its tests, and runs
# them under Wine: descriptors, locks, atomic replacement, long and foreign paths, memory, processes. The library and translate-train are
# not built for Windows yet.
#
#   tests/tools/windows.sh
#
# On Debian 12, as root or with sudo: installs mingw-w64, Wine and the sources of Google Test.
set -euo pipefail
cd "$(dirname "$0")/../.."
[[ $# -eq 0 ]] || { echo "usage: tests/tools/windows.sh" >&2; exit 2; }
build=build/windows-os wine=/usr/lib/wine/wine64

missing=() as_root=()
for package in g++-mingw-w64-x86-64-posix wine64 googletest; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if [[ ${#missing[@]} -gt 0 ]]; then
  [[ $EUID -eq 0 ]] || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

cmake -S tests/os -B "$build" -G Ninja --toolchain "$PWD/cmake/windows-x86_64.cmake" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DCMAKE_C_COMPILER_LAUNCHER="$PWD/cmake/ccache.sh" -DCMAKE_CXX_COMPILER_LAUNCHER="$PWD/cmake/ccache.sh" >/dev/null
cmake --build "$build"
# A separate home for Wine, without windows and sound.
export WINEPREFIX=$PWD/$build/wine WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml=" DISPLAY=
"$wine" "$build/os_tests.exe"
