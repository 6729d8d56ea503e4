#!/usr/bin/env bash
# Checks include directions: which folder may include which (docs/architecture.md). Prints each include that points the wrong way
# and fails if there is one.
set -euo pipefail
cd "$(dirname "$0")/../.."

# folder: what it may include besides itself
core="engine/os engine/core"
backend="engine/memory engine/backend"
quant="engine/quant"
runtime="engine/autograd engine/runtime"  # one layer: a Context owns a tape, and a tape's backward functions run on a Context
model="engine/quant engine/ops engine/nn engine/models"
text="engine/text engine/data engine/metrics"
allowed() {
  case "$1" in
    engine/os) echo "" ;;
    engine/core) echo "engine/os" ;;
    engine/memory) echo "$core" ;;
    engine/io) echo "$core" ;;
    engine/backend) echo "$core engine/memory" ;;
    engine/quant) echo "$core $backend" ;;
    engine/autograd | engine/runtime) echo "$core $backend $runtime engine/io" ;;
    engine/ops) echo "$core $backend $quant $runtime" ;;
    engine/nn | engine/optim) echo "$core $backend $quant $runtime engine/ops" ;;
    engine/models) echo "$core $backend $runtime $model engine/data engine/io engine/text" ;;
    engine/text | engine/metrics) echo "$core" ;;
    engine/data) echo "$core engine/text engine/io" ;;
    engine/decode) echo "$core $backend $runtime $model engine/data engine/io engine/text" ;;
    engine/dist) echo "$core $backend" ;;
    engine/objective) echo "$core $backend $runtime $model engine/data engine/io engine/text" ;;
    engine/train) echo "$core $backend $runtime $model $text engine/objective engine/decode engine/optim engine/io engine/dist" ;;
    engine/compress) echo "$core $backend $runtime $model $text engine/objective engine/decode engine/optim engine/dist engine/train" ;;
    engine/formats) echo "$core $backend $runtime $model $text engine/decode engine/io" ;;
    capi) echo "$core $backend $runtime $model $text engine/objective engine/decode engine/optim engine/io engine/dist engine/train engine/compress engine/formats" ;;
    apps | bindings) echo "capi/include" ;;
    *) return 1 ;;
  esac
}

status=0
while IFS= read -r file; do
  case "$file" in
    engine/*/*) folder=$(cut -d/ -f1-2 <<<"$file") ;;
    *) folder=${file%%/*} ;;
  esac
  may=$(allowed "$folder") || { echo "$file: folder $folder is not in the rule"; status=1; continue; }
  while IFS= read -r line; do
    path=${line#*:}
    ok=0
    for prefix in "$folder" $may; do
      [[ "$path" == "$prefix"/* ]] && ok=1
    done
    # The program compiles these parts of the engine as well, so that there is one of each.
    [[ "$folder" == apps && "$path" =~ ^engine/(os/[a-z_]+|io/atomic_file|core/(strings/utf8|gzip_stream)).h$ ]] && ok=1
    if [[ $ok -eq 0 ]]; then
      echo "$file:${line%%:*}: $folder may not include $path"
      status=1
    fi
  done < <(grep -nE '^\s*#\s*include "(engine|capi|apps|bindings)/' "$file" |
           sed -E 's/^([0-9]+):.*"([^"]+)".*/\1:\2/')
done < <(find engine capi apps bindings -name target -prune -o \
           \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.c' \) -print | sort)

# SentencePiece is one kind of tokenizer: exporters and BLEU's flores200 ask as_sentencepiece(), all others the interface.
while IFS= read -r hit; do
  echo "$hit: a header of SentencePiece outside its folder, engine/formats and the three files that may"
  status=1
done < <(grep -rnE '#\s*include [<"](engine/text/tokenizer/sentencepiece/|sentencepiece_)' engine capi apps 2>/dev/null |
         grep -vE '^engine/(text/tokenizer/(sentencepiece/|marian/marian_tokenizer\.cc:|tokenizer_kinds\.cc:)|formats/)|^capi/src/metrics\.cc:' || true)

# CUDA headers belong to *_cuda.cu and engine/backend/cuda alone.
while IFS= read -r hit; do
  echo "$hit: CUDA header outside *_cuda.cu and engine/backend/cuda"
  status=1
done < <(grep -rnE '#\s*include [<"](cuda|cublas|cub/)' engine capi apps 2>/dev/null |
         grep -vE '^[^:]*_cuda\.cu:|^engine/backend/cuda/' || true)

# Headers of the operating system belong to engine/os, to the CUDA and MPI plugins, which are for Linux, and to the plugin's entries.
while IFS= read -r hit; do
  echo "$hit: a header of the operating system outside engine/os"
  status=1
done < <(grep -rnE '#\s*include <(unistd\.h|sys/|fcntl\.h|dlfcn\.h|pthread\.h|sched\.h|signal\.h|csignal|poll\.h|net(inet/|db\.h)|arpa/|dirent\.h|io\.h|(w|W)in)' engine capi apps 2>/dev/null |
         grep -vE '^engine/(os|backend/cuda|dist/mpi)/' || true)

[[ $status -eq 0 ]] && echo "include directions: ok"
exit $status
