#!/usr/bin/env bash
# guide_test.sh CMAKE BUILD_DIR CC GUIDE EXAMPLES: takes every block out of the C guide, compiles the programs against an installed Trafo
# and runs them; then the programs of examples/c, of which later ones load files that earlier ones have saved.
set -euo pipefail
cmake=$1 build=$2 cc=$3 guide=$4 examples=$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The first line of a block is a comment with the file's name; a block without one is an error.
awk -v directory="$work" '
  /^```(c|cmake)$/ { inside = 1; file = ""; next }
  /^```/ { if (!inside && $0 != "```") { print "a block is neither c nor cmake: " $0 > "/dev/stderr"; exit 1 } inside = 0; next }
  inside && file == "" {
    if ($0 !~ /^(\/\* [a-z_]+\.[ch] \*\/|# CMakeLists.txt)$/) { print "no file name: " $0 > "/dev/stderr"; exit 1 }
    file = $2
    if (file ~ /\.c$/) print file > (directory "/programs")
  }
  inside { print > (directory "/" file) }' "$guide"
[[ -s $work/programs ]] || { echo "guide_test: $guide has no program" >&2; exit 1; }
for program in errors own_network train translate generate cancel devices; do
  grep -q "^| \`$program\.c\` |" "$guide" || { echo "guide_test: $guide does not list $program.c" >&2; exit 1; }
  echo "$program.c" >> "$work/programs"
done
cp "$examples"/*.[ch] "$work"
[[ $(ls "$work"/*.c | wc -l) = $(wc -l < "$work/programs") ]] || { echo "guide_test: a program is in no list" >&2; exit 1; }

for component in library development; do
  "$cmake" --install "$build" --prefix "$work/prefix" --component "$component" >/dev/null
done
library_directory=$(dirname "$(find "$work/prefix" -name libtrafo.a)")
export PKG_CONFIG_PATH=$library_directory/pkgconfig LD_LIBRARY_PATH=$library_directory
read -ra flags <<< "$(pkg-config --cflags --libs trafo)"
cd "$work"
while read -r program; do
  "$cc" -std=c11 -Wall -Wextra -Wshadow -Wpedantic -Werror "$program" -o "${program%.c}" "${flags[@]}"
  "./${program%.c}" > output 2>&1 || { echo "guide_test: $program failed" >&2; cat output >&2; exit 1; }
  [[ -s output ]] || { echo "guide_test: $program says nothing" >&2; exit 1; }
done < programs
"$cmake" -G Ninja -S . -B by_cmake -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_C_COMPILER="$cc" >/dev/null
"$cmake" --build by_cmake >/dev/null
[[ $(by_cmake/first) = "5 11 11 25" ]] || { echo "guide_test: first.c says something else" >&2; exit 1; }
echo "guide_test: $(wc -l < programs) programs ok"
