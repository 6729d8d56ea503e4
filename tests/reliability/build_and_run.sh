#!/usr/bin/env bash
# build_and_run.sh TARGET PROGRAM [ARGUMENT ...]: builds a suite's target in the release build (TRAFO_BUILD: another) and runs PROGRAM
# of its tests. TRAFO_PREBUILT=1: takes it as it is there, on a machine that has the programs and no compiler.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${TRAFO_BUILD:-build/release}
target=$1 program=$2
shift 2
if [[ ${TRAFO_PREBUILT:-0} != 1 ]]; then
  [[ -f $build/build.ninja ]] || cmake --preset "$(basename "$build")" >&2
  cmake --build "$build" --target "$target" >&2
fi
exec "$build/tests/$program" "$@"
