#!/usr/bin/env bash
# Suite 6, see allocation_failure.cc. With --all every allocation of a call fails in turn.
exec "$(dirname "$0")/build_and_run.sh" allocation_failure reliability/allocation_failure "$@"
