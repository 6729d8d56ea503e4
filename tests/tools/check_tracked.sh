#!/usr/bin/env bash
# Git tracks no file that .gitignore excludes, such as compiled Python files.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
  echo "tracked: skipped, because this is no Git checkout"
  exit
fi
tracked=$(git ls-files --cached --ignored --exclude-standard)
if [[ -n $tracked ]]; then
  echo "tracked although .gitignore excludes them:" >&2
  echo "$tracked" >&2
  exit 1
fi
echo "tracked: ok"
