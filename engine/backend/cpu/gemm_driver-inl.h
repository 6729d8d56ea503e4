// GEMM of an element type: the choice of the kernel, and weights packed ahead. Compiled once a
// target.
#if defined(TRAFO_CPU_GEMM_DRIVER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAFO_CPU_GEMM_DRIVER_INL_H_
#undef TRAFO_CPU_GEMM_DRIVER_INL_H_
#else
#define TRAFO_CPU_GEMM_DRIVER_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "engine/backend/cpu/gemm_blocks.h"
#include "engine/backend/cpu/gemm_internal.h"
#include "engine/backend/cpu/gemm_pack-inl.h"
#include "engine/backend/cpu/gemm_skinny-inl.h"
#include "engine/backend/gemm_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// The kernels of this target for gemm_blocks.h.
template <class T>
struct PackedKernels {
  using Source = T;
  using Packed = T;
  static constexpr int64_t kGroup = 1;
  static constexpr bool kReadsInPlace = true;
  static constexpr int64_t kRows = kPanelRows;
  static constexpr int64_t kCols = kPanelCols<T>;
  static constexpr int64_t kStrideA = kPanelStrideA<T>;
  static constexpr int64_t kMaxDepth = sizeof(T) == 4 ? 384 : 256;
  static void pack(const T* from, int64_t from_stride, bool by_width, int64_t width, int64_t depth,
                   T* to, int64_t to_stride) {
    pack_panel(from, from_stride, by_width, width, depth, to, to_stride);
  }
  static void run(const Tile<T>& tile, int64_t rows, bool a_by_columns) {
    tile_fn<T>(rows, a_by_columns)(tile);
  }
};

template <class T>
void gemm_driver(ThreadPool& pool, const GemmParams& p, const T* packed_b) {
  GemmCase c;
  c.m = p.m;
  c.n = p.n;
  c.k = p.k;
  c.trans_a = p.trans_a;
  c.trans_b = p.trans_b;
  c.packed_weight = packed_b != nullptr;
  c.panel_rows = kPanelRows;
  switch (gemm_kernel(c)) {
    case GemmKernel::dot:
      return gemm_dot<T>(pool, p);
    case GemmKernel::in_place:
      return gemm_in_place<T>(pool, p);
    default:
      return GemmDriver<PackedKernels<T>>(pool, p, packed_b).run();
  }
}

// Elements of a weight [n, k] in panels of kPanelCols columns, each with all of K: what the driver
// reads in place. A panel is read from one end to the other, which few rows need no second look at.
template <class T>
int64_t packed_weight_size(int64_t n, int64_t k) {
  return (n + kPanelCols<T> - 1) / kPanelCols<T> * kPanelCols<T> * k;
}

template <class T>
void pack_weight(ThreadPool& pool, const T* weight, int64_t n, int64_t k, T* to) {
  parallel_for_range(pool, (n + kPanelCols<T> - 1) / kPanelCols<T>, 8,
                     [&](int64_t begin, int64_t end) {
                       for (int64_t panel = begin; panel < end; ++panel) {
                         const int64_t col = panel * kPanelCols<T>;
                         pack_panel(weight + col * k, k, true, std::min(kPanelCols<T>, n - col), k,
                                    to + col * k, kPanelCols<T>);
                       }
                     });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
