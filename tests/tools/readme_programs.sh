#!/usr/bin/env bash
# Runs what the README says for Rust and Go: the lines of shell of each section in an empty directory beside the checkout, then
# the short program shown there in place of the example. TRAFO_LIB_DIR, if set, is linked by Rust instead of building the engine;
# Go links build/release, or with GOFLAGS=-tags=trafo_pkgconfig an installed library.
#   readme_programs.sh [rust] [go]
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
ln -s "$repository" "$folder/trafo"

# block SECTION LANGUAGE: the section's first block of that language
block() {
  awk -v section="## $1" -v fence="\`\`\`$2" '
    $0 == section { inside = 1; next } /^## / { inside = 0 }
    inside && $0 == "```" && printing { exit } printing { print } inside && $0 == fence { printing = 1 }' "$repository/README.md"
}

# expect TEXT FILE: its last line
expect() {
  tail -n 1 "$2" | grep -q "$1" || { echo "readme_programs: no \"$1\" at the end of:" >&2; tail -n 5 "$2" >&2; exit 1; }
}

for section in ${@:-rust go}; do
  case "$section" in
    rust) title=Rust; main=src/main.rs; again="cargo run --release --quiet" ;;
    go) title=Go; main=main.go; again="go run ." ;;
    *) echo "usage: readme_programs.sh [rust] [go]" >&2; exit 2 ;;
  esac
  lines=$(block "$title" sh)
  [[ $(grep -c . <<<"$lines") -gt 1 && $(grep -c . <<<"$lines") -le 12 ]] || { echo "readme_programs: $title has no lines, or over twelve" >&2; exit 1; }
  mkdir "$folder/$section" && cd "$folder/$section"
  # The engine is built and its packages are there when tests run.
  grep -v 'scripts/' <<<"$lines" >../$section.sh
  bash -euo pipefail "../$section.sh" >../$section.out 2>&1 || { cat ../$section.out >&2; exit 1; }
  expect BLEU ../$section.out
  block "$title" "$section" >"$main"
  $again >../$section.out 2>&1 || { cat ../$section.out >&2; exit 1; }
  expect "good evening" ../$section.out
  echo "README, $title: the lines and the program work"
done
