#!/usr/bin/env bash
# Family 6, see allocation_failure.cc: builds it and runs it. With --long every allocation fails in turn, else about a hundred a call.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${TRAFO_BUILD:-build/release}
[[ -f $build/build.ninja ]] || cmake --preset release >&2
cmake --build "$build" --target allocation_failure >&2
exec "$build/tests/reliability/allocation_failure" "$@"
