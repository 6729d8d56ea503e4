#!/usr/bin/env bash
# Makes trafo-VERSION.tar.gz: the last commit, with the sources of SentencePiece, Highway, zlib and nlohmann-json in third_party/. The
# library builds from it with a C++20 compiler and CMake alone:
#
#   cmake -S trafo-VERSION -B build -DTRAFO_BUILD_APPS=OFF -DTRAFO_BUILD_TESTS=OFF -DTRAFO_BUILD_BENCH=OFF && cmake --build build
#
#   scripts/source-archive.sh [OUTPUT_FOLDER]     (default: build)
#
# The same commit gives the same bytes.
set -euo pipefail
script=$(realpath "$0")
output=$(realpath -m "${1:-$(dirname "$script")/../build}")
cd "$(dirname "$script")/.."
[[ $# -le 1 && ${1:-} != -* ]] || { echo "usage: scripts/source-archive.sh [OUTPUT_FOLDER]" >&2; exit 2; }
git rev-parse --verify --quiet HEAD >/dev/null || { echo "source-archive: this is no git checkout" >&2; exit 1; }
version=$(sed -n 's/^project(trafo VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=trafo-$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

scripts/third-party.sh >/dev/null
git archive --prefix="$name/" HEAD | tar -x -C "$work"
cp -a build/third-party "$work/$name/third_party"
# The package trafo-sys has the sources by a link into the build folder of a checkout.
ln -sfn ../../../../third_party "$work/$name/bindings/rust/trafo-sys/vendor/third_party"
mkdir -p "$output"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" --format=gnu -c "$name" |
  gzip -9n >"$output/$name.tar.gz"
echo "source-archive: $output/$name.tar.gz, $(stat -c %s "$output/$name.tar.gz") bytes"
