#include "engine/data/read_only_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "engine/core/open_error.h"
#include "engine/core/status.h"
#include "engine/os/names.h"

namespace trafo {
namespace {

constexpr std::string_view kReadOnlyFileOrigin = "corpus";

}  // namespace

ReadOnlyFile::~ReadOnlyFile() {
  if (descriptor_ >= 0) os::close_file(descriptor_);
}

void ReadOnlyFile::open_path(const std::string& path) {
  name_ = path;
  descriptor_ = os::open_file(path, os::Open::read);
  if (descriptor_ < 0) fail_to_open(kReadOnlyFileOrigin, path, errno);
  // Taken before the content is indexed: the file must not change after this.
  watched_ = os::file_status(descriptor_, known_) == 0;
}

int ReadOnlyFile::make_nameless(const std::string& directory, const std::string& for_name) {
  namespace fs = std::filesystem;
  name_ = for_name;
  std::error_code error;
  const fs::path folder =
      directory.empty() ? fs::temp_directory_path(error) : os::path_of(directory);
  fs::create_directories(folder, error);
  descriptor_ = os::open_nameless_file(folder / "unpacked-");
  require(descriptor_ >= 0, ErrorCode::io, kReadOnlyFileOrigin, for_name, " cannot be unpacked in ",
          folder.string(), ": ", std::strerror(errno));
  return descriptor_;
}

void ReadOnlyFile::read(uint64_t offset, size_t length, std::string& out) const {
  out.resize(length);
  for (size_t done = 0; done < length;) {
    const ptrdiff_t got = os::read_at(descriptor_, out.data() + done, length - done, offset + done);
    require(got >= 0, ErrorCode::io, kReadOnlyFileOrigin, name_,
            ": cannot be read: ", std::strerror(errno));
    if (got == 0) fail_changed();
    done += static_cast<size_t>(got);
  }
}

void ReadOnlyFile::fail_changed() const {
  fail(ErrorCode::io, kReadOnlyFileOrigin, name_,
       ": has changed while it was trained on; stop and start again to read it anew");
}

void ReadOnlyFile::check_unchanged() const {
  os::FileStatus now;
  if (!watched_ || os::file_status(descriptor_, now) != 0) return;
  if (now.size != known_.size || now.modified_seconds != known_.modified_seconds ||
      now.modified_nanoseconds != known_.modified_nanoseconds)
    fail_changed();
}

}  // namespace trafo
