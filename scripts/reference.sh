#!/usr/bin/env bash
# The reference of the C, Rust and Go interfaces as HTML, made from their comments. Fails if a public function has none.
#
#   scripts/reference.sh [C] [RUST] [GO]     (c, rust, go; default: all)     writes build/reference/index.html
set -euo pipefail
cd "$(dirname "$0")/.."
languages=("$@")
[[ ${#languages[@]} -gt 0 ]] || languages=(c rust go)
output=$PWD/build/reference
version=$(sed -n 's/^project(trafo VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
mkdir -p "$output"

reference_of_c() {
  command -v doxygen >/dev/null || { echo "reference: there is no doxygen: scripts/install-dependencies.sh --docs" >&2; exit 1; }
  tests/tools/docstrings_test.py
  rm -rf "$output/c"
  # The headers have plain comments. The one at the top keeps its lines; those above a declaration, and those behind a member or a
  # constant, become doxygen's; headings of sections do not.
  cat >"$output/c.sed" <<'END'
1s@^/\*$@/** \\file\n * \\verbatim@
1s@^/\* @/** \\file\n * @
1,/^ \*\/$/s@^ \*/$@ * \\endverbatim */@
s@^/\* ---- .*@@
s@^/\* @/** @
s@([;,]|^#define [^/]*[^ /]) +/\* @\1 /**< @
# <s> is a token here and no tag.
s@<(/?[a-z]+)>@\\<\1\\>@g
END
  { cat <<END
PROJECT_NAME = "Trafo"
PROJECT_NUMBER = $version
PROJECT_BRIEF = "the C interface"
INPUT = capi/include
RECURSIVE = YES
FILE_PATTERNS = *.h
INPUT_FILTER = "sed -E -f $output/c.sed"
OUTPUT_DIRECTORY = $output
HTML_OUTPUT = c
GENERATE_LATEX = NO
OPTIMIZE_OUTPUT_FOR_C = YES
MARKDOWN_SUPPORT = NO
JAVADOC_AUTOBRIEF = YES
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = TRAFO_API= TRAFO_MUST_USE=
SORT_MEMBER_DOCS = NO
EXTRACT_ALL = YES
HAVE_DOT = NO
QUIET = YES
WARN_NO_PARAMDOC = NO
HTML_TIMESTAMP = NO
END
  } | doxygen - >"$output/c.log" 2>&1 || { cat "$output/c.log" >&2; exit 1; }
  if grep . "$output/c.log" >&2; then
    echo "reference: doxygen warns" >&2
    exit 1
  fi
}

reference_of_rust() {
  # Comments alone: neither the engine nor another crate is compiled. A missing comment or a broken link is an error.
  (cd bindings/rust && env -u TRAFO_LIB_DIR DOCS_RS=1 RUSTDOCFLAGS="-D warnings -D missing_docs" CARGO_TARGET_DIR="$output/cargo" \
    cargo doc --quiet -p trafo-engine --no-deps)
  rm -rf "$output/rust"
  mv "$output/cargo/doc" "$output/rust"
}

reference_of_go() {
  mkdir -p "$output/go"
  PATH="$(scripts/install-go.sh):$PATH" go run scripts/go_reference.go bindings/go/trafo \
    github.com/trafo-engine/trafo/bindings/go/trafo "$output/go/index.html"
}

for language in "${languages[@]}"; do
  case "$language" in
    c | rust | go) "reference_of_$language" ;;
    *) echo "usage: scripts/reference.sh [c] [rust] [go]" >&2; exit 2 ;;
  esac
done

{
  echo "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Trafo $version</title><h1>Trafo $version: reference</h1><ul>"
  [[ ! -e $output/c/index.html ]] || echo '<li><a href="c/files.html">C</a>'
  [[ ! -e $output/rust/trafo/index.html ]] || echo '<li><a href="rust/trafo/index.html">Rust</a>'
  [[ ! -e $output/go/index.html ]] || echo '<li><a href="go/index.html">Go</a>'
  echo "</ul>"
} >"$output/index.html"
echo "$output/index.html"
