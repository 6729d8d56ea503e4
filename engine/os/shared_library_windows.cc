#include "engine/os/shared_library.h"

#include <system_error>

#include "engine/os/windows_calls.h"

namespace trafo::os {

void* open_library(const std::string& path, std::string& why) {
  const std::filesystem::path name = wide_text(path.c_str());
  // A bare name is looked up beside the program and in the system's folder, and libraries that a
  // library needs also beside it.
  const DWORD flags = name.is_absolute()
                          ? LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS
                          : LOAD_LIBRARY_SEARCH_DEFAULT_DIRS;
  const HMODULE library = LoadLibraryExW(system_path(name).c_str(), nullptr, flags);
  if (library != nullptr) {
    HMODULE kept = nullptr;  // for the life of the process
    GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_PIN | GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS,
                       reinterpret_cast<const wchar_t*>(library), &kept);
    return reinterpret_cast<void*>(library);
  }
  const DWORD error = GetLastError();
  why = path + ": " + std::system_category().message(static_cast<int>(error));
  return nullptr;
}

void* find_symbol(void* library, const char* name) noexcept {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

std::filesystem::path own_folder() {
  HMODULE module = nullptr;
  if (GetModuleHandleExW(
          GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
          reinterpret_cast<const wchar_t*>(&own_folder), &module) == 0)
    return {};
  std::wstring path(32768, L'\0');  // the longest that there is
  path.resize(GetModuleFileNameW(module, path.data(), static_cast<DWORD>(path.size())));
  return std::filesystem::path(path).parent_path();
}

}  // namespace trafo::os
