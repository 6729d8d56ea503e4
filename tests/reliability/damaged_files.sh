#!/usr/bin/env bash
# Family 3, see damaged_files.cc; --long is its long form.
exec "$(dirname "$0")/build_and_run.sh" damaged_files damaged_files "$@"
