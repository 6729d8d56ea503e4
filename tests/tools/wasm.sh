#!/usr/bin/env bash
# Builds Trafo for WebAssembly and runs it.
#
#   tests/tools/wasm.sh --short   the library under Node.js: trains, resumes, saves and translates; the same bytes with one and two threads,
#                                 this machine's translations, and its losses and weights but for rounding
#   tests/tools/wasm.sh           also the page of examples/browser in headless Chromium
#   tests/tools/wasm.sh --long    also ONNX Runtime Web on the same model, for its speed
#
# On Debian 12, as root or with sudo: installs Emscripten (847 MB with what it needs). Needs Node.js, and Chromium for the page. Compares with
# build/release, which must have the same sources. Exit code 77: the packages cannot be had here, and nothing was checked.
set -euo pipefail
cd "$(dirname "$0")/../.."
[[ $# -eq 0 || ($# -eq 1 && $1 =~ ^--(short|long)$) ]] || { echo "usage: tests/tools/wasm.sh [--short | --long]" >&2; exit 2; }
page=build/wasm/page most=3000000
skip() { echo "wasm: skipped, $1"; exit 77; }

missing=() as_root=()
for package in emscripten brotli; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
if [[ ${#missing[@]} -gt 0 ]]; then
  [[ $EUID -eq 0 ]] || as_root=(sudo)
  if ! { "${as_root[@]}" apt-get update -qq && "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; }; then
    skip "the packages ${missing[*]} cannot be had here"
  fi
fi
command -v node >/dev/null || skip "there is no Node.js"
[[ -e build/release/libtrafo.so ]] || { echo "wasm: build/release has no libtrafo.so to compare with" >&2; exit 1; }

scripts/third-party.sh
# Emscripten's scripts need Debian's modules of Node.js, which another Node.js does not look for.
export NODE_PATH=/usr/share/nodejs
cmake --preset wasm -DTRAFO_WERROR=ON >/dev/null
cmake --build build/wasm
size=0
for file in trafo.wasm trafo.js trafo.worker.js engine.js page.js index.html; do
  size=$((size + $(brotli -c -q 11 "$page/$file" | wc -c)))
done
echo "wasm: the page has $size bytes, compressed by brotli"
[[ $size -le $most ]] || { echo "wasm: more than $most bytes" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$work" <<'PY'
import pathlib, sys
sys.path.insert(0, "tests/tools")
import toy_corpus
folder = pathlib.Path(sys.argv[1])
toy_corpus.write(folder, 400, 40)
pairs = zip((folder / "t.src").read_text().splitlines(), (folder / "t.trg").read_text().splitlines())
(folder / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
PY
# Numbers as text: parts of the C++ library that engine/os/missing_cxx20.h has.
"${CXX:-c++}" -std=c++20 -O1 tests/wasm/numbers.cc -o "$work/numbers"
em++ -std=c++20 -O1 -I. -include engine/os/missing_cxx20.h tests/wasm/numbers.cc engine/os/wasm/missing_cxx20.cc -o "$work/numbers.js"
diff <("$work/numbers") <(node --no-experimental-fetch "$work/numbers.js")
# Each op has the bits of this machine's kernels with vectors of the same size.
"${CXX:-c++}" -std=c++20 -O1 -Wall -Wextra -Werror -Icapi/include tests/wasm/ops.cc -o "$work/ops" \
  -Lbuild/release -Wl,-rpath,"$PWD/build/release" -ltrafo -lhwy
em++ -std=c++20 -O1 -pthread -fexceptions -msimd128 -Icapi/include tests/wasm/ops.cc build/wasm/libtrafo.a -o "$work/ops.js" \
  -sPROXY_TO_PTHREAD=1 -sEXIT_RUNTIME=1 -sALLOW_MEMORY_GROWTH=1 -sINITIAL_MEMORY=64MB -sMAXIMUM_MEMORY=1GB -Wno-pthreads-mem-growth
"$work/ops" narrow >"$work/ops.txt"
diff "$work/ops.txt" <(node --no-experimental-fetch "$work/ops.js")
echo "wasm: $(wc -l <"$work/ops.txt") ops and their gradients have the bits of the native library"
"${CC:-cc}" -std=c11 -O2 -Wall -Wextra -Werror -Icapi/include -c examples/browser/engine.c -o "$work/engine.o"
"${CXX:-c++}" -std=c++20 -O1 -Wall -Wextra -Werror -I. tests/wasm/native.cc "$work/engine.o" -o "$work/native" \
  -Lbuild/release -Wl,-rpath,"$PWD/build/release" -ltrafo -lhwy
for kind in narrow wide; do
  echo "native, vectors: $kind"
  "$work/native" "$work/$kind" "$work/pairs.tsv" "$work/v.src" 2 "$kind"
done
echo "WebAssembly under Node.js"
for threads in 1 2; do
  node tests/wasm/steps.js "$page" "$work/wasm-$threads" "$work/pairs.tsv" "$work/v.src" "$threads"
done
python3 tests/wasm/compare.py "$work/wasm-1" "$work/wasm-2"
python3 tests/wasm/compare.py --rounding "$work/narrow" "$work/wasm-2"
[[ ${1:-} != --short ]] || { echo "wasm: passed"; exit 0; }

echo "WebAssembly in Chromium"
status=0
python3 tests/wasm/browser_test.py "$page" "$work/page" "$work/pairs.tsv" "$work/v.src" || status=$?
[[ $status -ne 77 ]] || skip "there is no Chromium (scripts/install-dependencies.sh --report); the page did not run"
[[ $status -eq 0 ]] || exit "$status"
cmp "$work/page/model.safetensors" "$work/wasm-2/model/model.safetensors"
cmp "$work/page/beam4.txt" "$work/narrow/beam4.txt"

if [[ ${1:-} == --long ]]; then
  mkdir -p "$work/ort"
  if ! (cd "$work/ort" && npm pack --silent onnxruntime-web@1.30.0 >/dev/null); then
    skip "onnxruntime-web cannot be had here"
  fi
  tar -xzf "$work"/ort/*.tgz -C "$work/ort" --strip-components=2 --wildcards \
    package/dist/ort.wasm.min.js package/dist/ort-wasm-simd-threaded.mjs package/dist/ort-wasm-simd-threaded.wasm
  cp tests/wasm/ort.html "$work/ort"
  "${CC:-cc}" -std=c11 -O1 -Wall -Wextra -Werror -Icapi/include tests/wasm/export_onnx.c -o "$work/export_onnx" \
    -Lbuild/release -Wl,-rpath,"$PWD/build/release" -ltrafo
  "$work/export_onnx" "$work/narrow/model" "$work/v.src" "$work/ort"
  python3 tests/wasm/ort_test.py "$work/ort"
fi
echo "wasm: passed"
