#!/usr/bin/env bash
# The library computes and writes the same on every system and in every process that loads it. This refuses calls that depend on the C
# library, or on what a process has set: its locales, closed standard streams, limits, signal masks. Each has a replacement that does not.
#   check_ambient.sh [ROOT]
set -euo pipefail
cd "${1:-$(dirname "$0")/../..}"

failed=0
# refuse REPLACEMENT PATTERN FOLDER...: no code of the folders matches, in lines that are no comment.
refuse() {
  local replacement=$1 pattern=$2 found
  shift 2
  found=$(grep -rnP --include='*.cc' --include='*.h' --include='*.cu' --include='*.cuh' "$pattern" "$@" | grep -vP '^[^:]*:\d+:\s*//' || true)
  [[ -z $found ]] && return
  echo "depends on the C library or on what the process has set; use $replacement:" >&2
  echo "$found" >&2
  failed=1
}

library="engine capi"
# engine/os/wasm/missing_cxx20.cc implements std::from_chars and std::to_chars with the C library of WebAssembly, whose locale nothing changes.
refuse "std::from_chars" '\b(strto(d|f|ld|l|ll|ul|ull|imax|umax)|ato(f|i|l|ll)|sto(d|f|ld|i|l|ll|ul|ull)|v?f?s?scanf)\s*\(' $library --exclude=missing_cxx20.cc
refuse "core/strings/number_text.h or std::to_chars" 'printf\s*\([^;]*"[^"]*%[-+ #0-9.*]*[aefgAEFG]' $library --exclude=missing_cxx20.cc
refuse "core/strings/number_text.h or std::to_chars" 'std::to_string\(\s*(static_cast<(float|double)>|[0-9]+\.)' $library
refuse "comparisons of characters" '\bis(alnum|alpha|blank|cntrl|digit|graph|lower|print|punct|space|upper|xdigit)\s*\(|\bto(lower|upper)\s*\(' $library apps
refuse "nothing: the locale belongs to the process" '\b(setlocale|localeconv|uselocale|newlocale|strcoll|strxfrm|strftime|wcsto\w+|mbsto\w+|mbrto\w+)\s*\(|std::(regex|wregex|put_time|get_time|put_money)\b|locale::global|std::locale\s*\(' $library
refuse "concat()" 'std::(o?stringstream|istringstream|format)\b(?!.*// classic)' engine capi/src --exclude=status.cc --exclude=status.h --exclude=shortlist.cc
refuse "os/file.h or engine/io" 'std::[io]?fstream\b|(?<![\w.>])open(at)?\s*\(.*\bO_[A-Z]|\bfopen\s*\(|\bfreopen\s*\(|\btmpfile\s*\(|\bcreat\s*\(' $library --exclude=file_posix.cc --exclude=file_windows.cc --exclude=program_posix.cc --exclude=shortlist.cc
refuse "away_from_streams() of os/posix_calls.h around it" '^(?!.*away_from_streams).*(\bmk(o)?stemp\s*\(|::socket\s*\(|::eventfd\s*\(|::pipe2?\s*\()' $library --exclude=end_signals_posix.cc
refuse "start_thread() or start_task() of core/library_thread.h" 'std::async\s*\(|std::j?thread\s*(\(\s*\[|\w+\s*[({]\s*\[)|\bpthread_create\s*\(' $library --exclude=library_thread.h --exclude='end_signals_*.cc'
# Tests draw numbers by philox.h. A template's power is Python's. Whoever reads decibels reads two digits of them.
refuse "core/numeric/portable_*.h" '\bstd::(exp2?|expm1|log2?|log1p|pow|sin|cos|tan|a?(sin|cos|tan)h|atan2?|erfc?|fma|[lt]gamma|cbrt|hypot)\b(?!\w)' engine --exclude-dir=cuda --exclude='*.cu' --exclude='*.cuh' --exclude=philox.h --exclude=operators.cc --exclude=portable_power.cc
refuse "write_some() of os/file.h" '(?<!os)::p?write\s*\(\s*\w+,' engine capi --exclude=file_posix.cc --exclude=file_windows.cc --exclude=end_signals_posix.cc
refuse "call_host()" '^(?!.*call_host).*\b(fn_|function_|user_data_free|callback|batches|rate)\((keep|user_data)' capi/src
refuse "parse_number() of number_text.h" '\b(strto(d|f|ld|l|ll|ul|ull)|ato(f|i|l|ll)|sto(d|f|ld)|v?f?s?scanf)\s*\(' apps
refuse "nothing: the program keeps the classic locale" '\bsetlocale\s*\(|locale::global' apps
for file in engine/core/status.cc capi/src/shortlist.cc; do
  streams=$(grep -cE 'std::(o?stringstream|ifstream) \w+;' "$file") imbued=$(grep -c 'imbue(std::locale::classic())' "$file")
  [[ $streams == "$imbued" ]] || { echo "$file: $streams streams, $imbued with the classic locale" >&2; failed=1; }
done
[[ $failed == 0 ]] || exit 1
echo "ambient state: ok"
