#!/usr/bin/env bash
# A libtrafo.a as a build with TRAFO_THIRD_PARTY makes it, without compiling the engine again: the objects of a build with the system's
# libraries, and SentencePiece, Highway and zlib from their sources. The versions must be the same. For tests: a package has the
# library of one build.
#
#   tests/tools/bundled_library.sh [ENGINE_FOLDER]     (default: build/release; prints the folder of the library)
set -euo pipefail
cd "$(dirname "$0")/../.."
engine=${1:-build/release} build=$PWD/build/bundled-library sources=$PWD/build/third-party
fail() { echo "bundled_library: $*" >&2; exit 1; }
[[ -f $engine/libtrafo.a && -f $engine/trafo.pc && -f $engine/libtrafo_tcp.so ]] || fail "there is no library in $engine: run scripts/build.sh"
scripts/third-party.sh >&2
for package in sentencepiece:libsentencepiece-dev highway:libhwy-dev zlib:zlib1g-dev; do
  version=$(awk -v source="${package%:*}" '$2 == source { print $3; exit }' "$sources/third-party.txt")
  installed=$(dpkg-query -W -f '${Version}' "${package#*:}" 2>/dev/null || true)
  [[ ${installed%+b*} == "$version" ]] || fail "the engine is compiled with ${package#*:} ${installed:-(not installed)}, not with $version"
done
# Nothing of the system: what the build finds is in $sources.
PKG_CONFIG_LIBDIR=/nonexistent PKG_CONFIG_PATH='' cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTRAFO_THIRD_PARTY="$sources" \
  -DTRAFO_BUILD_APPS=OFF -DTRAFO_BUILD_TESTS=OFF -DTRAFO_BUILD_BENCH=OFF -DTRAFO_MPI=OFF \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$PWD/cmake/ccache.sh" -DCMAKE_C_COMPILER_LAUNCHER="$PWD/cmake/ccache.sh" >/dev/null
parts=(trafo_sentencepiece trafo_highway trafo_zlib)
cmake --build "$build" --target "${parts[@]}" >&2
mkdir -p "$build/library"
rm -f "$build/library/libtrafo.a"
{
  echo "create $build/library/libtrafo.a"
  echo "addlib $engine/libtrafo.a"
  for part in "${parts[@]}"; do echo "addlib $build/lib$part.a"; done
  printf 'save\nend\n'
} | ar -M
cp "$build/trafo.pc" "$engine/libtrafo_tcp.so" "$build/library"
echo "$build/library"
