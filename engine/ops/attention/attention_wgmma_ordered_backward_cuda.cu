// Backward of causal attention in bfloat16 for compute capability 9.0a, long sequences of heads 64
// wide, in one pass: five products instead of the seven of the two passes.
//
// A block owns a tile of keys, gathers dk = ds^T q and dv = p^T dout, and walks the tiles of
// queries in ascending order. The copy engine adds the block's part of dq = ds k to float32 sums in
// device memory. Blocks add to a tile of queries in descending order of their keys, so the sums
// have the same bits in every run. Block n reaches a tile of queries one turn behind block n + 1,
// so it hardly ever waits for it. Block 0 is the last: it rounds the sums to dq.
// A block waits only for blocks of lower numbers. It takes its number when it starts, so these
// have started before it. So there is no deadlock, however few blocks run at a time.
#include "engine/ops/attention/attention_wgmma_pipeline.cuh"

namespace trafo::cuda {
namespace {

constexpr int kWidth = 64;  // columns of a head there is room for
constexpr int kRows = 128;  // keys of a block, and queries of a tile
constexpr int kStages = 2;  // pairs of tiles of q and dout
constexpr int kGroups = 2;  // warpgroups that multiply, 64 keys and 64 rows of dq each
constexpr int kThreads = (kGroups + 1) * kWarpgroup;
constexpr int kConsumerRegisters = 240, kProducerRegisters = 24;

using Tile = Panels<kWidth, kRows>;
// k, v; stages of q, dout; two of ds^T, each with a panel for either half of the queries; a
// warpgroup's part of dq, float32; sets of lse and delta; barriers; the block's number.
constexpr uint32_t kOthers = 2 * Tile::kBytes;
constexpr uint32_t kScores = kOthers + 2 * kStages * Tile::kBytes;
constexpr uint32_t kSums = kScores + 2 * kGroups * Tile::kBytes;
constexpr uint32_t kRowBytes = kWidth * sizeof(float), kSumsBytes = 64 * kRowBytes;
constexpr uint32_t kStatistics = kSums + kGroups * kSumsBytes;
constexpr uint32_t kBarriers = kStatistics + 2 * kStages * kRows * sizeof(float);
constexpr uint32_t kNumber = kBarriers + (1 + 2 * kStages) * 8;  // of the block
constexpr size_t kSharedBytes = kNumber + sizeof(uint32_t);
static_assert(kSharedBytes <= kHopperSharedMemory);

// In scratch memory. `sums`: [heads, query_rows, 64], the columns of a row in the order of
// sum_place(). `turns`: how many blocks have added, [sequences * heads, tiles of queries, 2], and
// behind them how many blocks have started.
struct Workspace {
  float* delta;  // [query_rows, heads]
  float* sums;
  uint32_t* turns;
  int64_t query_rows, query_tiles, turn_count;
  __device__ __forceinline__ uint32_t* started() const { return turns + turn_count - 1; }
};

struct Maps {
  CUtensorMap k, v, q, dout;
};

// delta, and zeros for `turns`. Eight threads a row of a head.
constexpr int kPrepareThreads = 256;
__global__ void __launch_bounds__(kPrepareThreads)
    prepare_kernel(const bf16* __restrict__ out, const bf16* __restrict__ dout, int64_t rows,
                   int width, Workspace workspace) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kPrepareThreads + threadIdx.x;
  if (thread < workspace.turn_count) workspace.turns[thread] = 0;
  const int64_t row = thread / 8;
  const int column = static_cast<int>(thread % 8) * 8;
  float sum = 0;
  if (row < rows && column < width) {
    const Pack<bf16, 8> a = load_pack<bf16, 8>(out + row * width + column);
    const Pack<bf16, 8> b = load_pack<bf16, 8>(dout + row * width + column);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum = fmaf(to_float(a.v[j]), to_float(b.v[j]), sum);
  }
#pragma unroll
  for (int offset = 4; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (row < rows && column == 0) workspace.delta[row] = sum;
}

#ifdef TRAFO_HAS_WGMMA

struct Room {
  uint32_t base;
  __device__ __forceinline__ uint32_t own_full() const { return base + kBarriers; }
  __device__ __forceinline__ uint32_t full(int stage) const {
    return base + kBarriers + 8 + static_cast<uint32_t>(stage) * 16;
  }
  __device__ __forceinline__ uint32_t empty(int stage) const { return full(stage) + 8; }
  // k and v; q and dout.
  __device__ __forceinline__ Tile own(int which) const {
    return {base + static_cast<uint32_t>(which) * Tile::kBytes};
  }
  __device__ __forceinline__ Tile other(int stage, int which) const {
    return {base + kOthers + static_cast<uint32_t>(2 * stage + which) * Tile::kBytes};
  }
  // ds^T: rows are keys, columns 64 of the queries.
  __device__ __forceinline__ Tile scores(int set, int half) const {
    return {base + kScores + static_cast<uint32_t>(kGroups * set + half) * Tile::kBytes};
  }
};

// What a block works on.
struct Work {
  AttentionItem item;
  int own0, own;   // keys
  int begin, end;  // queries that see any of them; begin: of a tile

