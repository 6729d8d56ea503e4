#!/usr/bin/env bash
# Installs what is missing and builds the release: libtrafo.so, libtrafo.a and translate-train in build/release.
# Arguments are cmake's: scripts/build.sh -DTRAFO_WERROR=ON
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install-dependencies.sh
cmake --preset release -DTRAFO_BUILD_TESTS=OFF -DTRAFO_BUILD_BENCH=OFF "$@" >/dev/null
cmake --build --preset release
