#include "commands/pair_filter.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <functional>

#include "commands/cli_error.h"
#include "engine/os/memory.h"
#include "engine/os/names.h"

namespace translate_train {
namespace {

constexpr size_t kLongestGram = 8;

bool has_control_character(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t') || byte == 0x7f;
  });
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t") == std::string_view::npos;
}

// 0 is a free entry.
uint64_t key_of(std::string_view text) {
  return std::max<uint64_t>(std::hash<std::string_view>()(text), 1);
}

}  // namespace

int64_t longest_repetition(std::span<const int32_t> tokens) {
  size_t most = tokens.empty() ? 0 : 1;
  for (size_t n = 1; n <= kLongestGram && 2 * n <= tokens.size(); ++n) {
    size_t equal = 0;  // tokens up to here that stand n places earlier as well
    for (size_t i = n; i < tokens.size(); ++i) {
      equal = tokens[i] == tokens[i - n] ? equal + 1 : 0;
      most = std::max(most, equal / n + 1);
    }
  }
  return static_cast<int64_t>(most);
}

bool passes(const Side& source, const Side& target, double score, const PairLimits& limits,
            Loss& loss) {
  const auto fails = [&](Loss why) {
    loss = why;
    return false;
  };
  if (is_blank(source.text) || is_blank(target.text)) return fails(Loss::empty);
  if (limits.drop_identical && source.text == target.text) return fails(Loss::identical);
  if (has_control_character(target.text)) return fails(Loss::control);
  const size_t shorter = std::min(source.tokens.size(), target.tokens.size());
  const size_t longer = std::max(source.tokens.size(), target.tokens.size());
  if (limits.length_ratio > 0 &&
      static_cast<double>(longer) > limits.length_ratio * static_cast<double>(shorter))
    return fails(Loss::ratio);
  if (limits.repeats > 0) {
    const int64_t repeats = longest_repetition(target.tokens);
    if (repeats > limits.repeats && repeats > longest_repetition(source.tokens))
      return fails(Loss::repetition);
  }
  if (score < limits.score) return fails(Loss::score);
  return true;
}

SeenTexts::SeenTexts(const std::string& path, int64_t count)
    : size_(std::bit_ceil(static_cast<size_t>(std::max<int64_t>(count, 512)) * 3 / 2)) {
  void* const mapped =
      trafo::os::map_nameless_file(trafo::os::path_of(path + ".seen-"), size_ * sizeof(uint64_t));
  if (mapped == nullptr)
    throw CliError(kFailed, path + ": no room to find duplicates: " + std::strerror(errno));
  table_ = static_cast<uint64_t*>(mapped);
}

SeenTexts::~SeenTexts() {
  trafo::os::unmap_file_pages(table_, size_ * sizeof(uint64_t));
}

uint64_t& SeenTexts::entry(uint64_t key) const {
  size_t at = key & (size_ - 1);
  while (table_[at] != key && table_[at] != 0) at = (at + 1) & (size_ - 1);
  return table_[at];
}

bool SeenTexts::contains(std::string_view text) const {
  return entry(key_of(text)) != 0;
}

bool SeenTexts::insert(std::string_view text) {
  const uint64_t key = key_of(text);
  uint64_t& place = entry(key);
  if (place == key) return false;
  place = key;
  return true;
}

}  // namespace translate_train
