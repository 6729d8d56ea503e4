#!/usr/bin/env bash
# Two builds of the same sources in folders of different names give the same bytes.
#
#   tests/install/reproducible_test.sh [TARGET ...]     (default: trafo translate-train)
#
# Run by hand: it compiles everything twice, without a compiler cache.
set -euo pipefail
cd "$(dirname "$0")/../.."
targets=("$@")
[[ ${#targets[@]} -eq 0 ]] && targets=(trafo translate-train)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CCACHE_DISABLE=1
tried=0 failed=0
for folder in one another-with-a-longer-name; do
  cmake -S . -B "$work/$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTRAFO_BUILD_TESTS=OFF -DTRAFO_BUILD_BENCH=OFF >/dev/null
  nice cmake --build "$work/$folder" --target "${targets[@]}" >"$work/$folder.log" || { tail -20 "$work/$folder.log"; exit 1; }
done
while IFS= read -r file; do
  tried=$((tried + 1))
  if ! cmp -s "$work/one/$file" "$work/another-with-a-longer-name/$file"; then
    echo "$file differs"
    failed=$((failed + 1))
  fi
done < <(cd "$work/one" && find . -type f \( -name '*.o' -o -name '*.so*' -o -name '*.a' -o -name translate-train \) | sort)
echo "suite: reproducible  tried: $tried  failed: $failed"
[[ $failed -eq 0 && $tried -gt 0 ]]
