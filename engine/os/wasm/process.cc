#include <unistd.h>

#include <cstdlib>

#include "engine/os/process.h"

namespace trafo::os {

// A page is one process, and its files are its own.
int64_t process_id() noexcept {
  return ::getpid();
}

bool process_is_alive(int64_t id) noexcept {
  return id == process_id();
}

bool random_bytes(void* bytes, size_t count) noexcept {
  constexpr size_t kMostRandomBytes = 256;
  auto* at = static_cast<unsigned char*>(bytes);
  for (size_t left = count; left > 0;) {
    const size_t some = left < kMostRandomBytes ? left : kMostRandomBytes;
    if (::getentropy(at, some) != 0) return false;
    at += some;
    left -= some;
  }
  return true;
}

std::string host_name() {
  return "browser";
}

std::string user_folder() {
  return "/tmp";
}

std::string user_name() {
  return "user";
}

const char* trusted_environment(const char* name) noexcept {
  return std::getenv(name);
}

}  // namespace trafo::os
