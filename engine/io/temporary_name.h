// Names of unfinished directories, ".NAME.KIND-PID", and files, ".NAME.tmp-PID-N" with a random N.
// The dot hides them from listings. The process id shows a later process whether their writer is
// still alive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trafo {

struct TemporaryName {
  std::string name;  // the final name
  std::string kind;  // "tmp", "old"
  int64_t pid = 0;
};

std::string temporary_directory_name(std::string_view name, std::string_view kind);
std::string temporary_file_name(std::string_view name);

// Parses a decimal number without sign and leading zero, so that each number has one name; none for
// any other text.
std::optional<int64_t> parse_decimal(std::string_view text);

// None if `file_name` is not such a name.
std::optional<TemporaryName> parse_temporary_name(std::string_view file_name);

}  // namespace trafo
