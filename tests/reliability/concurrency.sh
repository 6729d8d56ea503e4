#!/usr/bin/env bash
# Suite 7, see concurrency.cc: builds it and runs it under the thread sanitizer, whose first report ends it. The short form takes the
# release build without a build with that sanitizer.
set -euo pipefail
cd "$(dirname "$0")"
root=../..
if [[ -f $root/build/tsan/build.ninja || ${TRAFO_PREBUILT:-0} == 1 || ${1:-} == --long ]]; then
  export TRAFO_BUILD=build/tsan
else
  echo "concurrency: there is no build/tsan; run without the thread sanitizer"
fi
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1}
exec ./build_and_run.sh concurrency reliability/concurrency "$@"
