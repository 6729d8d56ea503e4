#!/usr/bin/env bash
# abi_test.sh SOURCE_DIR LIBTRAFO STRUCT_SIZES VERSION CC CXX: the binary interface is the one that is written down.
# With TRAFO_UPDATE_ABI=1 it writes the lists instead of comparing them.
set -euo pipefail
source=$1 library=$2 struct_sizes=$3 version=$4 cc=$5 cxx=$6
headers=("$source"/capi/include/*.h)
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
  exit 0
fi
update="if the change is meant: TRAFO_UPDATE_ABI=1 ctest -R abi_test, and commit capi/abi"

[ -s "$work/declared" ] || complain "no declaration was found in ${headers[*]}"
grep -v '@@TRAFO_0$' "$work/exported" && complain "symbols outside the version node TRAFO_0 (above)"
grep -v '^trafo_' "$work/symbols" && complain "exported symbols that do not begin with trafo_ (above)"
diff "$abi/symbols.txt" "$work/symbols" || complain "exported symbols (>) are not capi/abi/symbols.txt (<); $update"
diff "$abi/symbols.txt" "$work/declared" || complain "functions of the headers (>) are not capi/abi/symbols.txt (<); $update"
diff "$abi/struct_sizes.txt" "$work/sizes" || complain "structs (>) are not capi/abi/struct_sizes.txt (<); $update"

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
