#include "launch/host_secret.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "commands/cli_error.h"
#include "engine/os/file.h"
#include "engine/os/names.h"
#include "engine/os/process.h"

namespace translate_train {
namespace {

namespace os = trafo::os;

constexpr size_t kBytes = 32;

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) os::close_file(descriptor_);
  }
  int fd() const { return descriptor_; }

 private:
  int descriptor_;
};

std::string secret_path() {
  return os::user_folder() + "/trafo-secret-" + os::user_name();
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  usage_error(
      fmt::format("{}: {}; it would hold the secret of jobs on this host, set "
                  "TRAFO_JOB_TOKEN=$(openssl rand -hex 32) instead",
                  path, why));
}

std::string random_digits() {
  std::array<unsigned char, kBytes> bytes{};
  if (!os::random_bytes(bytes.data(), bytes.size()))
    throw CliError(kFailed, "the system gives no random bytes");
  std::string digits;
  for (const unsigned char byte : bytes) digits += fmt::format("{:02x}", byte);
  return digits;
}

// Whole or not at all: two processes may do this at once, and the file of one of them stays.
void make_secret(const std::string& path) {
  const std::string digits = random_digits();
  const std::string part = fmt::format("{}.{}", path, random_digits());
  const File file(os::open_file(
      part, os::Open::write | os::Open::create | os::Open::exclusive | os::Open::no_follow,
      os::NewFile::for_owner));
  if (file.fd() < 0) refuse(path, fmt::format("cannot be made: {}", std::strerror(errno)));
  const bool written = os::write_some(file.fd(), digits.data(), digits.size()) ==
                       static_cast<ptrdiff_t>(digits.size());
  const bool named = written && (os::rename_new(part, path) == 0 || errno == EEXIST);
  const int error = errno;
  os::remove_file(part);
  if (!named) refuse(path, fmt::format("cannot be made: {}", std::strerror(error)));
}

}  // namespace

bool is_secret(std::string_view text) {
  return text.size() >= 2 * kBytes &&
         text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

std::string host_secret() {
  const std::string path = secret_path();
  for (int turn = 0;; ++turn) {
    const File file(os::open_file(path, os::Open::read | os::Open::no_follow | os::Open::no_wait));
    if (file.fd() < 0) {
      if (errno != ENOENT || turn > 0)
        refuse(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
      make_secret(path);
      continue;
    }
    os::FileStatus status;
    if (os::file_status(file.fd(), status) != 0 || status.kind != os::FileStatus::Kind::regular ||
        !status.is_own || !status.is_private)
      refuse(path, "is not a file that this user alone can read");
    std::string digits(2 * kBytes + 1, '\0');
    const ptrdiff_t count = os::read_some(file.fd(), digits.data(), digits.size());
    digits.resize(count < 0 ? 0 : static_cast<size_t>(count));
    if (!is_secret(digits)) refuse(path, "does not hold 64 hexadecimal digits");
    return digits;
  }
}

}  // namespace translate_train
