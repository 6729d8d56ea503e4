// Backward of causal attention in bfloat16 for compute capability 9.0a, long sequences of heads 64
// wide, in one pass: five products instead of the seven of the two passes.
//
// An item is a tile of keys of a head. Its block gathers dk = ds^T q and dv = p^T dout over the
// tiles of queries. The copy engine adds the item's part of dq = ds k to float32 sums in device
// memory. The items of a head add to a tile of queries in the order of their numbers, so the sums
// have the same bits in every run. The last one fetches the sums and rounds the total to dq.
// Blocks stay and take items by number, one ahead of the one they work on, whose keys and values
// come meanwhile. attention_wgmma_ordered.cuh has the order of the items.
#include "engine/ops/attention/attention_wgmma_ordered.cuh"

namespace trafo::cuda {
namespace {

using namespace ordered_attention;

constexpr int kStages = 2;  // pairs of tiles of q and dout
constexpr int kThreads = (kGroups + 1) * kWarpgroup;
constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;

using Tile = Panels<kWidth, kRows>;
// k, v of two items; stages of q, dout; two of ds^T, each with a panel for either half of the
// queries; a warpgroup's part of dq, float32; sets of lse and delta; barriers; places of two items.
constexpr uint32_t kOthers = 4 * Tile::kBytes;
constexpr uint32_t kScores = kOthers + 2 * kStages * Tile::kBytes;
constexpr uint32_t kSums = kScores + 2 * kGroups * Tile::kBytes;
constexpr uint32_t kRowBytes = kWidth * sizeof(float), kSumsBytes = 64 * kRowBytes;
constexpr uint32_t kStatistics = kSums + kGroups * kSumsBytes;
constexpr uint32_t kBarriers = kStatistics + 2 * kStages * kRows * sizeof(float);
constexpr uint32_t kPlaces = kBarriers + (4 + 2 * kStages + kGroups) * 8;
constexpr size_t kSharedBytes = kPlaces + 2 * sizeof(Place);
static_assert(kSharedBytes <= kHopperSharedMemory);

struct Maps {
  CUtensorMap k, v, q, dout;
};

// delta, and zeros for `turns`. Eight threads a row of a head, kPrepareRows rows each.
constexpr int kPrepareThreads = 256, kPrepareRows = 4;
__global__ void __launch_bounds__(kPrepareThreads)
    prepare_kernel(const bf16* __restrict__ out, const bf16* __restrict__ dout, int64_t rows,
                   int width, Workspace workspace) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kPrepareThreads + threadIdx.x;
  if (thread < workspace.turn_count) workspace.turns[thread] = 0;
  constexpr int kStep = kPrepareThreads / 8;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kStep * kPrepareRows + threadIdx.x / 8;
  const int column = static_cast<int>(threadIdx.x) % 8 * 8;
  Pack<bf16, 8> a[kPrepareRows], b[kPrepareRows];
#pragma unroll
  for (int i = 0; i < kPrepareRows; ++i) {
    const int64_t row = first + i * kStep;
    a[i] = b[i] = {};
    if (row < rows && column < width) {
      a[i] = load_pack<bf16, 8>(out + row * width + column);
      b[i] = load_pack<bf16, 8>(dout + row * width + column);
    }
  }
#pragma unroll
  for (int i = 0; i < kPrepareRows; ++i) {
    const int64_t row = first + i * kStep;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) sum = fmaf(to_float(a[i].v[j]), to_float(b[i].v[j]), sum);
#pragma unroll
    for (int offset = 4; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (row < rows && column == 0) workspace.delta[row] = sum;
  }
}

#ifdef TRAFO_HAS_WGMMA

struct Room {
  uint32_t base;
  __device__ __forceinline__ uint32_t own_full(uint32_t set) const {
    return base + kBarriers + set * 16;
  }
  __device__ __forceinline__ uint32_t own_empty(uint32_t set) const { return own_full(set) + 8; }
  __device__ __forceinline__ uint32_t full(uint32_t stage) const {
    return base + kBarriers + 32 + stage * 16;
  }
  __device__ __forceinline__ uint32_t empty(uint32_t stage) const { return full(stage) + 8; }
  __device__ __forceinline__ uint32_t sums_full(int group) const {
    return base + kBarriers + 32 + kStages * 16 + static_cast<uint32_t>(group) * 8;
  }
  // k and v; q and dout.
  __device__ __forceinline__ Tile own(uint32_t set, uint32_t which) const {
    return {base + (2 * set + which) * Tile::kBytes};
  }
  __device__ __forceinline__ Tile other(uint32_t stage, uint32_t which) const {
    return {base + kOthers + (2 * stage + which) * Tile::kBytes};
  }
  // ds^T: rows are keys, columns 64 of the queries.
  __device__ __forceinline__ Tile scores(uint32_t set, uint32_t half) const {
    return {base + kScores + (kGroups * set + half) * Tile::kBytes};
  }
};

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
template <bool Windowed>
__device__ __forceinline__ void produce(const AttentionProblem& a, const Schedule& schedule,
                                        const Room& room, Place* places, const Maps& maps,
                                        const float* lse, const Workspace& workspace) {
  const int lane = static_cast<int>(threadIdx.x);
  uint32_t round = 0, filled = 0;  // items so far; tiles of queries so far
  for (;;) {
    Place place{};
    if (lane == 0) place.number = atomicAdd(workspace.taken(), 1u);
    place.number = __shfl_sync(0xffffffffu, place.number, 0);
    const bool exists = place.number < schedule.items;
    if (exists) {
      int head = 0, tile = 0;
      place.find(schedule, head, tile);
      const int sequence = head / static_cast<int>(a.heads);
      place.query = a.query_begin[sequence];
      place.key = a.key_begin[sequence];
      // A sequence longer than max_queries and max_keys is a broken promise of the caller. The rows
      // beyond have no items, so the other items must not wait for any.
      place.queries =
          min(a.query_end[sequence] - place.query, static_cast<int>(workspace.query_tiles) * kRows);
      place.keys = min(a.key_end[sequence] - place.key, schedule.tiles * kRows);
    }
    const Work<Windowed> work(a, schedule, place);
    if (exists && work.own <= 0 && work.item.tile > 0) continue;
    const uint32_t set = round % 2;
    const int head = static_cast<int>(work.item.head);
    wait_barrier(room.own_empty(set), (round / 2 + 1) % 2);
    ++round;
    if (lane == 0) {
      places[set] = place;
      if (exists && work.own > 0) {
        const int kv_head = static_cast<int>(work.item.kv_head), row = place.key + work.own0;
        arrive_expecting(room.own_full(set), 2 * Tile::kBytes);
        load_box(room.own(set, 0).base, maps.k, room.own_full(set), 0, kv_head, row);
        load_box(room.own(set, 1).base, maps.v, room.own_full(set), 0, kv_head, row);
      } else {
        arrive(room.own_full(set));
      }
    }
    if (!exists) return;
    for (int n = 0; n < work.tiles; ++n, ++filled) {
      const int first = work.tile_begin(n);
      const uint32_t stage = filled % kStages;
      wait_barrier(room.empty(stage), (filled / kStages + 1) % 2);
      __syncwarp();
      const int64_t tile_row = work.item.query + first;
      if (lane == 0) {
        arrive_expecting(room.full(stage), 2 * Tile::kBytes);
        load_box(room.other(stage, 0).base, maps.q, room.full(stage), 0, head,
                 static_cast<int>(tile_row));
        load_box(room.other(stage, 1).base, maps.dout, room.full(stage), 0, head,
                 static_cast<int>(tile_row));
      }
#pragma unroll
      for (int i = 0; i < 2 * kRows / 32; ++i) {
        const int which = i / (kRows / 32), row = i % (kRows / 32) * 32 + lane;
        const float* from = which == 0 ? lse : workspace.delta;
        const bool known = first + row < work.item.queries;
        copy4(room.base + kStatistics +
                  static_cast<uint32_t>(((2 * static_cast<int>(stage) + which) * kRows + row) * 4),
              from + (known ? (tile_row + row) * a.heads + head : 0), known);
      }
      arrive_with_copies(room.full(stage));
    }
  }
}

// Barriers of threads. 1: all that multiply; from here on one for each warpgroup.
constexpr int kGroupBarrier = 2, kSumsFull = 4, kSumsEmpty = 6;
constexpr int kSumsThreads = kWarpgroup + 32;  // a warpgroup and its sender

// One warp for each warpgroup: takes its parts of dq away, and fetches the sums for the last part.
template <bool Windowed>
__device__ __forceinline__ void send(const AttentionProblem& a, const Schedule& schedule,
                                     const Room& room, const Place* places,
                                     const Workspace& workspace, int group) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t part = room.base + kSums + static_cast<uint32_t>(group) * kSumsBytes;
  for (uint32_t round = 0;; ++round) {
    const uint32_t set = round % 2;
    wait_barrier(room.own_full(set), round / 2 % 2);
    const Place place = places[set];
    __syncwarp();
    if (lane == 0) arrive(room.own_empty(set));
    if (place.number >= schedule.items) return;
    const Work<Windowed> work(a, schedule, place);
    for (int n = 0; n < work.tiles; ++n) {
      const int first = work.tile_begin(n);
      const Turn turn(a, work, workspace, first, group);
      const int rows = min(64, work.item.queries - first - 64 * group);
      const uint32_t bytes = static_cast<uint32_t>(rows) * kRowBytes;
      const bool last = turn.after == 0, acts = lane == 0 && rows > 0;
      if (last && acts && turn.before > 0) {
        turn.await();
        fence_copies();
        arrive_expecting(room.sums_full(group), bytes);
        load_bulk(part, turn.sums, bytes, room.sums_full(group));
      }
      __syncwarp();
      sync_threads(kSumsFull + group, kSumsThreads);
      const bool sends = acts && !last;
      if (sends) {
        if (turn.before == 0) {
          store_bulk(turn.sums, part, bytes);
        } else {
          turn.await();
          add_bulk(turn.sums, part, bytes);
        }
        commit_bulk();
        wait_bulk_read();
      }
      __syncwarp();
      arrive_threads(kSumsEmpty + group, kSumsThreads);
      if (sends) {
        wait_bulk();
        __threadfence();
        store_release(turn.count, static_cast<uint32_t>(turn.before) + 1);
      }
      __syncwarp();
    }
  }
}

