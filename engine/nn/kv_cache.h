// The keys and values of a decoder's self-attention during decoding.
//
// A row is one hypothesis with its past. It owns a region of `capacity` slots; token number p of
// the row lies in slot region * capacity + p. Rows may have different lengths. A forward pass
// appends tokens in three steps: begin_append, append in each layer, end_append.
//
// The slots of a layer lie together, so that what attention reads for a row is one piece of memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/nn/packed_sequences.h"
#include "engine/runtime/context.h"

namespace trafo::nn {

struct KvCacheOptions {
  int64_t layers = 0;
  int64_t kv_width = 0;  // columns of the keys of one layer: kv_heads * head_dim
  DType dtype = DType::f32;
};

class KvCache {
 public:
  KvCache() = default;
  // Empty rows with room for `capacity` tokens each. They are in `storage`, of at least as many
  // slots, if it is defined.
  KvCache(Context& context, const KvCacheOptions& options, int64_t rows, int64_t capacity,
          const Tensor& storage = {});

  int64_t rows() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t capacity() const { return capacity_; }
  // Tokens that each row holds.
  const std::vector<int32_t>& lengths() const { return lengths_; }
  // The region of each row.
  const std::vector<int32_t>& regions() const { return regions_; }
  int64_t longest() const;  // tokens of the longest row; 0 without rows
  const KvCacheOptions& options() const { return options_; }
  size_t bytes() const { return storage_.defined() ? storage_.bytes() : 0; }

  // Says that the next forward pass appends counts[r] tokens to row r, packed in the order of the
  // rows. INVALID_ARGUMENT where a row has not enough room, or no row gets a token. The indices of
  // the tokens are uploaded to the beginning of `indices` (int32), if it is defined. For one token
  // a row that takes index_count() elements.
  void begin_append(Context& context, std::span<const int32_t> counts, const Tensor& indices = {});
  static int64_t index_count(int64_t rows) { return 5 * rows + 1; }
  // The appended tokens, a sequence for each row that gets some; for each token, if rows that have
  // tokens get a few. Valid from begin_append on.
  const PackedSequences& sequences() const { return sequences_; }
  // The new tokens of a prefill, prompts of empty rows, attend to themselves; other new tokens
  // attend to what their row of the cache holds, up to themselves.
  bool is_prefill() const { return prefill_; }
  int64_t longest_after() const { return longest_after_; }  // longest() after end_append
  // Stores the keys and values of the new tokens: columns column .. column + 2 kv_width - 1 of
  // `qkv` [T, ..].
  void append(Context& context, int64_t layer, const Tensor& qkv, int64_t column) const;
  // The new tokens belong to their rows now.
  void end_append();

  // Keys and values of all layers: [layers, slots, 2 * kv_width].
  const Tensor& storage() const { return storage_; }
  static Shape storage_shape(const KvCacheOptions& options, int64_t slots) {
    return {options.layers, slots, 2 * options.kv_width};
  }
  // The input of attention in a decode step: [slots, 2 * kv_width], keys, then values. Sequence s
  // of sequences() sees slots key_begin()[s] .. key_end()[s], its new tokens included. Kernels find
  // a row only by these indices.
  Tensor keys_values(int64_t layer) const;
  const Tensor& key_begin() const { return key_begin_; }
  const Tensor& key_end() const { return key_end_; }

  // Forgets all but the first `tokens` tokens of a row.
  void truncate(int64_t row, int64_t tokens);
  // Makes room for `capacity` tokens a row, at least as many as the longest row holds.
  void grow(Context& context, int64_t capacity);
  // Moves the rows into `storage` if it has room for them. False, and nothing changes, if not.
  bool move_to(Context& context, const Tensor& storage);
  // Row i continues what row parents[i] holds, or is empty if that is -1; false if nothing changes.
  // A beam search reorders, drops and copies rows. Of rows that continue the same one, the first
  // takes over its region, and the others get copies in regions that no row owns any more. All rows
  // move to a new storage if there are too few of these.
  bool reorder(Context& context, std::span<const int32_t> parents);

 private:
  // Copies the first `tokens` slots of regions `from` of storage() to the regions `to` of `target`,
  // which have `capacity` slots.
  void copy(Context& context, std::span<const int32_t> from, const Tensor& target,
            std::span<const int32_t> to, int64_t capacity, int64_t tokens) const;
  // Moves what `regions` hold to the regions 0, 1, .. of `target`, which becomes the storage.
  void move(Context& context, std::span<const int32_t> regions, const Tensor& target,
            int64_t capacity);
  // Region i for row i.
  void number_regions(size_t rows);
  Tensor empty_storage(Context& context, int64_t rows, int64_t capacity) const;
  int64_t region_count() const { return capacity_ > 0 ? storage_.dim(1) / capacity_ : 0; }

  KvCacheOptions options_;
  int64_t capacity_ = 0;
  std::vector<int32_t> lengths_, regions_;  // of each row
  Tensor storage_;
  std::vector<int32_t> counts_;  // of begin_append
  PackedSequences sequences_;
  Tensor slots_, key_begin_, key_end_;
  bool prefill_ = false;
  int64_t longest_after_ = 0;
};

}  // namespace trafo::nn
