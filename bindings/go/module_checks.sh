#!/usr/bin/env bash
# The Go modules of scripts/go-modules.sh as `go get` brings them: from a proxy in a folder, into an empty module cache, without the
# checkout. A program builds, needs no library but those of C and C++, trains and translates; a vendored copy builds, too. Without the
# library, one error says what to do. With -tags trafo_dlopen, the program loads the library.
#
#   module_checks.sh LIBRARY_FOLDER     a build with TRAFO_THIRD_PARTY, or the folder of tests/tools/bundled_library.sh
set -euo pipefail
cd "$(dirname "$0")"
[[ $# -eq 1 ]] || { echo "usage: module_checks.sh LIBRARY_FOLDER" >&2; exit 2; }
fail() { echo "module_checks: $*" >&2; exit 1; }
library=$(realpath "$1")
readme=$PWD/trafo/README.md
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
../../scripts/go-modules.sh --output "$folder/modules" "$library"
files=$(python3 -m zipfile -l "$folder"/modules/proxy/github.com/trafo-engine/trafo/bindings/go/trafo/@v/v*.zip)
for part in trafo.h link_prebuilt_linux_amd64.go dlopen.generated.c LICENSE; do
  grep -q "/$part " <<<"$files" || fail "the module has no $part"
done

mkdir "$folder/program"
cd "$folder/program"
export GOPROXY=file://$folder/modules/proxy GONOSUMDB='*' GONOSUMCHECK=1 GOFLAGS='-mod=mod -modcacherw' GOPATH=$folder/path CGO_ENABLED=1
export PKG_CONFIG_LIBDIR=/nonexistent PKG_CONFIG_PATH=
unset CGO_LDFLAGS CGO_CFLAGS GOMODCACHE
go mod init example.com/program 2>/dev/null
awk '/^```go/ { inside = 1; next } /^```/ { inside = 0 } inside' "$readme" >main.go
go get github.com/trafo-engine/trafo/bindings/go/trafo@latest 2>"$folder/log" || { cat "$folder/log" >&2; fail "go get"; }
go build -o program . 2>"$folder/log" || { cat "$folder/log" >&2; fail "go build"; }
for name in $(readelf -d program | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
  [[ $name =~ ^(libc|libm|libgcc_s|libstdc\+\+|ld-linux-x86-64)\.so\.[0-9]+$ ]] || fail "the program needs $name"
done
./program | tail -n 1 | grep -qx "good evening" || fail "the program does not translate"
echo "go get, go build: ok"

go mod vendor
for file in vendor/github.com/trafo-engine/trafo/bindings/go/trafo/trafo.h vendor/github.com/trafo-engine/trafo-go-lib/linux-amd64/libtrafo.a; do
  [[ -f $file ]] || fail "go mod vendor leaves out $file"
done

# refused WORDS COMMAND...: the command fails, and says the words in few lines
refused() {
  local words=$1 said
  shift
  if said=$("$@" 2>&1); then fail "$* is not refused"; fi
  [[ $(wc -l <<<"$said") -le 5 ]] && grep -qF "$words" <<<"$said" || fail "$*: $said"
}
refused "trafo needs cgo: set CGO_ENABLED=1" env CGO_ENABLED=0 go build -o program .
rm "$GOPATH"/pkg/mod/github.com/trafo-engine/trafo-go-lib/*/libtrafo.a
# Other flags than before: the Go tool does not see that the file is gone.
refused "there is no libtrafo.a" env CGO_CFLAGS="-DANOTHER" go build github.com/trafo-engine/trafo-go-lib/linux-amd64
# With another library, the prebuilt one is not asked for.
cp -r "$library" "$folder/other"
CGO_LDFLAGS="-L$folder/other -lstdc++ -lm" go build -tags trafo_system -o program .
./program | tail -n 1 | grep -qx "good evening" || fail "the program with -tags trafo_system does not translate"
# A library that the program loads: its build finds none, and the same program runs with one and says what to do without.
rm -rf "$GOPATH/pkg/mod/github.com/trafo-engine/trafo-go-lib" vendor
g++ -shared -o "$folder/libtrafo.so.0" -Wl,--whole-archive "$library/libtrafo.a" -Wl,--no-whole-archive -Wl,-Bsymbolic -lpthread -ldl
go build -tags trafo_dlopen -o program .
! readelf -d program | grep -q 'NEEDED.*\(trafo\|stdc\)' || fail "the program with -tags trafo_dlopen is linked with the library"
for way in "TRAFO_LIBRARY=$folder/libtrafo.so.0" "LD_LIBRARY_PATH=$folder"; do
  env "$way" ./program | tail -n 1 | grep -qx "good evening" || fail "the program with -tags trafo_dlopen and $way does not translate"
done
refused "libtrafo.so.0 cannot be loaded" ./program
refused "set TRAFO_LIBRARY to the path of the library" env TRAFO_LIBRARY="$library/libtrafo.a" ./program
echo "module_checks: ok"