  __device__ __forceinline__ Work(const AttentionProblem& a, int64_t tiles, uint32_t block)
      : item(AttentionItem::numbered(a, tiles, block)) {
    item.tile = tiles - 1 - item.tile;
    own0 = static_cast<int>(item.tile) * kRows;
    own = min(kRows, item.keys - own0);
    begin = max(0, own0 - item.keys + item.queries) / kRows * kRows;
    end = item.queries;
  }
  // The number of the last tile of keys that queries from `first` on see.
  __device__ __forceinline__ int last_tile(const AttentionProblem& a, int first) const {
    return (item.visible(a, min(first + kRows, item.queries) - 1) + kRows - 1) / kRows - 1;
  }
};

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

// Four 8 x 8 matrices to shared memory, as load_matrices() reads them.
__device__ __forceinline__ void store_matrices(uint32_t address, const Quad& q) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(q.x[0]), "r"(q.x[1]), "r"(q.x[2]), "r"(q.x[3])
               : "memory");
}

// c = a^T b over the 128 rows of both.
__device__ __forceinline__ void multiply_transposed(Sums& c, const Tile& a, const Tile& b) {
  const uint32_t left = describe(a.base), right = describe(b.base);
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k)
    multiply<true, true>(c, left + k * (16 * 128 / 16), right + k * (16 * 128 / 16), k > 0);
}

// One warp.
__device__ __forceinline__ void produce(const AttentionProblem& a, const Work& work,
                                        const Room& room, const Maps& maps, const float* lse_row,
                                        const float* delta_row) {
  const int lane = static_cast<int>(threadIdx.x);
  const int head = static_cast<int>(work.item.head), kv_head = static_cast<int>(work.item.kv_head);
  const int own_row = static_cast<int>(work.item.key) + work.own0;
  const int other_row = static_cast<int>(work.item.query);
  if (lane == 0) {
    arrive_expecting(room.own_full(), 2 * Tile::kBytes);
    load_box(room.own(0).base, maps.k, room.own_full(), 0, kv_head, own_row);
    load_box(room.own(1).base, maps.v, room.own_full(), 0, kv_head, own_row);
  }
  for (int first = work.begin; first < work.end; first += kRows) {
    const int fill = (first - work.begin) / kRows, stage = fill % kStages;
    wait_barrier(room.empty(stage), static_cast<uint32_t>(fill / kStages + 1) % 2);
    __syncwarp();
    if (lane == 0) {
      arrive_expecting(room.full(stage), 2 * Tile::kBytes);
      load_box(room.other(stage, 0).base, maps.q, room.full(stage), 0, head, other_row + first);
      load_box(room.other(stage, 1).base, maps.dout, room.full(stage), 0, head, other_row + first);
    }
#pragma unroll
    for (int i = 0; i < 2 * kRows / 32; ++i) {
      const int which = i / (kRows / 32), row = i % (kRows / 32) * 32 + lane;
      const float* from = which == 0 ? lse_row : delta_row;
      const bool exists = first + row < work.end;
      copy4(
          room.base + kStatistics + static_cast<uint32_t>(((2 * stage + which) * kRows + row) * 4),
          exists ? from + (first + row) * a.heads : from, exists);
    }
    arrive_with_copies(room.full(stage));
  }
}

