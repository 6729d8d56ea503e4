#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "engine/os/program.h"

namespace trafo::os {

void prepare_program(int&, char**&) {
  // Nothing can be written to the replacement of a closed stream.
  int file = 0;
  do file = ::open("/dev/null", O_RDONLY);
  while (file >= 0 && file <= STDERR_FILENO);
  if (file >= 0) ::close(file);
  std::signal(SIGXFSZ, SIG_IGN);
  ::umask(::umask(0) & ~static_cast<mode_t>(S_IRWXU));
}

}  // namespace trafo::os
