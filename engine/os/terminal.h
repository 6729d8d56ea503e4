// The terminal of a program.
#pragma once

#include <cstdio>

namespace trafo::os {

bool is_terminal(int file) noexcept;
bool is_terminal(std::FILE* stream) noexcept;
// Columns of the terminal at a descriptor; 0: it is not a terminal.
int terminal_columns(int file) noexcept;

}  // namespace trafo::os
