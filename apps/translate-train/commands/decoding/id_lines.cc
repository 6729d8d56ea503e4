#include "commands/decoding/id_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <span>

#include "commands/cli_error.h"

namespace translate_train {

void IdRows::add(std::string_view line, std::string_view place) {
  std::vector<int32_t>& ids = rows_.emplace_back();
  constexpr std::string_view kSpace = " \t";
  for (size_t begin = line.find_first_not_of(kSpace); begin != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kSpace, begin), line.size());
    const std::string_view word = line.substr(begin, end - begin);
    int32_t id = 0;
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || rest != word.data() + word.size())
      usage_error(fmt::format("{}: --ids wants token ids between spaces, got '{}'", place,
                              word.substr(0, 64)));
    ids.push_back(id);
    begin = line.find_first_not_of(kSpace, end);
  }
}

void IdRows::clear() {
  rows_.clear();
}

std::vector<trafo_ids_view> IdRows::views() const {
  std::vector<trafo_ids_view> views;
  for (const std::vector<int32_t>& row : rows_) views.push_back({row.data(), row.size()});
  return views;
}

std::string id_line(const trafo_translations* translations, size_t index, size_t rank) {
  const int32_t* ids = nullptr;
  size_t count = 0;
  check(trafo_translations_get_tokens(translations, index, rank, &ids, &count));
  return fmt::format("{}", fmt::join(std::span(ids, count), " "));
}

}  // namespace translate_train
