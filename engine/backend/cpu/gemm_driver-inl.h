// Cuts a matrix product into blocks of work and each of them into micro-kernel tiles. Compiled once
// a target.
//
// The smaller of A and B is packed first, by all threads and for all ("shared"); blocks of work
// then run along the larger one and pack what they need of it for themselves. So nothing is packed
// twice, unless a product of few tiles is cut in both directions to keep many threads busy. All
// sizes here follow from the shape, never from the threads.
#if defined(TRAFO_CPU_GEMM_DRIVER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_CPU_GEMM_DRIVER_INL_H_
#undef TRAFO_CPU_GEMM_DRIVER_INL_H_
#else
#define TRAFO_CPU_GEMM_DRIVER_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "engine/backend/cpu/gemm_internal.h"
#include "engine/backend/cpu/gemm_pack-inl.h"
#include "engine/backend/cpu/gemm_skinny-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

template <class T>
class GemmDriver {
 public:
  GemmDriver(ThreadPool& pool, const GemmParams& p)
      : pool_(pool),
        p_(p),
        share_b_(p.m >= p.n),
        pack_a_(p.trans_a || p.lda * static_cast<int64_t>(sizeof(T)) % kAliasBytes == 0),
        depths_(p.k, kMaxDepth),
        row_panels_(p.m, kPanelRows),
        col_panels_((p.n + kCols - 1) / kCols) {
    choose_block_size();
  }

  void run() {
    const EvenSplit row_blocks(row_panels_.parts(), block_row_panels_);
    const EvenSplit col_blocks(col_panels_, block_col_panels_);
    const int64_t shared_panels = share_b_ ? col_panels_ : pack_a_ ? row_panels_.parts() : 0;
    const int64_t panel_width = share_b_ ? kCols : kPanelRows;
    const int64_t bytes_per_depth = shared_panels * panel_width * static_cast<int64_t>(sizeof(T));
    const int64_t chunk_parts =
        bytes_per_depth == 0
            ? depths_.parts()
            : std::max<int64_t>(1, kSharedBytes / (bytes_per_depth * depths_.size(0)));
    for (int64_t part = 0; part < depths_.parts(); part += chunk_parts) {
      part_begin_ = part;
      part_end_ = std::min(depths_.parts(), part + chunk_parts);
      chunk_begin_ = depths_.begin(part_begin_);
      chunk_depth_ = depths_.begin(part_end_) - chunk_begin_;
      if (shared_panels > 0) pack_shared(shared_panels, panel_width);
      pool_.parallel_for(row_blocks.parts() * col_blocks.parts(), [&](int64_t block) {
        const int64_t i = block / col_blocks.parts();
        const int64_t j = block % col_blocks.parts();
        run_block(row_blocks.begin(i), row_blocks.size(i), col_blocks.begin(j), col_blocks.size(j));
      });
    }
  }

 private:
  static constexpr int64_t kCols = kPanelCols<T>;
  // Multiplications along K between two visits of C: a panel of B of this depth is about an L1
  // cache.
  static constexpr int64_t kMaxDepth = sizeof(T) == 4 ? 384 : 256;
  // Rows at such a distance fall into few sets of the L1 cache and would evict each other if read
  // in place.
  static constexpr int64_t kAliasBytes = 2048;
  // Shared packed panels: well within an L3 cache.
  static constexpr int64_t kSharedBytes = int64_t{8} << 20;
  // Blocks of work to aim for, and multiplications (about 5 us) below which a block is not cut
  // further.
  static constexpr int64_t kWantedBlocks = 32;
  static constexpr int64_t kLeastWork = int64_t{1} << 18;

  void choose_block_size() {
    const int64_t rows = row_panels_.parts();
    block_row_panels_ = share_b_ ? std::min<int64_t>(rows, 84 / kPanelRows) : rows;
    block_col_panels_ = share_b_ ? col_panels_ : std::min<int64_t>(col_panels_, 4);
    const auto parts = [](int64_t count, int64_t size) { return (count + size - 1) / size; };
    int64_t& first = share_b_ ? block_row_panels_ : block_col_panels_;
    int64_t& second = share_b_ ? block_col_panels_ : block_row_panels_;
    while (parts(rows, block_row_panels_) * parts(col_panels_, block_col_panels_) < kWantedBlocks &&
           block_row_panels_ * kPanelRows * block_col_panels_ * kCols * p_.k > 2 * kLeastWork) {
      if (first > 1)
        first = (first + 1) / 2;
      else if (second > 1)
        second = (second + 1) / 2;
      else
        break;
    }
  }

