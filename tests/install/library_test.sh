#!/usr/bin/env bash
# library_test.sh LIBTRAFO GUIDE: the stripped library's size, what it needs and what it exports are what docs/guide/c-guide.md says.
set -euo pipefail
library=$1 guide=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
complain() { echo "library_test: $*" >&2; failed=1; }

# The guide's sentence, on one line: sizes in millions of bytes and `names`.
sentence=$(tr '\n' ' ' < "$guide" | grep -oE 'Stripped, `libtrafo\.so`.*exports')
read -r says most <<< "$(grep -oE '[0-9]+\.[0-9] MB' <<< "$sentence" | awk '{ printf "%s ", $1 * 1000000 }')"

strip --strip-unneeded -o "$work/libtrafo.so" "$library"
size=$(stat -c %s "$work/libtrafo.so")
((size <= most)) || complain "the stripped library has $size bytes, at most $most are allowed"
((size > says - says / 10)) || complain "the stripped library has $size bytes, the guide says $says"

grep -oE '`lib[a-z_+]+\.so\.[0-9]+`' <<< "$sentence" | tr -d '`' | LC_ALL=C sort > "$work/written"
# The loader is named differently on every machine.
readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v '^ld-linux' | LC_ALL=C sort > "$work/needed"
diff "$work/written" "$work/needed" || complain "needed libraries (>) are not those of the guide (<)"

others=$(nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | grep -vc '^trafo_' || true)
[[ $others = 0 ]] || complain "$others exported symbols do not begin with trafo_"
# No network, no other programs, no signal handlers, and its host lives on: SECURITY.md promises it.
forbidden='socket|connect|bind|listen|accept4?|getaddrinfo|gethostby.*|res_.*|system|popen|execv?[lpe]*|posix_spawnp?|signal|sigaction|exit|_exit|quick_exit|abort'
asked=$(nm -D --undefined-only "$library" | awk '{ sub(/@.*/, "", $2); print $2 }' | grep -xE "$forbidden" | tr '\n' ' ' || true)
[[ -z $asked ]] || complain "the library asks for $asked"
[[ $failed = 0 ]] && echo "library_test: $size bytes, $(wc -l < "$work/needed") libraries ok"
exit "$failed"
