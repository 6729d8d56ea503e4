#!/usr/bin/env bash
# Family 7, see concurrency.cc: builds it and runs it under the thread sanitizer, whose first report ends it. The short form takes the
# release build where there is none with that sanitizer yet.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build/tsan
if [[ ! -f $build/build.ninja && ${1:-} != --long ]]; then
  build=${TRAFO_BUILD:-build/release}
  echo "concurrency: there is no build/tsan; run without the thread sanitizer"
elif [[ ! -f $build/build.ninja ]]; then
  cmake --preset tsan >&2
fi
cmake --build "$build" --target concurrency >&2
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1}
exec "$build/tests/reliability/concurrency" "$@"
