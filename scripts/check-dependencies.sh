#!/usr/bin/env bash
# Looks for known faults in what Trafo is built with.
#
#   scripts/check-dependencies.sh [BUILD_FOLDER]      (default build/release)
#
#   bill of materials   versions, pins and hashes, and scripts/advisories.toml; needs no network
#   Rust crates         cargo deny or cargo audit, whichever is there, with the database of RustSec
#   Go modules          govulncheck, with Go's database
#
# Without a network, copies of the databases are read where they are named:
#   TRAFO_RUST_ADVISORIES=FOLDER   a clone of github.com/rustsec/advisory-db, for cargo audit
#   TRAFO_GO_ADVISORIES=URL        for govulncheck: file:///FOLDER with the index and the entries of vuln.go.dev
#
# Exit status 0: all three found nothing. 1: something was found. 77: nothing was found, but a program or its database was not to be
# had (offline); the output says which.
set -uo pipefail
cd "$(dirname "$0")/.."

build=${1:-build/release}
status=0
offline=0
missing() { echo "NOT CHECKED: $1"; offline=1; }
# Runs a check. One that could not reach its database is not checked; any other failure is a finding.
check() {
  local name=$1 output code=0
  shift
  output=$(timeout 300 "$@" 2>&1) || code=$?
  if [[ $code -eq 0 ]]; then
    echo "$name: nothing found"
  elif [[ $code -eq 124 ]] || grep -qiE 'failed to (fetch|clone|acquire|connect|update)|could not resolve|no such host|network is unreachable|connection (refused|reset|timed out)|dial tcp|i/o timeout|unable to (fetch|update)|couldn.t fetch|status code: [45]|[45][0-9][0-9] (forbidden|not found|bad gateway|service unavailable)' <<<"$output"; then
    missing "$name: offline, its database cannot be fetched"
  else
    printf '%s\n' "$output"
    echo "$name: FOUND"
    status=1
  fi
}

python3 scripts/check_dependencies.py "$build/trafo.cdx.json" || status=1

for workspace in bindings/rust examples/learning-service; do
  name="Rust crates of $workspace"
  if [[ -n ${TRAFO_RUST_ADVISORIES:-} ]] && command -v cargo-audit >/dev/null; then
    check "$name (cargo audit, $TRAFO_RUST_ADVISORIES)" \
      cargo audit --file $workspace/Cargo.lock --db "$TRAFO_RUST_ADVISORIES" --no-fetch
  elif command -v cargo-deny >/dev/null; then
    check "$name (cargo deny)" cargo deny --manifest-path $workspace/Cargo.toml check advisories
  elif command -v cargo-audit >/dev/null; then
    check "$name (cargo audit)" cargo audit --file $workspace/Cargo.lock
  else
    missing "$name: there is no cargo-deny and no cargo-audit (cargo install cargo-audit)"
  fi
done

if command -v govulncheck >/dev/null; then
  for module in bindings/go/trafo examples/learning-service; do
    check "Go modules of $module (govulncheck${TRAFO_GO_ADVISORIES:+, $TRAFO_GO_ADVISORIES})" \
      env -C $module govulncheck ${TRAFO_GO_ADVISORIES:+-db "$TRAFO_GO_ADVISORIES"} ./...
  done
else
  missing "Go modules: there is no govulncheck (go install golang.org/x/vuln/cmd/govulncheck@latest)"
fi

[[ $status -ne 0 ]] && exit 1
[[ $offline -ne 0 ]] && exit 77
exit 0
