#!/bin/sh
# Writes trafo-sys/src/bindings.rs from capi/include/trafo.h; with --check, compares instead and fails on a difference.
# Without libclang there is nothing to compare with: says so and succeeds.
set -eu
cd "$(dirname "$0")"
if [ -z "${LIBCLANG_PATH:-}" ] && ! ldconfig -p | grep -q 'libclang[-.]' &&
  ! ls /usr/lib/llvm-*/lib/libclang*.so* >/dev/null 2>&1; then
  echo "skipped: libclang is not installed (Debian: apt install libclang-dev)"
  exit 0
fi
export DOCS_RS=1 # only the bindings are made, nothing is linked
out=$(cargo check --quiet -p trafo-sys --features buildtime-bindgen --message-format=json |
  sed -n '/"reason":"build-script-executed"/{/trafo-sys/s/.*"out_dir":"\([^"]*\)".*/\1/p}')
if [ "${1:-}" = --check ]; then
  diff -u trafo-sys/src/bindings.rs "$out/bindings.rs"
  echo "trafo-sys/src/bindings.rs is what bindgen makes of trafo.h"
else
  cp "$out/bindings.rs" trafo-sys/src/bindings.rs
fi
