#!/usr/bin/env bash
# The main job in miniature: installs what is missing, builds, makes a German-English corpus, trains on it and translates.
# Everything is written to demo/. Called again, it continues the training in demo/run.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/build.sh
PATH=$PWD/build/release:$PATH
limit=150 # seconds of training: on a slow machine it ends early

show() { printf '\n$ %s\n' "$*"; }

mkdir -p demo
show "build/release/examples/demo-corpus demo/data"
build/release/examples/demo-corpus demo/data
wc -l demo/data/train.de demo/data/test.de

show "translate-train train --config examples/demo/train.yml --model demo/run"
status=0
timeout --signal=INT "$limit" translate-train train --config examples/demo/train.yml --model demo/run || status=$?
if [[ $status -eq 124 ]]; then
  echo "this machine is slow: training was ended after $limit seconds; scripts/demo.sh continues it"
elif [[ $status -ne 0 ]]; then
  exit "$status"
fi

show "translate-train translate --model demo/run --checkpoint latest -i demo/data/test.de -o demo/data/test.hyp"
translate-train translate --model demo/run --checkpoint latest -i demo/data/test.de -o demo/data/test.hyp

show "translate-train eval --hyp demo/data/test.hyp --ref demo/data/test.en"
translate-train eval --hyp demo/data/test.hyp --ref demo/data/test.en

printf '\nSome of the sentences, none of which was in training:\n\n'
paste -d '\n' demo/data/test.de demo/data/test.hyp demo/data/test.en |
  awk 'BEGIN { split("German,translated,reference", name, ",") }
       int((NR - 1) / 3) % 63 == 0 { printf "  %-11s%s\n%s", name[(NR - 1) % 3 + 1], $0, NR % 3 ? "" : "\n" }'

cat <<'END'
Next:
  echo 'Der Zug kommt um halb neun an.' | build/release/translate-train translate --model demo/run
  build/release/translate-train info demo/run
  build/release/translate-train train --train-sets YOUR.de YOUR.en --model run
END
