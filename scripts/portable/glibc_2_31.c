/* Functions of glibc 2.32 and later that the libstdc++ and the headers of Debian 12 use. It is linked into each file of the portable tar,
 * hidden, because glibc 2.31 has neither. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

/* glibc 2.32. False is always right: reference counts then use atomic instructions in programs of one thread, too. */
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

/* glibc 2.36, of std::random_device. As there, no random numbers end the process: getrandom fails on kernels before 3.17 only. */
__attribute__((visibility("hidden"))) uint32_t arc4random(void) {
  uint32_t value;
  ssize_t got;
  do got = getrandom(&value, sizeof value, 0);
  while (got < 0 && errno == EINTR);
  if (got != (ssize_t)sizeof value) abort();
  return value;
}
