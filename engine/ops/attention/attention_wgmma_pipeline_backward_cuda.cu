// Backward of attention in bfloat16 for compute capability 9.0a, long sequences of wide heads, in
// the two passes of attention_wgmma_backward_cuda.cu. A producer loads the streamed tiles by TMA,
// once for all warpgroups of the block. L2 traffic is half (keys' gradients) or a third (queries')
// of the traffic with one warpgroup a block.
#include "engine/ops/attention/attention_wgmma_pipeline.cuh"

namespace trafo::cuda {
namespace {

constexpr int kWidth = 128;  // columns of a head there is room for
constexpr int kStages = 2;   // sets of two other tiles

template <bool ForKeys>
struct Shape {
  // The sums of the keys' kernel are dk and dv.
  static constexpr int kConsumers = ForKeys ? 2 : 3;  // warpgroups
  static constexpr int kConsumerRegisters = ForKeys ? 240 : 160,
                       kProducerRegisters = ForKeys ? 24 : 32;
  static_assert(kConsumerRegisters % 8 == 0 && kProducerRegisters % 8 == 0);  // setmaxnreg
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
  static constexpr int kOwn = 64 * kConsumers;
  using Own = Panels<kWidth, kOwn>;
  using Other = Panels<kWidth, 64>;
  static constexpr uint32_t kOthers = 2 * Own::kBytes;
  // Sets of the lse and delta of 64 queries, or the delta of the own ones; barriers.
  static constexpr uint32_t kStatistics = kOthers + 2 * kStages * Other::kBytes;
  static constexpr uint32_t kBarriers = kStatistics + 2 * kStages * 64 * sizeof(float);
  static_assert(kOwn <= 2 * kStages * 64);
  static constexpr size_t kSharedBytes = kBarriers + (1 + 2 * kStages) * 8;
};

template <bool ForKeys>
struct Room {
  using S = Shape<ForKeys>;
  uint32_t base;
  __device__ __forceinline__ uint32_t own_full() const { return base + S::kBarriers; }
  __device__ __forceinline__ uint32_t full(int stage) const {
    return base + S::kBarriers + 8 + static_cast<uint32_t>(stage) * 16;
  }
  __device__ __forceinline__ uint32_t empty(int stage) const { return full(stage) + 8; }
  // k and v, or q and dout; and the other way round.
  __device__ __forceinline__ typename S::Own own(int which) const {
    return {base + static_cast<uint32_t>(which) * S::Own::kBytes};
  }
  __device__ __forceinline__ typename S::Other other(int stage, int which) const {
    return {base + S::kOthers + static_cast<uint32_t>(2 * stage + which) * S::Other::kBytes};
  }
};

// Work item of a block.
template <bool ForKeys, bool Windowed>
struct Work {
  AttentionItem item;
  int own0, own;   // rows
  int begin, end;  // other rows that own ones have anything to do with; begin: of a tile

