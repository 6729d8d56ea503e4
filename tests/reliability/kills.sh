#!/usr/bin/env bash
# Suite 2, see kills.cc; --long is its long form.
exec "$(dirname "$0")/build_and_run.sh" kills kills "$@"
