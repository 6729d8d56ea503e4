#!/usr/bin/env bash
# Family 5: what becomes of odd training text, from memory, from disk and on the command line. TRAFO_BUILD: the release build.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${TRAFO_BUILD:-$root/build/release}
program=$build/tests/reliability/corpus_table/corpus_table
if [[ ! -x $program ]]; then
  echo "there is no $program: cmake --build --preset release --target corpus_table" >&2
  exit 1
fi
exec "$program" "$build/translate-train" "$root/docs/data.md"
