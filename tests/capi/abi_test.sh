#!/usr/bin/env bash
# abi_test.sh SOURCE_DIR LIBTRAFO STRUCT_SIZES VERSION CC CXX: the binary interface is the one that is written down.
# With TRAFO_UPDATE_ABI=1 it writes the lists instead of comparing them.
set -euo pipefail
source=$1 library=$2 struct_sizes=$3 version=$4 cc=$5 cxx=$6
headers=("$source"/capi/include/*.h "$source"/capi/include/trafo/generated/*.h)
abi=$source/capi/abi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
complain() { echo "abi_test: $*" >&2; failed=1; }

nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | LC_ALL=C sort > "$work/exported"
sed 's/@@TRAFO_0$//' "$work/exported" > "$work/symbols"
"$struct_sizes" > "$work/sizes"
# Declarations may run over several lines; comments and #define TRAFO_API lines are left out.
cat "${headers[@]}" | sed -e 's:^#.*::' | tr '\n' ' ' | sed -e 's:/\*[^*]*\(\*[^/][^*]*\)*\*/: :g' | tr ';' '\n' |
  sed -n 's/.*TRAFO_API [^(]*[ *]\(trafo_[a-z0-9_]*\)(.*/\1/p' | LC_ALL=C sort > "$work/declared"

if [ "${TRAFO_UPDATE_ABI:-0}" = 1 ]; then
  cp "$work/symbols" "$abi/symbols.txt"
  cp "$work/sizes" "$abi/struct_sizes.txt"
  echo "abi_test: wrote $abi/symbols.txt and $abi/struct_sizes.txt"
  CC=$cc "$source/tests/tools/abidiff.sh" || [ $? = 77 ]
  exit 0
fi
update="if the change is meant: TRAFO_UPDATE_ABI=1 ctest --preset release -R abi_test, and commit capi/abi"

[ -s "$work/declared" ] || complain "no declaration was found in ${headers[*]}"
grep -v '@@TRAFO_0$' "$work/exported" && complain "symbols outside the version node TRAFO_0 (above)"
grep -v '^trafo_' "$work/symbols" && complain "exported symbols that do not begin with trafo_ (above)"
diff "$abi/symbols.txt" "$work/symbols" || complain "exported symbols (>) are not capi/abi/symbols.txt (<); $update"
diff "$abi/symbols.txt" "$work/declared" || complain "functions of the headers (>) are not capi/abi/symbols.txt (<); $update"
diff "$abi/struct_sizes.txt" "$work/sizes" || complain "structs (>) are not capi/abi/struct_sizes.txt (<); $update"

# The comment that ends before a declaration says since when there is such a function.
awk '
  /^\/\*/ { comment = ""; inside = 1 }
  inside { comment = comment $0; if (/\*\//) inside = 0; next }
  /^TRAFO_API/ { if (comment !~ /since [0-9]+\.[0-9]+ *\*\/[ ]*$/) print FILENAME ": " $0 }
  /^TRAFO_API/, /;/ { next }
  { comment = "" }' "${headers[@]}" > "$work/since"
[ ! -s "$work/since" ] || { cat "$work/since" >&2; complain "no 'since' at the end of the comment of these (above)"; }

# Against the last release: functions stay, and every field stays where it was; a struct may only grow at its end. Types are abidiff's
# (tests/tools/abidiff.sh).
tag=$(git -C "$source" describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || true)
if [ -z "$tag" ]; then
  echo "abi_test: the comparison with the last release is skipped, there is no release tag yet"
else
  for state in released now; do
    for file in symbols.txt struct_sizes.txt; do
      if [ $state = released ]; then git -C "$source" show "$tag:capi/abi/$file"; else cat "$abi/$file"; fi
    done | awk '/^trafo_[a-z0-9_]+ [0-9]+$/ { struct = $1; next } /^ / { print struct "." $1, $2; next } { print }' |
      LC_ALL=C sort > "$work/$state"
  done
  LC_ALL=C comm -23 "$work/released" "$work/now" > "$work/gone"
  [ ! -s "$work/gone" ] || { cat "$work/gone" >&2; complain "$tag has what is not there any more, or elsewhere (above)"; }
fi

readelf -d "$library" | grep -q 'SONAME.*\[libtrafo\.so\.0\]' || complain "the SONAME is not libtrafo.so.0"
grep -q "kVersion = \"$version\"" "$source/engine/core/version.h" ||
  complain "engine/core/version.h does not have the project version $version"

echo '#include "trafo.h"' > "$work/header.c"
cp "$work/header.c" "$work/header.cc"
"$cc" -std=c11 -Wpedantic -Wall -Wextra -Werror -fsyntax-only -I "$source/capi/include" "$work/header.c" ||
  complain "trafo.h is not clean C11"
"$cxx" -std=c++17 -Wpedantic -Wall -Wextra -Werror -fsyntax-only -I "$source/capi/include" "$work/header.cc" ||
  complain "trafo.h is not clean C++17"

[ "$failed" = 0 ] && echo "abi_test: $(wc -l < "$work/symbols") symbols, $(grep -vc '^ ' "$work/sizes") structs ok"
exit "$failed"
