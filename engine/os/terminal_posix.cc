#include <sys/ioctl.h>
#include <unistd.h>

#include "engine/os/terminal.h"

namespace trafo::os {

bool is_terminal(int file) noexcept {
  return ::isatty(file) != 0;
}

bool is_terminal(std::FILE* stream) noexcept {
  return is_terminal(::fileno(stream));
}

int terminal_columns(int file) noexcept {
  winsize size{};
  return ::ioctl(file, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

}  // namespace trafo::os
