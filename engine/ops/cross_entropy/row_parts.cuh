// A row of logits as 16-byte packs and the elements around them.
#pragma once

#include "engine/backend/cuda/device/cluster.cuh"
#include "engine/backend/cuda/device/rows.cuh"

namespace trafo::cuda {

// A row from its first 16-byte boundary on, and its edges: the elements before and after the packs.
template <class T>
struct RowParts {
  static constexpr int W = kPackWidth<T>;
  int64_t head, edges;
  int packs;
  __device__ __forceinline__ RowParts(const T* row, int64_t classes) {
    const int past = static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16);
    head = past == 0 ? 0 : min(classes, int64_t{(16 - past) / static_cast<int>(sizeof(T))});
    packs = static_cast<int>((classes - head) / W);
    edges = classes - int64_t{packs} * W;
  }
  // The whole row as edges.
  __device__ __forceinline__ void take_apart(int64_t classes) {
    head = edges = classes;
    packs = 0;
  }
  __device__ __forceinline__ int64_t edge(int64_t e) const {
    return e < head ? e : e + int64_t{packs} * W;
  }
  // The thread of `threads` that has element `c`.
  __device__ __forceinline__ int owner(int64_t c, int threads) const {
    const int64_t in_packs = c - head, count = int64_t{packs} * W;
    const int64_t place = in_packs >= 0 && in_packs < count ? in_packs / W
                          : in_packs < 0                    ? c
                                                            : c - count;
    return static_cast<int>(place % threads);
  }
};

// Packs of a row for each of `blocks`, in whole lines of the cache.
__host__ __device__ __forceinline__ int64_t share_of_packs(int64_t packs, int blocks) {
  return ((packs + blocks - 1) / blocks + 7) / 8 * 8;
}

// A block's part of a row. kShared: the row is divided among the blocks of a cluster, and the first
// has the edges.
template <class T, bool kShared>
struct RowShare {
  int block = 0, blocks = 1;
  int first = 0, packs;
  int64_t edges;
  __device__ __forceinline__ explicit RowShare(const RowParts<T>& row)
      : packs(row.packs), edges(row.edges) {
    if constexpr (kShared) {
      block = static_cast<int>(block_in_cluster());
      blocks = static_cast<int>(blocks_in_cluster());
      const auto share = static_cast<int>(share_of_packs(row.packs, blocks));
      first = min(block * share, row.packs);
      packs = min(share, row.packs - first);
      if (block > 0) edges = 0;
    }
  }
  // Whether this thread of `threads` has element `c`.
  __device__ __forceinline__ bool owns(const RowParts<T>& row, int64_t c, int threads) const {
    if constexpr (kShared) {
      const int64_t in_packs = c - row.head;
      const bool is_edge = in_packs < 0 || in_packs >= int64_t{row.packs} * RowParts<T>::W;
      const auto pack = static_cast<int>(in_packs / RowParts<T>::W);
      if (is_edge ? block > 0 : pack < first || pack >= first + packs) return false;
      if (!is_edge) return (pack - first) % threads == static_cast<int>(threadIdx.x);
    }
    return row.owner(c, threads) == static_cast<int>(threadIdx.x);
  }
};

template <class T, int Threads>
__device__ __forceinline__ void clear_row(T* out, int64_t classes) {
  constexpr int W = kPackWidth<T>;
  const RowParts<T> parts(out, classes);
  for (int64_t e = threadIdx.x; e < parts.edges; e += Threads)
    out[parts.edge(e)] = from_float<T>(0.0f);
  auto* body = reinterpret_cast<uint4*>(out + parts.head);
  for (int i = threadIdx.x; i < parts.packs; i += Threads) body[i] = uint4{};
}

// A multiple of 16 bytes, aligned to 16.
template <int Threads>
__device__ __forceinline__ void clear_bytes(uint8_t* out, int64_t count) {
  auto* packs = reinterpret_cast<uint4*>(out);
  for (int64_t i = threadIdx.x; i < count / 16; i += Threads) packs[i] = uint4{};
}

}  // namespace trafo::cuda
