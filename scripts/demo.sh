#!/usr/bin/env bash
# The main job in miniature: installs what is missing, builds, makes a German-English corpus, trains on it and translates.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/build.sh
exec build/release/translate-train demo "$@"