  const T* a_at(int64_t i, int64_t k) const {
    return static_cast<const T*>(p_.a) + (p_.trans_a ? k * p_.lda + i : i * p_.lda + k);
  }
  const T* b_at(int64_t k, int64_t j) const {
    return static_cast<const T*>(p_.b) + (p_.trans_b ? j * p_.ldb + k : k * p_.ldb + j);
  }
  void pack_a(int64_t panel, int64_t k, int64_t depth, T* to) const {
    pack_a_panel(a_at(row_panels_.begin(panel), k), p_.lda, p_.trans_a, row_panels_.size(panel),
                 depth, to);
  }
  void pack_b(int64_t panel, int64_t k, int64_t depth, T* to) const {
    pack_b_panel(b_at(k, panel * kCols), p_.ldb, p_.trans_b, std::min(kCols, p_.n - panel * kCols),
                 depth, to);
  }

  void pack_shared(int64_t panels, int64_t width) {
    shared_ = static_cast<T*>(
        gemm_shared_scratch(panels * width * chunk_depth_ * static_cast<int64_t>(sizeof(T))));
    const int64_t grain = std::max<int64_t>(1, (1 << 14) / (width * chunk_depth_));
    parallel_for_range(pool_, panels, grain, [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel) {
        T* to = shared_ + panel * width * chunk_depth_;
        share_b_ ? pack_b(panel, chunk_begin_, chunk_depth_, to)
                 : pack_a(panel, chunk_begin_, chunk_depth_, to);
      }
    });
  }

  // The tiles of row panels [row, row + rows) and column panels [col, col + cols), all of this
  // chunk of K.
  void run_block(int64_t row, int64_t rows, int64_t col, int64_t cols) const {
    const int64_t depth_limit = depths_.size(0);
    const int64_t a_size = share_b_ && pack_a_ ? rows * kPanelRows * depth_limit : 0;
    const int64_t b_size = share_b_ ? 0 : cols * kCols * depth_limit;
    T* local = nullptr;
    if (a_size + b_size > 0)
      local =
          static_cast<T*>(gemm_local_scratch((a_size + b_size) * static_cast<int64_t>(sizeof(T))));
    for (int64_t part = part_begin_; part < part_end_; ++part) {
      const int64_t k = depths_.begin(part);
      const int64_t depth = depths_.size(part);
      if (a_size > 0)
        for (int64_t i = 0; i < rows; ++i)
          pack_a(row + i, k, depth, local + i * kPanelRows * depth);
      if (b_size > 0)
        for (int64_t j = 0; j < cols; ++j) pack_b(col + j, k, depth, local + j * kCols * depth);
      // The packed panel of the inner loop's fixed side stays in the L1 cache.
      const int64_t outer = share_b_ ? cols : rows;
      const int64_t inner = share_b_ ? rows : cols;
      for (int64_t x = 0; x < outer; ++x)
        for (int64_t y = 0; y < inner; ++y)
          run_tile(row, share_b_ ? y : x, col, share_b_ ? x : y, k, depth, local);
    }
  }

  void run_tile(int64_t row, int64_t i, int64_t col, int64_t j, int64_t k, int64_t depth,
                const T* local) const {
    const int64_t first_row = row_panels_.begin(row + i);
    const int64_t first_col = (col + j) * kCols;
    const int64_t k_in_chunk = k - chunk_begin_;
    Tile<T> tile;
    if (!pack_a_) {
      tile.a = a_at(first_row, k);
      tile.a_stride = p_.lda;
    } else {
      tile.a = share_b_ ? local + i * kPanelRows * depth
                        : shared_ + ((row + i) * chunk_depth_ + k_in_chunk) * kPanelRows;
      tile.a_stride = kPanelRows;
    }
    tile.b = share_b_ ? shared_ + ((col + j) * chunk_depth_ + k_in_chunk) * kCols
                      : local + j * kCols * depth;
    tile.b_stride = kCols;
    tile.k = depth;
    tile.c = static_cast<T*>(p_.c) + first_row * p_.ldc + first_col;
    tile.c_stride = p_.ldc;
    tile.cols = std::min(kCols, p_.n - first_col);
    tile.add_c = p_.accumulate || k > 0;
    tile.bias = p_.bias != nullptr && k == 0 ? static_cast<const T*>(p_.bias) + first_col : nullptr;
    tile_fn<T>(row_panels_.size(row + i), pack_a_)(tile);
  }

  ThreadPool& pool_;
  const GemmParams& p_;
  const bool share_b_;      // B is the smaller operand and is packed for all blocks, else A is
  const bool pack_a_;       // else the kernels read A where it is
  const EvenSplit depths_;  // K in passes over C
  const EvenSplit row_panels_;
  const int64_t col_panels_;
  int64_t block_row_panels_ = 1;
  int64_t block_col_panels_ = 1;

  // The part of K whose shared panels are packed now.
  int64_t part_begin_ = 0, part_end_ = 0;
  int64_t chunk_begin_ = 0, chunk_depth_ = 0;
  T* shared_ = nullptr;
};

template <class T>
void gemm_driver(ThreadPool& pool, const GemmParams& p) {
  if (gemm_skinny<T>(pool, p)) return;
  GemmDriver<T>(pool, p).run();
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
