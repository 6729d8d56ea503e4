#include "engine/os/process.h"

// windows.h comes before it.
#include "engine/os/windows_calls.h"

#include <bcrypt.h>

#include <cstdlib>
#include <filesystem>

namespace trafo::os {

int64_t process_id() noexcept {
  return GetCurrentProcessId();
}

bool process_is_alive(int64_t id) noexcept {
  const HANDLE process = OpenProcess(SYNCHRONIZE, FALSE, static_cast<DWORD>(id));
  // A process of another user exists and may not be opened.
  if (process == nullptr) return GetLastError() == ERROR_ACCESS_DENIED;
  const bool alive = WaitForSingleObject(process, 0) == WAIT_TIMEOUT;
  CloseHandle(process);
  return alive;
}

bool random_bytes(void* bytes, size_t count) noexcept {
  return BCryptGenRandom(nullptr, static_cast<PUCHAR>(bytes), static_cast<ULONG>(count),
                         BCRYPT_USE_SYSTEM_PREFERRED_RNG) >= 0;
}

std::string host_name() {
  wchar_t name[256] = L"";
  DWORD size = sizeof name / sizeof name[0];
  return GetComputerNameExW(ComputerNameDnsHostname, name, &size) != 0 ? utf8_text(name) : "";
}

std::string user_folder() {
  std::error_code none;
  return std::filesystem::temp_directory_path(none).string();
}

std::string user_name() {
  wchar_t name[257] = L"";
  DWORD size = sizeof name / sizeof name[0];
  return GetUserNameW(name, &size) != 0 ? utf8_text(name) : "user";
}

const char* trusted_environment(const char* name) noexcept {
  return std::getenv(name);
}

}  // namespace trafo::os
