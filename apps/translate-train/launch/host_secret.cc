#include "launch/host_secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "commands/cli_error.h"

namespace translate_train {
namespace {

constexpr size_t kBytes = 32;

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int fd() const { return descriptor_; }

 private:
  int descriptor_;
};

std::string secret_path() {
  const char* folder = std::getenv("XDG_RUNTIME_DIR");
  struct stat status {};
  const bool usable = folder != nullptr && folder[0] == '/' && stat(folder, &status) == 0 &&
                      S_ISDIR(status.st_mode);
  return fmt::format("{}/trafo-secret-{}", usable ? folder : "/tmp", geteuid());
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  usage_error(
      fmt::format("{}: {}; it would hold the secret of jobs on this host, set "
                  "TRAFO_JOB_TOKEN=$(openssl rand -hex 32) instead",
                  path, why));
}

std::string random_digits() {
  std::array<unsigned char, kBytes> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw CliError(kFailed, "the system gives no random bytes");
  std::string digits;
  for (const unsigned char byte : bytes) digits += fmt::format("{:02x}", byte);
  return digits;
}

// Whole or not at all: two processes may do this at once, and the file of one of them stays.
void make_secret(const std::string& path) {
  const std::string digits = random_digits();
  const std::string part = fmt::format("{}.{}", path, random_digits());
  const File file(
      open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (file.fd() < 0) refuse(path, fmt::format("cannot be made: {}", std::strerror(errno)));
  const bool written =
      write(file.fd(), digits.data(), digits.size()) == static_cast<ssize_t>(digits.size());
  const bool linked = written && (link(part.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int error = errno;
  unlink(part.c_str());
  if (!linked) refuse(path, fmt::format("cannot be made: {}", std::strerror(error)));
}

}  // namespace

bool is_secret(std::string_view text) {
  return text.size() >= 2 * kBytes &&
         text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

std::string host_secret() {
  const std::string path = secret_path();
  for (int turn = 0;; ++turn) {
    const File file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (file.fd() < 0) {
      if (errno != ENOENT || turn > 0)
        refuse(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
      make_secret(path);
      continue;
    }
    struct stat status {};
    if (fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
        (status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
      refuse(path, "is not a file that this user alone can read");
    std::string digits(2 * kBytes + 1, '\0');
    const ssize_t count = read(file.fd(), digits.data(), digits.size());
    digits.resize(count < 0 ? 0 : static_cast<size_t>(count));
    if (!is_secret(digits)) refuse(path, "does not hold 64 hexadecimal digits");
    return digits;
  }
}

}  // namespace translate_train
