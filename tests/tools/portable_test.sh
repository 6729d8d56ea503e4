#!/usr/bin/env bash
# The tar of scripts/portable-package.sh: it has what it needs but for glibc, asks for no newer one than 2.31, and trains, resumes and
# translates on Debian 11. By hand: it compiles the libraries that Trafo needs, and downloads a Debian 11 (as root, with debootstrap;
# otherwise it says that this part was skipped, exit status 77).
#
#   tests/tools/portable_test.sh [OUTPUT_FOLDER]     (the tar stays there)
set -euo pipefail
cd "$(dirname "$0")/../.."
output=$(realpath -m "${1:-build/portable/packages}") system=$PWD/build/portable/debian-11
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "portable_test: $*" >&2; exit 1; }

scripts/portable-package.sh "$output" >"$work/log" || { tail -30 "$work/log"; fail "it is not built"; }
(cd "$output" && sha256sum --quiet -c SHA256SUMS) || fail "SHA256SUMS does not fit"
tar -xzf "$output"/trafo-*-glibc2.31.tar.gz -C "$work"
tree=$(realpath "$work"/trafo-*)
tests/install/run_paths.py installed "$tree" || fail "a run path"
needed=$(readelf -d "$tree/bin/translate-train" "$tree"/lib/libtrafo.so.0 | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u)
for name in $needed; do
  case $name in
    libtrafo.so.0 | libc.so.6 | libm.so.6 | libdl.so.2 | libpthread.so.0 | librt.so.1 | ld-linux-x86-64.so.2) ;;
    *) fail "the tar takes $name from the system" ;;
  esac
done
newest=$(objdump -T "$tree"/bin/translate-train "$tree"/lib/libtrafo.so.0 | grep -oE '\bGLIBC_[0-9.]+' | sort -Vu | tail -n 1)
[[ $(printf '%s\n' GLIBC_2.31 "$newest" | sort -V | tail -n 1) == GLIBC_2.31 ]] || fail "the tar asks for $newest"
for name in SentencePiece Highway fmt spdlog yaml-cpp libstdc++ zlib; do
  grep -q "\"name\": \"$name\"" "$tree/share/trafo/trafo.cdx.json" || fail "the bill of materials lacks $name"
done
paths=$(grep -rl -- "$PWD" "$tree" || true)
[[ -z $paths ]] || fail "the tar names folders of the machine that built it: $paths"

# The same commands here and there give the same bytes.
mkdir "$work/data"
python3 -c 'import pathlib, sys; sys.path.insert(0, "tests/tools"); import toy_corpus
toy_corpus.write(pathlib.Path(sys.argv[1]), 200, 20)' "$work/data"
cat >"$work/commands" <<'COMMANDS'
set -e
cd "$1"
train() {
  "$2"/bin/translate-train train --train-sets t.src t.trg --valid-sets v.src v.trg --task tiny --device cpu --enc-depth 1 --dec-depth 1 \
    --dim-emb 32 --transformer-dim-ffn 64 --transformer-heads 2 --dim-vocabs 60 --mini-batch-words 400 --cpu-threads 2 --valid-freq 10u \
    --quiet --model run --after "$3"
}
train "$1" "$2" 10u
train "$1" "$2" 20u
"$2"/bin/translate-train translate --quiet --device cpu -m run -i v.src -o v.out
COMMANDS
cp -a "$work/data" "$work/here"
sh "$work/commands" "$work/here" "$tree"
if [[ $EUID -ne 0 ]] || ! command -v debootstrap >/dev/null; then
  echo "portable_test: the tar needs $newest; SKIPPED: a run on Debian 11 needs root and debootstrap"
  exit 77
fi
if [[ ! -f $system/complete ]]; then
  rm -rf "$system"
  debootstrap --variant=minbase bullseye "$system" "${TRAFO_DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/log" || { tail "$work/log"; fail "no Debian 11"; }
  touch "$system/complete"
fi
rm -rf "$system/srv/trafo" "$system/srv/data"
cp -a "$tree" "$system/srv/trafo"
cp -a "$work/data" "$system/srv/data"
cp "$work/commands" "$system/srv/commands"
there() { unshare --mount sh -c 'mount -t proc proc "$1/proc" && exec chroot "$@"' sh "$system" "$@"; }
glibc=$(there ldd --version | sed -n '1s/.* //p')
[[ $glibc == 2.31 ]] || fail "Debian 11 has glibc $glibc"
version=$(there /srv/trafo/bin/translate-train --version)
there sh /srv/commands /srv/data /srv/trafo
for file in v.out run/ckpt/20/model.safetensors; do
  cmp "$work/here/$file" "$system/srv/data/$file" || fail "$file is another on Debian 11"
done
[[ $(wc -l <"$work/here/v.out") -eq 20 ]] || fail "20 lines are not translated"
echo "portable_test: $(basename "$output"/*.tar.gz), $(stat -c %s "$output"/*.tar.gz) bytes, needs $newest; on Debian 11 with glibc $glibc: $version, trained, resumed, translated, the same bytes as here"
