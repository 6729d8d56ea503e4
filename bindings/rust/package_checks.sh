#!/usr/bin/env bash
# The packages as a registry would get them: under 10 MiB, and whole. A program in an otherwise empty folder takes them with `cargo add`
# from a local registry, needs no library but those of C and C++, and trains, resumes and translates in a root that has no other file.
#
#   package_checks.sh           builds the engine from the package, without any package of the system, and again for another profile,
#                               which takes it from the cache (minutes)
#   package_checks.sh --short   compiles no engine: links the library of tests/tools/bundled_library.sh
#   package_checks.sh --list    only packs them and looks at the files inside
#   package_checks.sh --registry FOLDER   only packs them, into a registry in this folder with all crates that they need
set -euo pipefail
cd "$(dirname "$0")"
form=${1:-long} registry=${2:-}
[[ ($# -le 1 && $form =~ ^(long|--short|--list)$) || ($# -eq 2 && $form == --registry) ]] ||
  { echo "usage: package_checks.sh [--short | --list | --registry FOLDER]" >&2; exit 2; }
fail() { echo "package_checks: $*" >&2; exit 1; }
repository=$(cd ../.. && pwd -P)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

../../scripts/third-party.sh >/dev/null
env DOCS_RS=1 cargo package --quiet --workspace --allow-dirty --no-verify --target-dir "$folder/packed"
# A registry in a folder: the crates that these two need, and they.
registry=$(realpath -m "${registry:-$folder/registry}")
if [[ $form == --list ]]; then
  mkdir "$registry"
else
  cargo vendor --quiet --locked --versioned-dirs "$registry" >/dev/null
fi
for crate in trafo-sys trafo-engine; do
  file=$(ls "$folder"/packed/package/$crate-[0-9]*.crate)
  size=$(stat -c %s "$file")
  [[ $size -lt 10485760 ]] || fail "$file has $size bytes, a registry takes 10 MiB"
  tar xzf "$file" -C "$registry"
  printf '{"files":{},"package":"%s"}' "$(sha256sum "$file" | cut -d ' ' -f 1)" >"$registry/$(basename "$file" .crate)/.cargo-checksum.json"
  echo "$crate: $((size / 1024)) KiB"
done
# All files that the build needs are in it, as files and not as links out of it, with their licences.
sys=$(echo "$registry"/trafo-sys-*)
for path in CMakeLists.txt capi/include/trafo.h cmake engine/core/status.h LICENSE third_party/complete \
  third_party/sentencepiece/LICENSE third_party/sentencepiece/third_party/{absl,darts_clone,esaxx,protobuf-lite}/LICENSE \
  third_party/highway/LICENSE third_party/zlib/LICENSE third_party/nlohmann-json3/LICENSE.MIT; do
  [[ -e $sys/vendor/$path ]] || fail "trafo-sys has no vendor/$path"
done
[[ -z $(find "$sys" "$registry"/trafo-engine-* -type l) ]] || fail "a package has links in it"
[[ $form != --list && $form != --registry ]] || exit 0

# The build is configured with nothing but the package, and with nothing but the source archive.
configured() {
  env PKG_CONFIG_LIBDIR=/nonexistent PKG_CONFIG_PATH= cmake -S "$1" -B "$folder/configured/$2" -DTRAFO_BUILD_APPS=OFF -DTRAFO_BUILD_TESTS=OFF \
    -DTRAFO_BUILD_BENCH=OFF -DTRAFO_MPI=OFF >/dev/null
}
configured "$sys/vendor" package
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  ../../scripts/source-archive.sh "$folder"
  tar xzf "$folder"/trafo-*.tar.gz -C "$folder"
  configured "$(find "$folder" -maxdepth 1 -type d -name 'trafo-[0-9]*')" archive
fi
library=
[[ $form == long ]] || library=$(../../tests/tools/bundled_library.sh ${TRAFO_LIB_DIR:+"$TRAFO_LIB_DIR"})

# The environment of a machine without packages.
unset TRAFO_LINK DOCS_RS
export PKG_CONFIG_LIBDIR=/nonexistent PKG_CONFIG_PATH=

# program PROFILE: builds the program, and runs it where there are no other libraries
program() {
  local binary=$CARGO_TARGET_DIR/${1/dev/debug}/program root=$folder/root-$1 name said
  cargo build --quiet --profile "$1"
  for name in $(readelf -d "$binary" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    [[ $name =~ ^(libc|libm|libgcc_s|libstdc\+\+|ld-linux-x86-64|ld-linux-aarch64)\.so\.[0-9]+$ ]] || fail "the program needs $name"
  done
  mkdir -p "$root/run"
  cp "$binary" "$(dirname "$binary")/libtrafo_tcp.so" "$root"
  while read -r name; do
    mkdir -p "$root$(dirname "$name")"
    cp -L "$name" "$root$name"
  done < <(ldd "$binary" | grep -oE '/\S+')
  local inside=(unshare --mount)
  [[ $EUID -eq 0 ]] || inside=(unshare --mount --map-root-user)
  "${inside[@]}" true 2>/dev/null || { echo "package_checks: SKIPPED: no root here to run the program in an empty root"; return 0; }
  said=$("${inside[@]}" chroot "$root" /program /run 40)
  said+=$'\n'$("${inside[@]}" chroot "$root" /program /run 100)
  # A program knows its folder by /proc.
  mkdir -p "$root/proc"
  [[ $("${inside[@]}" sh -c 'mount --rbind /proc "$0/proc" && exec chroot "$0" /program group' "$root") == "a group of processes" ]] \
    || fail "the program does not find libtrafo_tcp.so beside it"
  grep -qx "resumed after 40 updates" <<<"$said" && tail -n 1 <<<"$said" | grep -qx "good evening" || fail "the program says: $said"
}

mkdir "$folder/project"
cd "$folder/project"
cargo init --quiet --name program
mkdir .cargo
printf '[source.crates-io]\nreplace-with = "packages"\n[source.packages]\ndirectory = "%s"\n' "$registry" >.cargo/config.toml
cargo add --quiet trafo-engine
cp "$repository/tests/tools/from_packages.rs" src/main.rs
export CARGO_TARGET_DIR=$folder/target TRAFO_CACHE_DIR=$folder/cache
if [[ $form == --short ]]; then
  TRAFO_LIB_DIR=$library program dev
  echo "a program takes the packages by cargo add, and trains, resumes and translates in an empty root"
  exit 0
fi
unset TRAFO_LIB_DIR
began=$SECONDS
program dev
built=$((SECONDS - began)) began=$SECONDS
program release
cached=$((SECONDS - began))
[[ $(find "$TRAFO_CACHE_DIR" -name libtrafo.a | wc -l) -eq 1 ]] || fail "two profiles built the engine twice"
echo "a program takes the packages by cargo add, and trains, resumes and translates in an empty root; first build $built s, another profile $cached s"
