// Packed batches for decoding and scoring, made on the host, without padding.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/decode/options.h"
#include "engine/models/batch.h"
#include "engine/models/spec.h"

namespace trafo {

class Context;

// Splits `items` into groups of at most `budget` tokens; a longer item is alone. Longest items come
// first: items of similar length share a group, and if memory runs out, it does so at the start.
// tokens_of(item) >= 0.
template <class TokensOf>
std::vector<std::vector<int64_t>> group_by_length(std::vector<int64_t> items, int64_t budget,
                                                  TokensOf&& tokens_of) {
  std::stable_sort(items.begin(), items.end(),
                   [&](int64_t a, int64_t b) { return tokens_of(a) > tokens_of(b); });
  std::vector<std::vector<int64_t>> groups;
  int64_t tokens = 0;
  for (const int64_t item : items) {
    const int64_t more = tokens_of(item);
    if (groups.empty() || tokens + more > budget) {
      groups.emplace_back();
      tokens = 0;
    }
    groups.back().push_back(item);
    tokens += more;
  }
  return groups;
}

// Threads of the host for work on lines of text beside a model. On the CPU the model's own threads
// have the processors.
int threads_for_lines(const Context& context);

// The argument of Model::start_decoding: the source side (encoder_decoder), or only the number of
// sentences (decoder_lm).
Batch pack_sources(Context& context, const ModelSpec& spec,
                   std::span<const std::vector<int32_t>* const> sources);

// The argument of Model::states: the sentences as source sides, or as what a decoder_lm or an
// encoder reads. A sentence has one token at least. `types`: the token types of each, for an
// encoder that has them; empty: all are 0.
Batch pack_texts(Context& context, const ModelSpec& spec,
                 std::span<const std::vector<int32_t>* const> texts,
                 std::span<const std::vector<int32_t>> types = {});

// The values of a floating-point tensor of any dtype, copied to the host.
std::vector<double> to_doubles(Context& context, const Tensor& tensor);

struct SentencePair {
  std::vector<int32_t> source, target;  // both end with eos
};

// A batch for scoring. It has no weights; a decoder_lm's labels of the source are kIgnoreLabel.
Batch pack_pairs(Context& context, const ModelSpec& spec, const SpecialTokens& tokens,
                 std::span<const SentencePair* const> pairs);

}  // namespace trafo
