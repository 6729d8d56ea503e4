#include "engine/metrics/ter.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "engine/metrics/bleu_tokenizer.h"
#include "engine/metrics/lowercase.h"

namespace trafo {
namespace {

using Words = std::vector<int32_t>;  // numbers of words

// Limits of Tercom, and the number of candidates after which sacreBLEU ends the search.
constexpr int kLongestShift = 10, kFarthestShift = 50, kBeam = 25, kMostCandidates = 1000;

enum class Edit : uint8_t { none, substitute, insert, remove, undefined };

struct Cell {
  int32_t cost;
  Edit edit;
};
constexpr int32_t kUnreached = 1 << 29;

// Edit distances to one reference within a beam around the diagonal, with the edits of the way.
// Rows of a hypothesis stay valid for the next one as far as both begin with the same words and
// have the same length; shifts do not change the length.
class BeamDistance {
 public:
  explicit BeamDistance(const Words& reference)
      : reference_(reference), width_(reference.size() + 1), cells_(width_) {
    for (size_t j = 0; j < width_; ++j) cells_[j] = {static_cast<int32_t>(j), Edit::insert};
  }

  int32_t to(const Words& hypothesis) {
    const size_t known =
        static_cast<size_t>(std::ranges::mismatch(hypothesis, previous_).in1 - hypothesis.begin());
    const size_t rows = hypothesis.size();
    const size_t first = rows == previous_.size() ? std::min(known, rows) : 0;
    cells_.resize((rows + 1) * width_);
    for (size_t i = first + 1; i <= rows; ++i) fill(hypothesis, i);
    previous_ = hypothesis;
    return cells_.back().cost;
  }

  // The edits that make the reference of the last hypothesis, from the front.
  std::vector<Edit> trace() const {
    std::vector<Edit> edits;
    for (size_t i = previous_.size(), j = width_ - 1; i > 0 || j > 0;) {
      const Edit edit = cells_[i * width_ + j].edit;
      edits.push_back(edit);
      if (edit != Edit::insert) --i;
      if (edit != Edit::remove) --j;
    }
    std::ranges::reverse(edits);
    return edits;
  }

 private:
  void fill(const Words& hypothesis, size_t i) {
    Cell* const row = cells_.data() + i * width_;
    const Cell* const above = row - width_;
    std::fill(row, row + width_, Cell{kUnreached, Edit::undefined});
    const auto columns = static_cast<int64_t>(width_);
    const double ratio =
        static_cast<double>(reference_.size()) / static_cast<double>(hypothesis.size());
    const auto beam =
        kBeam < ratio / 2 ? static_cast<int64_t>(std::ceil(ratio / 2 + kBeam)) : int64_t{kBeam};
    const auto diagonal = static_cast<int64_t>(std::floor(static_cast<double>(i) * ratio));
    const int64_t last = std::min(columns, diagonal + beam);
    for (int64_t j = std::max<int64_t>(0, diagonal - beam); j < last; ++j) {
      Cell& cell = row[j];
      if (j > 0) {
        const bool same = hypothesis[i - 1] == reference_[static_cast<size_t>(j) - 1];
        improve(cell, above[j - 1].cost + (same ? 0 : 1), same ? Edit::none : Edit::substitute);
      }
      improve(cell, above[j].cost + 1, Edit::remove);
      if (j > 0) improve(cell, row[j - 1].cost + 1, Edit::insert);
    }
  }

  // The first of equal edits stays: Tercom's order.
  static void improve(Cell& cell, int32_t cost, Edit edit) {
    if (cost < cell.cost) cell = {cost, edit};
  }

  const Words& reference_;
  size_t width_;
  std::vector<Cell> cells_;  // rows by hypothesis word
  Words previous_;
};

struct Alignment {
  std::vector<int> hypothesis_of;  // the position that a reference word belongs to; -1: the front
  std::vector<char> reference_wrong, hypothesis_wrong;
};

Alignment align(const std::vector<Edit>& trace) {
  Alignment result;
  int hypothesis = -1;
  for (const Edit edit : trace) {
    const char wrong = edit == Edit::none ? 0 : 1;
    if (edit != Edit::insert) {
      ++hypothesis;
      result.hypothesis_wrong.push_back(wrong);
    }
    if (edit != Edit::remove) {
      result.hypothesis_of.push_back(hypothesis);
      result.reference_wrong.push_back(wrong);
    }
  }
  return result;
}

struct Range {
  int begin, length;
};

Words shifted(const Words& words, Range range, int target) {
  const auto at = [&](int i) { return words.begin() + i; };
  const int end = range.begin + range.length;
  Words result(words);
  if (target < range.begin)
    std::rotate_copy(at(target), at(range.begin), at(end), result.begin() + target);
  else if (target > end)
    std::rotate_copy(at(range.begin), at(end), at(target), result.begin() + range.begin);
  else  // into itself: as many words after it as lie between its begin and the target
    std::rotate_copy(at(range.begin), at(end),
                     at(std::min(range.length + target, static_cast<int>(words.size()))),
                     result.begin() + range.begin);
  return result;
}

struct Candidate {
  int32_t gain = 0;
  int length = 0, begin = 0, target = 0;
  Words words;

