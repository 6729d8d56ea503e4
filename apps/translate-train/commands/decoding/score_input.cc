#include "commands/decoding/score_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "commands/cli_error.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

std::vector<std::string_view> split(std::string_view line, std::string_view by) {
  std::vector<std::string_view> fields;
  for (size_t at; (at = line.find(by)) != std::string_view::npos;
       line.remove_prefix(at + by.size()))
    fields.push_back(line.substr(0, at));
  fields.push_back(line);
  return fields;
}

struct ScoredSide {
  std::vector<std::string> lines;
  std::vector<bool> cut;
};

ScoredSide read_side(const std::string& path) {
  LineReader reader(path, true);
  ScoredSide side;
  for (std::string line; reader.next(line);) {
    side.lines.push_back(line);
    side.cut.push_back(reader.cut_from() > 0);
  }
  return side;
}

void check_not_empty(const ScoreInput& input, const std::string& name) {
  if (input.size() == 0) usage_error(name + ": is empty");
}

}  // namespace

ScoreInput read_pairs(const std::string& source, const std::string& target) {
  ScoredSide s = read_side(source), t = read_side(target);
  check_same_length(source, s.lines.size(), target, t.lines.size());
  ScoreInput input{std::move(s.lines), std::move(t.lines), std::move(s.cut), {}};
  for (size_t i = 0; i < input.size(); ++i)
    if (t.cut[i]) input.cut[i] = true;
  return input;
}

ScoreInput read_tsv_pairs(const std::string& path, int64_t source, int64_t target, bool strict) {
  LineReader reader(path, true);
  ScoreInput input;
  const auto wanted = static_cast<size_t>(std::max(source, target));
  for (std::string line; reader.next(line);) {
    const std::vector<std::string_view> columns = split(line, "\t");
    const std::string place = fmt::format("{}:{}", reader.name(), reader.line_number());
    if (strict && columns.size() > wanted)
      usage_error(
          fmt::format("{} wants SOURCE<tab>TARGET, has {} columns: --tsv-columns chooses "
                      "two of them",
                      place, columns.size()));
    const bool cut = reader.cut_from() > 0;
    if (columns.size() < wanted && !cut)
      usage_error(strict ? fmt::format("{} wants SOURCE<tab>TARGET", place)
                         : fmt::format("{} has {} columns, --tsv-columns wants column {}", place,
                                       columns.size(), wanted));
    const auto column = [&](int64_t number) {
      const auto at = static_cast<size_t>(number - 1);
      return at < columns.size() ? std::string(columns[at]) : std::string();
    };
    input.source.push_back(column(source));
    input.target.push_back(column(target));
    input.cut.push_back(cut);
  }
  check_not_empty(input, reader.name());
  return input;
}

ScoreInput read_n_best(const std::string& source, const std::string& list) {
  constexpr std::string_view kBar = " ||| ";
  const ScoredSide sources = read_side(source);
  LineReader reader(list, true);
  ScoreInput input;
  for (std::string line; reader.next(line);) {
    const std::vector<std::string_view> fields = split(line, kBar);
    size_t number = 0;
    const auto [end, error] =
        std::from_chars(fields[0].data(), fields[0].data() + fields[0].size(), number);
    if (fields.size() < 2 || error != std::errc() || end != fields[0].data() + fields[0].size())
      usage_error(fmt::format("{}:{} wants 'LINE ||| TEXT', and features behind another ' ||| '",
                              reader.name(), reader.line_number()));
    if (number >= sources.lines.size())
      usage_error(fmt::format("{}:{} is of line {}, {} has lines 0 to {}", reader.name(),
                              reader.line_number(), number, source,
                              static_cast<int64_t>(sources.lines.size()) - 1));
    input.source.push_back(sources.lines[number]);
    input.target.emplace_back(fields[1]);
    input.cut.push_back(reader.cut_from() > 0 || sources.cut[number]);
    ScoreInput::Listed listed{fmt::format("{}{}{}", fields[0], kBar, fields[1]), "", ""};
    if (fields.size() > 2) listed.features = fields[2];
    for (size_t i = 3; i < fields.size(); ++i) listed.rest += fmt::format("{}{}", kBar, fields[i]);
    input.listed.push_back(std::move(listed));
  }
  check_not_empty(input, reader.name());
  return input;
}

ScoreInput read_text(const std::string& path) {
  ScoredSide side = read_side(path);
  ScoreInput input{{}, std::move(side.lines), std::move(side.cut), {}};
  check_not_empty(input, path);
  return input;
}

}  // namespace translate_train
