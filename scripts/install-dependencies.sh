#!/usr/bin/env bash
# Installs the Debian 12 packages Trafo builds with. Run as root or with sudo available; does nothing when all are there.
#   --tests     also what the source checks need
#   --bindings  also Rust and Go, if there are none; scripts/install-go.sh then gets the Go that the module needs
#   --docs      also doxygen, for scripts/reference.sh
#   --fuzz      also clang, for the preset `fuzz`
#   --report    also a Chromium without a screen, for tests/report/screenshot.py
#   --images    also what builds and runs images without a registry, for tests/tools/image_test.py
set -euo pipefail

packages=(
  build-essential cmake ninja-build ccache pkg-config python3 zlib1g-dev
  libsentencepiece-dev libhwy-dev nlohmann-json3-dev
  libcli11-dev libyaml-cpp-dev libfmt-dev libspdlog-dev
  libgtest-dev libopenblas-dev libopenmpi-dev openmpi-bin iproute2 file
)
# Debian 12 has two Rusts: rustc is 1.63, rustc-web is the one that its browsers are built with.
rust_packages() {
  local wanted has
  wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../bindings/rust/Cargo.toml")
  if ! command -v cargo >/dev/null; then
    packages+=(cargo-web rustc-web rustfmt-web rust-web-clippy)
    return
  fi
  has=$(cargo --version | cut -d ' ' -f 2)
  [[ $(printf '%s\n' "$wanted" "$has" | sort -V | head -n 1) == "$wanted" ]] || {
    echo "install-dependencies: $(command -v cargo) is $has, the bindings need $wanted; update it, or remove it and run this again" >&2
    exit 1
  }
}
for argument in "$@"; do
  case "$argument" in
    --tests) packages+=(clang-format libclang-dev abigail-tools libmecab2 mecab-ipadic-utf8) ;;
    --bindings)
      rust_packages
      packages+=(ca-certificates)  # crates and Go modules come over TLS
      command -v go >/dev/null || packages+=(golang-go)
      ;;
    --docs) packages+=(doxygen) ;;
    --fuzz) packages+=(clang llvm libclang-rt-14-dev) ;;
    --report) packages+=(chromium-headless-shell fonts-dejavu-core) ;;
    --images) packages+=(buildah podman crun debootstrap) ;;
    *) echo "usage: scripts/install-dependencies.sh [--tests] [--bindings] [--docs] [--fuzz] [--report] [--images]" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

as_root=()
if [[ $EUID -ne 0 ]]; then
  command -v sudo >/dev/null || { echo "install-dependencies: run as root, or install sudo: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
