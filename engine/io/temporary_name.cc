#include "engine/io/temporary_name.h"

#include <atomic>
#include <charconv>
#include <cstdint>

#include "engine/core/status.h"
#include "engine/os/process.h"

namespace trafo {

std::optional<int64_t> parse_decimal(std::string_view text) {
  int64_t value = 0;
  if (text.empty() || text[0] == '-' || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string temporary_directory_name(std::string_view name, std::string_view kind) {
  return concat(".", name, ".", kind, "-", os::process_id());
}

std::string temporary_file_name(std::string_view name) {
  uint64_t number = 0;
  if (!os::random_bytes(&number, sizeof number)) {  // interrupted: unlikely, harmless
    static std::atomic<uint64_t> counter{0};
    number = counter.fetch_add(1);
  }
  return concat(temporary_directory_name(name, "tmp"), "-", number >> 1);
}

std::optional<TemporaryName> parse_temporary_name(std::string_view file_name) {
  const size_t dot = file_name.rfind('.');
  if (!file_name.starts_with('.') || dot < 2) return std::nullopt;
  std::string_view rest = file_name.substr(dot + 1);
  TemporaryName result;
  result.name = file_name.substr(1, dot - 1);
  for (const std::string_view kind : {"tmp", "old"}) {
    if (!rest.starts_with(kind) || rest.substr(kind.size(), 1) != "-") continue;
    result.kind = kind;
    rest.remove_prefix(kind.size() + 1);
    const size_t dash = rest.find('-');
    if (dash != std::string_view::npos && !parse_decimal(rest.substr(dash + 1)))
      return std::nullopt;
    const auto pid = parse_decimal(rest.substr(0, dash));
    if (!pid || *pid == 0 || *pid > os::kLargestProcessId) return std::nullopt;
    result.pid = *pid;
    return result;
  }
  return std::nullopt;
}

}  // namespace trafo
