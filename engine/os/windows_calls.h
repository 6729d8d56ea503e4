// Parts that the files *_windows.cc of this folder share.
#pragma once

#ifndef NOMINMAX
#define NOMINMAX
#endif
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <string>

#include "engine/os/path_ref.h"

namespace trafo::os {

// Sets errno for a result of GetLastError(); returns -1.
int fail_with_system_error(DWORD error) noexcept;

std::wstring wide_text(const char* utf8);
std::string utf8_text(const wchar_t* wide);
// The path as functions with "W" take it: absolute and with \\?\ before it if it is too long for
// them otherwise.
std::wstring system_path(PathRef path);

// The handle of a descriptor; INVALID_HANDLE_VALUE with errno if it is none.
HANDLE handle_of(int file) noexcept;

// Runs `call`, whose only exceptions are for lack of memory.
template <class Call>
auto or_out_of_memory(Call call) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    return static_cast<decltype(call())>(fail_with_system_error(ERROR_NOT_ENOUGH_MEMORY));
  }
}

}  // namespace trafo::os
