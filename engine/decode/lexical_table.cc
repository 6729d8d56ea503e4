#include "engine/decode/lexical_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/core/argument_error.h"
#include "engine/core/limits.h"
#include "engine/core/progress.h"
#include "engine/core/status.h"

namespace trafo {
namespace {

constexpr const char* kLexicalTableOrigin = "shortlist";
constexpr int kIterations = 5;
constexpr float kLeastProbability = 1e-4f;
constexpr size_t kChunk = size_t{8} << 20;  // token pairs that are sorted together

void sort_unique(std::vector<uint64_t>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

bool is_too_long(const std::vector<int32_t>& source, const std::vector<int32_t>& target) {
  return std::max(source.size(), target.size()) > LexicalTable::kLongestSide;
}

// The token pairs that occur in a pair of sentences, sorted, with the source in the high half. The
// empty source word has the number `vocabulary`.
class PairTable {
 public:
  PairTable(std::span<const std::vector<int32_t>> sources,
            std::span<const std::vector<int32_t>> targets, int32_t vocabulary,
            const CancelToken* cancel)
      : begin_(static_cast<size_t>(vocabulary) + 2) {
    std::vector<uint64_t> chunk;
    for (size_t i = 0; i < sources.size(); ++i) {
      stop_if_cancelled(cancel, kLexicalTableOrigin);
      if (is_too_long(sources[i], targets[i])) continue;
      for (const int32_t target : targets[i]) {
        chunk.push_back(key(vocabulary, target));
        for (const int32_t source : sources[i]) chunk.push_back(key(source, target));
      }
      if (chunk.size() >= kChunk) merge(chunk);
    }
    merge(chunk);
    for (const uint64_t each : keys_) ++begin_[static_cast<size_t>(each >> 32) + 1];
    for (size_t i = 1; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
  }

  size_t size() const { return keys_.size(); }
  size_t begin(int32_t source) const { return begin_[static_cast<size_t>(source)]; }
  size_t end(int32_t source) const { return begin_[static_cast<size_t>(source) + 1]; }
  int32_t target(size_t index) const { return static_cast<int32_t>(keys_[index] & 0xffffffffu); }
  size_t find(int32_t source, int32_t target) const {
    const auto first = keys_.begin() + static_cast<std::ptrdiff_t>(begin(source));
    const auto last = keys_.begin() + static_cast<std::ptrdiff_t>(end(source));
    return static_cast<size_t>(std::lower_bound(first, last, key(source, target)) - keys_.begin());
  }

 private:
  static uint64_t key(int32_t source, int32_t target) {
    return static_cast<uint64_t>(source) << 32 | static_cast<uint32_t>(target);
  }
  void merge(std::vector<uint64_t>& chunk) {
    sort_unique(chunk);
    const auto middle = static_cast<std::ptrdiff_t>(keys_.size());
    keys_.insert(keys_.end(), chunk.begin(), chunk.end());
    std::inplace_merge(keys_.begin(), keys_.begin() + middle, keys_.end());
    keys_.erase(std::unique(keys_.begin(), keys_.end()), keys_.end());
    chunk.clear();
  }

  std::vector<uint64_t> keys_;
  std::vector<size_t> begin_;
};

void keep_best(std::vector<LexicalTable::Entry>& row, int64_t best) {
  std::stable_sort(row.begin(), row.end(), [](const auto& a, const auto& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.target < b.target;
  });
  if (static_cast<int64_t>(row.size()) > best) row.resize(static_cast<size_t>(best));
}

// A line without its end. Of a line above the limit, just enough to see that it is too long.
bool next_line(std::istream& in, std::string& line) {
  line.clear();
  std::streambuf* buffer = in.rdbuf();
  constexpr auto kEnd = std::char_traits<char>::eof();
  for (auto c = buffer->sbumpc(); c != kEnd; c = buffer->sbumpc()) {
    if (c == '\n') return true;
    line += static_cast<char>(c);
    if (line.size() > limits::kLineBytes) return true;
  }
  return !line.empty();
}

// Calls entry(target, source, probability) for every line that is left.
template <class Entry>
void for_each_entry(std::istream& in, const std::string& name, const Entry& entry) {
  std::string line;
  for (int64_t number = 1; next_line(in, line); ++number) {
    require(line.size() <= limits::kLineBytes, ErrorCode::invalid_argument, kLexicalTableOrigin,
            name, ":", number, ": the line is longer than ", limits::kLineBytes, " bytes");
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    const size_t first = line.find_first_of(" \t"), second = line.find_last_of(" \t");
    float probability = 0;
    const char* end = line.data() + line.size();
    const bool three = first != std::string::npos && second > first;
    const auto parsed = three ? std::from_chars(line.data() + second + 1, end, probability)
                              : std::from_chars_result{end, std::errc::invalid_argument};
    require(parsed.ec == std::errc() && parsed.ptr == end && probability >= 0 &&
                std::isfinite(probability),
            ErrorCode::invalid_argument, kLexicalTableOrigin, name, ":", number,
            " wants TARGET SOURCE PROBABILITY");
    const std::string_view text = line;
    entry(text.substr(0, first), text.substr(first + 1, second - first - 1), probability);
  }
  require(!in.bad(), ErrorCode::io, kLexicalTableOrigin, name, ": cannot be read");
}

}  // namespace

LexicalTable LexicalTable::learn(std::span<const std::vector<int32_t>> sources,
                                 std::span<const std::vector<int32_t>> targets, int32_t vocabulary,
                                 int64_t best, const CancelToken* cancel) {
  require(sources.size() == targets.size(), ErrorCode::invalid_argument, kLexicalTableOrigin,
          "there are ", sources.size(), " sources and ", targets.size(), " targets");
  require_argument(best >= 1, kLexicalTableOrigin, "best", " must be 1 or more, got ", best);
  bool found = sources.empty();
  for (size_t i = 0; i < sources.size() && !found; ++i)
    found = !is_too_long(sources[i], targets[i]);
  require(found, ErrorCode::invalid_argument, kLexicalTableOrigin,
          "each pair has a side of more than ", kLongestSide,
          " tokens, and such pairs are left out");
  WorkProgress progress(Work::learn_shortlist, (1 + kIterations) * std::ssize(sources));
  const PairTable pairs(sources, targets, vocabulary, cancel);
  progress.add(std::ssize(sources));
  std::vector<float> probability(pairs.size(), 1.0f);
  std::vector<double> count(pairs.size());
  std::vector<size_t> places;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    std::fill(count.begin(), count.end(), 0.0);
    for (size_t i = 0; i < sources.size(); ++i) {
      stop_if_cancelled(cancel, kLexicalTableOrigin);
      progress.add(1);
      if (is_too_long(sources[i], targets[i])) continue;
      for (const int32_t target : targets[i]) {
        places.assign(1, pairs.find(vocabulary, target));
        for (const int32_t source : sources[i]) places.push_back(pairs.find(source, target));
        double sum = 0;
        for (const size_t place : places) sum += static_cast<double>(probability[place]);
        if (sum <= 0) continue;
        for (const size_t place : places)
          count[place] += static_cast<double>(probability[place]) / sum;
      }
    }
    for (int32_t source = 0; source <= vocabulary; ++source) {
      double total = 0;
      for (size_t i = pairs.begin(source); i < pairs.end(source); ++i) total += count[i];
      for (size_t i = pairs.begin(source); i < pairs.end(source); ++i)
        probability[i] = total > 0 ? static_cast<float>(count[i] / total) : 0.0f;
    }
  }
  progress.finish();
  LexicalTable table(vocabulary);
  for (int32_t source = 0; source < vocabulary; ++source) {
    std::vector<Entry>& row = table.rows_[static_cast<size_t>(source)];
    for (size_t i = pairs.begin(source); i < pairs.end(source); ++i)
      if (probability[i] >= kLeastProbability) row.push_back({pairs.target(i), probability[i]});
    keep_best(row, best);
  }
  return table;
}

LexicalTable LexicalTable::read(std::istream& in, const std::string& name,
                                const Tokenizer& tokenizer) {
  // The first pass checks every line and the second keeps them, so that a table that is refused
  // takes no memory. A stream that cannot be read twice, such as a pipe, has one pass.
  const std::istream::pos_type start = in.tellg();
  if (start != std::istream::pos_type(-1)) {
    for_each_entry(in, name, [](std::string_view, std::string_view, float) {});
    in.seekg(start);
  }
  LexicalTable table(tokenizer.vocab_size());
  const auto number_of = [&](std::string_view subword) {
    const int32_t id = subword == "NULL" ? tokenizer.unk_id() : tokenizer.id(subword);
    return id == tokenizer.unk_id() ? -1 : id;
  };
  int64_t kept = 0;
  for_each_entry(in, name, [&](std::string_view target, std::string_view source, float share) {
    const int32_t from = number_of(source), to = number_of(target);
    if (from < 0 || to < 0) return;
    table.rows_[static_cast<size_t>(from)].push_back({to, share});
    ++kept;
  });
  require(kept > 0, ErrorCode::invalid_argument, kLexicalTableOrigin, name,
          ": no line has two subwords of the vocabulary");
  for (auto& row : table.rows_) keep_best(row, static_cast<int64_t>(row.size()));
  return table;
}

void LexicalTable::write(std::ostream& out, const Tokenizer& tokenizer) const {
  for (size_t source = 0; source < rows_.size(); ++source)
    for (const Entry& entry : rows_[source]) {
      char digits[32];
      const auto end = std::to_chars(digits, digits + sizeof digits, entry.probability).ptr;
      out << tokenizer.token(entry.target) << ' ' << tokenizer.token(static_cast<int32_t>(source))
          << ' ' << std::string_view(digits, static_cast<size_t>(end - digits)) << '\n';
    }
}

std::span<const LexicalTable::Entry> LexicalTable::of(int32_t source) const {
  if (source < 0 || static_cast<size_t>(source) >= rows_.size()) return {};
  return rows_[static_cast<size_t>(source)];
}

std::vector<int32_t> LexicalTable::candidates(std::span<const int32_t> sources, int64_t first,
                                              int64_t best) const {
  std::vector<int32_t> ids;
  const int64_t frequent = std::min<int64_t>(first, static_cast<int64_t>(rows_.size()));
  for (int64_t id = 0; id < frequent; ++id) ids.push_back(static_cast<int32_t>(id));
  for (const int32_t source : sources) {
    const auto row = of(source);
    for (size_t i = 0; i < row.size() && static_cast<int64_t>(i) < best; ++i)
      ids.push_back(row[i].target);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

int64_t LexicalTable::size() const {
  size_t size = 0;
  for (const auto& row : rows_) size += row.size();
  return static_cast<int64_t>(size);
}

}  // namespace trafo
