#!/usr/bin/env bash
# Builds kills and runs it; --long is its long form.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${TRAFO_BUILD:-build/release}
cmake --build "$build" --target kills >&2
exec "$build/tests/kills" "$@"
