#!/usr/bin/env bash
# Puts the sources of SentencePiece, Highway, zlib and nlohmann-json into a folder, for a build that takes no library from the system:
#
#   scripts/third-party.sh [--program] [FOLDER]             (default: build/third-party, or build/third-party-program)
#   cmake -B build/bundled -DTRAFO_THIRD_PARTY=$PWD/build/third-party ...
#
# --program adds CLI11, fmt, spdlog and yaml-cpp, for a build of translate-train. The package trafo-sys and the archive of
# scripts/source-archive.sh contain the folder without them. apt downloads the files with the versions and hashes of
# scripts/third-party.txt and third-party-program.txt, from Debian 12 and with lists in a temporary folder: the package lists of this
# machine do not matter and stay as they are. Needs Debian's dpkg-dev. Does nothing if FOLDER is complete. TRAFO_DEBIAN_MIRROR: another mirror than
# deb.debian.org. TRAFO_THIRD_PARTY_FILES: a folder that has the files already, or is to keep them (default: build/third-party-files).
set -euo pipefail
script=$(realpath "$0")
program="" name=third-party
[[ ${1:-} != --program ]] || { program=1 name=third-party-program; shift; }
output=$(realpath -m "${1:-$(dirname "$script")/../build/$name}")
cd "$(dirname "$script")/.."
[[ $# -le 1 && ${1:-} != -* ]] || { echo "usage: scripts/third-party.sh [--program] [FOLDER]" >&2; exit 2; }
fail() { echo "third-party: $*" >&2; exit 1; }
tables=("$PWD/scripts/third-party.txt")
[[ -z $program ]] || tables+=("$PWD/scripts/third-party-program.txt")
files=$(realpath -m "${TRAFO_THIRD_PARTY_FILES:-build/third-party-files}")

# One call at a time fills a folder.
mkdir -p "$(dirname "$output")"
exec 9>"$output.lock"
flock 9
made_by=$(cat "${tables[@]}" "$script" | sha256sum | cut -d ' ' -f 1)
[[ $(cat "$output/complete" 2>/dev/null) != "$made_by" ]] || exit 0
rm -rf "$output.new"
[[ ! -e $output || -f $output/complete || -z $(ls -A "$output") ]] || fail "$output has other files than this script's: name another folder"
command -v dpkg-source >/dev/null || fail "there is no dpkg-source (Debian: apt install dpkg-dev)"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rows() { grep -hv '^#' "${tables[@]}"; }
sums() { rows | awk '{ print $1 "  " $4 }'; }
complete() { [[ -d $files ]] && (cd "$files" && sums | sha256sum --check --status 2>/dev/null); }

download() {
  local keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  command -v apt-get >/dev/null || fail "there is no apt-get to download sources with; put the files of ${tables[*]} into $files"
  [[ -f $keyring ]] || fail "there is no $keyring (Debian and Ubuntu: apt install debian-archive-keyring)"
  mkdir -p "$files" "$work/lists/partial" "$work/cache/archives/partial"
  echo "deb-src [signed-by=$keyring] ${TRAFO_DEBIAN_MIRROR:-http://deb.debian.org/debian} bookworm main" >"$work/sources.list"
  local options=(-qq -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$work/lists"
    -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=2)
  apt-get "${options[@]}" update
  local wanted
  mapfile -t wanted < <(rows | awk '!seen[$2]++ { print $2 "=" $3 }')
  (cd "$files" && apt-get "${options[@]}" source --download-only "${wanted[@]}") >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; fail "apt cannot download ${wanted[*]}"; }
}
complete || download
complete || fail "$files has other bytes than ${tables[*]} say: $( (cd "$files" && sums | sha256sum --check 2>/dev/null | grep -v ': OK$') || true)"

while read -r _ package _ file; do
  [[ $file != *.dsc ]] || dpkg-source --no-check -x "$files/$file" "$work/$package" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "$file"; }
done < <(rows)

# take PACKAGE: copies the files that standard input names in its source, with their folders
take() {
  mkdir -p "$work/out/$1"
  tar -C "$work/$1" -c --no-recursion -T - | tar -C "$work/out/$1" -x
}
# Public headers get a folder to themselves: `util.h` and others of a library are not for who includes it.
cd "$work/sentencepiece"
mkdir include
mv src/sentencepiece_processor.h src/sentencepiece_trainer.h include
printf '#define VERSION "%s"\n#define PACKAGE "sentencepiece"\n#define PACKAGE_STRING "sentencepiece"\n' "$(cat VERSION.txt)" >src/config.h
find LICENSE include src third_party -type f ! -name '*_test.cc' ! -name '*_main.cc' ! -name 'testharness.*' ! -name '*.proto' \
  ! -name CMakeLists.txt ! -name test_main.cc | sort | take sentencepiece
cd "$work/highway"
find LICENSE hwy/aligned_allocator.cc hwy/per_target.cc hwy/targets.cc hwy/*.h hwy/ops hwy/contrib/math/math-inl.h -type f | sort | take highway
cd "$work/zlib"
mkdir include
mv zlib.h zconf.h include
find LICENSE ./*.c ./*.h include -type f | sort | take zlib
cd "$work/nlohmann-json3"
printf '%s\n' LICENSE.MIT single_include/nlohmann/json.hpp | take nlohmann-json3
if [[ -n $program ]]; then
  cd "$work/cli11"
  find LICENSE include -type f | sort | take cli11
  cd "$work/fmtlib"
  find LICENSE.rst include src/format.cc -type f | sort | take fmtlib
  cd "$work/spdlog"
  find LICENSE include src/async.cpp src/color_sinks.cpp src/spdlog.cpp -type f | sort | take spdlog
  cd "$work/yaml-cpp"
  find LICENSE include src/*.cpp src/*.h -type f | sort | take yaml-cpp
fi
cat "${tables[@]}" >"$work/out/third-party.txt"
cat >"$work/out/README" <<'README'
Sources of libraries that Trafo needs, from the packages of Debian 12 that third-party.txt names, without tests, programs and documents. Each folder has the licence of its library. SentencePiece has parts of others in third_party/. Written by
scripts/third-party.sh of Trafo.
README
find "$work/out" -type f -exec chmod 644 {} +
find "$work/out" -type d -exec chmod 755 {} +
echo "$made_by" >"$work/out/complete"
rm -rf "$output"
cp -a "$work/out" "$output.new"
mv "$output.new" "$output"
echo "third-party: $output"