  // Tercom's order: the greatest gain, the longest, the first, the first target.
  auto rank() const { return std::array{gain, length, -begin, -target}; }
};

bool any(const std::vector<char>& flags, int begin, int length) {
  return std::any_of(flags.begin() + begin, flags.begin() + begin + length,
                     [](char flag) { return flag != 0; });
}

// One step of the greedy search for shifts.
class ShiftSearch {
 public:
  ShiftSearch(const Words& words, const Words& reference, BeamDistance& distance, int& checked)
      : words_(words),
        reference_(reference),
        distance_(distance),
        checked_(checked),
        before_(distance.to(words)),
        alignment_(align(distance.trace())) {}

  // The best shift; its words are empty if no shift helps.
  Candidate best() {
    const int words = static_cast<int>(words_.size()),
              references = static_cast<int>(reference_.size());
    for (int begin = 0; begin < words; ++begin)
      for (int to = 0; to < references; ++to) {
        if (std::abs(to - begin) > kFarthestShift) continue;
        for (int length = 0; length < kLongestShift && begin + length < words &&
                             to + length < references &&
                             words_[static_cast<size_t>(begin + length)] ==
                                 reference_[static_cast<size_t>(to + length)];) {
          ++length;
          if (!may_shift({begin, length}, to)) continue;
          try_targets({begin, length}, to);
          if (checked_ >= kMostCandidates) return std::move(best_);
        }
      }
    return std::move(best_);
  }

 private:
  // Both the words and their place in the reference must be wrong, and not aligned to each other.
  bool may_shift(Range range, int to) const {
    const int aligned = alignment_.hypothesis_of[static_cast<size_t>(to)];
    return any(alignment_.hypothesis_wrong, range.begin, range.length) &&
           any(alignment_.reference_wrong, to, range.length) &&
           !(range.begin <= aligned && aligned < range.begin + range.length);
  }

  void try_targets(Range range, int to) {
    int previous = -1;
    for (int offset = -1; offset < range.length; ++offset) {
      const int place = to + offset;
      if (place >= static_cast<int>(reference_.size())) return;
      const int target = place == -1 ? 0 : alignment_.hypothesis_of[static_cast<size_t>(place)] + 1;
      if (target == previous) continue;
      previous = target;
      Candidate candidate{0, range.length, range.begin, target, shifted(words_, range, target)};
      candidate.gain = before_ - distance_.to(candidate.words);
      ++checked_;
      if (best_.words.empty() || candidate.rank() > best_.rank()) best_ = std::move(candidate);
    }
  }

  const Words& words_;
  const Words& reference_;
  BeamDistance& distance_;
  int& checked_;
  int32_t before_;
  Alignment alignment_;
  Candidate best_;
};

int32_t edits_between(Words hypothesis, const Words& reference) {
  if (reference.empty()) return static_cast<int32_t>(hypothesis.size());
  BeamDistance distance(reference);
  int32_t shifts = 0;
  for (int checked = 0;;) {
    Candidate best = ShiftSearch(hypothesis, reference, distance, checked).best();
    if (checked >= kMostCandidates || best.gain <= 0) break;
    ++shifts;
    hypothesis = std::move(best.words);
  }
  return shifts + distance.to(hypothesis);
}

TerCounts count_segment(const std::string& hypothesis, ReferenceSets references, size_t segment) {
  std::unordered_map<std::string, int32_t> numbers;
  const auto words = [&](const std::string& line) {
    Words result;
    for (std::string& word : split_words(lowercase_utf8(line)))
      result.push_back(
          numbers.try_emplace(std::move(word), static_cast<int32_t>(numbers.size())).first->second);
    return result;
  };
  const Words translated = words(hypothesis);
  int32_t fewest = INT32_MAX;
  double lengths = 0;
  for (const auto& set : references) {
    const Words reference = words(set[segment]);
    lengths += static_cast<double>(reference.size());
    fewest = std::min(fewest, edits_between(translated, reference));
  }
  return {static_cast<double>(fewest), lengths / static_cast<double>(references.size())};
}

}  // namespace

TerCounts& TerCounts::operator+=(const TerCounts& other) {
  edits += other.edits;
  reference_length += other.reference_length;
  return *this;
}

TerScore corpus_ter(std::span<const std::string> hypotheses, ReferenceSets references,
                    int threads) {
  check_segments(hypotheses, references, "TER");
  TerScore ter;
  static_cast<TerCounts&>(ter) = sum_of_segments<TerCounts>(
      hypotheses, references, threads, [](std::span<const std::string> part, ReferenceSets sets) {
        std::vector<TerCounts> counts;
        for (size_t i = 0; i < part.size(); ++i) counts.push_back(count_segment(part[i], sets, i));
        return counts;
      });
  ter.score = ter.reference_length > 0 ? 100 * ter.edits / ter.reference_length
              : ter.edits > 0          ? 100
                                       : 0;
  return ter;
}

double validation_ter(std::span<const std::string> hypotheses, ReferenceSets references,
                      int threads) {
  return corpus_ter(hypotheses, references, threads).score;
}

}  // namespace trafo
