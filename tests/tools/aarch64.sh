#!/usr/bin/env bash
# Cross-builds the library, translate-train and the tests for aarch64 and runs the CPU tests under qemu-user.
#
#   tests/tools/aarch64.sh --kernels the kernels of bfloat16 and int8 alone with their tests (tests/kernels), on processors with and without
#                                    the instructions (a minute and a half of one core)
#   tests/tools/aarch64.sh --train   the library with the sources of scripts/third-party.sh, without optimization: a program trains, is killed,
#                                    resumes and translates (6 minutes of one core)
#   tests/tools/aarch64.sh           builds, with warnings as errors, and starts translate-train
#   tests/tools/aarch64.sh --long    runs the test programs of Google Test and of C, and compares a resumed run with one that was not
#                                    cut (hours)
#
# On Debian 12, as root or with sudo: installs the cross compiler and qemu-user. The libraries of arm64 are unpacked into
# build/aarch64-sysroot (TRAFO_SYSROOT: another folder); the system has none of them. QEMU_CPU selects the processor that qemu emulates.
# TRAFO_PREBUILT=1: installs and builds nothing, on a machine that has qemu-aarch64, build/aarch64 and the sysroot.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=${TRAFO_SYSROOT:-$PWD/build/aarch64-sysroot} build=build/aarch64 long=0
[[ $# -eq 0 || ($# -eq 1 && $1 =~ ^--(long|kernels|train)$) ]] ||
  { echo "usage: tests/tools/aarch64.sh [--kernels | --train | --long]" >&2; exit 2; }
[[ ${1:-} != --long ]] || long=1

programs=(op_tests unit_tests)
[[ $long -eq 1 ]] && programs+=(train_tests parity_tests c_api_test c_api_threads_test)
run() { qemu-aarch64 -L "$root" "$@"; }
install_tools() {  # names of packages
  local missing=() as_root=()
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  [[ $EUID -eq 0 ]] || as_root=(sudo)
  if ! { "${as_root[@]}" apt-get update -qq && "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; }; then
    echo "aarch64: skipped, the packages ${missing[*]} cannot be had here"
    exit 77
  fi
}

# Without arm64's libraries: those of the cross compiler are enough. An emulated Cortex-A72 has NEON alone, `max` all that qemu knows.
if [[ ${1:-} == --kernels ]]; then
  install_tools g++-aarch64-linux-gnu qemu-user googletest
  scripts/third-party.sh >/dev/null
  cmake -S tests/kernels -B build/aarch64-kernels -G Ninja --toolchain "$PWD/cmake/aarch64-linux-gnu.cmake" -DTRAFO_SYSROOT= \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DCMAKE_CXX_COMPILER_LAUNCHER="$PWD/cmake/ccache.sh" >/dev/null
  cmake --build build/aarch64-kernels
  for processor in max cortex-a72; do
    echo "== kernel_tests on $processor"
    qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu "$processor" build/aarch64-kernels/kernel_tests --gtest_brief=1 --gtest_filter='Bf16*:Int8*:Int4*'
  done
  exit 0
fi

# In groups as large as those of the crate trafo-sys.
if [[ ${1:-} == --train ]]; then
  install_tools g++-aarch64-linux-gnu qemu-user
  scripts/third-party.sh >/dev/null
  build=build/aarch64-train
  cmake -S . -B "$build" -G Ninja --toolchain "$PWD/cmake/aarch64-linux-gnu.cmake" -DTRAFO_SYSROOT= -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS_RELEASE=-O0 -DTRAFO_THIRD_PARTY="$PWD/build/third-party" -DTRAFO_WERROR=ON -DTRAFO_UNITY_LIBRARY=ON \
    -DTRAFO_UNITY_SIZE=24 -DTRAFO_MPI=OFF -DTRAFO_BUILD_APPS=OFF -DTRAFO_BUILD_TESTS=OFF -DTRAFO_BUILD_BENCH=OFF \
    -DCMAKE_C_COMPILER_LAUNCHER="$PWD/cmake/ccache.sh" -DCMAKE_CXX_COMPILER_LAUNCHER="$PWD/cmake/ccache.sh" >/dev/null
  cmake --build "$build" --target trafo_static
  aarch64-linux-gnu-gcc -std=gnu11 -O1 -Wall -Wextra -Werror -I. -Icapi/include -c tests/tools/kill_and_resume.c -o "$build/kill_and_resume.o"
  aarch64-linux-gnu-g++ "$build/kill_and_resume.o" "$build/libtrafo.a" -o "$build/kill_and_resume"
  tests/tools/kill_and_resume.sh qemu-aarch64 -L /usr/aarch64-linux-gnu "$build/kill_and_resume"
  exit 0
fi

prepare() {
  install_tools g++-aarch64-linux-gnu qemu-user
  # A separate package manager, whose system is empty and of arm64, resolves and downloads; nothing is installed.
  if [[ ! -f $root/complete ]]; then
    rm -rf "$root"
    state=$root.apt
    mkdir -p "$root" "$state/lists/partial" "$state/cache/archives/partial"
    : >"$state/status"
    options=(-qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$state" -o Dir::State::status="$state/status"
      -o Dir::State::Lists="$state/lists" -o Dir::Cache="$state/cache" -o Debug::NoLocking=1)
    apt-get "${options[@]}" update
    apt-get "${options[@]}" install -y --download-only --no-install-recommends zlib1g-dev libsentencepiece-dev libhwy-dev \
      nlohmann-json3-dev libcli11-dev libyaml-cpp-dev libfmt-dev libspdlog-dev libgtest-dev >/dev/null
    for package in "$state"/cache/archives/*.deb; do
      dpkg-deb -x "$package" "$root"
    done
    # Absolute links would lead out of the sysroot.
    while read -r link; do
      ln -sfr "$root$(readlink "$link")" "$link"
    done < <(find "$root" -type l -lname '/*')
    rm -rf "$state"
    touch "$root/complete"
  fi

  cmake -S . -B "$build" -G Ninja --toolchain cmake/aarch64-linux-gnu.cmake -DTRAFO_SYSROOT="$root" -DCMAKE_BUILD_TYPE=Release \
    -DTRAFO_WERROR=ON -DTRAFO_BUILD_TESTS=ON -DTRAFO_BUILD_BENCH=OFF -DTRAFO_UNITY_LIBRARY=ON \
    -DCMAKE_C_COMPILER_LAUNCHER="$PWD/cmake/ccache.sh" -DCMAKE_CXX_COMPILER_LAUNCHER="$PWD/cmake/ccache.sh" >/dev/null
  cmake --build "$build" --target trafo translate-train "${programs[@]}"
  aarch64-linux-gnu-readelf -h "$build/libtrafo.so" | grep -q AArch64 || { echo "aarch64: libtrafo.so is for another processor" >&2; exit 1; }
}
[[ ${TRAFO_PREBUILT:-0} == 1 ]] || prepare
run "$build/translate-train" --version
[[ $long -eq 1 ]] || exit 0

# A program of Google Test runs in one process for each processor of this machine; one of C runs once.
run_shards() {
  local shards=1 shard status=0
  [[ $1 != *_tests ]] || shards=$(nproc)
  for ((shard = 0; shard < shards; ++shard)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard qemu-aarch64 -L "$root" "$@" &
    running+=($!)
  done
  for shard in "${running[@]}"; do
    wait "$shard" || status=1
  done
  running=()
  return "$status"
}

running=() work=""
trap 'kill "${running[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
failed=0
for program in "${programs[@]}"; do
  path=$(find "$build/tests" -type f -name "$program" -perm -u+x)
  echo "== $program"
  arguments=()
  # Without tests of processes that end: a fork of several threads does not return in qemu-user. And without those that start a
  # program of this build: this machine's kernel would have to run it.
  [[ $program == *_tests ]] && arguments=(--gtest_brief=1 --gtest_filter=-*DeathTest*:CudaPlugin.AProgram*)
  run_shards "$path" "${arguments[@]}" || { echo "aarch64: $program failed"; failed=1; }
done

echo "== translate-train"
work=$(mktemp -d)
python3 -c 'import pathlib, sys; sys.path.insert(0, "tests/tools"); import toy_corpus
toy_corpus.write(pathlib.Path(sys.argv[1]), 200, 20)' "$work"
trainer=$PWD/$build/translate-train
train() {
  (cd "$work" && run "$trainer" train --train-sets t.src t.trg --valid-sets v.src v.trg --task tiny --device cpu --enc-depth 1 \
    --dec-depth 1 --dim-emb 32 --transformer-dim-ffn 64 --transformer-heads 2 --dim-vocabs 60 --mini-batch-words 400 --cpu-threads 2 \
    --valid-freq 10u --quiet --model "$1" --after "$2")
}
train whole 20u && train cut 10u && train cut 20u
for run_directory in whole cut; do
  (cd "$work" && run "$trainer" translate --quiet --device cpu -m "$run_directory" <v.src >"$run_directory.out")
done
cmp "$work/whole/ckpt/20/model.safetensors" "$work/cut/ckpt/20/model.safetensors" && cmp "$work/whole.out" "$work/cut.out" || failed=1
[[ $(wc -l <"$work/whole.out") -eq 20 ]] || failed=1
[[ $failed -eq 0 ]] && echo "aarch64: passed"
exit "$failed"
