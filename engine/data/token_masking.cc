#include "engine/data/token_masking.h"

#include <algorithm>
#include <cmath>

#include "engine/core/numeric/shuffle.h"

namespace trafo {
namespace {

constexpr uint64_t kParts = 10, kMasked = 8, kRandom = 1;  // of ten tokens

std::vector<size_t> maskable_places(const TokenMasking& masking, std::span<const int32_t> text) {
  std::vector<size_t> places;
  for (size_t i = 0; i < text.size(); ++i)
    if (std::ranges::find(masking.kept, text[i]) == masking.kept.end()) places.push_back(i);
  return places;
}

int64_t masked_of(const TokenMasking& masking, size_t tokens) {
  if (tokens == 0) return 0;
  return std::clamp<int64_t>(std::llround(masking.probability * static_cast<double>(tokens)), 1,
                             static_cast<int64_t>(tokens));
}

}  // namespace

int64_t masked_count(const TokenMasking& masking, std::span<const int32_t> text) {
  return masked_of(masking, maskable_places(masking, text).size());
}

void mask_tokens(const TokenMasking& masking, uint64_t seed, uint64_t epoch,
                 std::span<int32_t> text, std::span<float> weights) {
  std::ranges::fill(weights, 0.0f);
  std::vector<size_t> places = maskable_places(masking, text);
  const int64_t count = masked_of(masking, places.size());
  ShuffleRng rng(seed, epoch);
  rng.shuffle(places);
  for (int64_t i = 0; i < count; ++i) {
    const size_t place = places[static_cast<size_t>(i)];
    weights[place] = 1;
    const uint64_t part = rng.below(kParts);
    if (part < kMasked)
      text[place] = masking.mask;
    else if (part < kMasked + kRandom)
      text[place] = static_cast<int32_t>(rng.below(static_cast<uint64_t>(masking.vocabulary)));
  }
}

}  // namespace trafo
