#include "engine/nn/kv_cache.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/ops/gather_rows/gather_rows.h"
#include "engine/ops/kv_cache/kv_cache.h"

namespace trafo::nn {
namespace {

constexpr const char* kKvCacheOrigin = "kv_cache";

Tensor upload(Context& context, std::span<const int32_t> values) {
  return context.from_values<int32_t>(values, {static_cast<int64_t>(values.size())});
}

// Slots are numbered by int32 on the device.
int64_t slot_count(int64_t rows, int64_t capacity) {
  const int64_t slots = checked_mul(rows, capacity, kKvCacheOrigin);
  require(slots <= std::numeric_limits<int32_t>::max(), ErrorCode::invalid_argument, kKvCacheOrigin,
          rows, " rows of ", capacity, " tokens are more than a cache can hold");
  return slots;
}

}  // namespace

KvCache::KvCache(Context& context, const KvCacheOptions& options, int64_t rows, int64_t capacity)
    : options_(options), capacity_(capacity), lengths_(static_cast<size_t>(rows)) {
  storage_ = context.empty({slot_count(rows, capacity), options.layers * 2 * options.kv_width},
                           options.dtype);
}

int64_t KvCache::longest() const {
  return lengths_.empty() ? 0 : *std::max_element(lengths_.begin(), lengths_.end());
}

void KvCache::begin_append(Context& context, std::span<const int32_t> counts) {
  require(static_cast<int64_t>(counts.size()) == rows(), ErrorCode::shape_mismatch, kKvCacheOrigin,
          counts.size(), " counts of new tokens for ", rows(), " rows");
  counts_.assign(counts.begin(), counts.end());
  prefill_ = std::any_of(counts.begin(), counts.end(), [](int32_t count) { return count != 1; });
  require(!prefill_ || longest() == 0, ErrorCode::invalid_argument, kKvCacheOrigin,
          "several tokens a row can only be appended to empty rows");
  sequences_ = {};
  std::vector<int32_t> slots, positions, begin, end, cu_seqlens{0};
  for (size_t r = 0; r < counts.size(); ++r) {
    const int32_t length = lengths_[r], count = counts[r];
    require(count > 0 && length + count <= capacity_, ErrorCode::invalid_argument, kKvCacheOrigin,
            "the cache has room for ", capacity_, " tokens a row; row ", r, " holds ", length,
            " and cannot take ", count, " more");
    begin.push_back(static_cast<int32_t>(static_cast<int64_t>(r) * capacity_));
    end.push_back(begin.back() + length + count);
    for (int32_t i = 0; i < count; ++i) {
      positions.push_back(length + i);
      slots.push_back(begin.back() + length + i);
    }
    cu_seqlens.push_back(cu_seqlens.back() + count);
    sequences_.longest = std::max<int64_t>(sequences_.longest, count);
  }
  // One copy to the device serves all of them.
  std::vector<int32_t> packed;
  for (const std::vector<int32_t>* part : {&slots, &positions, &begin, &end, &cu_seqlens})
    packed.insert(packed.end(), part->begin(), part->end());
  const Tensor uploaded = upload(context, packed);
  int64_t offset = 0;
  const auto next = [&](const std::vector<int32_t>& part) {
    const auto size = static_cast<int64_t>(part.size());
    offset += size;
    return uploaded.as_strided({size}, {1}, offset - size);
  };
  slots_ = next(slots);
  sequences_.positions = next(positions);
  key_begin_ = next(begin);
  key_end_ = next(end);
  sequences_.cu_seqlens = next(cu_seqlens);
}

void KvCache::append(Context& context, int64_t layer, const Tensor& qkv, int64_t column) const {
  ops::kv_cache_append(context, qkv, column, 2 * options_.kv_width, slots_, storage_,
                       key_column(layer));
}

void KvCache::end_append() {
  for (size_t r = 0; r < lengths_.size(); ++r) lengths_[r] += counts_[r];
}

Tensor KvCache::gathered(Context& context, std::span<const int32_t> parents,
                         int64_t capacity) const {
  // A row of the view is what the longest row fills; slots behind it hold nothing yet.
  const int64_t columns = storage_.dim(1), filled = longest() * columns;
  const auto count = static_cast<int64_t>(parents.size());
  Tensor target = context.empty({slot_count(count, capacity), columns}, storage_.dtype());
  if (filled > 0)
    ops::gather_rows_into(
        context, storage_.as_strided({rows(), filled}, {capacity_ * columns, 1}, 0),
        upload(context, parents), target.as_strided({count, filled}, {capacity * columns, 1}, 0));
  return target;
}

void KvCache::grow(Context& context, int64_t capacity) {
  require(capacity >= longest(), ErrorCode::invalid_argument, kKvCacheOrigin, "a capacity of ",
          capacity, " tokens is less than the ", longest(), " tokens of the longest row");
  if (capacity == capacity_) return;
  std::vector<int32_t> same(lengths_.size());
  std::iota(same.begin(), same.end(), 0);
  storage_ = gathered(context, same, capacity);
  capacity_ = capacity;
}

bool KvCache::reorder(Context& context, std::span<const int32_t> parents) {
  std::vector<int32_t> lengths;
  bool same = static_cast<int64_t>(parents.size()) == rows();
  for (size_t i = 0; i < parents.size(); ++i) {
    require(parents[i] >= 0 && parents[i] < rows(), ErrorCode::invalid_argument, kKvCacheOrigin,
            "parent ", parents[i], " is not one of the ", rows(), " rows");
    lengths.push_back(lengths_[static_cast<size_t>(parents[i])]);
    same = same && parents[i] == static_cast<int32_t>(i);
  }
  if (same) return false;
  storage_ = gathered(context, parents, capacity_);
  lengths_ = std::move(lengths);
  return true;
}

}  // namespace trafo::nn
