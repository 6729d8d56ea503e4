#!/usr/bin/env bash
# Suite 11: calls every function of the C ABI wrongly, by a table made from its headers; see docs/reference/misuse.md. Short and long form are the same.
exec "$(dirname "$0")/build_and_run.sh" misuse_suite misuse_suite