  __device__ __forceinline__ Work(const AttentionProblem& a, int64_t tiles)
      : item(AttentionItem::of_block(a, tiles)) {
    if (!ForKeys && a.causal) item.tile = tiles - 1 - item.tile;  // tiles with most keys first
    own0 = static_cast<int>(item.tile) * Shape<ForKeys>::kOwn;
    own = min(Shape<ForKeys>::kOwn, (ForKeys ? item.keys : item.queries) - own0);
    begin = first_tile(a, own0);
    end = own <= 0 ? 0 : end_of(a, own0 + own - 1);
  }
  // Of own rows from `row` on, and up to it.
  __device__ __forceinline__ int first_tile(const AttentionProblem& a, int row) const {
    return (ForKeys ? item.seen_from(a, row) : item.first<Windowed>(a, row)) / 64 * 64;
  }
  __device__ __forceinline__ int end_of(const AttentionProblem& a, int row) const {
    return ForKeys ? item.seen_below<Windowed>(a, row) : item.visible(a, row);
  }
};

struct Maps {
  CUtensorMap own_a, own_b, other_a, other_b;
};

#ifdef TRAFO_HAS_WGMMA

// One warp.
template <bool ForKeys, bool Windowed>
__device__ __forceinline__ void produce(const AttentionProblem& a,
                                        const Work<ForKeys, Windowed>& work,
                                        const Room<ForKeys>& room, const Maps& maps,
                                        const float* lse_row, const float* delta_row) {
  using S = Shape<ForKeys>;
  const int lane = static_cast<int>(threadIdx.x);
  const int query_head = static_cast<int>(work.item.head),
            kv_head = static_cast<int>(work.item.kv_head);
  const int own_head = ForKeys ? kv_head : query_head, other_head = ForKeys ? query_head : kv_head;
  const auto load = [&](auto tile, const CUtensorMap& map, uint32_t barrier, int head, int row) {
    using Tile = decltype(tile);
#pragma unroll
    for (int panel = 0; panel < kWidth / 64; ++panel)
      load_box(tile.base + panel * Tile::kPanelBytes, map, barrier, 64 * panel, head, row);
  };
  const int own_row = static_cast<int>(ForKeys ? work.item.key : work.item.query) + work.own0;
  const int other_row = static_cast<int>(ForKeys ? work.item.query : work.item.key);
  if (lane == 0) {
    arrive_expecting(room.own_full(), 2 * S::Own::kBytes);
    load(room.own(0), maps.own_a, room.own_full(), own_head, own_row);
    load(room.own(1), maps.own_b, room.own_full(), own_head, own_row);
  }
  for (int first = work.begin; first < work.end; first += 64) {
    const int fill = (first - work.begin) / 64, stage = fill % kStages;
    wait_barrier(room.empty(stage), static_cast<uint32_t>(fill / kStages + 1) % 2);
    __syncwarp();
    if (lane == 0) {
      arrive_expecting(room.full(stage), 2 * S::Other::kBytes);
      load(room.other(stage, 0), maps.other_a, room.full(stage), other_head, other_row + first);
      load(room.other(stage, 1), maps.other_b, room.full(stage), other_head, other_row + first);
    }
    if constexpr (ForKeys) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = i % 2 * 32 + lane;
        const float* from = i / 2 == 0 ? lse_row : delta_row;
        const bool exists = first + row < work.end;
        copy4(room.base + S::kStatistics +
                  static_cast<uint32_t>(((2 * stage + i / 2) * 64 + row) * 4),
              exists ? from + (first + row) * a.heads : from, exists);
      }
      arrive_with_copies(room.full(stage));
    }
  }
}

template <bool ForKeys, bool Windowed>
__device__ __forceinline__ void consume(const AttentionProblem& a,
                                        const AttentionGradients& gradients,
                                        const Work<ForKeys, Windowed>& work,
                                        const Room<ForKeys>& room, float* statistics_memory,
                                        const bf16* out, const bf16* dout, const float* lse_row,
                                        float* delta_row) {
  using S = Shape<ForKeys>;
  const AttentionItem& item = work.item;
  const int own0 = work.own0, own = work.own, width = static_cast<int>(a.head_dim);
  const int group = uniform(static_cast<int>(threadIdx.x) / kWarpgroup) - 1, group_row = 64 * group;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int warp_row = group_row + static_cast<int>(threadIdx.x) % kWarpgroup / 32 * 16;
  const int64_t column = item.head * width, out_stride = a.heads * width;
  // Other rows that own ones of the warpgroup have anything to do with.
  const int group_begin = work.first_tile(a, own0 + group_row);
  const int group_end = group_row < own ? work.end_of(a, own0 + min(group_row + 64, own) - 1) : 0;

  float own_lse[2] = {0, 0}, own_delta[2] = {0, 0};  // rows g and g + 8, if they are queries
  if constexpr (!ForKeys) {
    gather_delta<kWidth>(out + own0 * out_stride, dout + own0 * out_stride, out_stride, warp_row,
                         own, width, statistics_memory);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp_row + g + 8 * half;
      if (row >= own) continue;
      own_lse[half] = lse_row[(own0 + row) * a.heads] * kLog2e;
      own_delta[half] = statistics_memory[row];
      if (t == 0) delta_row[(own0 + row) * a.heads] = own_delta[half];
    }
  }
  const float scale = a.scale * kLog2e;
  SumsOf<kWidth> sum_a, sum_b;  // dk or dq, before its factor; and dv
