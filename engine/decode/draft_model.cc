#include "engine/decode/draft_model.h"

#include <algorithm>
#include <utility>

#include "engine/backend/cpu/packed_weights.h"
#include "engine/decode/batch_decoder.h"

namespace trafo {
// The text's own row, or the one with the longest beginning of it; -1: none has its first token.
int32_t DraftModel::row_of(const Text& text) const {
  int32_t best = -1;
  int64_t most = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].number == text.number) return static_cast<int32_t>(i);
    const int64_t common = common_tokens(text.tokens, rows_[i].tokens);
    if (common <= most) continue;
    most = common;
    best = static_cast<int32_t>(i);
  }
  return best;
}

std::vector<std::vector<int32_t>> DraftModel::begin(std::span<const Text> texts, int64_t kept) {
  std::vector<int32_t> parents;
  std::vector<Row> rows;
  std::vector<std::vector<int32_t>> unread;
  int64_t longest = 0;
  for (const Text& text : texts) {
    parents.push_back(row_of(text));
    const std::span<const int32_t> before = text.tokens.first(text.tokens.size() - 1);
    const int64_t read =
        parents.back() < 0
            ? 0
            : common_tokens(before, rows_[static_cast<size_t>(parents.back())].tokens);
    rows.push_back({text.number, {before.begin(), before.begin() + read}});
    unread.emplace_back(text.tokens.begin() + read, text.tokens.end());
    longest = std::max<int64_t>(longest, std::ssize(text.tokens));
  }
  std::vector<int32_t> others;
  for (size_t i = 0; i < rows_.size(); ++i)
    if (std::ranges::find(texts, rows_[i].number, &Text::number) == texts.end())
      others.push_back(static_cast<int32_t>(i));
  const auto first = std::max<int64_t>(0, std::ssize(others) - kept);
  for (const int32_t other : std::span(others).subspan(static_cast<size_t>(first))) {
    parents.push_back(other);
    rows.push_back(std::move(rows_[static_cast<size_t>(other)]));
  }
  rows_ = std::move(rows);
  if (state_.rows() == 0) {
    Batch batch;
    batch.sentences = std::ssize(rows_);
    state_ =
        model_.start_decoding(context_, batch, std::min(max_positions(), longest + kFirstCapacity));
    state_.indices_validated = true;  // the texts are those of a generator
  } else {
    reorder(context_, state_, parents);
  }
  for (size_t i = 0; i < rows_.size(); ++i)
    state_.cache.truncate(static_cast<int64_t>(i), std::ssize(rows_[i].tokens));
  return unread;
}

Tensor DraftModel::read(std::span<const std::vector<int32_t>> tokens) {
  std::vector<std::vector<int32_t>> of_rows(tokens.begin(), tokens.end());
  of_rows.resize(rows_.size());
  int64_t longest = 0;
  for (size_t i = 0; i < tokens.size(); ++i)
    longest = std::max<int64_t>(longest, std::ssize(rows_[i].tokens) + std::ssize(tokens[i]));
  if (const int64_t capacity = state_.cache.capacity(); longest > capacity)
    state_.cache.grow(context_, std::min(max_positions(), std::max(2 * capacity, longest)));
  const PackedWeightsScope scope(context_.backend(), weights_);
  Tensor logits = model_.prefill(context_, state_, of_rows);
  for (size_t i = 0; i < tokens.size(); ++i)
    rows_[i].tokens.insert(rows_[i].tokens.end(), tokens[i].begin(), tokens[i].end());
  return logits;
}

void DraftModel::forget() {
  rows_.clear();
  state_ = {};
}

}  // namespace trafo
