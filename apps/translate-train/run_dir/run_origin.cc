#include "run_dir/run_origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "commands/cli_error.h"
#include "engine/os/names.h"
#include "report/tfevents.h"
#include "run_dir/run_files.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = "# Written by translate-train. Checksums: settings ";
constexpr std::string_view kNone = "none";
// The beginning of metrics.jsonl (RunRecords).
constexpr std::string_view kFirstRecord = "{\"type\":\"run\",";

std::string content_of(const std::string& path) {
  std::ifstream in = open_run_file(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string checksum(std::string_view bytes) {
  return fmt::format("{:08x}", crc32c(bytes));
}

// The checksum of the vocabulary in a config.yml that is as a run has written it: "..., FILE SUM".
// No value: it is not.
std::optional<std::string> marked_vocabulary(const std::string& run) {
  const std::string text = content_of(run + "/config.yml");
  const size_t end = text.find('\n');
  if (!text.starts_with(kMark) || end == std::string::npos) return std::nullopt;
  const std::string_view line(text.data(), end), settings = std::string_view(text).substr(end + 1);
  const size_t name = line.find(", ", kMark.size()), sum = line.rfind(' ');
  if (name == std::string_view::npos || sum < name + 2 ||
      line.substr(kMark.size(), name - kMark.size()) != checksum(settings))
    return std::nullopt;
  return std::string(line.substr(sum + 1));
}

[[noreturn]] void refuse(const std::string& path, const std::string& hint) {
  usage_error(
      fmt::format("{}: a run would overwrite it, and no run has written it as it is: move "
                  "it away{}, or give another --model",
                  path, hint));
}

}  // namespace

std::string config_with_checksums(const std::string& settings, const std::string& run,
                                  bool owns_vocabulary) {
  const std::string vocabulary = vocabulary_in(run);
  return fmt::format("{}{}, {} {}\n{}", kMark, checksum(settings),
                     trafo::os::path_of(vocabulary).filename().string(),
                     owns_vocabulary ? checksum(content_of(vocabulary)) : std::string(kNone),
                     settings);
}

bool owns_vocabulary(const std::string& run) {
  const std::optional<std::string> marked = marked_vocabulary(run);
  return marked && *marked != kNone && *marked == checksum(content_of(vocabulary_in(run)));
}

void refuse_to_overwrite(const std::string& run) {
  const std::string config = run + "/config.yml", metrics = run + "/metrics.jsonl";
  if (fs::exists(trafo::os::path_of(config)) && !marked_vocabulary(run))
    refuse(config, " (--config reads settings from any file)");
  // Lines may be cut off where a process was killed.
  std::ifstream in = open_run_file(metrics);
  std::string begin(kFirstRecord.size(), '\0');
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  if (!kFirstRecord.starts_with(begin)) refuse(metrics, "");
}

bool same_content(const std::string& a, const std::string& b) {
  std::ifstream first = open_run_file(a), second = open_run_file(b);
  using Bytes = std::istreambuf_iterator<char>;
  return first && second && std::equal(Bytes(first), Bytes(), Bytes(second), Bytes());
}

}  // namespace translate_train
