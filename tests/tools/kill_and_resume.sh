#!/usr/bin/env bash
# Trains with a build of kill_and_resume.c in one go, and again with a kill and a resumption: the checkpoints must have the same weights and
# states of the optimizer, byte by byte, and the translations be right.
#
#   tests/tools/kill_and_resume.sh COMMAND...     the program, after an emulator and its options, if any
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "kill_and_resume: $*" >&2; exit 1; }
right=$'one two three\nfour four one'
says() { "${command[@]}" "$@" | tr -d '\r'; }  # Windows ends lines with one
command=("$@")
[[ $(says "$work/whole" 60) == "$right" ]] || fail "the translations are wrong"
status=0
{ "$@" "$work/cut" 60 37 >"$work/said"; } 2>/dev/null || status=$?
[[ $status -eq 137 ]] || fail "it should have been killed; status $status: $(cat "$work/said")"
[[ $(says "$work/cut" 60) == $'resumed after 30 updates\n'"$right" ]] || fail "it does not resume"
files=0
while read -r file; do
  cmp "$work/whole/$file" "$work/cut/$file" || fail "$file has other bytes after a resumption"
  files=$((files + 1))
done < <(cd "$work/whole" && find ckpt/60 -name "*.safetensors")
[[ $files -eq 2 ]] || fail "there are other files than a model and the states of its optimizer"
echo "kill_and_resume: weights and states of the optimizer have the bytes of a run that was not killed; the translations are right"
