#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "engine/os/posix_calls.h"
#include "engine/os/process.h"

namespace trafo::os {

int64_t process_id() noexcept {
  return ::getpid();
}

bool process_is_alive(int64_t id) noexcept {
  // EPERM: the process exists and belongs to another user.
  return ::kill(static_cast<pid_t>(id), 0) == 0 || errno != ESRCH;
}

bool random_bytes(void* bytes, size_t count) noexcept {
  return fill_randomly(bytes, count);
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string user_folder() {
  const char* folder = std::getenv("XDG_RUNTIME_DIR");
  struct stat status {};
  const bool usable = folder != nullptr && folder[0] == '/' && ::stat(folder, &status) == 0 &&
                      S_ISDIR(status.st_mode);
  return usable ? folder : "/tmp";
}

std::string user_name() {
  return std::to_string(::geteuid());
}

const char* trusted_environment(const char* name) noexcept {
  return secure_variable(name);
}

}  // namespace trafo::os
