#!/usr/bin/env bash
# The binary interface that the headers describe, by libabigail (Debian: abigail-tools): names and types of all functions, callbacks and
# structs, values of all constants. capi/abi/README.md describes the files.
#
#   tests/tools/abidiff.sh             against capi/abi/trafo.abi, which is written down; and against the last release, if there is one:
#                                      its programs work with this library
#   tests/tools/abidiff.sh TAG         against that release
#   tests/tools/abidiff.sh --try       each of some changes to the headers that break programs is found, and those that do not are allowed
#   TRAFO_UPDATE_ABI=1 ...abidiff.sh   writes capi/abi/trafo.abi
#
# Compares a library of the headers' functions with empty bodies, made with debug information in a second. The functions of
# libtrafo.so have the same types, or they would not compile, and the same names, which abi_test compares.
set -euo pipefail
cd "$(dirname "$0")/../.."
reference=$PWD/capi/abi/trafo.abi

if ! command -v abidiff >/dev/null; then
  echo "abidiff: SKIPPED, there is no abidiff: scripts/install-dependencies.sh --tests installs it"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# library HEADERS OUT.so
library() {
  local cc=${CC:-cc} source=${2%.so}.c
  {
    echo '#include "trafo.h"'
    "$cc" -E -P "$1/trafo.h" | tr '\n' ' ' | tr ';' '\n' |
      sed -n 's/^.*__attribute__((visibility("default")))\(.*\)$/__attribute__((visibility("default"))) \1 { __builtin_unreachable(); }/p'
    # Constants are macros: an enumeration of them all.
    echo 'enum trafo_constants {'
    "$cc" -E -dM "$1/trafo.h" | LC_ALL=C sort | sed -n 's/^#define \(TRAFO_[A-Z0-9_]*\) (*-*[0-9][0-9]*)*$/  value_of_\1 = \1,/p'
    echo '};'
    echo '__attribute__((visibility("default"))) void trafo_constants(enum trafo_constants c) { (void)c; }'
  } > "$source"
  "$cc" -std=gnu11 -w -g -O0 -fvisibility=hidden -shared -fPIC -I "$1" "$source" -o "$2"
}

# breaks OLD NEW: true if programs made for the old one do not work with the new one. There may be more functions and constants, and
# structs that say their size may grow at the end.
breaks() {
  awk '/^typedef struct [a-z_]+ \{/ { name = $3 } /struct_size;/ && name != "" { print name } /^\}/ { name = "" }' $(find "$3" -name "*.h" | LC_ALL=C sort) |
    LC_ALL=C sort -u | paste -sd '|' | sed 's/.*/[suppress_type]\n  type_kind = struct\n  name_regexp = ^(&)$\n  has_data_member_inserted_at = end/' \
    > "$work/growing"
  ! abidiff --no-added-syms --suppressions "$work/growing" "$1" "$2" > "$work/report"
}

try() {
  local failed=0 name expected expression
  library capi/include "$work/now.so"
  while IFS='|' read -r expected name expression; do
    rm -rf "$work/changed"
    cp -r capi/include "$work/changed"
    find "$work/changed" -name "*.h" -exec sed -i -E "$expression" {} +
    if diff -rq capi/include "$work/changed" >/dev/null; then
      echo "abidiff: nothing was changed by: $name" >&2
      failed=1
      continue
    fi
    library "$work/changed" "$work/changed.so"
    result=allowed
    if breaks "$work/now.so" "$work/changed.so" capi/include; then result=found; fi
    echo "$result: $name"
    [ "$result" = "$expected" ] || { echo "abidiff: it ought to be $expected" >&2; cat "$work/report" >&2; failed=1; }
  done <<'CHANGES'
found|a function is removed|/^TRAFO_API TRAFO_MUST_USE trafo_error \*trafo_cancel_reset\(/d
found|a parameter is wider|s/(trafo_context_set_threads\(trafo_context \*context, )int32_t/\1int64_t/
found|a parameter is gone|s/(trafo_context_set_threads\(trafo_context \*context), int32_t threads/\1/
found|a result has another type|s/^TRAFO_API int32_t trafo_error_code\(/TRAFO_API int64_t trafo_error_code(/
found|a callback has another parameter|s/^(typedef double \(\*trafo_rate_fn\)\(.*, )double/\1float/
found|two fields have changed places|/^typedef struct trafo_step_result/,/^\}/ { s/double loss;/double XX;/; s/double nll;/double loss;/; s/double XX;/double nll;/ }
found|a field is inserted|/^typedef struct trafo_context_options/,/^\}/ s/^(.*int32_t device;.*)$/  int64_t inserted;\n\1/
found|a struct without its size has grown|/^typedef struct trafo_memory_stats/,/^\}/ s/^\}/  int64_t more;\n}/
found|a constant has another value|s/^#define TRAFO_IO .*/#define TRAFO_IO 77/
allowed|a function is added|s/^(TRAFO_API const char \*trafo_version\(void\);)/\1\nTRAFO_API int32_t trafo_added(int64_t number);/
allowed|a constant is added|s/^(#define TRAFO_IO .*)/\1\n#define TRAFO_ADDED 12345/
allowed|a struct that says its size has grown at the end|/^typedef struct trafo_context_options/,/^\}/ s/^\}/  int64_t more;\n}/
CHANGES
  return "$failed"
}

case "${1:-}" in
  --try) try; exit ;;
  -*) echo "usage: tests/tools/abidiff.sh [--try | TAG]" >&2; exit 2 ;;
esac

library capi/include "$work/now.so"
if [ "${TRAFO_UPDATE_ABI:-0}" = 1 ]; then
  abidw --no-show-locs --no-corpus-path --no-comp-dir-path --no-elf-needed --out-file "$reference" "$work/now.so"
  sed -i "s#path='$work/#path='#" "$reference"
  echo "abidiff: wrote ${reference#"$PWD/"}"
elif [ $# = 0 ]; then
  if ! abidiff --harmless "$reference" "$work/now.so"; then
    echo "abidiff: the headers are not what capi/abi/trafo.abi says; if it is meant: TRAFO_UPDATE_ABI=1 $0" >&2
    exit 1
  fi
  echo "abidiff: the headers are what capi/abi/trafo.abi says"
fi

tag=${1:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || true)}
if [ -z "$tag" ]; then
  echo "abidiff: there is no release to compare with yet"
  exit 0
fi
mkdir "$work/released"
git archive "$tag" capi/include | tar -x -C "$work/released"
library "$work/released/capi/include" "$work/released.so"
if breaks "$work/released.so" "$work/now.so" "$work/released/capi/include"; then
  cat "$work/report" >&2
  echo "abidiff: programs of $tag do not work with this library" >&2
  exit 1
fi
echo "abidiff: programs of $tag work with this library"
