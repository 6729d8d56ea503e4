// Cuts a GEMM into blocks of work and each of them into micro-kernel tiles, for the kernels of any
// instruction set and number format.
//
// The smaller of A and B is packed first, by all threads and for all blocks ("shared"); blocks of
// work run along the larger one and pack their own parts of it. A GEMM of few tiles is cut in both
// directions to keep many threads busy, and then both are shared. All sizes here follow from the
// shape, never from the threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "engine/backend/cpu/gemm_internal.h"

namespace trafo {

// A tile of C. T is the type of A, B and C in memory, P the type that the kernel multiplies: one
// element, or a group of elements along K. All strides but c_stride count P.
template <class T, class P = T>
struct Tile {
  const P* a;  // group k of row i at a[i * a_stride + k] or, by columns, a[k * a_stride + i]
  int64_t a_stride;
  const P*
      b;  // group k of column j at b[k * b_stride + j], readable for the full width of the tile
  int64_t b_stride;
  int64_t k;  // groups
  T* c;
  int64_t c_stride;
  int64_t cols;   // columns of C to write
  bool add_c;     // C += instead of C =
  const T* bias;  // at the first column, or null
};

struct NoBlock {
  using Block = NoBlock;
};
template <class Kernels>
concept HasBlock = requires {
  typename Kernels::Block;
};
template <class Kernels>
using BlockOf = typename std::conditional_t<HasBlock<Kernels>, Kernels, NoBlock>::Block;

// Kernels has:
//   Source, Packed        T and P of its tiles
//   kGroup                elements along K in one Packed
//   kReadsInPlace         whether a tile may read A where it is; else A is packed
//   kRows, kCols          the largest tile
//   kStrideA              Packed elements from one group to the next in a panel packed by columns,
//                         at least kRows
//   kMaxDepth             groups between two visits of C: a panel of B of this depth is about an L1
//                         cache
//   pack(from, stride, by_width, width, depth, to, to_stride)
//                         one panel: group k of row i at to[k * to_stride + i]; `depth` elements
//   pack_rows_of_a(from, stride, rows, depth, to, to_stride)
//                         group k of row i at to[i * to_stride + k]. With it, an A that is stored
//                         by rows is packed by rows, without it by columns
//   pack_columns_of_a(from, stride, rows, depth, to, to_stride)
//                         the same of an A that is stored by columns; without it, such an A is
//                         packed by columns
//   Block                 state of the thread that tiles need, if any, such as the shapes of AMX's
//                         registers: made before the tiles of a block of work, ended after them
//   run(tile, rows, a_by_columns)
template <class Kernels>
class GemmDriver {
 public:
  using T = typename Kernels::Source;
  using P = typename Kernels::Packed;

  // `packed_b`: B as pack_weight lays it out, or null.
  GemmDriver(ThreadPool& pool, const GemmParams& p, const P* packed_b)
      : pool_(pool),
        p_(p),
        packed_b_(packed_b),
        along_rows_(p.m >= p.n),
        pack_a_(!Kernels::kReadsInPlace || p.trans_a ||
                (p.lda * kSize % kAliasBytes == 0 && !(packed_b && p.m <= Kernels::kRows))),
        a_by_columns_(pack_a_ && !(p.trans_a ? kPacksColumns : kPacksRows)),
        depths_((p.k + kGroup - 1) / kGroup, Kernels::kMaxDepth),
        row_panels_(p.m, Kernels::kRows),
        col_panels_((p.n + kCols - 1) / kCols) {
    choose_block_size();
    share_a_ = pack_a_ && (!along_rows_ || block_col_panels_ < col_panels_);
    share_b_ = !packed_b && (along_rows_ || block_row_panels_ < row_panels_.parts());
  }

  void run() {
    const EvenSplit row_blocks(row_panels_.parts(), block_row_panels_);
    const EvenSplit col_blocks(col_panels_, block_col_panels_);
    const int64_t shared_bytes_per_k = kSize * ((share_a_ ? row_panels_.parts() * kRows : 0) +
                                                (share_b_ ? col_panels_ * kCols : 0));
    const int64_t parts_at_once = std::max<int64_t>(
        1, kSharedBytes / std::max<int64_t>(1, shared_bytes_per_k * depths_.size(0)));
    for (int64_t part = 0; part < depths_.parts(); part += parts_at_once) {
      part_begin_ = part;
      part_end_ = std::min(depths_.parts(), part + parts_at_once);
      chunk_begin_ = depths_.begin(part_begin_);
      chunk_depth_ = depths_.begin(part_end_) - chunk_begin_;
      if (shared_bytes_per_k > 0) pack_shared(shared_bytes_per_k * chunk_depth_);
      pool_.parallel_for(row_blocks.parts() * col_blocks.parts(), [&](int64_t block) {
        const int64_t i = block / col_blocks.parts();
        const int64_t j = block % col_blocks.parts();
        run_block(row_blocks.begin(i), row_blocks.size(i), col_blocks.begin(j), col_blocks.size(j));
      });
    }
  }

