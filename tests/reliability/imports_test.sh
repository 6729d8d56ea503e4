#!/usr/bin/env bash
# Functions that libtrafo imports from the system: nothing of the network, no signal handlers, nothing that ends or replaces
# the process.
#   imports_test.sh LIBRARY NM
set -euo pipefail
library=$1 nm=$2

imports=$("$nm" -D --undefined-only "$library" | awk '{sub(/@.*/, "", $NF); print $NF}')
[[ $(wc -l <<<"$imports") -gt 20 ]] || { echo "imports_test: $nm lists no imports of $library" >&2; exit 1; }

network='socket|socketpair|connect|bind|listen|accept|accept4|send|sendto|sendmsg|recv|recvfrom|recvmsg|shutdown|getaddrinfo|gethostbyname|getpeername|setsockopt|inet_pton|inet_addr|res_query'
signals='signal|bsd_signal|sysv_signal|__sysv_signal|sigaction|sigvec|sigset|signalfd|sigaltstack'
process='exit|_exit|_Exit|quick_exit|abort|system|popen|fork|vfork|execl|execv|execve|execvp|posix_spawn|posix_spawnp'
output='printf|fprintf|puts|fputs|putchar|fputc|perror|syslog|__printf_chk|__fprintf_chk|stdout|stderr|_ZSt4cout|_ZSt4cerr|_ZSt4clog'
found=$(grep -xE "$network|$signals|$process|$output" <<<"$imports" || true)
if [[ -n $found ]]; then
  echo "imports_test: $library imports what it promises not to use:" $found >&2
  exit 1
fi
echo "imports_test: $(wc -l <<<"$imports") imports, none of the network, of signal handlers, of ending the process or of printing"
