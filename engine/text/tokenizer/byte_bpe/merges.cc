#include "engine/text/tokenizer/byte_bpe/merges.h"

#include <algorithm>
#include <bit>

#include "engine/core/numeric/shuffle.h"
#include "engine/text/tokenizer/subword_sampling.h"

namespace trafo {
namespace {

// Words of at most this many tokens are scanned for the next merge, longer ones have a heap.
constexpr size_t kShort = 32;

uint64_t merge_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

Merges::Merges(size_t count) : slots_(std::bit_ceil(count * 5 / 3 + 1)) {}

size_t Merges::slot(uint64_t pair) const {
  size_t at = mix_bits(pair) & (slots_.size() - 1);
  while (slots_[at].rank != kNoRank && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
  return at;
}

void Merges::add(int32_t left, int32_t right, int32_t result) {
  const uint64_t pair = merge_key(left, right);
  slots_[slot(pair)] = {pair, next_rank_++, result};
}

const Merges::Slot& Merges::find(int32_t left, int32_t right) const {
  return slots_[slot(merge_key(left, right))];
}

void Merges::apply(std::vector<int32_t>& tokens) const {
  if (tokens.size() <= kShort)
    apply_short(tokens);
  else
    apply_long(tokens, 0, nullptr);
}

void Merges::sample(std::vector<int32_t>& tokens, double alpha, ShuffleRng& rng) const {
  apply_long(tokens, alpha, &rng);
}

void Merges::apply_short(std::vector<int32_t>& tokens) const {
  const Slot* merges[kShort];  // of each token and the next
  size_t count = tokens.size();
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = &find(tokens[i], tokens[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (merges[i]->rank < merges[best]->rank) best = i;
    if (merges[best]->rank == kNoRank) break;
    tokens[best] = merges[best]->result;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      tokens[i] = tokens[i + 1];
      merges[i - 1] = merges[i];
    }
    if (best + 1 < count) merges[best] = &find(tokens[best], tokens[best + 1]);
    if (best > 0) merges[best - 1] = &find(tokens[best - 1], tokens[best]);
  }
  tokens.resize(count);
}

void Merges::apply_long(std::vector<int32_t>& tokens, double alpha, ShuffleRng* rng) const {
  struct Symbol {
    int32_t token;
    int64_t previous, next;  // -1: none
    bool is_merged = false;  // into its left neighbour
  };
  struct Candidate {
    uint32_t rank;
    int64_t at;
    int32_t left, right, result;
  };
  thread_local std::vector<Symbol> symbols;
  thread_local std::vector<Candidate> heap;
  symbols.clear();
  heap.clear();
  const auto count = std::ssize(tokens);
  for (int64_t i = 0; i < count; ++i)
    symbols.push_back({tokens[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  const auto at = [&](int64_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  const auto propose = [&](int64_t left) {
    if (left < 0 || at(left).next < 0) return;
    const int32_t a = at(left).token, b = at(at(left).next).token;
    const Slot& merge = find(a, b);
    if (merge.rank == kNoRank) return;
    heap.push_back({merge.rank, left, a, b, merge.result});
    std::push_heap(heap.begin(), heap.end(), later);
  };
  for (int64_t i = 0; i + 1 < count; ++i) propose(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Candidate candidate = heap.back();
    heap.pop_back();
    Symbol& left = at(candidate.at);
    if (left.is_merged || left.token != candidate.left || left.next < 0) continue;
    Symbol& right = at(left.next);
    if (right.token != candidate.right) continue;
    if (rng != nullptr && uniform(*rng) < alpha) continue;
    left.token = candidate.result;
    right.is_merged = true;
    left.next = right.next;
    if (right.next >= 0) at(right.next).previous = candidate.at;
    propose(left.previous);
    propose(candidate.at);
  }
  tokens.clear();
  for (int64_t i = symbols.empty() ? -1 : 0; i >= 0; i = at(i).next) tokens.push_back(at(i).token);
}

}  // namespace trafo
