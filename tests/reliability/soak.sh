#!/usr/bin/env bash
# Suite 8, see soak.cc. 500 updates, with --long 10,000 and at least an hour (--minutes N: at least so long); on a card with TRAFO_TEST_DEVICE=cuda.
exec "$(dirname "$0")/build_and_run.sh" soak reliability/soak "$@"
