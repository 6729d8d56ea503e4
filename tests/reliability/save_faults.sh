#!/usr/bin/env bash
# Builds save_faults and runs it; --long is its long form.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${TRAFO_BUILD:-build/release}
cmake --build "$build" --target save_faults >&2
exec "$build/tests/save_faults" "$@"