// Where a thread's sums of columns 16 j + 2 t, the next, 16 j + 8 + 2 t and the next stand in row
// `row` of a warpgroup's part: side by side, and those of two neighbouring rows in different banks.
__device__ __forceinline__ int sum_place(int row, int j, int t) {
  return row * kWidth + 16 * (j ^ (row & 3)) + 4 * t;
}

// A warpgroup's 64 rows of a tile of queries, and the block's place in the order.
struct Turn {
  float* sums;      // row 0
  uint32_t* count;  // of the blocks that have added
  int before;       // blocks that add before this one

  __device__ __forceinline__ Turn(const AttentionProblem& a, const Work& work,
                                  const Workspace& workspace, int first, int group) {
    const AttentionItem& item = work.item;
    const int64_t row = item.query + first + 64 * group;
    sums = workspace.sums + (item.head * workspace.query_rows + row) * kWidth;
    const int64_t head = item.sequence * a.heads + item.head;
    count = workspace.turns + (head * workspace.query_tiles + first / kRows) * kGroups + group;
    before = work.last_tile(a, first) - static_cast<int>(item.tile);
  }
  // One thread.
  __device__ __forceinline__ void await() const {
    while (load_acquire(count) != static_cast<uint32_t>(before)) {
    }
  }
};

// Barriers of threads. 1: all that multiply; from here on one for each warpgroup.
constexpr int kGroupBarrier = 2, kSumsFull = 4, kSumsEmpty = 6;
constexpr int kSumsThreads = kWarpgroup + 32;  // a warpgroup and its sender

// One warp for each warpgroup, in blocks that are not the last: takes its parts of dq away.
__device__ __forceinline__ void send(const AttentionProblem& a, const Work& work, const Room& room,
                                     const Workspace& workspace, int group) {
  const uint32_t from = room.base + kSums + static_cast<uint32_t>(group) * kSumsBytes;
  for (int first = work.begin; first < work.end; first += kRows) {
    sync_threads(kSumsFull + group, kSumsThreads);
    const int rows = min(64, work.item.queries - first - 64 * group);
    const Turn turn(a, work, workspace, first, group);
    const bool sends = threadIdx.x % 32 == 0 && rows > 0;
    if (sends) {
      const uint32_t bytes = static_cast<uint32_t>(rows) * kRowBytes;
      turn.await();
      if (turn.before == 0)
        store_bulk(turn.sums, from, bytes);
      else
        add_bulk(turn.sums, from, bytes);
      commit_bulk();
      wait_bulk_read();
    }
    __syncwarp();
    if (first + kRows < work.end) arrive_threads(kSumsEmpty + group, kSumsThreads);
    if (sends) {
      wait_bulk();
      __threadfence();
      store_release(turn.count, static_cast<uint32_t>(turn.before) + 1);
    }
    __syncwarp();
  }
}

// Adds what the other blocks have added up to the results of the last one.
__device__ __forceinline__ void add_sums(Sums& c, const float* sums, int warp_row, int rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp_row + g + 8 * half;
    if (row >= rows) continue;
#pragma unroll
    for (int j = 0; j < kWidth / 16; ++j) {
      const float4 sum = __ldcg(reinterpret_cast<const float4*>(sums + sum_place(row, j, t)));
      c[2 * j][2 * half] += sum.x;
      c[2 * j][2 * half + 1] += sum.y;
      c[2 * j + 1][2 * half] += sum.z;
      c[2 * j + 1][2 * half + 1] += sum.w;
    }
  }
}

