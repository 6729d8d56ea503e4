#!/usr/bin/env bash
# Builds damaged_files and runs it; --long is its long form.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${TRAFO_BUILD:-build/release}
cmake --build "$build" --target damaged_files >&2
exec "$build/tests/damaged_files" "$@"
