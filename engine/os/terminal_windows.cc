#include "engine/os/terminal.h"

#include <io.h>

#include <cstdio>

#include "engine/os/windows_calls.h"

namespace trafo::os {

// NUL is a device of characters, too.
bool is_terminal(int file) noexcept {
  DWORD mode = 0;
  return _isatty(file) != 0 && GetConsoleMode(handle_of(file), &mode) != 0;
}

bool is_terminal(std::FILE* stream) noexcept {
  return is_terminal(_fileno(stream));
}

int terminal_columns(int file) noexcept {
  CONSOLE_SCREEN_BUFFER_INFO info{};
  if (GetConsoleScreenBufferInfo(handle_of(file), &info) == 0) return 0;
  return info.srWindow.Right - info.srWindow.Left + 1;
}

}  // namespace trafo::os
