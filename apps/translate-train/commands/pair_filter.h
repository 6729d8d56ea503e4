// Which pairs of a translated text are worth training on.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

namespace translate_train {

// Why a line has no pair in the output; in this order in messages.
enum class Loss {
  empty,       // nothing on a side
  too_long,    // the model would take a part of the source only
  identical,   // the translation is the source
  control,     // a control character, of which no corpus has any
  ratio,       // one side is too much longer than the other
  repetition,  // the translation repeats itself
  score,       // the model gives it too low a score
  duplicate,   // the same pair was there before
};
inline constexpr std::array<const char*, 8> kLossNames = {
    "empty",           "too long",   "identical to the source", "with control characters",
    "by length ratio", "repetitive", "below --min-score",       "duplicates"};
using LossCounts = std::array<int64_t, kLossNames.size()>;

struct PairLimits {
  double length_ratio = 3;  // tokens of the longer side over tokens of the shorter; 0: any
  bool drop_identical = true;
  int64_t repeats = 4;  // 0: any
  double score = -std::numeric_limits<double>::infinity();
};

// A side of a pair: its text, and its tokens without eos.
struct Side {
  std::string_view text;
  std::span<const int32_t> tokens;
};

// The largest number of consecutive repetitions of an n-gram of up to 8 tokens: 3 for a b a b a b,
// 1 if nothing repeats, 0 without tokens.
int64_t longest_repetition(std::span<const int32_t> tokens);

// Whether `target`, with the model's score, is a translation worth having; `loss` says why not. A
// repetition that the source has as well is none.
bool passes(const Side& source, const Side& target, double score, const PairLimits& limits,
            Loss& loss);

// Remembers texts, as 64-bit hashes in a file without a name: the memory of the process does not
// grow with it.
class SeenTexts {
 public:
  // For up to `count` texts. The file is made beside `path`. Throws CliError if the disk is full.
  SeenTexts(const std::string& path, int64_t count);
  ~SeenTexts();
  SeenTexts(const SeenTexts&) = delete;
  SeenTexts& operator=(const SeenTexts&) = delete;
  bool contains(std::string_view text) const;
  // False: it was there before.
  bool insert(std::string_view text);

 private:
  uint64_t& entry(uint64_t key) const;
  uint64_t* table_ = nullptr;  // open addressing; 0: free
  size_t size_ = 0;            // a power of 2
};

}  // namespace translate_train
