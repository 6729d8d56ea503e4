#!/usr/bin/env bash
# Suite 3, see damaged_files.cc; --long is its long form.
exec "$(dirname "$0")/build_and_run.sh" damaged_files damaged_files "$@"
