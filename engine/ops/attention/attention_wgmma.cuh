// Matrix multiplication of a warpgroup (four warps) on the tensor cores of compute capability 9.0a:
// 64 rows of results a warpgroup, 64 columns an instruction, right operands from shared memory.
//
// Lane 4 g + t of warp w holds, of the 64 x 64 result, rows 16 w + g and 16 w + g + 8, columns
// 8 n + 2 t and the next: c[n][0], c[n][1] and c[n][2], c[n][3]: as in mma.sync, so
// as_left() turns results into left operands in registers.
#pragma once

#include "engine/backend/cuda/device/wgmma.cuh"
#include "engine/ops/attention/attention_mma.cuh"

namespace trafo::cuda {

// A tile [Rows, D] as panels of 64 columns, 128 bytes a row, whose 16-byte pieces change places
// with the row's number as 128-byte swizzling does; a panel begins at a multiple of 1024 bytes.
template <int D, int Rows>
struct Panels {
  static_assert(D % 64 == 0 && Rows % 64 == 0);
  static constexpr uint32_t kPanelBytes = Rows * 128;
  static constexpr uint32_t kBytes = Rows * D * 2;
  uint32_t base;  // address in the shared window
};

// Starts copying rows of x into a tile: zeros after `rows` and `width` (a multiple of 8).
template <int Threads, int D, int Rows>
__device__ __forceinline__ void copy_panels(const Panels<D, Rows>& tile, const bf16* x,
                                            int64_t stride, int rows, int width) {
  constexpr int kPieces = D / 8, kStep = Threads / kPieces;
  static_assert(Rows % kStep == 0 && kStep % 8 == 0);
  const int row = static_cast<int>(threadIdx.x) / kPieces,
            piece = static_cast<int>(threadIdx.x) % kPieces;
  const uint32_t to =
      MmaTile<64>{tile.base + piece / 8 * Panels<D, Rows>::kPanelBytes}.at(row, piece % 8);
  const int rest = 8 * piece < width ? rows - row : 0;
  const bf16* from = x + row * stride + 8 * piece;
#pragma unroll
  for (int i = 0; i < Rows; i += kStep) {
    copy16(to + i * 128, from, i < rest);  // what does not exist is not read
    from += kStep * stride;
  }
}

#ifdef TRAFO_HAS_WGMMA

// 64 x 64 float32 sums of a warpgroup.
using Sums = SumsOf<64>;

// c += a b: a in registers, 16 rows of 64 columns at descriptor `b`.
__device__ __forceinline__ void multiply_columns(Sums& c, const Quad& a, uint32_t b) {
  asm volatile("{\n.reg .b64 b;\nmov.b64 b, {%36, " TRAFO_DESCRIPTOR_HIGH
               "};\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TRAFO_PLACES_64
               "}, {%32,%33,%34,%35}, b, 1, 1, 1, 1;\n}\n"
               : TRAFO_SUMS_64
               : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b)
               : "memory");
}

// c = 64 rows of a, from `row`, times the 64 rows of b.
template <int D, int Rows>
__device__ __forceinline__ void multiply_tiles(Sums& c, const Panels<D, Rows>& a, int row,
                                               const Panels<D, 64>& b) {
  const uint32_t left = describe(a.base + row * 128), right = describe(b.base);
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
    multiply<false, false>(c, left + k / 4 * (Panels<D, Rows>::kPanelBytes / 16) + k % 4 * 2,
                           right + k / 4 * (Panels<D, 64>::kPanelBytes / 16) + k % 4 * 2, k > 0);
}
// c += a b, where a [64, 64] is in registers; a panel of 64 columns of b after the other.
template <int D>
__device__ __forceinline__ void multiply_add_tiles(Sums (&c)[D / 64], const Quad (&a)[4],
                                                   const Panels<D, 64>& b) {
  const uint32_t right = describe(b.base);
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int panel = 0; panel < D / 64; ++panel)
      multiply_columns(c[panel], a[k],
                       right + panel * (Panels<D, 64>::kPanelBytes / 16) + k * (16 * 128 / 16));
}

template <int Count>
__device__ __forceinline__ void pin_all(Sums (&c)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) pin(c[i]);
}
template <int Count>
__device__ __forceinline__ void clear_all(Sums (&c)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i)
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[i][n][e] = 0;
}

// Probabilities of a thread, its own rows `own` and own + 8, the other ones from `first` + `column`
// on: zero where a query does not see a key, or does not exist.
template <bool ForKeys, bool Windowed, int N>
__device__ __forceinline__ void mask_probabilities(float (&s)[N][4], const AttentionProblem& a,
                                                   const AttentionItem& item, int own, int first,
                                                   int column) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    // Other rows that see the own row, or are seen by it.
    const int own_row = own + 8 * half;
    int from = 0, end = item.queries - first;
    if constexpr (ForKeys)
      from = item.seen_from(a, own_row) - first;
    else
      end = own_row < item.queries ? item.visible(a, own_row) - first : 0;
    if constexpr (Windowed) {
      if constexpr (ForKeys)
        end = item.seen_below(a, own_row) - first;
      else
        from = item.first(a, own_row) - first;
    }
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int other_row = 8 * n + column + e;
        if (static_cast<int>(other_row < from) | static_cast<int>(other_row >= end))
          s[n][2 * half + e] = 0;
      }
  }
}

#endif  // TRAFO_HAS_WGMMA

}  // namespace trafo::cuda
