#!/usr/bin/env bash
# Go that is new enough for the module (go.mod): the one on the PATH if it is, otherwise one from the Go module proxy, in build/go. Any Go
# from 1.19, Debian 12's, downloads it; that one checks it against the checksum database, and this script against the sums below.
#
#   export PATH="$(scripts/install-go.sh):$PATH"     (it prints the folder of the command go)
set -euo pipefail
cd "$(dirname "$0")/.."

version=1.26.8
declare -A sums=(
  [amd64]="h1:ZOmGe1OnfREDMIdb1Qi4G9JSuDPBLGExZMQ4nis1RXM="
  [arm64]="h1:sYL/O6MqS68ML0kjsQ36WoYIpJqkw60TxizWUYUKQMc="
)
wanted=$(sed -n 's/^go //p' bindings/go/trafo/go.mod)

# new_enough GO: whether this program is at least the Go that go.mod asks for
new_enough() {
  local has
  has=$(GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null) || return 1
  [[ $(printf '%s\n' "$wanted" "${has#go}" | sort -V | head -n 1) == "$wanted" ]]
}

if command -v go >/dev/null && new_enough go; then
  dirname "$(command -v go)"
  exit 0
fi
folder=$PWD/build/go
if new_enough "$folder/bin/go"; then
  echo "$folder/bin"
  exit 0
fi
command -v go >/dev/null || { echo "install-go: there is no Go to download Go $version with (Debian: apt install golang-go)" >&2; exit 1; }
architecture=$(go env GOHOSTARCH)
[[ -n ${sums[$architecture]:-} ]] || { echo "install-go: no checksum of Go $version for $architecture is known; install Go $wanted or newer" >&2; exit 1; }

echo "install-go: downloading Go $version, 70 MB" >&2
mkdir -p build
work=$(mktemp -d build/go-download.XXXXXX)
trap 'rm -rf "$work"' EXIT
module=golang.org/toolchain@v0.0.1-go$version.linux-$architecture
# Go from 1.21 would run itself in the newer toolchain that it finds.
answer=$(cd "$work" && GOMODCACHE=$PWD GOFLAGS=-modcacherw GOTOOLCHAIN=local go mod download -json "$module") ||
  { echo "install-go: $module cannot be downloaded:" >&2; echo "$answer" >&2; exit 1; }
sum=$(sed -n 's/.*"Sum": "\(.*\)".*/\1/p' <<<"$answer")
[[ $sum == "${sums[$architecture]}" ]] || { echo "install-go: $module has the sum $sum, not ${sums[$architecture]}" >&2; exit 1; }
# A module has no executable files and no second go.mod.
chmod u+x "$work/$module/bin/"* "$work/$module/pkg/tool/linux_$architecture/"*
find "$work/$module" -name _go.mod -execdir mv {} go.mod \;
rm -rf "$folder"
mv "$work/$module" "$folder"
new_enough "$folder/bin/go" || { echo "install-go: $folder/bin/go does not run" >&2; exit 1; }
echo "$folder/bin"
