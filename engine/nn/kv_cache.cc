#include "engine/nn/kv_cache.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/core/shape_text.h"
#include "engine/ops/gather_rows/gather_rows.h"
#include "engine/ops/kv_cache/kv_cache.h"

namespace trafo::nn {
namespace {

constexpr const char* kKvCacheOrigin = "kv_cache";
constexpr int32_t kMostApart = 65;  // the last token of a text, and 64 drafted ones

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
  require(storage_.rank() == 3 && storage_.is_contiguous() && storage_.dtype() == options.dtype &&
              storage_.dim(0) == options.layers && storage_.dim(1) >= slot_count(rows, capacity) &&
              storage_.dim(2) == 2 * options.kv_width,
          ErrorCode::shape_mismatch, kKvCacheOrigin, "a storage of shape ", storage_.shape(),
          " is not for ", rows, " rows of ", capacity, " tokens");
  number_regions(lengths_.size());
}

Tensor KvCache::empty_storage(Context& context, int64_t rows, int64_t capacity) const {
  return context.empty(storage_shape(options_, slot_count(rows, capacity)), options_.dtype);
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
  const bool one_each = std::all_of(counts.begin(), counts.end(), [](int32_t c) { return c == 1; });
  const bool to_all = std::all_of(counts.begin(), counts.end(), [](int32_t c) { return c > 0; });
  prefill_ = longest() == 0 && to_all && !one_each;
  longest_after_ = 0;
  sequences_ = {};
  // A few tokens after others are sequences of one token: a decode step computes the same bits of
  // each, which speculative decoding relies on.
  const bool apart =
      !prefill_ && std::ranges::all_of(counts, [](int32_t count) { return count <= kMostApart; });
  std::vector<int32_t> slots, positions, begin, end, cu_seqlens{0};
  for (size_t r = 0; r < counts.size(); ++r) {
    const int32_t length = lengths_[r], count = counts[r];
    require(count >= 0 && length + count <= capacity_, ErrorCode::invalid_argument, kKvCacheOrigin,
            "the cache has room for ", capacity_, " tokens a row; row ", r, " holds ", length,
            " and cannot take ", count, " more");
    if (count == 0) continue;
    begin.push_back(static_cast<int32_t>(regions_[r] * capacity_));
    end.push_back(begin.back() + length + count);
    for (int32_t i = 0; i < count; ++i) {
      positions.push_back(length + i);
      slots.push_back(begin.back() + length + i);
    }
    for (int32_t i = 1; apart && i < count; ++i) {
      end.insert(end.end() - 1, end.back() - count + i);
      begin.push_back(begin.back());
      cu_seqlens.push_back(cu_seqlens.back() + 1);
    }
    const int32_t in_sequence = apart ? 1 : count;
    cu_seqlens.push_back(cu_seqlens.back() + in_sequence);
    sequences_.longest = std::max<int64_t>(sequences_.longest, in_sequence);
    longest_after_ = std::max<int64_t>(longest_after_, length + count);
  }
  require(!positions.empty(), ErrorCode::invalid_argument, kKvCacheOrigin, "no row gets a token");
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
  ops::kv_cache_append(context, qkv, column, 2 * options_.kv_width, slots_, keys_values(layer), 0);
}

Tensor KvCache::keys_values(int64_t layer) const {
  const int64_t slots = storage_.dim(1), width = storage_.dim(2);
  return storage_.as_strided({slots, width}, {width, 1}, storage_.offset() + layer * slots * width);
}

void KvCache::end_append() {
  for (size_t r = 0; r < lengths_.size(); ++r) lengths_[r] += counts_[r];
}

void KvCache::copy(Context& context, std::span<const int32_t> from, const Tensor& target,
                   std::span<const int32_t> to, int64_t capacity, int64_t tokens) const {
  if (tokens == 0 || from.empty()) return;
  // A row of these views is what a region holds of a layer.
  const auto by_region = [tokens](const Tensor& storage, int64_t slots_of_region) {
    const int64_t slots = storage.dim(1), width = storage.dim(2);
    return storage.as_strided({storage.dim(0), slots / slots_of_region, tokens * width},
                              {slots * width, slots_of_region * width, 1}, storage.offset());
  };
  std::vector<int32_t> numbers(from.begin(), from.end());
  numbers.insert(numbers.end(), to.begin(), to.end());
  const Tensor uploaded = upload(context, numbers);
  const auto count = static_cast<int64_t>(from.size());
  ops::copy_rows(context, by_region(storage_, capacity_),
                 uploaded.as_strided({count}, {1}, uploaded.offset()), by_region(target, capacity),
                 uploaded.as_strided({count}, {1}, uploaded.offset() + count));
}

void KvCache::move(Context& context, std::span<const int32_t> regions, const Tensor& target,
                   int64_t capacity) {
  std::vector<int32_t> to(regions.size());
  std::iota(to.begin(), to.end(), 0);
  copy(context, regions, target, to, capacity, longest());
  storage_ = target;
  capacity_ = capacity;
  number_regions(regions.size());
}

void KvCache::truncate(int64_t row, int64_t tokens) {
  require(row >= 0 && row < rows(), ErrorCode::invalid_argument, kKvCacheOrigin, "there is no row ",
          row, ", there are ", rows());
  int32_t& length = lengths_[static_cast<size_t>(row)];
  require(tokens >= 0 && tokens <= length, ErrorCode::invalid_argument, kKvCacheOrigin, "row ", row,
          " holds ", length, " tokens and cannot keep ", tokens);
  length = static_cast<int32_t>(tokens);
}

void KvCache::grow(Context& context, int64_t capacity) {
  require(capacity >= longest(), ErrorCode::invalid_argument, kKvCacheOrigin, "a capacity of ",
          capacity, " tokens is less than the ", longest(), " tokens of the longest row");
  if (capacity == capacity_) return;
  move(context, regions_, empty_storage(context, rows(), capacity), capacity);
}

bool KvCache::move_to(Context& context, const Tensor& storage) {
  if (storage.raw() == storage_.raw()) return true;
  if (storage.dim(1) < slot_count(rows(), capacity_)) return false;
  move(context, regions_, storage, capacity_);
  return true;
}

bool KvCache::reorder(Context& context, std::span<const int32_t> parents) {
  std::vector<int32_t> lengths, regions;
  std::vector<size_t> copied;  // rows that continue what another one has taken over
  std::vector<bool> taken(static_cast<size_t>(region_count()));
  bool same = static_cast<int64_t>(parents.size()) == rows();
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
    if (taken[region]) copied.push_back(i);
    taken[region] = true;
  }
  if (same) return false;
  if (static_cast<int64_t>(parents.size()) > region_count()) {
    for (int32_t& region : regions) region = std::max(region, 0);  // an empty row holds anything
    move(context, regions, empty_storage(context, static_cast<int64_t>(parents.size()), capacity_),
         capacity_);
  } else {
    size_t free = 0;
    const auto next_free = [&] {
      while (taken[free]) ++free;
      return static_cast<int32_t>(free++);
    };
    std::vector<int32_t> from, to;
    int32_t tokens = 0;
    for (const size_t row : copied) {
      from.push_back(regions[row]);
      to.push_back(regions[row] = next_free());
      tokens = std::max(tokens, lengths[row]);
    }
    for (int32_t& region : regions)
      if (region < 0) region = next_free();
    copy(context, from, storage_, to, capacity_, tokens);
    regions_ = std::move(regions);
  }
  lengths_ = std::move(lengths);
  return true;
}

}  // namespace trafo::nn
