#!/usr/bin/env bash
# The Rust crates and Go modules from their archives, on an empty Debian: a program takes them by `cargo add` and by `go get`, trains,
# resumes and translates. By hand, as root: downloads the packages of debootstrap's minbase and a compiler.
#
#   tests/tools/bare_bindings_test.sh LIBRARY_FOLDER         Debian 12 with g++, CMake and make: the crate compiles the engine; the module
#                                                            has the prebuilt library of LIBRARY_FOLDER (scripts/go-modules.sh)
#   tests/tools/bare_bindings_test.sh --debian-11 TAR        Debian 11 with gcc alone: both link the shared library of this tar
#                                                            (scripts/portable-package.sh)
#
# Rust and Go are this machine's. TRAFO_DEBIAN_MIRROR: another mirror than deb.debian.org. Exit status 77: not root, or no debootstrap;
# nothing was checked.
set -euo pipefail
cd "$(dirname "$0")/../.."
release=bookworm packages=(g++ cmake make)
if [[ ${1:-} == --debian-11 ]]; then
  release=bullseye packages=(gcc libc6-dev)
  shift
fi
[[ $# -eq 1 && -e $1 ]] || { echo "usage: tests/tools/bare_bindings_test.sh LIBRARY_FOLDER | --debian-11 TAR" >&2; exit 2; }
if [[ $EUID -ne 0 ]] || ! command -v debootstrap >/dev/null; then
  echo "bare_bindings_test: SKIPPED, nothing was checked: it needs root and debootstrap"
  exit 77
fi
given=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "bare_bindings_test: $*" >&2; exit 1; }
seconds() { awk -v began="$1" -v now="$(date +%s.%N)" 'BEGIN { printf "%.0f s", now - began }'; }

system=$work/system
debootstrap --variant=minbase --include="$(IFS=,; echo "${packages[*]}")" "$release" "$system" \
  "${TRAFO_DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/log" || { tail "$work/log"; fail "no Debian $release"; }
project=$system/srv/project
mkdir -p "$project"/{rust/src,rust/.cargo,go} "$system"/srv/{rust,go,library,home}

bindings/rust/package_checks.sh --registry "$system/srv/registry"
printf '[source.crates-io]\nreplace-with = "packages"\n[source.packages]\ndirectory = "/srv/registry"\n' >"$project/rust/.cargo/config.toml"
cp tests/tools/from_packages.rs "$project/rust/src/main.rs"
awk '/^```go/ { inside = 1; next } /^```/ { inside = 0 } inside' bindings/go/trafo/README.md >"$project/go/main.go"
tag=
if [[ $release == bullseye ]]; then
  tar -xzf "$given" -C "$system/srv/library" --strip-components=1
  # The module without the library: of a program that links another one, no file of it is compiled.
  scripts/go-modules.sh --output "$work/modules" "$(tests/tools/bundled_library.sh)"
  tag="-tags trafo_system"
  link="export TRAFO_LIB_DIR=/srv/library/lib TRAFO_LINK=shared LD_LIBRARY_PATH=/srv/library/lib CGO_LDFLAGS=-L/srv/library/lib"
else
  scripts/go-modules.sh --output "$work/modules" "$given"
  link=:
fi
cp -r "$work/modules/proxy" "$system/srv/modules"

# there COMMANDS: in that system, with its own environment
there() {
  unshare --mount --pid --fork bash -c '
    mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev"
    mount --rbind "$2" "$1/srv/rust" && mount --rbind "$3" "$1/srv/go"
    exec env -i HOME=/srv/home PATH=/srv/rust/bin:/srv/go/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TMPDIR=/tmp \
      GOPROXY=file:///srv/modules GONOSUMDB="*" GONOSUMCHECK=1 GOFLAGS="-mod=mod -modcacherw" GOTOOLCHAIN=local CGO_ENABLED=1 \
      chroot "$1" bash -euo pipefail -c "$4"' bash "$system" "$(rustc --print sysroot)" "$(go env GOROOT)" "$link; $1"
}
version=$(there 'ldd --version | sed -n "1s/.* //p"')
began=$(date +%s.%N)
there 'cd /srv/project/rust && cargo init --quiet --name program && cargo add --quiet trafo-engine && cargo build --quiet --release'
echo "bare_bindings_test: cargo add and build on glibc $version: $(seconds "$began")"
said=$(there 'cd /srv/project && rust/target/release/program /srv/run 40 && rust/target/release/program /srv/run 100')
grep -qx "resumed after 40 updates" <<<"$said" && tail -n 1 <<<"$said" | grep -qx "good evening" || fail "the program in Rust says: $said"
began=$(date +%s.%N)
there "cd /srv/project/go && go mod init example.com/program 2>/dev/null && go get github.com/trafo-engine/trafo/bindings/go/trafo@latest 2>&1 && go build $tag -o program . && ./program" >"$work/said"
tail -n 1 "$work/said" | grep -qx "good evening" || { cat "$work/said"; fail "the program in Go does not translate"; }
echo "bare_bindings_test: go get, build and run on glibc $version: $(seconds "$began")"
for program in rust/target/release/program go/program; do
  echo "bare_bindings_test: $program: $(stat -c %s "$project/$program") bytes, needs$(readelf -d "$project/$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/ \1/p' | tr -d '\n')"
done
