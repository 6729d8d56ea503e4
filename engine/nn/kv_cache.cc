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

KvCache::KvCache(Context& context, const KvCacheOptions& options, int64_t rows, int64_t capacity,
                 const Tensor& storage)
    : options_(options),
      capacity_(capacity),
      lengths_(static_cast<size_t>(rows)),
      storage_(storage.defined() ? storage : empty_storage(context, rows, capacity)) {
  require(storage_.rank() == 2 && storage_.is_contiguous() && storage_.dtype() == options.dtype &&
              storage_.dim(0) >= slot_count(rows, capacity) &&
              storage_.dim(1) == options.layers * 2 * options.kv_width,
          ErrorCode::shape_mismatch, kKvCacheOrigin, "a storage of shape ", storage_.shape().str(),
          " is not for ", rows, " rows of ", capacity, " tokens");
  number_regions(lengths_.size());
}

Tensor KvCache::empty_storage(Context& context, int64_t rows, int64_t capacity) const {
  return context.empty({slot_count(rows, capacity), options_.layers * 2 * options_.kv_width},
                       options_.dtype);
}

void KvCache::number_regions(size_t rows) {
  regions_.resize(rows);
  std::iota(regions_.begin(), regions_.end(), 0);
}

int64_t KvCache::longest() const {
  return lengths_.empty() ? 0 : *std::max_element(lengths_.begin(), lengths_.end());
}

void KvCache::begin_append(Context& context, std::span<const int32_t> counts,
                           const Tensor& indices) {
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
    begin.push_back(static_cast<int32_t>(regions_[r] * capacity_));
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
  if (indices.defined()) {
    require(indices.dtype() == DType::i32 && indices.is_contiguous() &&
                indices.numel() >= static_cast<int64_t>(packed.size()),
            ErrorCode::shape_mismatch, kKvCacheOrigin, "the indices of a step need int32 [",
            packed.size(), "]");
    context.backend().copy_from_host(indices.raw(), packed.data(), packed.size() * sizeof(int32_t));
    indices.mark_written();
  }
  const Tensor uploaded = indices.defined() ? indices : upload(context, packed);
  int64_t offset = uploaded.offset();
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

void KvCache::gather(Context& context, std::span<const int32_t> regions, int64_t capacity,
                     const Tensor& target) const {
  // A row of the view is what the longest row fills; slots behind it hold nothing yet.
  const int64_t columns = storage_.dim(1), filled = longest() * columns;
  const auto count = static_cast<int64_t>(regions.size());
  if (filled == 0 || count == 0) return;
  ops::gather_rows_into(
      context,
      storage_.as_strided({region_count(), filled}, {capacity_ * columns, 1}, storage_.offset()),
      upload(context, regions),
      target.as_strided({count, filled}, {capacity * columns, 1}, target.offset()));
}

void KvCache::grow(Context& context, int64_t capacity) {
  require(capacity >= longest(), ErrorCode::invalid_argument, kKvCacheOrigin, "a capacity of ",
          capacity, " tokens is less than the ", longest(), " tokens of the longest row");
  if (capacity == capacity_) return;
  const Tensor target = empty_storage(context, rows(), capacity);
  gather(context, regions_, capacity, target);
  storage_ = target;
  capacity_ = capacity;
  number_regions(lengths_.size());
}

bool KvCache::move_to(Context& context, const Tensor& storage) {
  if (storage.raw() == storage_.raw()) return true;
  if (storage.dim(0) < slot_count(rows(), capacity_)) return false;
  gather(context, regions_, capacity_, storage);
  storage_ = storage;
  number_regions(lengths_.size());
  return true;
}

bool KvCache::reorder(Context& context, std::span<const int32_t> parents) {
  std::vector<int32_t> lengths, regions;
  std::vector<bool> taken(static_cast<size_t>(region_count()));
  bool same = static_cast<int64_t>(parents.size()) == rows(), copies = false;
  for (size_t i = 0; i < parents.size(); ++i) {
    require(parents[i] >= -1 && parents[i] < rows(), ErrorCode::invalid_argument, kKvCacheOrigin,
            "parent ", parents[i], " is not one of the ", rows(), " rows");
    same = same && parents[i] == static_cast<int32_t>(i);
    if (parents[i] < 0) {
      lengths.push_back(0);
      regions.push_back(-1);
      continue;
    }
    const auto parent = static_cast<size_t>(parents[i]);
    lengths.push_back(lengths_[parent]);
    regions.push_back(regions_[parent]);
    const auto region = static_cast<size_t>(regions_[parent]);
    copies = copies || taken[region];
    taken[region] = true;
  }
  if (same) return false;
  // Empty rows get regions that no row owns.
  size_t free = 0;
  for (int32_t& region : regions) {
    if (region >= 0) continue;
    while (free < taken.size() && taken[free]) ++free;
    copies = copies || free == taken.size();
    region = copies ? 0 : static_cast<int32_t>(free++);
  }
  if (copies) {
    const Tensor target = empty_storage(context, static_cast<int64_t>(parents.size()), capacity_);
    gather(context, regions, capacity_, target);
    storage_ = target;
    number_regions(parents.size());
  } else {
    regions_ = std::move(regions);
  }
  lengths_ = std::move(lengths);
  return true;
}

}  // namespace trafo::nn