// dq of queries before `rows`, which see no key. All threads that multiply, `thread` of them.
__device__ __forceinline__ void clear_queries(const AttentionProblem& a,
                                              const AttentionGradients& gradients,
                                              const AttentionItem& item, int rows, int thread) {
  if (gradients.accumulate_dq) return;
  constexpr int kPieces = kWidth / 8;
  bf16* to =
      static_cast<bf16*>(gradients.dq) + item.query * gradients.dq_stride + item.head * kWidth;
  for (int at = thread; at < rows * kPieces; at += kGroups * kWarpgroup)
    store_pack(to + at / kPieces * gradients.dq_stride + at % kPieces * 8, Pack<bf16, 8>{});
}

template <bool Windowed>
__device__ __forceinline__ void consume(const AttentionProblem& a,
                                        const AttentionGradients& gradients,
                                        const Schedule& schedule, const Room& room,
                                        const Place* places, float* sums_memory,
                                        const float* statistics_memory) {
  const int group = uniform(static_cast<int>(threadIdx.x) / kWarpgroup) - 1, group_row = 64 * group;
  const int group_thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int warp = group_thread / 32, warp_row = group_row + 16 * warp;
  sums_memory += group * (kSumsBytes / sizeof(float));
  const auto sync_group = [&] { sync_threads(kGroupBarrier + group, kWarpgroup); };
  const auto sync_groups = [&] { sync_threads(1, kGroups * kWarpgroup); };
  const auto give_back = [&](uint32_t barrier) {
    __syncwarp();
    if (lane == 0) arrive(barrier);
  };

  const float scale = a.scale * kLog2e;
  uint32_t filled = 0, fetched = 0;  // as the producer and the sender count
  for (uint32_t round = 0;; ++round) {
    const uint32_t own_set = round % 2;
    wait_barrier(room.own_full(own_set), round / 2 % 2);
    const Place place = places[own_set];
    if (place.number >= schedule.items) break;
    const Work<Windowed> work(a, schedule, place);
    const AttentionItem& item = work.item;
    const int own0 = work.own0, own = work.own;
    const Tile keys = room.own(own_set, 0), values = room.own(own_set, 1);
    if (item.tile == 0)
      clear_queries(a, gradients, item, own > 0 ? work.begin : item.queries,
                    group * kWarpgroup + group_thread);
    if (own <= 0) {
      give_back(room.own_empty(own_set));
      continue;
    }
    if (own < kRows) {
      // Rows after the last may hold NaN, and 0 * NaN is not 0.
      clear_rows(keys, own, group_thread);
      clear_rows(values, own, group_thread);
      wgmma_publish();
      sync_groups();
    }

    Sums sum_k, sum_v;  // dk before its factor, dv
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum_k[n][e] = sum_v[n][e] = 0;
    for (int n = 0; n < work.tiles; ++n, ++filled) {
      const int first = work.tile_begin(n);
      const uint32_t stage = filled % kStages;
      const Tile queries = room.other(stage, 0), gradient = room.other(stage, 1);
      const int rows = item.queries - first;
      wait_barrier(room.full(stage), filled / kStages % 2);
      if (rows < kRows) {
        clear_rows(queries, rows, group_thread);
        clear_rows(gradient, rows, group_thread);
        wgmma_publish();
        sync_group();
      }
      SumsOf<kRows> s, dp;  // of the warpgroup's keys and all queries of the tile
      wgmma_begin();
      multiply_tiles(s, keys, group_row, queries);
      wgmma_commit();
      multiply_tiles(dp, values, group_row, gradient);
      wgmma_commit();

      // Some query has a masked key, or does not exist.
      const bool masked = rows < kRows || own0 + group_row + 64 > item.visible(a, first) ||
                          (Windowed && own0 + group_row < item.first(a, first + kRows - 1));
      const float* statistics = statistics_memory + 2 * stage * kRows + 2 * t;
      wgmma_wait<1>();
      pin(s);
#pragma unroll
      for (int n = 0; n < kRows / 8; ++n) {
        const float2 log_sums = *reinterpret_cast<const float2*>(statistics + 8 * n);
#pragma unroll
        for (int e = 0; e < 4; ++e)
          s[n][e] =
              fast_exp2(fmaf(s[n][e], scale, -(e % 2 == 0 ? log_sums.x : log_sums.y) * kLog2e));
      }
      if (masked) mask_probabilities<true, Windowed>(s, a, item, own0 + warp_row + g, first, 2 * t);
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

      const uint32_t set = filled % 2;
#pragma unroll
      for (int k = 0; k < kRows / 16; ++k) {
        const MmaTile<64> panel{room.scores(set, k / 4).base};
        store_matrices(panel.at(warp_row + lane % 16, lane / 16) ^ 32u * (k % 4), left_ds[k]);
      }
      wgmma_publish();
      sync_groups();
      Sums dq;
      wgmma_begin();
      multiply_transposed(dq, room.scores(set, static_cast<uint32_t>(group)), keys);
      wgmma_commit();
      wgmma_wait<1>();
      pin(sum_v);
      pin(sum_k);
      arrive(room.empty(stage));
      wgmma_wait<0>();
      pin(dq);
      if (filled > 0) sync_threads(kSumsEmpty + group, kSumsThreads);
      const auto place_of = [&](int half, int j) {
        return reinterpret_cast<float4*>(sums_memory + sum_place(16 * warp + g + 8 * half, j, t));
      };
      int before = 0, after = 0;
      work.find_turn(a, first, before, after);
      if (after > 0) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int j = 0; j < kWidth / 16; ++j)
            *place_of(half, j) = {dq[2 * j][2 * half], dq[2 * j][2 * half + 1],
                                  dq[2 * j + 1][2 * half], dq[2 * j + 1][2 * half + 1]};
        wgmma_publish();
        arrive_threads(kSumsFull + group, kSumsThreads);
        continue;
      }
      if (rows > group_row && before > 0) {
        wait_barrier(room.sums_full(group), fetched++ % 2);
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int j = 0; j < kWidth / 16; ++j) {
            const float4 sum = *place_of(half, j);
            dq[2 * j][2 * half] += sum.x;
            dq[2 * j][2 * half + 1] += sum.y;
            dq[2 * j + 1][2 * half] += sum.z;
            dq[2 * j + 1][2 * half + 1] += sum.w;
          }
      }
      arrive_threads(kSumsFull + group, kSumsThreads);
      sync_group();  // no other warpgroup reads this half of the scores
      store_rows<kWidth>(MmaTile<kWidth>{room.scores(set, static_cast<uint32_t>(group)).base},
                         16 * warp, dq, a.scale, a.scale,
                         static_cast<bf16*>(gradients.dq) +
                             (item.query + first + group_row) * gradients.dq_stride +
                             item.head * kWidth,
                         gradients.dq_stride, rows - group_row, kWidth, gradients.accumulate_dq,
                         gradients.largest);
    }

    // The warpgroup alone has read its rows of the values: they are room for the results.
    const MmaTile<kWidth> staging{values.base};
    const int64_t row = item.key + own0, column = item.head * kWidth;
    const auto store = [&](const Sums& result, float factor, void* gradient, int64_t stride,
                           bool accumulate) {
      if (gradient)
        store_rows<kWidth>(staging, warp_row, result, factor, factor,
                           static_cast<bf16*>(gradient) + row * stride + column, stride, own,
                           kWidth, accumulate, gradients.largest);
    };
    store(sum_v, 1.0f, gradients.dv, gradients.dv_stride, gradients.accumulate_dv);
    store(sum_k, a.scale, gradients.dk, gradients.dk_stride, gradients.accumulate_dk);
    wgmma_publish();
    give_back(room.own_empty(own_set));
  }
  if (filled > 0) sync_threads(kSumsEmpty + group, kSumsThreads);
}

