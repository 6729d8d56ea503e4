// The order of the items of attention_wgmma_ordered_backward_cuda.cu, and the sums they add to.
//
// Most heads have their tiles of keys in descending order and walk the queries upwards. Of items
// that start together, each then reaches a tile of queries one turn after the previous one, so it
// hardly ever waits. But the longest items come last. So the last heads go side by side, their
// longest items first, and walk the queries downwards. An item waits only for items of lower
// numbers, and a block takes its items in ascending order. So the unfinished item with the lowest
// number is worked on and waits for none: there is no deadlock, however few blocks run at a time.
// With a window, an item walks only the queries that see any of its keys, and waits only for the
// items that add to these.
#pragma once

#include "engine/ops/attention/attention_wgmma_pipeline.cuh"

namespace trafo::cuda::ordered_attention {

inline constexpr int kWidth = 64;  // columns of a head
inline constexpr int kRows = 128;  // keys of an item, and queries of a tile
inline constexpr int kGroups = 2;  // warpgroups that multiply, 64 keys and 64 rows of dq each

// Items are numbered head by head, of all sequences together, in those the tiles of keys in
// descending order. The last `side_by_side` heads take turns, the tiles of keys ascend.
struct Schedule {
  int heads, tiles, side_by_side;
  uint32_t items;
};

// Where an item is, as the producer found it.
struct Place {
  uint32_t number;
  int query, key, queries, keys;

  // The head among the heads of all sequences, and the tile of keys. Whether it is one of the last.
  __device__ __forceinline__ bool find(const Schedule& s, int& head, int& tile) const {
    const int at = static_cast<int>(number), first = s.heads - s.side_by_side;
    const int rest = at - first * s.tiles;
    const bool last = rest >= 0;
    head = last ? first + rest % s.side_by_side : at / s.tiles;
    tile = last ? rest / s.side_by_side : s.tiles - 1 - at % s.tiles;
    return last;
  }
};

// In scratch memory. `sums`: [heads, query_rows, 64], the columns of a row in the order of
// sum_place(). `turns`: how many items have added, [sequences * heads, tiles of queries, 2], then
// how many items have been taken.
struct Workspace {
  float* delta;  // [query_rows, heads]
  float* sums;
  uint32_t* turns;
  int64_t query_rows, query_tiles, turn_count;
  __device__ __forceinline__ uint32_t* taken() const { return turns + turn_count - 1; }
};

// Work item of a block.
template <bool Windowed>
struct Work {
  AttentionItem item;
  bool downwards;    // tiles of queries
  int own0, own;     // keys
  int begin, tiles;  // of queries that see any of them

  __device__ __forceinline__ Work(const AttentionProblem& a, const Schedule& s,
                                  const Place& place) {
    int row = 0, tile = 0;
    downwards = place.find(s, row, tile);
    const int heads = static_cast<int>(a.heads), head = row % heads;
    item.sequence = row / heads;
    item.head = head;
    item.kv_head = static_cast<uint32_t>(head) / a.group;
    item.tile = tile;
    item.query = place.query;
    item.key = place.key;
    item.queries = place.queries;
    item.keys = place.keys;
    own0 = tile * kRows;
    own = min(kRows, item.keys - own0);
    begin = max(0, own0 - item.keys + item.queries) / kRows * kRows;
    const int end = own > 0 ? item.seen_below<Windowed>(a, own0 + own - 1) : 0;
    tiles = end > begin ? (end - begin + kRows - 1) / kRows : 0;
  }
  // The first query of the tile that comes as number n.
  __device__ __forceinline__ int tile_begin(int n) const {
    return begin + (downwards ? tiles - 1 - n : n) * kRows;
  }
  // How many items add to the tile of queries from `first` on before this one, and how many after.
  __device__ __forceinline__ void find_turn(const AttentionProblem& a, int first, int& before,
                                            int& after) const {
    const int keys = item.visible(a, min(first + kRows, item.queries) - 1);
    const int tile = static_cast<int>(item.tile), above = (keys + kRows - 1) / kRows - 1 - tile;
    const int below = tile - item.first<Windowed>(a, first) / kRows;
    before = downwards ? below : above;
    after = downwards ? above : below;
  }
};

#ifdef TRAFO_HAS_WGMMA

__device__ __forceinline__ uint32_t load_acquire(const uint32_t* p) {
  uint32_t x;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
__device__ __forceinline__ void store_release(uint32_t* p, uint32_t x) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
// By the copy engine, in the background: shared memory to device memory, or added to it.
__device__ __forceinline__ void store_bulk(float* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void add_bulk(float* to, uint32_t from, uint32_t bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
}
__device__ __forceinline__ void load_bulk(uint32_t to, const float* from, uint32_t bytes,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// Later copies of this thread see the values that it has seen in device memory.
__device__ __forceinline__ void fence_copies() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}
__device__ __forceinline__ void commit_bulk() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until shared memory has been read; until device memory has been written.
__device__ __forceinline__ void wait_bulk_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void wait_bulk() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Where a thread's sums of columns 16 j + 2 t, the next, 16 j + 8 + 2 t and the next stand in row
// `row` of a warpgroup's part: side by side, and the sums of two neighbouring rows in different
// banks.
__device__ __forceinline__ int sum_place(int row, int j, int t) {
  return row * kWidth + 16 * (j ^ (row & 3)) + 4 * t;
}

// A warpgroup's 64 rows of a tile of queries, and the item's place in the order.
struct Turn {
  float* sums;        // row 0
  uint32_t* count;    // of the items that have added
  int before, after;  // items that add before this one, and after it

  template <class Work>
  __device__ __forceinline__ Turn(const AttentionProblem& a, const Work& work,
                                  const Workspace& workspace, int first, int group) {
    const AttentionItem& item = work.item;
    const int64_t row = item.query + first + 64 * group;
    sums = workspace.sums + (item.head * workspace.query_rows + row) * kWidth;
    const int64_t head = item.sequence * a.heads + item.head;
    count = workspace.turns + (head * workspace.query_tiles + first / kRows) * kGroups + group;
    work.find_turn(a, first, before, after);
  }
  // One thread.
  __device__ __forceinline__ void await() const {
    while (load_acquire(count) != static_cast<uint32_t>(before)) {
    }
  }
};

#endif  // TRAFO_HAS_WGMMA

}  // namespace trafo::cuda::ordered_attention
