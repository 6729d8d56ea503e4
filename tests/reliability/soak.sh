#!/usr/bin/env bash
# Family 8, see soak.cc: builds it and runs it. 500 updates, with --long 10,000; on a card with TRAFO_TEST_DEVICE=cuda.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${TRAFO_BUILD:-build/release}
[[ -f $build/build.ninja ]] || cmake --preset release >&2
cmake --build "$build" --target soak >&2
exec "$build/tests/reliability/soak" "$@"
