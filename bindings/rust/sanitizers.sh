#!/usr/bin/env bash
# The Rust tests, the documentation's examples among them, on an engine that is built with the address and undefined-behaviour
# sanitizers; at its end each program is looked through for leaks. Arguments go to `cargo test`.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$PWD/build/asan
cmake --preset asan >/dev/null
cmake --build --preset asan --target trafo

# Libraries that rustc links as libtrafo: the sanitizers' own libraries, which must come before all others, then
# the engine.
mkdir -p "$build/rust"
echo "INPUT(-lasan -lubsan $build/libtrafo.so)" > "$build/rust/libtrafo.so"
export TRAFO_LIB_DIR=$build/rust CARGO_TARGET_DIR=$build/rust/target
# An rpath: the CLI that a test compares with keeps the library that it was built with. Frame pointers: stacks of leaks have all frames.
flags="-C link-arg=-Wl,-rpath,$build -C force-frame-pointers=yes"
export RUSTFLAGS=$flags RUSTDOCFLAGS=$flags
cd bindings/rust
# Sizes of the process say nothing here, what is freed is kept back: the leak checker looks instead. A service that gives up on a
# request at shutdown leaves what that has to the end of the process.
cargo test --quiet "$@" -- --skip cycles_do_not_leak --skip a_shutdown_gives_up_after_its_grace
