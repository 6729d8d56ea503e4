#include "engine/data/long_text.h"

#include <algorithm>

#include "engine/core/status.h"

namespace trafo {

int64_t windows_of(const TokenizedCorpusOptions& options, int64_t source, int64_t target) noexcept {
  const int64_t length = options.max_length, stride = options.window_stride;
  if (stride == 0 || source != 1 || target <= length) return 1;
  return 1 + (target - length + stride - 1) / stride;
}

void cut_long_texts(const TokenizedCorpusOptions& options, PairBlock& block) {
  const auto count_of = [&](const PairTokens& pair) {
    return windows_of(options, std::ssize(pair.source), std::ssize(pair.target));
  };
  int64_t rows = 0;
  for (const PairTokens& pair : block.tokens) rows += count_of(pair);
  if (rows == std::ssize(block.tokens)) return;
  require(rows <= int64_t{UINT32_MAX}, ErrorCode::unsupported, "corpus", "long texts become ", rows,
          " windows, more than the limit of ", UINT32_MAX, ": raise window_stride");
  const auto length = static_cast<size_t>(options.max_length);
  const auto stride = static_cast<size_t>(options.window_stride);
  std::vector<PairTokens> tokens;
  std::vector<int64_t> ids;
  tokens.reserve(static_cast<size_t>(rows));
  ids.reserve(static_cast<size_t>(rows));
  for (size_t i = 0; i < block.tokens.size(); ++i) {
    const PairTokens& pair = block.tokens[i];
    const int64_t count = count_of(pair);
    ids.insert(ids.end(), static_cast<size_t>(count), block.ids[i]);
    if (count == 1) {
      tokens.push_back(pair);
      continue;
    }
    tokens.push_back({pair.source, pair.target.first(length)});
    // target[j] is x[j + 1], so that the first token of window k is target[k * stride - 1].
    for (size_t begin = length; begin < pair.target.size(); begin += stride) {
      const size_t context = length - stride + 1;
      tokens.push_back({pair.target.subspan(begin - context, context),
                        pair.target.subspan(begin, std::min(stride, pair.target.size() - begin))});
    }
  }
  block.tokens = std::move(tokens);
  block.ids = std::move(ids);
}

}  // namespace trafo