__device__ __forceinline__ void consume(const AttentionProblem& a,
                                        const AttentionGradients& gradients, const Work& work,
                                        const Room& room, const Workspace& workspace,
                                        float* sums_memory, const float* statistics_memory) {
  const AttentionItem& item = work.item;
  const int own0 = work.own0, own = work.own, width = static_cast<int>(a.head_dim);
  const int group = uniform(static_cast<int>(threadIdx.x) / kWarpgroup) - 1, group_row = 64 * group;
  const int group_thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int warp = group_thread / 32, warp_row = group_row + 16 * warp;
  const int64_t column = item.head * width;
  sums_memory += group * (kSumsBytes / sizeof(float));
  const auto sync_group = [&] { sync_threads(kGroupBarrier + group, kWarpgroup); };
  const auto sync_groups = [&] { sync_threads(1, kGroups * kWarpgroup); };

  const float scale = a.scale * kLog2e;
  Sums sum_k, sum_v;  // dk before its factor, dv
#pragma unroll
  for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) sum_k[n][e] = sum_v[n][e] = 0;
  const Tile keys = room.own(0), values = room.own(1);
  wait_barrier(room.own_full(), 0);
  if (own < kRows) {
    // Rows behind the last may hold NaN, and 0 * NaN is not 0.
    clear_rows(keys, own, group_thread);
    clear_rows(values, own, group_thread);
    wgmma_publish();
    sync_groups();
  }

  SumsOf<kRows> s, dp;  // of the warpgroup's keys and all queries of the tile
  // Waits for a tile of queries and begins its scores.
  const auto begin_scores = [&](int first) {
    const int fill = (first - work.begin) / kRows, stage = fill % kStages;
    wait_barrier(room.full(stage), static_cast<uint32_t>(fill / kStages) % 2);
    const int rows = item.queries - first;
    if (rows < kRows) {
      clear_rows(room.other(stage, 0), rows, group_thread);
      clear_rows(room.other(stage, 1), rows, group_thread);
      wgmma_publish();
      sync_group();
    }
    wgmma_begin();
    multiply_tiles(s, keys, group_row, room.other(stage, 0));
    wgmma_commit();
  };
  for (int first = work.begin; first < work.end; first += kRows) {
    const int fill = (first - work.begin) / kRows, stage = fill % kStages;
    const Tile queries = room.other(stage, 0), gradient = room.other(stage, 1);
    const int rows = item.queries - first;
    begin_scores(first);
    wgmma_begin();
    multiply_tiles(dp, values, group_row, gradient);
    wgmma_commit();

    // Some query has a masked key, or does not exist.
    const bool masked = rows < kRows || own0 + group_row + 64 > item.visible(a, first);
    const float* statistics = statistics_memory + 2 * stage * kRows + 2 * t;
    wgmma_wait<1>();
    pin(s);
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      const float2 log_sums = *reinterpret_cast<const float2*>(statistics + 8 * n);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        s[n][e] = fast_exp2(fmaf(s[n][e], scale, -(e % 2 == 0 ? log_sums.x : log_sums.y) * kLog2e));
    }
    if (masked) mask_probabilities<true>(s, a, item, own0 + warp_row + g, first, 2 * t);
    Quad left_p[kRows / 16], left_ds[kRows / 16];
    wgmma_wait<0>();
    pin(dp);
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      const float2 deltas = *reinterpret_cast<const float2*>(statistics + kRows + 8 * n);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        dp[n][e] = s[n][e] * (dp[n][e] - (e % 2 == 0 ? deltas.x : deltas.y));
    }
