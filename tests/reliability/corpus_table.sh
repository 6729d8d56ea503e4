#!/usr/bin/env bash
# Suite 5: what becomes of odd training text, from memory, from disk and on the command line.
root=$(cd "$(dirname "$0")/../.." && pwd)
exec "$root/tests/reliability/build_and_run.sh" corpus_table reliability/corpus_table/corpus_table \
  "$root/docs/reference/generated/broken-text.md" "${TRAFO_BUILD:-$root/build/release}/translate-train"
