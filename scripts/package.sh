#!/usr/bin/env bash
# Packages what a build folder holds: two .deb files and a tar, with the bill of materials and SHA256SUMS. The same build gives the same bytes.
#
#   scripts/package.sh [BUILD_FOLDER [OUTPUT_FOLDER]]     (default: build/release, and packages/ in it)
#   scripts/package.sh --portable BUILD_FOLDER OUTPUT_FOLDER     only the tar, named after glibc 2.31: scripts/portable-package.sh
#
# Times in the packages are SOURCE_DATE_EPOCH, by default the time of the last commit.
set -euo pipefail
cd "$(dirname "$0")/.."

kinds="DEB;TGZ" named=()
if [[ ${1:-} == --portable ]]; then
  kinds=TGZ named=(-D "CPACK_PACKAGE_FILE_NAME=trafo-$(sed -n 's/^project(trafo VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)-linux-$(uname -m)-glibc2.31")
  shift
fi
build=$(realpath "${1:-build/release}")
output=$(realpath -m "${2:-$build/packages}")
for file in translate-train libtrafo.so libtrafo.a man/translate-train.1 trafo.cdx.json; do
  [[ -e $build/$file ]] || { echo "package: $build has no $file: run scripts/build.sh" >&2; exit 1; }
done
if [[ -z ${SOURCE_DATE_EPOCH:-} ]]; then
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) ||
    { echo "package: this is no git checkout: set SOURCE_DATE_EPOCH to the seconds since 1970 that the packages are to have" >&2; exit 1; }
fi
export SOURCE_DATE_EPOCH
umask 022

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A file has one owner, root, whoever packages.
as_root=()
if [[ $EUID -ne 0 ]]; then
  command -v fakeroot >/dev/null || { echo "package: run as root, or install fakeroot" >&2; exit 1; }
  as_root=(fakeroot)
fi
"${as_root[@]}" cpack --config "$build/CPackConfig.cmake" -G "$kinds" "${named[@]}" -B "$work" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
cp "$build/trafo.cdx.json" "$work"
cd "$work"
shopt -s nullglob
packages=(*.deb *.tar.gz)
sha256sum -- "${packages[@]}" trafo.cdx.json | tee SHA256SUMS
mkdir -p "$output"
mv -- "${packages[@]}" trafo.cdx.json SHA256SUMS "$output"
