#!/usr/bin/env bash
# Installs what is missing and builds the release: libtrafo.so, libtrafo.a and translate-train in build/release.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install-dependencies.sh
cmake --preset release -DTRAFO_BUILD_TESTS=OFF -DTRAFO_BUILD_BENCH=OFF >/dev/null
cmake --build --preset release
