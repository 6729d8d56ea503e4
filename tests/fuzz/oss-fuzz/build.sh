#!/usr/bin/env bash
# Builds one program a fuzzing target, with its inputs, into $OUT, as OSS-Fuzz and ClusterFuzzLite want it.
#
# In OSS-Fuzz's image $SRC, $WORK, $OUT, $CC, $CXX, $CFLAGS, $CXXFLAGS, $SANITIZER and $LIB_FUZZING_ENGINE are set, and the libraries are
# built from $SRC. On any other machine with clang and the packages of scripts/install-dependencies.sh --fuzz:
#
#   OUT=/tmp/fuzzers tests/fuzz/oss-fuzz/build.sh
#
# makes the same programs with the preset `fuzz`; run one with  $OUT/fuzz_corpus FOLDER.
set -euo pipefail
: "${OUT:?where the programs go}"
mkdir -p "$OUT"

if [[ -n ${LIB_FUZZING_ENGINE:-} ]]; then
  source=$SRC/trafo
  prefix=$WORK/prefix
  library() {  # NAME [CMAKE_FLAG ...]
    local name=$1
    shift
    cmake -S "$SRC/$name" -B "$WORK/$name" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
      -DCMAKE_PREFIX_PATH="$prefix" -DBUILD_SHARED_LIBS=OFF "$@"
    cmake --build "$WORK/$name" --target install
  }
  library zlib
  library highway -DHWY_ENABLE_TESTS=OFF -DHWY_ENABLE_EXAMPLES=OFF
  library sentencepiece -DSPM_ENABLE_SHARED=OFF -DSPM_ENABLE_TCMALLOC=OFF
  library json -DJSON_BuildTests=OFF
  library CLI11 -DCLI11_BUILD_TESTS=OFF -DCLI11_BUILD_EXAMPLES=OFF
  library yaml-cpp -DYAML_CPP_BUILD_TESTS=OFF -DYAML_CPP_BUILD_TOOLS=OFF
  library fmt -DFMT_TEST=OFF -DFMT_DOC=OFF
  library spdlog -DSPDLOG_FMT_EXTERNAL=ON -DSPDLOG_BUILD_EXAMPLE=OFF
  rm -f "$prefix"/lib/*.so*  # what is linked must be there where the programs run
  build=$WORK/trafo
  PKG_CONFIG_PATH=$prefix/lib/pkgconfig:$prefix/share/pkgconfig cmake -S "$source" -B "$build" -G Ninja \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DCMAKE_PREFIX_PATH="$prefix" -DTRAFO_BUILD_BENCH=OFF \
    -DTRAFO_SANITIZE="fuzzer-no-link,${SANITIZER/coverage/address}"
else
  source=$(cd "$(dirname "$0")/../../.." && pwd)
  build=$source/build/fuzz
  cmake -S "$source" --preset fuzz >/dev/null
fi

cmake --build "$build" --target fuzz_targets fuzz_replay
for target in $("$build/tests/fuzz/fuzz_replay" --list); do
  install -m 755 "$build/tests/fuzz/fuzz_targets" "$OUT/fuzz_$target"
  python3 -m zipfile -c "$OUT/fuzz_${target}_seed_corpus.zip" "$source/tests/fuzz/corpus/$target"/*
  # As tests/fuzz/fuzzing.py has them.
  printf '[libfuzzer]\nmax_len = 16384\ntimeout = 5\nrss_limit_mb = 1024\nmalloc_limit_mb = 256\nclose_fd_mask = 3\n' >"$OUT/fuzz_$target.options"
done
ls "$OUT"
