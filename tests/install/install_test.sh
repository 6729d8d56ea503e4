#!/usr/bin/env bash
# install_test.sh CMAKE SOURCE_DIR BUILD_DIR VERSION CC CXX: an installed Trafo is found by find_package and by pkg-config, and
# programs in C11 and C++17 build and run with the shared and with the static library. The tree is moved after it was installed.
set -euo pipefail
cmake=$1 source=$2 build=$3 version=$4 cc=$5 cxx=$6
here=$source/tests/install
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for component in library development program; do
  "$cmake" --install "$build" --prefix "$work/first" --component "$component" >/dev/null
done
mv "$work/first" "$work/prefix"
"$here/run_paths.py" installed "$work/prefix" || { echo "install_test: a run path" >&2; exit 1; }
library_directory=$(dirname "$(find "$work/prefix" -name libtrafo.a)")

runs() {  # runs PROGRAM shared|static
  local needed
  needed=$(readelf -d "$1" | grep -c 'NEEDED.*libtrafo\.so\.0' || true)
  [[ $2 = shared && $needed = 1 || $2 = static && $needed = 0 ]] || { echo "install_test: $1 is not $2" >&2; exit 1; }
  [[ $(LD_LIBRARY_PATH=$library_directory "$1") = "trafo $version" ]] || { echo "install_test: $1 does not run" >&2; exit 1; }
}

"$cmake" -G Ninja -S "$here" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/prefix" -DWANTED_VERSION="$version" \
  -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" >/dev/null
"$cmake" --build "$work/cmake" >/dev/null
for language in c cc; do
  runs "$work/cmake/trafo_$language" shared
  runs "$work/cmake/trafo_static_$language" static
done

export PKG_CONFIG_PATH=$library_directory/pkgconfig
[[ $(pkg-config --modversion trafo) = "$version" ]]
read -ra compile <<< "$(pkg-config --cflags trafo)"
read -ra shared <<< "$(pkg-config --libs trafo)"
read -ra static <<< "$(pkg-config --static --libs trafo | sed 's/-ltrafo\b/-l:libtrafo.a/')"
"$cc" -std=c11 "${compile[@]}" "$here/consumer.c" -o "$work/shared_c" "${shared[@]}"
"$cc" -std=c11 "${compile[@]}" "$here/consumer.c" -o "$work/static_c" "${static[@]}"
"$cxx" -std=c++17 "${compile[@]}" "$here/consumer.cc" -o "$work/shared_cc" "${shared[@]}"
"$cxx" -std=c++17 "${compile[@]}" "$here/consumer.cc" -o "$work/static_cc" "${static[@]}"
for language in c cc; do
  runs "$work/shared_$language" shared
  runs "$work/static_$language" static
done
echo "install_test: 8 programs ok"
