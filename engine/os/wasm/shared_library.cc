#include "engine/os/shared_library.h"

namespace trafo::os {

void* open_library(const std::string& path, std::string& why) {
  why = path + ": WebAssembly loads no libraries";
  return nullptr;
}

void* find_symbol(void*, const char*) noexcept {
  return nullptr;
}

std::filesystem::path own_folder() {
  return {};
}

}  // namespace trafo::os
