#!/usr/bin/env bash
# Properties that users of the crates rely on beside the tests: without the library `cargo check` and `cargo doc` work, and the
# documentation has no broken link; the oldest Rust that Cargo.toml names builds everything, where rustup has it; the packages are
# small and whole, and a program builds with them (package_checks.sh, whose long form also builds the engine).
set -euo pipefail
cd "$(dirname "$0")"

# A separate folder: the answer of trafo-sys's build script must not be the one that knows a library.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
without() { env -u TRAFO_LIB_DIR DOCS_RS=1 CARGO_TARGET_DIR="$folder" "$@"; }
without cargo check --quiet --workspace
RUSTDOCFLAGS="-D warnings" without cargo doc --quiet --workspace --no-deps
echo "cargo check and cargo doc need no library"

msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
for readme in trafo/README.md ../../README.md; do
  grep -q "Rust $msrv or newer" "$readme" || { echo "product_checks: $readme does not say \"Rust $msrv or newer\"" >&2; exit 1; }
done
if cargo "+$msrv.0" --version >/dev/null 2>&1; then
  without cargo "+$msrv.0" check --quiet --workspace --all-targets
  echo "Rust $msrv builds it"
else
  echo "SKIPPED: there is no Rust $msrv here; clippy still refuses what is newer in the standard library"
fi

# A machine without what the engine's build needs gets one sentence about it, before CMake runs.
refused() {  # WORDS ENVIRONMENT...
  local words=$1 said features=()
  shift
  # A checkout may have the sources of libraries, which the feature `bundled` builds.
  [[ "$*" != PKG_CONFIG* ]] || features=(--no-default-features)
  if said=$(env -u TRAFO_LIB_DIR "$@" CARGO_TARGET_DIR="$folder/refused" cargo check --quiet -p trafo-sys "${features[@]}" 2>&1); then
    echo "product_checks: a build with $* is not refused" >&2
    exit 1
  fi
  grep -q "$words" <<<"$said" && ! grep -q "CMake Error" <<<"$said" || { echo "product_checks: with $*: $said" >&2; exit 1; }
}
refused "the engine needs sentencepiece, which pkg-config does not find. Debian: apt install" PKG_CONFIG_LIBDIR=/nonexistent PKG_CONFIG_PATH=
refused "does not run. Debian: apt install" CMAKE=/nonexistent/cmake
refused "the C++ compiler .* does not run" CXX=/nonexistent/c++
printf '#!/bin/sh\necho "cmake version 3.22.1"\n' >"$folder/cmake"
printf '#!/bin/sh\n[ "$1" = --version ] && echo "g++ 9.4.0"\n' >"$folder/c++"
chmod +x "$folder/cmake" "$folder/c++"
refused "is version 3.22; the engine needs CMake 3.25 or newer" CMAKE="$folder/cmake"
refused "(g++ 9.4.0) does not compile C++20; the engine needs GCC 11" CXX="$folder/c++"
needed=$(sed -n 's/^cmake_minimum_required(VERSION \(.*\)\.\(.*\))/(\1, \2)/p' ../../CMakeLists.txt)
grep -qF "CMAKE_VERSION: (u32, u32) = $needed" trafo-sys/build/requirements.rs ||
  { echo "product_checks: trafo-sys/build/requirements.rs does not ask for CMake $needed" >&2; exit 1; }
echo "a machine without compiler, CMake or packages is told so"

# Features that leave kernels out reach CMake.
printf '#!/bin/sh\n[ "$1" != --version ] || { echo "cmake version 3.25.1"; exit; }\necho "$@" >"%s"\nexit 1\n' "$folder/arguments" >"$folder/cmake"
chmod +x "$folder/cmake"
configured() {  # ARGUMENTS FEATURES...: of cargo; the build ends where CMake does
  ! env -u TRAFO_LIB_DIR CMAKE="$folder/cmake" CARGO_TARGET_DIR="$folder/refused" cargo check --quiet -p trafo-sys "${@:2}" 2>/dev/null &&
    grep -qF -- "$1" "$folder/arguments" || { echo "product_checks: ${*:2} gives CMake $(cat "$folder/arguments")" >&2; exit 1; }
}
configured "-DTRAFO_INSTRUCTION_SETS=avx2;avx512 -DTRAFO_FLOAT64=ON"
configured "-DTRAFO_INSTRUCTION_SETS=avx2 -DTRAFO_FLOAT64=OFF" --no-default-features --features bundled,avx2

# Other -sys crates find the header and the library, and users find the repository.
checked=${TRAFO_LIB_DIR:-../../build/release}
checked=$(cd "$checked" && pwd)
TRAFO_LIB_DIR=$checked CARGO_TARGET_DIR="$folder/metadata" cargo check --quiet -p trafo-sys
for line in "cargo:include=$(cd ../.. && pwd -P)/capi/include" "cargo:lib_dir=$checked"; do
  grep -qxF "$line" "$folder"/metadata/debug/build/trafo-sys-*/output ||
    { echo "product_checks: the build script of trafo-sys does not print $line" >&2; exit 1; }
done
for readme in trafo/README.md trafo-sys/README.md; do
  ! grep -n "](\.\./" "$readme" || { echo "product_checks: links of $readme lead nowhere on a registry" >&2; exit 1; }
done

# Configurations, options, events and results go through serde.
cargo clippy --quiet -p trafo-engine --features serde --all-targets -- -D warnings
cargo test --quiet -p trafo-engine --features serde --test serde

./package_checks.sh --short

# compile_fail tests fail to compile for the reason they name: stable rustdoc compares the codes only under this variable.
RUSTC_BOOTSTRAP=1 cargo test --quiet --doc -p trafo-engine misuse
