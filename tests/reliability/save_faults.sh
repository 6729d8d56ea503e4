#!/usr/bin/env bash
# Suite 1, see saves/save_faults.cc; --long is its long form.
exec "$(dirname "$0")/build_and_run.sh" save_faults save_faults "$@"
