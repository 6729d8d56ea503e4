#!/usr/bin/env bash
# Calls every function of the C ABI wrongly, by a table made from its headers; see docs/misuse.md. Short and long form are the same.
set -euo pipefail
build=${TRAFO_BUILD:-$(cd "$(dirname "$0")/../.." && pwd)/build/release}
cmake --build "$build" --target misuse_family >/dev/null
exec "$build/tests/misuse_family"
