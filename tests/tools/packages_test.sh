#!/usr/bin/env bash
# packages_test.sh BUILD_FOLDER VERSION CC [--bindings]: the packages of one build have the same bytes twice; installed into an empty
# folder they work; the tar has its libraries with it and asks for no newer glibc than docs/guide/packages.md says.
#   --bindings   Rust and Go programs with the installed library, too (a minute of compiling)
set -euo pipefail
build=$(realpath "$1") version=$2 cc=$3 bindings=${4:-}
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "packages_test: $*" >&2; exit 1; }

# Twice, on other days, with other rights for new files.
export SOURCE_DATE_EPOCH=1767225600
(umask 077 && "$source/scripts/package.sh" "$build" "$work/first" >/dev/null)
sleep 1
(umask 002 && cd / && TMPDIR="$work" "$source/scripts/package.sh" "$build" "$work/second" >/dev/null)
diff -r "$work/first" "$work/second" || fail "two runs give other bytes"
packages=("$work/first"/*.deb "$work/first"/*.tar.gz)
[[ ${#packages[@]} -eq 3 ]] || fail "there are not three packages: ${packages[*]}"
(cd "$work/first" && sha256sum --quiet -c SHA256SUMS) || fail "SHA256SUMS does not fit"
[[ $(wc -l <"$work/first/SHA256SUMS") -eq 4 ]] || fail "SHA256SUMS has not four lines"

# The .deb files: who owns what, what they depend on, what is inside.
architecture=$(dpkg --print-architecture)
library=$work/first/trafo_${version}_$architecture.deb development=$work/first/trafo-dev_${version}_$architecture.deb
for package in "$library" "$development"; do
  dpkg-deb -c "$package" | awk '$2 != "root/root" || $4 != "2026-01-01" { print; bad = 1 } END { exit bad }' || fail "$package: owner or time"
  dpkg-deb -x "$package" "$work/root"
done
depends=$(dpkg-deb -f "$library" Depends)
for name in libc6 libstdc++6 libsentencepiece0 libhwy1 zlib1g; do
  [[ $depends =~ (^| )"$name"(:| |,|$) ]] || fail "trafo does not depend on $name: $depends"
done
[[ $(dpkg-deb -f "$development" Depends) == "trafo (= $version)" ]] || fail "trafo-dev depends on: $(dpkg-deb -f "$development" Depends)"
dpkg-deb -I "$library" postinst | grep -q ldconfig || fail "trafo does not run ldconfig"
for file in share/man/man1/translate-train.1 share/trafo/trafo.cdx.json share/doc/trafo/copyright share/doc/trafo-dev/copyright include/trafo.h; do
  [[ -s $work/root/usr/$file || -s $work/root/usr/$file.gz ]] || fail "no package has $file"
done
cmp "$work/root/usr/share/trafo/trafo.cdx.json" "$work/first/trafo.cdx.json" || fail "the bill of materials is not the packaged one"
[[ -z $(readelf -S "$work/root/usr/lib/libtrafo.so.0" | grep '\.debug_info') ]] || fail "libtrafo.so has debugging symbols"

runs() { # runs PROGRAM...: it must print the version
  local said
  said=$("$@" 2>&1) || fail "$* fails: $said"
  [[ $said == *"$version"* ]] || fail "$* says $said"
}
runs "$work/root/usr/bin/translate-train" --version

"$source/tests/install/run_paths.py" installed "$work/root" || fail "a run path of a .deb file"

# A C program with the installed files, linked to the shared and to the static library.
libraries=$work/root/usr/lib
export PKG_CONFIG_PATH=$libraries/pkgconfig
consumer=$source/tests/install/consumer.c
read -ra flags <<<"$(pkg-config --cflags --libs trafo)"
"$cc" -std=c11 "$consumer" -o "$work/shared" "${flags[@]}"
read -ra flags <<<"$(pkg-config --static --cflags --libs trafo | sed 's/-ltrafo\b/-l:libtrafo.a/')"
"$cc" -std=c11 "$consumer" -o "$work/static" "${flags[@]}"
runs env LD_LIBRARY_PATH="$libraries" "$work/shared"
runs "$work/static"

# The tar: everything in one folder, libraries beside libtrafo.so, but for glibc's and GCC's.
mkdir "$work/tar"
tar -xzf "$work/first"/*.tar.gz -C "$work/tar"
tar -tvzf "$work/first"/*.tar.gz --numeric-owner --full-time | awk '$2 != "0/0" || $4 !~ /^2026-01-01/ && $4 !~ /^2025-12-31/ { print; bad = 1 } END { exit bad }' ||
  fail "the tar: owner or time"
tree=$(realpath "$work/tar"/*)
[[ $(basename "$tree") == trafo-"$version"-linux-"$(uname -m)" ]] || fail "the tar's folder is $(basename "$tree")"
runs "$tree/bin/translate-train" --version
"$source/tests/install/run_paths.py" installed "$tree" || fail "a run path of the tar"
while read -r name path; do
  case "$name" in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libstdc++.so.* | libgcc_s.so.* | */ld-linux* | linux-vdso*) ;;
    *) [[ $(realpath -m "$path") == "$tree"/* ]] || fail "the tar's program takes $name from $path" ;;
  esac
done < <(ldd "$tree/bin/translate-train" "$tree/lib/libtrafo.so.0" | sed -n 's/^\s\+\(\S\+\) => \(\S\+\).*/\1 \2/p')
said=$(grep -o 'needs glibc [0-9.]* and the libstdc++ of GCC 12 (GLIBCXX_[0-9.]*)' "$source/docs/guide/packages.md") || fail "docs/guide/packages.md does not say what the tar needs"
objdump -T "$tree"/bin/* "$tree"/lib/*.so.* >"$work/symbols"
newest() { grep -oE "\b$1_[0-9.]+" "$work/symbols" | sort -Vu | tail -n 1; }
needs="needs glibc $(newest GLIBC | cut -d _ -f 2) and the libstdc++ of GCC 12 ($(newest GLIBCXX))"
[[ $needs == "$said" ]] || fail "the tar $needs; docs/guide/packages.md: $said"

if [[ $bindings == --bindings ]]; then
  for link in static shared; do
    (cd "$source/bindings/rust" && LD_LIBRARY_PATH=$libraries CARGO_TARGET_DIR="$work/cargo" TRAFO_LIB_DIR=$libraries TRAFO_LINK=$link \
      cargo test --quiet -p trafo-sys --test link >"$work/log" 2>&1) || { cat "$work/log" >&2; fail "Rust with the $link library"; }
    found=$(find "$work/cargo/debug/deps" -name 'link-*' -type f -perm -u+x -newer "$work/symbols" -exec readelf -d {} + | grep -c 'NEEDED.*libtrafo\.so\.0' || true)
    [[ $link/$found == static/0 || $link/$found == shared/1 ]] || fail "Rust's program asks for $found libtrafo.so with TRAFO_LINK=$link"
  done
  "$source/tests/install/run_paths.py" build "$work/cargo" || fail "a run path of a program in Rust"
  refused() { # refused REASON SETTING...: cargo fails and says why
    local reason=$1
    shift
    (cd "$source/bindings/rust" && env CARGO_TARGET_DIR="$work/cargo" "$@" cargo check --quiet -p trafo-sys >"$work/log" 2>&1) &&
      fail "cargo accepts $*"
    grep -q "$reason" "$work/log" || { cat "$work/log" >&2; fail "cargo does not say \"$reason\" with $*"; }
  }
  refused "has neither libtrafo.a nor libtrafo.so" TRAFO_LIB_DIR="$work"
  refused 'TRAFO_LINK is "dynamic"' TRAFO_LIB_DIR="$libraries" TRAFO_LINK=dynamic
  mkdir "$work/shared_alone" && cp "$libraries"/libtrafo.so* "$work/shared_alone"
  refused "has no libtrafo.a" TRAFO_LIB_DIR="$work/shared_alone" TRAFO_LINK=static
  # The Go tool keeps what pkg-config said in an earlier run; other flags of C make it ask again.
  (cd "$source/bindings/go/trafo" && LD_LIBRARY_PATH=$libraries CGO_CFLAGS="-O2 -DFOLDER=${work//[^A-Za-z0-9]/_}" \
    PATH="$("$source/scripts/install-go.sh"):$PATH" go test -count=1 -tags trafo_pkgconfig -run 'Example' . >"$work/log" 2>&1) || { cat "$work/log" >&2; fail "Go with the installed library"; }
  echo "packages_test: Rust and Go programs ok"
fi
echo "packages_test: $(cd "$work/first" && stat -c '%n %s bytes' ./*.deb ./*.tar.gz | tr '\n' ' ') ok"
