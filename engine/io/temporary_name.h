// Names of unfinished things: ".NAME.KIND-PID" for directories, ".NAME.tmp-PID-N" for files, N
// random. The leading dot hides them from listings, the process id tells a later process whether
// anybody is still at work on them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trafo {

struct TemporaryName {
  std::string name;  // of what it was to become
  std::string kind;  // "tmp", "old"
  pid_t pid = 0;
};

std::string temporary_directory_name(std::string_view name, std::string_view kind);
std::string temporary_file_name(std::string_view name);

// Canonical decimal without sign or leading zero, so that each number has one name; none for
// anything else.
std::optional<int64_t> parse_decimal(std::string_view text);

// None when `file_name` is not one of ours.
std::optional<TemporaryName> parse_temporary_name(std::string_view file_name);

}  // namespace trafo