#pragma unroll
  for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) sum_a[n][e] = sum_b[n][e] = 0;
  wait_barrier(room.own_full(), 0);

  for (int first = work.begin; first < work.end; first += 64) {
    const int fill = (first - work.begin) / 64, stage = fill % kStages;
    // Every thread says for itself that it has read.
    const auto give_back = [&] { arrive(room.empty(stage)); };
    wait_barrier(room.full(stage), static_cast<uint32_t>(fill / kStages) % 2);
    if (first < group_begin || first >= group_end) {
      give_back();
      continue;
    }
    const typename S::Other tile_a = room.other(stage, 0), tile_b = room.other(stage, 1);
    const int rows = (ForKeys ? item.queries : item.keys) - first;
    if (rows < 64) {
      // Rows after the last may hold NaN, and 0 * NaN is not 0.
      clear_rows(tile_a, rows, static_cast<int>(threadIdx.x) % kWarpgroup);
      clear_rows(tile_b, rows, static_cast<int>(threadIdx.x) % kWarpgroup);
      wgmma_publish();
      sync_threads(2 + group, kWarpgroup);
    }
    Sums s, dp;
    wgmma_begin();
    multiply_tiles<kWidth, S::kOwn>(s, room.own(0), group_row, tile_a);
    wgmma_commit();
    multiply_tiles<kWidth, S::kOwn>(dp, room.own(1), group_row, tile_b);
    wgmma_commit();

    // Some query of the 64 x 64 has a masked key, or does not exist.
    const int q0 = ForKeys ? first : own0 + group_row, k0 = ForKeys ? own0 + group_row : first;
    const bool masked = q0 + 64 > item.queries || k0 + 64 > item.visible(a, q0) ||
                        (Windowed && k0 < item.first(a, q0 + 63));
    const float* statistics = statistics_memory + 2 * stage * 64 + 2 * t;
    wgmma_wait<1>();
    pin(s);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float2 log_sums = {0, 0};
      if constexpr (ForKeys) log_sums = *reinterpret_cast<const float2*>(statistics + 8 * n);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float log_sum =
            ForKeys ? (e % 2 == 0 ? log_sums.x : log_sums.y) * kLog2e : own_lse[e / 2];
        s[n][e] = fast_exp2(fmaf(s[n][e], scale, -log_sum));
      }
    }
    if (masked)
      mask_probabilities<ForKeys, Windowed>(s, a, item, own0 + warp_row + g, first, 2 * t);
    // dv's product runs while ds is made.
    Quad left_p[ForKeys ? 4 : 1], left_ds[4];
    if constexpr (ForKeys) {
#pragma unroll
      for (int k = 0; k < 4; ++k) left_p[k] = as_left(s[2 * k], s[2 * k + 1]);
      pin(sum_b);
      wgmma_begin();
      multiply_add_tile(sum_b, left_p, tile_b);
      wgmma_commit();
    }
    wgmma_wait<ForKeys ? 1 : 0>();
    pin(dp);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      float2 deltas = {0, 0};
      if constexpr (ForKeys) deltas = *reinterpret_cast<const float2*>(statistics + 64 + 8 * n);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        dp[n][e] = s[n][e] *
                   (dp[n][e] - (ForKeys ? (e % 2 == 0 ? deltas.x : deltas.y) : own_delta[e / 2]));
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) left_ds[k] = as_left(dp[2 * k], dp[2 * k + 1]);
    pin(sum_a);
    wgmma_begin();
    multiply_add_tile(sum_a, left_ds, tile_a);
    wgmma_commit();
    wgmma_wait<0>();
    pin(sum_a);
    if constexpr (ForKeys) pin(sum_b);
    give_back();
  }
  sync_threads(1, S::kConsumers * kWarpgroup);  // the own tiles are free for the results

  const auto store = [&](int which, const SumsOf<kWidth>& sums, float factor, void* gradient,
                         int64_t row, int64_t stride, bool accumulate) {
    store_rows<kWidth>(MmaTile<kWidth>{room.own(which).base}, warp_row, sums, factor, factor,
                       static_cast<bf16*>(gradient) + row * stride + column, stride, own, width,
                       accumulate, gradients.largest);
  };
  if constexpr (ForKeys) {
    if (gradients.dk)
      store(0, sum_a, a.scale, gradients.dk, item.key + own0, gradients.dk_stride,
            gradients.accumulate_dk);
    if (gradients.dv)
      store(1, sum_b, 1.0f, gradients.dv, item.key + own0, gradients.dv_stride,
            gradients.accumulate_dv);
  } else {
    store(0, sum_a, a.scale, gradients.dq, item.query + own0, gradients.dq_stride,
          gradients.accumulate_dq);
  }
}

#endif  // TRAFO_HAS_WGMMA

