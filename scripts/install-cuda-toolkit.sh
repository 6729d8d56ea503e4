#!/usr/bin/env bash
# Puts NVIDIA's CUDA 13.0 packages from the Python registry into build/cuda-toolkit, enough to build libtrafo_cuda.so on a machine
# without a CUDA toolkit. Needs python3 with pip; does nothing when it is there already.
set -euo pipefail
cd "$(dirname "$0")/.."

target=build/cuda-toolkit
# Beside what is there already: pip alone leaves a folder that exists as it is.
add() {
  local new=$target.new
  rm -rf "$new"
  python3 -m pip install --quiet --root-user-action=ignore --no-deps --target "$new" "$@"
  mkdir -p "$target"
  cp -a "$new/." "$target/"
  rm -rf "$new"
}
if [[ ! -x $target/nvidia/cu13/bin/nvcc ]]; then
  add nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 \
    nvidia-cuda-cccl==13.0.85 nvidia-cublas==13.1.0.3
fi
# Headers alone: names of ops for Nsight.
if [[ ! -f $target/nvidia/cu13/include/nvtx3/nvToolsExt.h ]]; then
  add nvidia-nvtx==13.0.85
fi
# Linkers ask for the unversioned names.
for library in "$target"/nvidia/cu13/lib/lib*.so.*; do
  ln -sf "$(basename "$library")" "${library%%.so.*}.so"
done
echo "CUDA toolkit: $target/nvidia/cu13"
