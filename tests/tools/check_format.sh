#!/usr/bin/env bash
# Every C, C++ and CUDA file is formatted as .clang-format says.
set -euo pipefail
cd "$(dirname "$0")/../.."
find engine capi/src apps examples tests -name target -prune -o \
  \( -name '*.h' -o -name '*.cc' -o -name '*.c' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 clang-format --dry-run --Werror
echo "format: ok"
