#!/usr/bin/env bash
# The README's two commands on a Debian 12 that has nothing: the packages of debootstrap's minbase. By hand, as root; downloads a
# Debian 12, and the packages, crates and Go modules that the commands ask for.
#
#   tests/tools/bare_debian_test.sh            scripts/demo.sh, then Debian's Rust and the Go of scripts/install-go.sh with the library
#   tests/tools/bare_debian_test.sh --test     scripts/demo.sh and scripts/test.sh (tens of minutes)
#
# The tree is the last commit's. TRAFO_DEBIAN_MIRROR: another mirror than deb.debian.org. TRAFO_BARE_CCACHE: a folder of ccache to
# take objects from. Exit status 77: not root, or no debootstrap; nothing was checked.
set -euo pipefail
cd "$(dirname "$0")/../.."
[[ $# -eq 0 || ($# -eq 1 && $1 == --test) ]] || { echo "usage: tests/tools/bare_debian_test.sh [--test]" >&2; exit 2; }
if [[ $EUID -ne 0 ]] || ! command -v debootstrap >/dev/null; then
  echo "bare_debian_test: SKIPPED, nothing was checked: it needs root and debootstrap"
  exit 77
fi
system=$PWD/build/bare-debian
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "bare_debian_test: $*" >&2; exit 1; }

rm -rf "$system"
debootstrap --variant=minbase bookworm "$system" "${TRAFO_DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/log" || { tail "$work/log"; fail "no Debian 12"; }
cp /etc/resolv.conf /etc/hosts "$system/etc"
# Certificates that this machine trusts beside Debian's: packages, crates and modules may come through a proxy.
mkdir -p "$system/usr/local/share"
[[ ! -d /usr/local/share/ca-certificates ]] || cp -a /usr/local/share/ca-certificates "$system/usr/local/share"
mkdir -p "$system/srv/trafo" "$system/srv/home/.cache/ccache"
git archive HEAD | tar -x -C "$system/srv/trafo"

# there COMMANDS: in that system, with its own environment
there() {
  unshare --mount --pid --fork bash -c '
    mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev"
    [[ -z $2 ]] || mount --bind "$2" "$1/srv/home/.cache/ccache"
    exec env -i HOME=/srv/home PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 CI=true chroot "$1" bash -euo pipefail -c "cd /srv/trafo; $3"' \
    bash "$system" "${TRAFO_BARE_CCACHE:-}" "$1"
}
for command in gcc cmake python3 rustc go; do
  ! there "command -v $command" >/dev/null || fail "it has $command already"
done
began=$SECONDS
there scripts/demo.sh
echo "bare_debian_test: scripts/demo.sh, packages included: $((SECONDS - began)) s"
began=$SECONDS
if [[ ${1:-} == --test ]]; then
  there scripts/test.sh
  echo "bare_debian_test: scripts/test.sh: $((SECONDS - began)) s"
else
  there 'scripts/install-dependencies.sh --bindings; rustc --version; PATH=$(scripts/install-go.sh):$PATH; go version
    export TRAFO_LIB_DIR=$PWD/build/release
    (cd bindings/rust && cargo test --quiet -p trafo-engine --test tensors --test text)
    (cd bindings/go/trafo && go test -count=1 .)'
  echo "bare_debian_test: Rust and Go: $((SECONDS - began)) s"
fi