#endif  // TRAFO_HAS_WGMMA

template <bool Windowed>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_ordered_backward_kernel(AttentionProblem a, AttentionGradients gradients,
                                  Schedule schedule, const __grid_constant__ Maps maps,
                                  const float* lse, Workspace workspace) {
#ifdef TRAFO_HAS_WGMMA
  extern __shared__ __align__(1024) unsigned char shared[];
  const Room room{shared_address(shared)};
  auto* places = reinterpret_cast<Place*>(shared + kPlaces);
  auto* sums = reinterpret_cast<float*>(shared + kSums);
  if (threadIdx.x == 0) {
    for (uint32_t set = 0; set < 2; ++set) {
      init_barrier(room.own_full(set), 1);
      init_barrier(room.own_empty(set), kGroups * (kWarpgroup / 32 + 1));  // and its sender
    }
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      init_barrier(room.full(stage), 1 + 32);
      init_barrier(room.empty(stage), kWarpgroup * kGroups);
    }
    for (int group = 0; group < kGroups; ++group) init_barrier(room.sums_full(group), 1);
    publish_barriers();
  }
  __syncthreads();
  if (uniform(static_cast<int>(threadIdx.x) / kWarpgroup) == 0) {
    leave_registers<kProducerRegisters>();
    const int warp = uniform(static_cast<int>(threadIdx.x) / 32);
    if (warp == 0)
      produce<Windowed>(a, schedule, room, places, maps, lse, workspace);
    else if (warp <= kGroups)
      send<Windowed>(a, schedule, room, places, workspace, warp - 1);
  } else {
    take_registers<kConsumerRegisters>();
    consume<Windowed>(a, gradients, schedule, room, places, sums,
                      reinterpret_cast<const float*>(shared + kStatistics));
  }
