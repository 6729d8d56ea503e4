#!/usr/bin/env bash
# Puts NVIDIA's CUDA 13.0 packages from the Python registry into build/cuda-toolkit, enough to build libtrafo_cuda.so on a machine
# without a CUDA toolkit. Needs python3 with pip; does nothing when it is there already. scripts/cuda-toolkit.txt has the versions and
# the hashes: a file with other bytes is refused.
set -euo pipefail
cd "$(dirname "$0")/.."

target=build/cuda-toolkit
# Beside what is there already: pip alone leaves a folder that exists as it is.
if [[ ! -x $target/nvidia/cu13/bin/nvcc || ! -f $target/nvidia/cu13/include/nvtx3/nvToolsExt.h ]]; then
  new=$target.new
  rm -rf "$new"
  python3 -m pip install --quiet --root-user-action=ignore --no-deps --only-binary=:all: --require-hashes --target "$new" \
    -r scripts/cuda-toolkit.txt
  mkdir -p "$target"
  cp -a "$new/." "$target/"
  rm -rf "$new"
fi
# Linkers ask for the unversioned names.
for library in "$target"/nvidia/cu13/lib/lib*.so.*; do
  ln -sf "$(basename "$library")" "${library%%.so.*}.so"
done
echo "CUDA toolkit: $target/nvidia/cu13"