#pragma unroll
    for (int k = 0; k < kRows / 16; ++k) {
      left_p[k] = as_left(s[2 * k], s[2 * k + 1]);
      left_ds[k] = as_left(dp[2 * k], dp[2 * k + 1]);
    }
    pin(sum_v);
    pin(sum_k);
    wgmma_begin();
    multiply_add_tile(sum_v, left_p, gradient);
    multiply_add_tile(sum_k, left_ds, queries);
    wgmma_commit();

    const int set = fill % 2;
#pragma unroll
    for (int k = 0; k < kRows / 16; ++k) {
      const MmaTile<64> panel{room.scores(set, k / 4).base};
      store_matrices(panel.at(warp_row + lane % 16, lane / 16) ^ 32u * (k % 4), left_ds[k]);
    }
    wgmma_publish();
    sync_groups();
    Sums dq;
    wgmma_begin();
    multiply_transposed(dq, room.scores(set, group), keys);
    wgmma_commit();
    wgmma_wait<1>();
    pin(sum_v);
    pin(sum_k);
    arrive(room.empty(stage));
    wgmma_wait<0>();
    pin(dq);
    if (item.tile > 0) {
      if (fill > 0) sync_threads(kSumsEmpty + group, kSumsThreads);
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < kWidth / 16; ++j)
          *reinterpret_cast<float4*>(sums_memory + sum_place(16 * warp + g + 8 * half, j, t)) = {
              dq[2 * j][2 * half], dq[2 * j][2 * half + 1], dq[2 * j + 1][2 * half],
              dq[2 * j + 1][2 * half + 1]};
      wgmma_publish();
      arrive_threads(kSumsFull + group, kSumsThreads);
    } else {
      const Turn turn(a, work, workspace, first, group);
      const bool added = turn.before > 0 && rows > group_row;
      if (added && group_thread == 0) turn.await();
      sync_group();  // no other warpgroup reads this half of the scores
      if (added) add_sums(dq, turn.sums, 16 * warp, rows - group_row);
      store_rows<kWidth>(
          MmaTile<kWidth>{room.scores(set, group).base}, 16 * warp, dq, a.scale, a.scale,
          static_cast<bf16*>(gradients.dq) +
              (item.query + first + group_row) * gradients.dq_stride + column,
          gradients.dq_stride, rows - group_row, width, gradients.accumulate_dq, gradients.largest);
    }
  }
  sync_groups();  // the own tiles are free for the results

  const auto store = [&](const Tile& tile, const Sums& result, float factor, void* gradient,
                         int64_t stride, bool accumulate) {
    store_rows<kWidth>(MmaTile<kWidth>{tile.base}, warp_row, result, factor, factor,
                       static_cast<bf16*>(gradient) + (item.key + own0) * stride + column, stride,
                       own, width, accumulate, gradients.largest);
  };
  if (gradients.dk)
    store(keys, sum_k, a.scale, gradients.dk, gradients.dk_stride, gradients.accumulate_dk);
  if (gradients.dv)
    store(values, sum_v, 1.0f, gradients.dv, gradients.dv_stride, gradients.accumulate_dv);
}

// dq of queries before `rows`, which see no key.
__device__ __forceinline__ void clear_queries(const AttentionProblem& a,
                                              const AttentionGradients& gradients,
                                              const AttentionItem& item, int rows) {
  if (gradients.accumulate_dq) return;
  const int pieces = static_cast<int>(a.head_dim) / 8;
  bf16* to =
      static_cast<bf16*>(gradients.dq) + item.query * gradients.dq_stride + item.head * a.head_dim;
  for (int at = static_cast<int>(threadIdx.x); at < rows * pieces; at += kThreads)
    store_pack(to + at / pieces * gradients.dq_stride + at % pieces * 8, Pack<bf16, 8>{});
}

#endif  // TRAFO_HAS_WGMMA