 private:
  static constexpr bool kPacksRows = requires { &Kernels::pack_rows_of_a; };
  static constexpr bool kPacksColumns = requires { &Kernels::pack_columns_of_a; };
  static constexpr int64_t kSize = sizeof(P);
  static constexpr int64_t kGroup = Kernels::kGroup;
  static constexpr int64_t kRows = Kernels::kStrideA;
  static constexpr int64_t kCols = Kernels::kCols;
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
    block_row_panels_ = along_rows_ ? std::min<int64_t>(rows, 84 / Kernels::kRows) : rows;
    block_col_panels_ = along_rows_ ? col_panels_ : std::min<int64_t>(col_panels_, 4);
    const auto blocks = [&] {
      return EvenSplit(rows, block_row_panels_).parts() *
             EvenSplit(col_panels_, block_col_panels_).parts();
    };
    const auto block_work = [&] {
      return block_row_panels_ * Kernels::kRows * block_col_panels_ * kCols * p_.k;
    };
    int64_t& first = along_rows_ ? block_row_panels_ : block_col_panels_;
    int64_t& second = along_rows_ ? block_col_panels_ : block_row_panels_;
    while (blocks() < kWantedBlocks && block_work() >= 2 * kLeastWork && first + second > 2) {
      int64_t& larger = first > 1 ? first : second;
      larger = (larger + 1) / 2;
    }
  }

  // The elements of `depth` groups from group k.
  int64_t elements(int64_t k, int64_t depth) const {
    return std::min(depth * kGroup, p_.k - k * kGroup);
  }

