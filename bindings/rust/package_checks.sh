#!/usr/bin/env bash
# The packages as a registry would get them: under 10 MiB, and whole, so that a program builds from them alone. Slow, because
# the engine is built once more; --list only packs them and looks at what is inside.
set -euo pipefail
cd "$(dirname "$0")"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
env DOCS_RS=1 cargo package --quiet --workspace --allow-dirty --no-verify --target-dir "$folder/packed"
for crate in trafo-sys trafo-engine; do
  file=$(ls "$folder"/packed/package/$crate-[0-9]*.crate)
  size=$(stat -c %s "$file")
  [[ $size -lt 10485760 ]] || { echo "package_checks: $file has $size bytes, a registry takes 10 MiB" >&2; exit 1; }
  mkdir -p "$folder/$crate"
  tar xzf "$file" -C "$folder/$crate" --strip-components 1
  echo "$crate: $((size / 1024)) KiB"
done
# All files that the build needs are in it, as files and not as links out of it.
for path in CMakeLists.txt capi/include/trafo.h cmake engine/core/status.h LICENSE; do
  [[ -e "$folder/trafo-sys/vendor/$path" ]] || { echo "package_checks: trafo-sys has no vendor/$path" >&2; exit 1; }
done
[[ -z $(find "$folder/trafo-sys" "$folder/trafo-engine" -type l) ]] || { echo "package_checks: a package has links in it" >&2; exit 1; }
[[ ${1:-} != --list ]] || exit 0

# A program in an otherwise empty folder, far from the repository.
mkdir -p "$folder/program/src"
cat >"$folder/program/Cargo.toml" <<END
[package]
name = "program"
version = "0.1.0"
edition = "2024"
[dependencies]
trafo-engine = { path = "../trafo-engine" }
[patch.crates-io]
trafo-sys = { path = "../trafo-sys" }
END
awk '/^```rust/ { inside = 1; next } /^```/ { inside = 0 } inside' trafo/README.md >"$folder/program/src/main.rs"
cd "$folder/program"
env -u TRAFO_LIB_DIR -u DOCS_RS CARGO_TARGET_DIR="$folder/built" cargo run --quiet | tail -n 1 | grep -x "good evening"
echo "a program builds from the packages alone, and translates"
