#!/usr/bin/env bash
# The binary interface of libtrafo.so against that of the last release, by abidiff (Debian: abigail-tools). Both are built with debug
# information, which it reads; what abi_test compares are the lists that a release was made with.
#
#   tests/tools/abidiff.sh [TAG]    by default the last tag v*, which is v0.1.0 once it is there
set -euo pipefail
cd "$(dirname "$0")/../.."

tag=${1:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || true)}
if [ -z "$tag" ]; then
  echo "abidiff: nothing was compared, there is no release tag yet: v0.1.0 will be the first"
  exit 0
fi
command -v abidiff >/dev/null || { echo "abidiff: there is no abidiff; install abigail-tools" >&2; exit 1; }

work=$(mktemp -d)
trap 'git worktree remove --force "$work/released" 2>/dev/null || true; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$work/released" "$tag"
for state in released now; do
  source=$PWD
  [ $state = now ] || source=$work/released
  cmake -S "$source" -B "$work/build-$state" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTRAFO_BUILD_TESTS=OFF \
    -DTRAFO_BUILD_BENCH=OFF >/dev/null
  cmake --build "$work/build-$state" --target trafo >/dev/null
  cp -r "$source/capi/include" "$work/headers-$state"
done
# Bits of its exit status: 4 a change, 8 one that breaks programs. Additions are listed and allowed.
status=0
abidiff --headers-dir1 "$work/headers-released" --headers-dir2 "$work/headers-now" --no-added-syms \
  "$work/build-released/libtrafo.so" "$work/build-now/libtrafo.so" || status=$?
[ $((status & ~4)) = 0 ] || { echo "abidiff: programs of $tag do not work with this library" >&2; exit 1; }
echo "abidiff: programs of $tag work with this library"
