#!/usr/bin/env bash
# Suite 8, see soak.cc. 500 updates, with --long 10,000; on a card with TRAFO_TEST_DEVICE=cuda.
exec "$(dirname "$0")/build_and_run.sh" soak reliability/soak "$@"