  // `count` panels of the operand, `depth` groups from k; panels are panel_stride apart.
  void pack_a(int64_t panel, int64_t count, int64_t k, int64_t depth, P* to,
              int64_t panel_stride) const {
    const T* a = static_cast<const T*>(p_.a);
    const int64_t step = p_.trans_a ? kPackStep : depth;
    for (int64_t done = 0; done < depth; done += step)
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = row_panels_.begin(panel + i), first = (k + done) * kGroup;
        const T* from = a + (p_.trans_a ? first * p_.lda + row : row * p_.lda + first);
        const int64_t rows = row_panels_.size(panel + i);
        const int64_t count_k = elements(k + done, std::min(step, depth - done));
        P* panel_to = to + i * panel_stride;
        const int64_t row_stride = panel_stride / kRows;
        if constexpr (kPacksColumns) {
          if (p_.trans_a) {
            Kernels::pack_columns_of_a(from, p_.lda, rows, count_k, panel_to + done, row_stride);
            continue;
          }
        }
        if constexpr (kPacksRows) {
          if (!p_.trans_a) {
            Kernels::pack_rows_of_a(from, p_.lda, rows, count_k, panel_to, row_stride);
            continue;
          }
        }
        Kernels::pack(from, p_.lda, !p_.trans_a, rows, count_k, panel_to + done * kRows, kRows);
      }
  }

  void pack_b(int64_t panel, int64_t count, int64_t k, int64_t depth, P* to,
              int64_t panel_stride) const {
    const T* b = static_cast<const T*>(p_.b);
    const int64_t step = p_.trans_b ? depth : kPackStep;
    for (int64_t done = 0; done < depth; done += step)
      for (int64_t j = 0; j < count; ++j) {
        const int64_t col = (panel + j) * kCols, first = (k + done) * kGroup;
        const T* from = b + (p_.trans_b ? col * p_.ldb + first : first * p_.ldb + col);
        Kernels::pack(from, p_.ldb, p_.trans_b, std::min(kCols, p_.n - col),
                      elements(k + done, std::min(step, depth - done)),
                      to + j * panel_stride + done * kCols, kCols);
      }
  }
  // Where the operand is stored along the panels' width, several panels advance together by this
  // many steps of K: their rows share cache lines and pages.
  static constexpr int64_t kPackStep = 32 / kGroup;

  // From the first group of a panel of A to the one at `offset`.
  int64_t within_a(int64_t offset) const { return a_by_columns_ ? offset * kRows : offset; }

  void pack_shared(int64_t bytes) {
    const int64_t a_panels = share_a_ ? row_panels_.parts() : 0;
    const int64_t b_panels = share_b_ ? col_panels_ : 0;
    shared_a_ = static_cast<P*>(gemm_shared_scratch(bytes));
    shared_b_ = shared_a_ + a_panels * kRows * chunk_depth_;
    const EvenSplit a_groups(a_panels, kPackPanels);
    const EvenSplit b_groups(b_panels, kPackPanels);
    const int64_t parts = part_end_ - part_begin_;
    pool_.parallel_for((a_groups.parts() + b_groups.parts()) * parts, [&](int64_t block) {
      const int64_t part = part_begin_ + block % parts;
      const int64_t group = block / parts;
      const int64_t k = depths_.begin(part);
      const int64_t offset = k - chunk_begin_;
      if (group < a_groups.parts()) {
        const int64_t panel = a_groups.begin(group);
        pack_a(panel, a_groups.size(group), k, depths_.size(part),
               shared_a_ + panel * chunk_depth_ * kRows + within_a(offset), chunk_depth_ * kRows);
      } else {
        const int64_t panel = b_groups.begin(group - a_groups.parts());
        pack_b(panel, b_groups.size(group - a_groups.parts()), k, depths_.size(part),
               shared_b_ + (panel * chunk_depth_ + offset) * kCols, chunk_depth_ * kCols);
      }
    });
  }
  static constexpr int64_t kPackPanels = 4;  // a block of packing

  // The tiles of row panels [row, row + rows) and column panels [col, col + cols), all of this
  // chunk of K.
  void run_block(int64_t row, int64_t rows, int64_t col, int64_t cols) const {
    const int64_t depth_limit = depths_.size(0);
    const int64_t a_size = pack_a_ && !share_a_ ? rows * kRows * depth_limit : 0;
    const int64_t b_size = share_b_ || packed_b_ ? 0 : cols * kCols * depth_limit;
    P* local_a = nullptr;
    P* local_b = nullptr;
    if (a_size + b_size > 0) {
      local_a = static_cast<P*>(gemm_local_scratch((a_size + b_size) * kSize));
      local_b = local_a + a_size;
    }
    for (int64_t part = part_begin_; part < part_end_; ++part) {
      const int64_t k = depths_.begin(part);
      const int64_t depth = depths_.size(part);
      if (a_size > 0) pack_a(row, rows, k, depth, local_a, kRows * depth);
      if (b_size > 0) pack_b(col, cols, k, depth, local_b, kCols * depth);
      [[maybe_unused]] const BlockOf<Kernels> state;
      // The panel that stays while the inner loop runs is in the L1 cache.
      const int64_t outer = along_rows_ ? cols : rows;
      const int64_t inner = along_rows_ ? rows : cols;
      for (int64_t x = 0; x < outer; ++x)
        for (int64_t y = 0; y < inner; ++y) {
          const int64_t i = along_rows_ ? y : x;
          const int64_t j = along_rows_ ? x : y;
          run_tile(row + i, col + j, k, depth, a_size > 0 ? local_a + i * kRows * depth : nullptr,
                   b_size > 0 ? local_b + j * kCols * depth : nullptr);
        }
    }
  }

  // One tile; local_a and local_b are its panels where those are packed by the block itself.
  void run_tile(int64_t row_panel, int64_t col_panel, int64_t k, int64_t depth, const P* local_a,
                const P* local_b) const {
    const int64_t row = row_panels_.begin(row_panel);
    const int64_t col = col_panel * kCols;
    Tile<T, P> tile;
    if (pack_a_) {
      tile.a = share_a_ ? shared_a_ + row_panel * chunk_depth_ * kRows + within_a(k - chunk_begin_)
                        : local_a;
      tile.a_stride = a_by_columns_ ? kRows : share_a_ ? chunk_depth_ : depth;
    } else {
      tile.a = static_cast<const P*>(p_.a) + row * p_.lda + k;
      tile.a_stride = p_.lda;
    }
    if (packed_b_)
      tile.b = packed_b_ + (col_panel * p_.k + k) * kCols;
    else
      tile.b =
          share_b_ ? shared_b_ + (col_panel * chunk_depth_ + k - chunk_begin_) * kCols : local_b;
    tile.b_stride = kCols;
    tile.k = depth;
    tile.c = static_cast<T*>(p_.c) + row * p_.ldc + col;
    tile.c_stride = p_.ldc;
    tile.cols = std::min(kCols, p_.n - col);
    tile.add_c = p_.accumulate || k > 0;
    tile.bias = p_.bias != nullptr && k == 0 ? static_cast<const T*>(p_.bias) + col : nullptr;
    Kernels::run(tile, row_panels_.size(row_panel), a_by_columns_);
  }

  ThreadPool& pool_;
  const GemmParams& p_;
  const P* packed_b_;
  const bool
      along_rows_;     // blocks of work cut C's rows (B is the smaller operand), else its columns
  const bool pack_a_;  // else the kernels read A where it is
  const bool a_by_columns_;
  const EvenSplit depths_;  // the groups of K in passes over C
  const EvenSplit row_panels_;
  const int64_t col_panels_;
  int64_t block_row_panels_ = 1;
  int64_t block_col_panels_ = 1;
  bool share_a_ = false;
  bool share_b_ = false;

  // The parts of K whose shared panels are packed now.
  int64_t part_begin_ = 0;
  int64_t part_end_ = 0;
  int64_t chunk_begin_ = 0;
  int64_t chunk_depth_ = 0;
  P* shared_a_ = nullptr;
  P* shared_b_ = nullptr;
};

}  // namespace trafo
