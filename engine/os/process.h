// The process, its host and its environment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trafo::os {

int64_t process_id() noexcept;
inline constexpr int64_t kLargestProcessId = 0x7FFFFFFF;
bool process_is_alive(int64_t id) noexcept;  // of any user

// Random bytes that nobody can guess. False: the system gives none.
bool random_bytes(void* bytes, size_t count) noexcept;

std::string host_name();
// A folder for files that last until the host starts anew: $XDG_RUNTIME_DIR or /tmp; on Windows,
// the user's folder for temporary files. And a name or number of the user of the process.
std::string user_folder();
std::string user_name();
// A variable of the environment; null if it is not set, or if the program has more rights than its
// user, who sets it.
const char* trusted_environment(const char* name) noexcept;

}  // namespace trafo::os
