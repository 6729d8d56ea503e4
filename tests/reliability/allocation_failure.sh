#!/usr/bin/env bash
# Suite 6, see allocation_failure.cc. With --long every allocation fails in turn, else about a hundred a call.
exec "$(dirname "$0")/build_and_run.sh" allocation_failure reliability/allocation_failure "$@"
