#!/usr/bin/env bash
# Installs what is missing, builds and runs every test: C++, C, the CLI, Rust and Go.
#   --sanitizers      also builds with address+undefined and thread sanitizers and runs the C++ and C tests under them
#   --all-sanitizers  the same with more forms of the tests, and the command line and its tests under both too
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizers=0
all=OFF
for argument in "$@"; do
  case "$argument" in
    --sanitizers) sanitizers=1 ;;
    --all-sanitizers) sanitizers=1 all=ON ;;
    *) echo "usage: scripts/test.sh [--sanitizers | --all-sanitizers]" >&2; exit 2 ;;
  esac
done

step() { printf '\n== %s (after %d s)\n' "$*" "$SECONDS"; }

# After a failure the last lines are those of the cases that failed, because the tests before and after them print thousands.
run_tests() {  # preset
  local status=0
  ctest --preset "$1" -j4 || status=$?
  [[ $status -ne 0 ]] || return 0
  printf '\n== %s: cases that failed\n' "$1"
  grep -hE -B 20 '^\[  FAILED  \] .* ms\)$' "build/$1/Testing/Temporary/LastTest.log" || true
  return "$status"
}

step "dependencies"
scripts/install-dependencies.sh --tests --bindings
PATH=$(scripts/install-go.sh):$PATH

step "source checks"
tests/tools/check_layers.sh
tests/tools/check_ambient.sh
tests/tools/check_format.sh
tests/tools/check_tracked.sh
scripts/generate_options.py --check

step "release build and tests"
cmake --preset release -DTRAFO_WERROR=ON -DTRAFO_BUILD_TESTS=ON -DTRAFO_BUILD_BENCH=ON -DTRAFO_UNITY_LIBRARY=ON >/dev/null
cmake --build --preset release
run_tests release

if [[ $sanitizers -eq 1 ]]; then
  for preset in asan tsan; do
    step "$preset build and tests"
    cmake --preset "$preset" -DTRAFO_WERROR=ON -DTRAFO_BUILD_APPS=$all -DTRAFO_CLI_TESTS=$all -DTRAFO_SANITIZE_ALL_FORMS=$all \
      -DTRAFO_TEST_OBJECTS="$PWD/build/release" >/dev/null
    cmake --build --preset "$preset"
    run_tests "$preset"
    # Programs with a sanitizer are large, and nothing below needs them.
    [[ -z ${CI:-} ]] || cmake --build --preset "$preset" --target clean
  done
fi

# The bindings link the library that was just built.
export TRAFO_LIB_DIR=$PWD/build/release

bindings() {
  step "Rust"
  (cd bindings/rust && ./bindings.sh --check && cargo fmt --all --check && cargo clippy --quiet --all-targets -- -D warnings && cargo test --quiet && ./product_checks.sh)
  step "The learning service"
  (export CARGO_TARGET_DIR=$PWD/bindings/rust/target &&
    cd examples/learning-service && cargo fmt --check && cargo clippy --quiet --all-targets -- -D warnings && cargo test --quiet)
  step "Go"
  (cd bindings/go/trafo && test -z "$(gofmt -l .)" && go vet ./... && go test -count=1 -race ./... && go test -count=1 -run Cycles .)
  (cd bindings/go/trafo && go vet -tags trafo_dlopen . && TRAFO_LIBRARY=$TRAFO_LIB_DIR/libtrafo.so go test -count=1 -tags trafo_dlopen -short .)
  bindings/go/module_checks.sh "$(tests/tools/bundled_library.sh)"
  step "The learning service in Go: its tests, and the service's story and kills against it"
  (export CARGO_TARGET_DIR=$PWD/bindings/rust/target LEARNING_SERVICE_PROGRAM=$PWD/bindings/rust/target/learning-service-go LEARNING_KILLS=6 &&
    cd examples/learning-service && test -z "$(gofmt -l go shared)" && go vet -race ./... && go test -count=1 -race -short ./... &&
    go build -race -o "$LEARNING_SERVICE_PROGRAM" ./go &&
    cargo test --quiet --test service --test kills -- a_domain requests_that_are_wrong kills)
  step "References of the interfaces"
  local languages=(rust go)
  if command -v doxygen >/dev/null; then languages+=(c); fi
  scripts/reference.sh "${languages[@]}"
  step "What the README says, in empty directories"
  tests/tools/readme_programs.sh
}

other_programs() {  # each with its arguments
  local script status words
  for script in "$@"; do
    printf '\n== Other programs: %s\n' "$script"
    status=0
    read -ra words <<<"$script"
    python3 "tests/parity/${words[0]}.py" "${words[@]:1}" || status=$?
    [[ $status -eq 0 || $status -eq 77 ]] || return "$status"  # 77: the packages cannot be had here, which it has said
  done
}

# At a time: each installs packages first and then keeps at most one core busy. Scripts that share an environment follow each other.
logs=$(mktemp -d)
jobs=()
start() {
  other_programs "$@" >"$logs/$1" 2>&1 &
  jobs+=($!)
}
trap 'kill "${jobs[@]}" 2>/dev/null || true; rm -rf "$logs"' EXIT
if command -v python3 >/dev/null; then
  start export_parity beam_parity weights_parity compressed_parity marian_parity multilingual_parity opinfo \
    "t5_parity --short" gguf_t5_parity "encoder_parity --short"
  start onnx_parity chat_parity
  start eval_parity
else
  echo "SKIPPED: there is no python3 for transformers, CTranslate2, GGUF, ONNX Runtime, sacreBLEU"
fi
bindings
status=0
for job in "${jobs[@]}"; do
  wait "$job" || status=$?
done
cat "$logs"/* 2>/dev/null || true
[[ $status -eq 0 ]] || exit "$status"

step "all tests passed"
