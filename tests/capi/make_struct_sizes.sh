#!/usr/bin/env bash
# make_struct_sizes.sh OUTPUT HEADER...: a C program that prints size and field offsets of every struct of the headers.
set -euo pipefail
output=$1
shift
{
  echo '#include <stddef.h>'
  echo '#include <stdio.h>'
  echo '#include "trafo.h"'
  echo 'int main(void) {'
  awk '
    /^typedef struct [a-z_]+ \{/ { name = $3; body = ""; next }
    name != "" && /^\}/ {
      gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", body)
      gsub(/\[[0-9]+\]/, "", body)
      printf "  printf(\"%s %%zu\\n\", sizeof(%s));\n", name, name
      count = split(body, fields, ";")
      for (i = 1; i <= count; ++i)
        if (match(fields[i], /[a-z0-9_]+[ ]*$/)) {
          field = substr(fields[i], RSTART, RLENGTH); gsub(/ /, "", field)
          printf "  printf(\"  %s %%zu\\n\", offsetof(%s, %s));\n", field, name, field
        }
      name = ""; next
    }
    name != "" { body = body " " $0 }' "$@"
  echo '  return 0;'
  echo '}'
} > "$output"
