#!/usr/bin/env bash
# Makes the tar of scripts/package.sh for x86-64 systems with glibc 2.31 or newer, as Debian 11 and Ubuntu 20.04, on Debian 12.
#
#   scripts/portable-package.sh [OUTPUT_FOLDER]     (default: build/portable/packages)
#
# The compiler is this system's. Linked are glibc and the unwinder of Debian 11, and static libraries: libstdc++ of this system, and
# SentencePiece, Highway, fmt, spdlog and yaml-cpp, built from Debian 12's sources. scripts/portable/files.txt pins what is downloaded
# by hash. TRAFO_DEBIAN_MIRROR: another mirror than deb.debian.org.
set -euo pipefail
script=$(realpath "$0")
cd "$(dirname "$script")/.."
[[ $# -le 1 && ${1:-} != -* ]] || { echo "usage: scripts/portable-package.sh [OUTPUT_FOLDER]" >&2; exit 2; }
[[ $(uname -m) == x86_64 ]] || { echo "portable-package: only on x86-64" >&2; exit 1; }
build=$PWD/build/portable
output=$(realpath -m "${1:-$build/packages}")
files=$build/files root=$build/sysroot prefix=$build/prefix pins=$PWD/scripts/portable/files.txt
mkdir -p "$files"

while read -r sum path; do
  file=$files/$(basename "$path")
  sha256sum --status -c <<<"$sum  $file" 2>/dev/null && continue
  for mirror in "${TRAFO_DEBIAN_MIRROR:-http://deb.debian.org/debian}" http://archive.debian.org/debian; do
    curl -fsSL --retry 2 -o "$file" "$mirror/pool/main/${path//+/%2B}" && break
  done
  sha256sum --status -c <<<"$sum  $file" || { echo "portable-package: $path cannot be had, or has another hash than in $pins" >&2; exit 1; }
done < <(grep -v '^#' "$pins")

pinned=$(sha256sum "$pins" scripts/portable/glibc_2_31.c "$script" | sha256sum)
if [[ $(cat "$build/complete" 2>/dev/null) != "$pinned" ]]; then
  rm -rf "$root" "$prefix" "$build/sources"
  mkdir -p "$root/unwind" "$prefix" "$build/sources"
  for package in "$files"/*.deb; do
    dpkg-deb -x "$package" "$root"
  done
  while read -r link; do  # absolute links would lead out of the folder
    ln -sfr "$root$(readlink "$link")" "$link"
  done < <(find "$root" -type l -lname '/*')
  # Of Debian 11's GCC only the unwinder: GCC 12's asks for _dl_find_object of glibc 2.35.
  mv "$root"/usr/lib/gcc/x86_64-linux-gnu/*/libgcc_eh.a "$root/unwind"
  rm -r "$root/usr/lib/gcc"
  cc -O2 -fPIC -c scripts/portable/glibc_2_31.c -o "$root/glibc_2_31.o"
  for source in "$files"/*.dsc; do
    name=$(basename "${source%%_*}")
    dpkg-source --no-check -x "$source" "$build/sources/$name" >"$build/$name.log" 2>&1 || { cat "$build/$name.log" >&2; exit 1; }
    unwanted=$build/sources/$name/debian/patches/disable-static-library.patch
    [[ ! -f $unwanted ]] || patch -d "$build/sources/$name" -R -p1 -s <"$unwanted"
    cmake -S "$build/sources/$name" -B "$build/sources/$name/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
      -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_PREFIX_PATH="$prefix" -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
      -DCMAKE_CXX_COMPILER_LAUNCHER="$PWD/cmake/ccache.sh" -DCMAKE_CXX_FLAGS="-ffile-prefix-map=$build=." \
      -DHWY_ENABLE_TESTS=OFF -DHWY_ENABLE_EXAMPLES=OFF -DHWY_ENABLE_CONTRIB=OFF -DBUILD_TESTING=OFF -DSPM_ENABLE_SHARED=OFF -DSPM_ENABLE_TCMALLOC=OFF \
      -DFMT_TEST=OFF -DFMT_DOC=OFF -DSPDLOG_FMT_EXTERNAL=ON -DSPDLOG_BUILD_EXAMPLE=OFF -DYAML_CPP_BUILD_TESTS=OFF \
      -DYAML_CPP_BUILD_TOOLS=OFF >>"$build/$name.log" 2>&1 &&
      cmake --build "$build/sources/$name/build" --target install >>"$build/$name.log" 2>&1 || { tail -30 "$build/$name.log" >&2; exit 1; }
  done
  # The headers come from the installed packages, which are of the same versions.
  mkdir -p "$prefix/pc"
  for module in sentencepiece libhwy; do
    sed "s|^libdir=.*|libdir=$prefix/lib|" "$(pkg-config --variable=pcfiledir "$module")/$module.pc" >"$prefix/pc/$module.pc"
  done
  echo "$pinned" >"$build/complete"
fi

# GCC looks in the folders of its system before the folders of --sysroot: -B is for crt1.o, -L for
# libc.so.
libraries=$root/usr/lib/x86_64-linux-gnu
link="--sysroot=$root -B$libraries -L$libraries -L$root/lib/x86_64-linux-gnu -static-libstdc++ -static-libgcc -L$root/unwind $root/glibc_2_31.o -Wl,-z,defs -Wl,--exclude-libs,ALL"
PKG_CONFIG_PATH=$prefix/pc cmake -S . -B "$build/trafo" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DTRAFO_WERROR=ON -DTRAFO_BUILD_TESTS=OFF -DTRAFO_BUILD_BENCH=OFF -DTRAFO_UNITY_LIBRARY=ON -DCMAKE_PREFIX_PATH="$prefix" \
  -DZLIB_LIBRARY="$(cc -print-file-name=libz.a)" -DTRAFO_SBOM_STATIC="$pins" \
  -DCMAKE_CXX_COMPILER_LAUNCHER="$PWD/cmake/ccache.sh" -DCMAKE_C_COMPILER_LAUNCHER="$PWD/cmake/ccache.sh" \
  -DCMAKE_SHARED_LINKER_FLAGS="$link" -DCMAKE_EXE_LINKER_FLAGS="$link" \
  -DCMAKE_CXX_STANDARD_LIBRARIES="-Wl,--push-state,--no-as-needed -lpthread -Wl,--pop-state -ldl -lm" >/dev/null
cmake --build "$build/trafo"

newest=$(objdump -T "$build/trafo/translate-train" "$build/trafo/libtrafo.so" | grep -oE '\bGLIBC_[0-9.]+' | sort -Vu | tail -n 1)
[[ $(printf '%s\n' GLIBC_2.31 "$newest" | sort -V | tail -n 1) == GLIBC_2.31 ]] ||
  { echo "portable-package: it asks for $newest" >&2; exit 1; }
# Who links libtrafo.a takes these libraries from the system.
sed -i "s|-L$prefix/lib *||g" "$build/trafo/trafo.pc"
scripts/package.sh --portable "$build/trafo" "$output"