// ForKeys: a block for each tile of keys gathers dk = ds^T q and dv = p^T dout over the tiles of
// queries. Otherwise: a block for each tile of queries gathers dq = ds k over the tiles of keys.
// Scores stand as [own, other], the layout of a left operand.
template <bool ForKeys, bool Windowed>
__global__ void __launch_bounds__(Shape<ForKeys>::kThreads, 1)
    wgmma_pipeline_backward_kernel(AttentionProblem a, AttentionGradients gradients, int64_t tiles,
                                   const __grid_constant__ Maps maps, const bf16* out_all,
                                   const bf16* dout_all, const float* lse, float* delta) {
#ifdef TRAFO_HAS_WGMMA
  using S = Shape<ForKeys>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const Room<ForKeys> room{shared_address(shared)};
  const Work<ForKeys, Windowed> work(a, tiles);
  if (work.own <= 0) return;
  if (threadIdx.x == 0) {
    init_barrier(room.own_full(), 1);
    for (int stage = 0; stage < kStages; ++stage) {
      init_barrier(room.full(stage), ForKeys ? 1 + 32 : 1);
      init_barrier(room.empty(stage), kWarpgroup * S::kConsumers);
    }
    publish_barriers();
  }
  __syncthreads();
  const AttentionItem& item = work.item;
  const int64_t row = item.query * a.heads + item.head;
  if (uniform(static_cast<int>(threadIdx.x) / kWarpgroup) == 0) {
    leave_registers<S::kProducerRegisters>();
    if (threadIdx.x < 32) produce<ForKeys, Windowed>(a, work, room, maps, lse + row, delta + row);
  } else {
    take_registers<S::kConsumerRegisters>();
    consume<ForKeys, Windowed>(
        a, gradients, work, room, reinterpret_cast<float*>(shared + S::kStatistics),
        out_all + row * a.head_dim, dout_all + row * a.head_dim, lse + row, delta + row);
  }
#endif
}

template <bool ForKeys>
int32_t run_pass(DeviceState& device, const AttentionBackwardParams& p, const Maps& maps,
                 float* delta) {
  using S = Shape<ForKeys>;
  static_assert(S::kSharedBytes <= kHopperSharedMemory);
  const int64_t tiles = ((ForKeys ? p.max_keys : p.max_queries) + S::kOwn - 1) / S::kOwn;
  return with_window(p.window, [&](auto windowed) {
    return launch_attention(device, "attention_backward",
                            wgmma_pipeline_backward_kernel<ForKeys, windowed()>,
                            p.sequences * p.heads * tiles, S::kThreads, S::kSharedBytes,
                            AttentionProblem::of(device, p), attention_gradients(p), tiles, maps,
                            static_cast<const bf16*>(p.out), static_cast<const bf16*>(p.dout),
                            static_cast<const float*>(p.lse), delta);
  });
}

}  // namespace

int32_t attention_backward_pipeline(DeviceState& device, const AttentionBackwardParams& p,
                                    float* delta, bool& taken) {
  const int64_t width = p.heads * p.head_dim;
  const auto query_map = [&](CUtensorMap& to, const void* x, int64_t stride, int box) {
    return make_tensor_map(to, x, stride, p.query_rows, p.heads, p.head_dim, box);
  };
  const auto kv_map = [&](CUtensorMap& to, const void* x, int64_t stride, int box) {
    return make_tensor_map(to, x, stride, p.key_rows, p.kv_heads, p.head_dim, box);
  };
  constexpr int kKeys = Shape<true>::kOwn, kQueries = Shape<false>::kOwn;
  Maps keys, queries;
  taken =
      kv_map(keys.own_a, p.k, p.k_stride, kKeys) && kv_map(keys.own_b, p.v, p.v_stride, kKeys) &&
      query_map(keys.other_a, p.q, p.q_stride, 64) && query_map(keys.other_b, p.dout, width, 64) &&
      query_map(queries.own_a, p.q, p.q_stride, kQueries) &&
      query_map(queries.own_b, p.dout, width, kQueries) &&
      kv_map(queries.other_a, p.k, p.k_stride, 64) && kv_map(queries.other_b, p.v, p.v_stride, 64);
  if (!taken) return kSuccess;
  // The queries' kernel leaves delta for the keys'.
  int32_t result = kSuccess;
  if (p.dq) result = run_pass<false>(device, p, queries, delta);
  if (result == kSuccess && (p.dk || p.dv)) result = run_pass<true>(device, p, keys, delta);
  return result;
}

}  // namespace trafo::cuda