#endif
}

// Heads at the end whose longest items come first: the fewest whose items keep all
// multiprocessors busy to the end. The order of sums depends on it, so it does not depend on the
// card.
constexpr int64_t kSideBySide = 16;

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

  const int64_t threads =
      std::max(8 * ((rows + kPrepareRows - 1) / kPrepareRows), workspace.turn_count);
  prepare_kernel<<<static_cast<unsigned>((threads + kPrepareThreads - 1) / kPrepareThreads),
                   kPrepareThreads, 0, device.stream>>>(static_cast<const bf16*>(p.out),
                                                        static_cast<const bf16*>(p.dout), rows,
                                                        static_cast<int>(p.head_dim), workspace);
  const int32_t result = launched(device, "attention_backward");
  if (result != kSuccess) return result;
  const int64_t tiles = (p.max_keys + kRows - 1) / kRows, heads = p.sequences * p.heads;
  const int64_t items = heads * tiles;
  Schedule schedule{};
  schedule.heads = static_cast<int>(heads);
  schedule.tiles = static_cast<int>(tiles);
  schedule.side_by_side = static_cast<int>(std::min<int64_t>(kSideBySide, (heads + 1) / 2));
  schedule.items = static_cast<uint32_t>(items);
  return with_window(p.window, [&](auto windowed) {
    return launch_attention(device, "attention_backward", wgmma_ordered_backward_kernel<windowed()>,
                            std::min<int64_t>(items, device.multiprocessors), kThreads,
                            kSharedBytes, AttentionProblem::of(device, p), attention_gradients(p),
                            schedule, maps, static_cast<const float*>(p.lse), workspace);
  });
}

}  // namespace trafo::cuda