__global__ void __launch_bounds__(kThreads, 1)
    wgmma_ordered_backward_kernel(AttentionProblem a, AttentionGradients gradients, int64_t tiles,
                                  const __grid_constant__ Maps maps, const float* lse,
                                  Workspace workspace) {
#ifdef TRAFO_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char shared[];
  const Room room{shared_address(shared)};
  auto* number = reinterpret_cast<uint32_t*>(shared + kNumber);
  if (threadIdx.x == 0) *number = atomicAdd(workspace.started(), 1u);
  __syncthreads();
  const Work work(a, tiles, static_cast<uint32_t>(uniform(static_cast<int>(*number))));
  const AttentionItem& item = work.item;
  if (item.tile == 0) clear_queries(a, gradients, item, item.keys > 0 ? work.begin : item.queries);
  if (work.own <= 0) return;
  if (threadIdx.x == 0) {
    init_barrier(room.own_full(), 1);
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(room.full(stage), 1 + 32);
      init_barrier(room.empty(stage), kWarpgroup * kGroups);
    }
    publish_barriers();
  }
  __syncthreads();
  if (uniform(static_cast<int>(threadIdx.x) / kWarpgroup) == 0) {
    leave_registers<kProducerRegisters>();
    const int64_t row = item.query * a.heads + item.head;
    const int warp = uniform(static_cast<int>(threadIdx.x) / 32);
    if (warp == 0)
      produce(a, work, room, maps, lse + row, workspace.delta + row);
    else if (warp <= kGroups && item.tile > 0)
      send(a, work, room, workspace, warp - 1);
  } else {
    take_registers<kConsumerRegisters>();
    consume(a, gradients, work, room, workspace, reinterpret_cast<float*>(shared + kSums),
            reinterpret_cast<const float*>(shared + kStatistics));
  }
#endif
}

}  // namespace

int32_t attention_backward_ordered(DeviceState& device, const AttentionBackwardParams& p,
                                   bool& taken) {
  Maps maps;
  taken = p.dq &&
          make_tensor_map(maps.k, p.k, p.k_stride, p.key_rows, p.kv_heads, p.head_dim, kRows) &&
          make_tensor_map(maps.v, p.v, p.v_stride, p.key_rows, p.kv_heads, p.head_dim, kRows) &&
          make_tensor_map(maps.q, p.q, p.q_stride, p.query_rows, p.heads, p.head_dim, kRows) &&
          make_tensor_map(maps.dout, p.dout, p.heads * p.head_dim, p.query_rows, p.heads,
                          p.head_dim, kRows);
  if (!taken) return kSuccess;

  Workspace workspace{};
  workspace.query_rows = p.query_rows;
  workspace.query_tiles = (p.max_queries + kRows - 1) / kRows;
  workspace.turn_count = p.sequences * p.heads * workspace.query_tiles * kGroups + 1;
  const int64_t rows = p.query_rows * p.heads, sums = rows * kWidth;
  auto* memory = static_cast<float*>(
      device.scratch(static_cast<size_t>(sums + rows + workspace.turn_count) * sizeof(float)));
  if (!memory) return kOutOfMemory;
  workspace.sums = memory;  // aligned, as it comes first
  workspace.delta = memory + sums;
  workspace.turns = reinterpret_cast<uint32_t*>(memory + sums + rows);

  const int64_t threads = std::max(8 * rows, workspace.turn_count);
  prepare_kernel<<<static_cast<unsigned>((threads + kPrepareThreads - 1) / kPrepareThreads),
                   kPrepareThreads, 0, device.stream>>>(static_cast<const bf16*>(p.out),
                                                        static_cast<const bf16*>(p.dout), rows,
                                                        static_cast<int>(p.head_dim), workspace);
  const int32_t result = launched(device, "attention_backward");
  if (result != kSuccess) return result;
  const int64_t tiles = (p.max_keys + kRows - 1) / kRows;
  return launch_attention(device, "attention_backward", wgmma_ordered_backward_kernel,
                          p.sequences * p.heads * tiles, kThreads, kSharedBytes,
                          AttentionProblem::of(device, p), attention_gradients(p), tiles, maps,
                          static_cast<const float*>(p.lse), workspace);
}

}  // namespace trafo::cuda
