#!/usr/bin/env bash
# Installs the Debian 12 packages Trafo builds with. Run as root or with sudo available; does nothing when all are there.
#   --tests    also what the source checks need
#   --fuzz     also clang, for the preset `fuzz`
#   --report   also a Chromium without a screen, for tests/report/screenshot.py
set -euo pipefail

packages=(
  build-essential cmake ninja-build ccache pkg-config python3 zlib1g-dev
  libsentencepiece-dev libhwy-dev nlohmann-json3-dev
  libcli11-dev libyaml-cpp-dev libfmt-dev libspdlog-dev
  libgtest-dev libopenblas-dev
)
for argument in "$@"; do
  case "$argument" in
    --tests) packages+=(clang-format libclang-dev abigail-tools) ;;
    --fuzz) packages+=(clang llvm libclang-rt-14-dev) ;;
    --report) packages+=(chromium-headless-shell fonts-dejavu-core) ;;
    *) echo "usage: scripts/install-dependencies.sh [--tests] [--fuzz] [--report]" >&2; exit 2 ;;
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
