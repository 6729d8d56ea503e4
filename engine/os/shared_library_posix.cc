#include <dlfcn.h>

#include <charconv>
#include <cstdint>

#include "engine/os/file.h"
#include "engine/os/shared_library.h"

namespace trafo::os {

void* open_library(const std::string& path, std::string& why) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library != nullptr) return library;
  const char* said = ::dlerror();
  why = said ? said : "the loader gives no reason";
  return nullptr;
}

void* find_symbol(void* library, const char* name) noexcept {
  return ::dlsym(library, name);
}

namespace {

// The file of this code, or an empty text.
#ifdef __APPLE__
std::string own_file() {
  Dl_info info;
  const bool known = ::dladdr(reinterpret_cast<const void*>(&open_library), &info) != 0;
  return known && info.dli_fname[0] == '/' ? info.dli_fname : "";
}
#else
// The loader's own answer will not do: for a program it is argv[0], which may be a bare name, and a
// bare name would be looked up in the current directory, where anybody may have put a library.
std::string own_file() {
  const auto here = reinterpret_cast<uintptr_t>(&open_library);
  const std::string maps = read_system_file("/proc/self/maps");
  for (size_t at = 0; at < maps.size();) {  // "BEGIN-END rwxp OFFSET DEVICE INODE PATH"
    const std::string line = maps.substr(at, maps.find('\n', at) - at);
    at += line.size() + 1;
    uintptr_t begin = 0, end = 0;
    const char* const stop = line.data() + line.size();
    const auto dash = std::from_chars(line.data(), stop, begin, 16);
    if (dash.ptr == stop) continue;
    std::from_chars(dash.ptr + 1, stop, end, 16);
    if (here < begin || here >= end) continue;
    const size_t path = line.find('/');
    return path == std::string::npos ? "" : line.substr(path);
  }
  return {};
}
#endif

}  // namespace

std::filesystem::path own_folder() {
  const std::string path = own_file();
  if (path.empty()) return {};
  std::error_code ignored;
  const auto file = std::filesystem::canonical(path, ignored);
  return ignored ? std::filesystem::path() : file.parent_path();
}

}  // namespace trafo::os
