// Attention in bfloat16 for compute capability 9.0a, long sequences. A producer loads tiles by TMA
// while two or three warpgroups of 64 queries compute on earlier ones. A warpgroup issues the
// scores of the next tile and the sums of the last one before the exponentials of this one. The
// warpgroups alternate, so the tensor cores work for the others meanwhile (Shah et al., arXiv
// 2407.08608, sections 3.1 and 3.2).
#include "engine/ops/attention/attention_wgmma_pipeline.cuh"

namespace trafo::cuda {
namespace {

template <int D>
struct Shape {
  static constexpr int kConsumers = D == 64 ? 3 : 2;  // warpgroups
  static constexpr int kQueries = 64 * kConsumers, kKeys = 128;
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
  static constexpr int kStages = D == 64 ? 4 : 2;  // sets of keys and values
  static constexpr int kConsumerRegisters = D == 64 ? 160 : 240,
                       kProducerRegisters = D == 64 ? 32 : 24;
  static_assert(kConsumerRegisters % 8 == 0 && kProducerRegisters % 8 == 0);  // setmaxnreg
  using Queries = Panels<D, kQueries>;
  using Keys = Panels<D, kKeys>;
  static constexpr int kQuerySets = D == 64 ? 2 : 1;  // there is room for
  // Sets of queries, and of keys and values; room for results; barriers.
  static constexpr uint32_t kSets = kQuerySets * Queries::kBytes;
  static constexpr uint32_t kResults = kSets + 2 * kStages * Keys::kBytes;
  static constexpr uint32_t kBarriers = kResults + Queries::kBytes;
  static constexpr size_t kSharedBytes = kBarriers + (4 * kStages + 2 * kQuerySets) * 8;
};

// Barriers, by number, and the tiles of the stages.
template <int D>
struct Room {
  using S = Shape<D>;
  uint32_t base;
  __device__ __forceinline__ uint32_t barrier(int number) const {
    return base + S::kBarriers + static_cast<uint32_t>(number) * 8;
  }
  // `which`: 0 for keys, 1 for values.
  __device__ __forceinline__ uint32_t full(int which, uint32_t stage) const {
    return barrier(which) + stage * 32;
  }
  __device__ __forceinline__ uint32_t empty(int which, uint32_t stage) const {
    return barrier(2 + which) + stage * 32;
  }
  __device__ __forceinline__ uint32_t queries_full(uint32_t set) const {
    return barrier(4 * S::kStages) + set * 16;
  }
  __device__ __forceinline__ uint32_t queries_empty(uint32_t set) const {
    return queries_full(set) + 8;
  }
  __device__ __forceinline__ typename S::Queries queries(uint32_t set) const {
    return {base + set * S::Queries::kBytes};
  }
  __device__ __forceinline__ typename S::Keys tile(int which, uint32_t stage) const {
    return {base + S::kSets + (2 * stage + static_cast<uint32_t>(which)) * S::Keys::kBytes};
  }
};

// The order of tiles of queries: `group` heads at a time, whose keys and values stay in the second
// cache; in those, under a causal mask, the tiles with most keys first.
struct Schedule {
  int heads, tiles, group;  // heads: of all sequences together
  // Blocks that stay divide `share` heads among them in `rounds`, then the next; 0 rounds: each
  // block has one item.
  int share, rounds, shift;

  __device__ __forceinline__ int all_rounds() const {
    return rounds == 0 ? 1 : rounds * ((heads + share - 1) / share);
  }
  // The item of a round, or -1. A share is gone through back and forth, from heavy to light, which
  // gives all blocks about as much; where it does not, the next share begins elsewhere.
  __device__ __forceinline__ int number(int round) const {
    const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    if (rounds == 0) return block;
    const int part = round / rounds, turn = round % rounds, place = (block + part * shift) % blocks;
    const int at = turn * blocks + (turn % 2 == 0 ? place : blocks - 1 - place);
    const int end = min(share, heads - part * share) * tiles;
    return at < end ? part * share * tiles + at : -1;
  }
};

// Work item of a block; the same in all of its threads.
template <int D, bool Windowed>
struct Work {
  AttentionItem item;
  int q0, queries;  // none: nothing to do
  int begin = 0;    // the first key of the first tile
  int tiles;        // of keys

  __device__ __forceinline__ Work(const AttentionProblem& a, const Schedule& s, int number) {
    const int first = number / (s.group * s.tiles) * s.group;  // head
    const int heads = min(s.group, s.heads - first), rest = number - first * s.tiles;
    const int rank = rest / heads, row = first + rest % heads;
    const int all_heads = static_cast<int>(a.heads);
    item.sequence = row / all_heads;
    item.head = row % all_heads;
    item.kv_head = static_cast<uint32_t>(item.head) / a.group;
    item.tile = a.causal ? s.tiles - 1 - rank : rank;
    item.query = a.query_begin[item.sequence];
    item.key = a.key_begin[item.sequence];
    item.queries = a.query_end[item.sequence] - static_cast<int>(item.query);
    item.keys = a.key_end[item.sequence] - static_cast<int>(item.key);
    // The first tile is the one that is not full: under a causal mask it has the fewest keys.
    constexpr int kQueries = Shape<D>::kQueries;
    const int tile = static_cast<int>(item.tile), first_end = (item.queries - 1) % kQueries + 1;
    q0 = tile == 0 ? 0 : first_end + (tile - 1) * kQueries;
    queries = tile == 0 ? first_end : max(0, min(kQueries, item.queries - q0));
    if constexpr (Windowed) begin = item.first(a, q0) / Shape<D>::kKeys * Shape<D>::kKeys;
    tiles = queries == 0 ? 0 : tiles_below(item.visible(a, q0 + queries - 1) - begin);
  }
  // From `begin` on.
  static __device__ __forceinline__ int tiles_below(int keys) {
    return (keys + Shape<D>::kKeys - 1) / Shape<D>::kKeys;
  }
};

#ifdef TRAFO_HAS_WGMMA

template <int D, bool Windowed>
__device__ __forceinline__ void produce(const AttentionProblem& a, const Schedule& schedule,
                                        const Room<D>& room, const CUtensorMap& q_map,
                                        const CUtensorMap& k_map, const CUtensorMap& v_map) {
  using S = Shape<D>;
  uint32_t filled = 0, rounds = 0;  // tiles so far; queries so far
  const auto load = [&](uint32_t to, const CUtensorMap& map, uint32_t barrier, uint32_t bytes,
                        int64_t head, int64_t row) {
    arrive_expecting(barrier, bytes);
#pragma unroll
    for (int panel = 0; panel < D / 64; ++panel)
      load_box(to + panel * (bytes / (D / 64)), map, barrier, 64 * panel, static_cast<int>(head),
               static_cast<int>(row));
  };
  for (int round = 0, rounds_end = schedule.all_rounds(); round < rounds_end; ++round) {
    const int number = schedule.number(round);
    if (number < 0) continue;
    const Work<D, Windowed> work(a, schedule, number);
    if (work.tiles == 0) continue;
    const auto load_keys = [&](int which, int n) {
      const uint32_t fill = filled + static_cast<uint32_t>(n), stage = fill % S::kStages;
      wait_barrier(room.empty(which, stage), (fill / S::kStages + 1) % 2);
      load(room.tile(which, stage).base, which == 0 ? k_map : v_map, room.full(which, stage),
           S::Keys::kBytes, work.item.kv_head, work.item.key + work.begin + n * S::kKeys);
    };
    const uint32_t set = rounds % S::kQuerySets;
    wait_barrier(room.queries_empty(set), (rounds / S::kQuerySets + 1) % 2);
    load(room.queries(set).base, q_map, room.queries_full(set), S::Queries::kBytes, work.item.head,
         work.item.query + work.q0);
    load_keys(0, 0);
    for (int n = 1; n < work.tiles; ++n) {
      load_keys(0, n);
      load_keys(1, n - 1);
    }
    load_keys(1, work.tiles - 1);
    filled += static_cast<uint32_t>(work.tiles);
    ++rounds;
  }
}

// Softmax over tiles of keys, of two rows of a lane: g and g + 8.
struct RowState {
  // Sums are scaled down only when a maximum has grown by more than this power of two: the results
  // are the same but for rounding, and float32 holds what is summed until then.
  static constexpr float kSlack = 6;
  float maximum[2], sum[2];  // sum: this lane's part
  float shrink[2];           // of what was gathered before the tile

  // From the lowest finite number and not -infinity: 2^(-infinity - maximum) is then 0 and not NaN.
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      maximum[half] = -3.402823466e38f;
      sum[half] = 0;
    }
  }
  // Scores become probabilities, relative to the maximum. Whether what was gathered shrinks, for
  // all of the warp.
  __device__ __forceinline__ bool absorb(SumsOf<128>& s, float scale) {
    float high[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = fmaxf(s[0][2 * half], s[0][2 * half + 1]);
#pragma unroll
      for (int n = 1; n < 16; ++n) most = fmaxf(most, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      high[half] = fmaxf(maximum[half], most * scale);  // scale > 0
    }
    const bool grown =
        __any_sync(0xffffffffu, high[0] > maximum[0] + kSlack || high[1] > maximum[1] + kSlack);
    if (grown) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        shrink[half] = fast_exp2(maximum[half] - high[half]);
        maximum[half] = high[half];
        sum[half] *= shrink[half];
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float part[2] = {0, 0};
#pragma unroll
      for (int n = 0; n < 16; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = s[n][2 * half + e];
          score = fast_exp2(fmaf(score, scale, -maximum[half]));
          part[e] += score;
        }
      sum[half] += part[0] + part[1];
    }
    return grown;
  }
  template <int D>
  __device__ __forceinline__ void shrink_sums(float (&sums)[D][4]) const {
#pragma unroll
    for (int n = 0; n < D; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[n][e] *= shrink[e / 2];
  }
};

template <int D, bool Windowed>
__device__ __forceinline__ void consume(const AttentionProblem& a, const Schedule& schedule,
                                        const Room<D>& room, bf16* out, float* lse) {
  using S = Shape<D>;
  const int group = uniform(static_cast<int>(threadIdx.x) / kWarpgroup) - 1, group_row = 64 * group;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int warp_row = group_row + static_cast<int>(threadIdx.x) % kWarpgroup / 32 * 16;
  const int width = static_cast<int>(a.head_dim);
  const float scale = a.scale * kLog2e;
  uint32_t filled = 0, rounds = 0;  // as the producer counts
  RowState state;
  SumsOf<D> gathered;

  for (int round = 0, rounds_end = schedule.all_rounds(); round < rounds_end; ++round) {
    const int number = schedule.number(round);
    if (number < 0) continue;
    using Item = Work<D, Windowed>;
    const Item work(a, schedule, number);
    const AttentionItem& item = work.item;
    if (work.queries == 0) continue;
    const uint32_t set = rounds % S::kQuerySets;
    const typename S::Queries queries = room.queries(set);

    // The warpgroup's own: tiles that any of its queries sees, keys that every one sees.
    const int own_tiles =
        group_row < work.queries
            ? Item::tiles_below(item.visible(a, work.q0 + min(group_row + 64, work.queries) - 1) -
                                work.begin)
            : 0;
    const int seen_by_all = item.visible(a, work.q0 + group_row);
    const int seen_from = item.first<Windowed>(a, work.q0 + min(group_row + 64, work.queries) - 1);
    // Warpgroups take turns as long as all have work: the first has the fewest tiles.
    const int turns = work.queries > S::kQueries - 64
                          ? Item::tiles_below(item.visible(a, work.q0 + 63) - work.begin)
                          : 0;
    const auto wait_for_turn = [&](int n) {
      if (n < turns) sync_threads(1 + group, 2 * kWarpgroup);
    };
    const auto pass_turn = [&](int n) {
      if (n < turns && (group < S::kConsumers - 1 || n + 1 < turns))
        arrive_threads(1 + (group + 1) % S::kConsumers, 2 * kWarpgroup);
    };
    const auto wait_full = [&](int which, int n) {
      const uint32_t fill = filled + static_cast<uint32_t>(n);
      wait_barrier(room.full(which, fill % S::kStages), fill / S::kStages % 2);
      return room.tile(which, fill % S::kStages);
    };
    // By one lane of each warp, when all of them have seen it come.
    const auto give_back = [&](uint32_t barrier) {
      __syncwarp();
      if (lane == 0) arrive(barrier);
    };
    const auto release = [&](int which, int n) {
      give_back(room.empty(which, (filled + static_cast<uint32_t>(n)) % S::kStages));
    };
    // Rows after the last key may hold NaN, and 0 * NaN is not 0.
    const auto wait_values = [&](int n) {
      const typename S::Keys tile = wait_full(1, n);
      const int keys = item.keys - work.begin - n * S::kKeys;
      if (keys < S::kKeys) {
        clear_rows(tile, keys, static_cast<int>(threadIdx.x) % kWarpgroup);
        wgmma_publish();
        sync_threads(5 + group, kWarpgroup);
      }
      return tile;
    };
    const auto mask_beyond = [&](SumsOf<128>& s, int n) {
      if (work.begin + (n + 1) * S::kKeys <= seen_by_all) return;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int visible =
            item.visible(a, work.q0 + warp_row + g + 8 * half) - work.begin - n * S::kKeys - 2 * t;
#pragma unroll
        for (int i = 0; i < 16; ++i)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            if (8 * i + e >= visible) s[i][2 * half + e] = -INFINITY;
      }
    };
    const auto mask = [&](SumsOf<128>& s, int n) {
      mask_beyond(s, n);
      if constexpr (Windowed) {
        if (work.begin + n * S::kKeys >= seen_from) return;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int first =
              item.first(a, work.q0 + warp_row + g + 8 * half) - work.begin - n * S::kKeys - 2 * t;
#pragma unroll
          for (int i = 0; i < 16; ++i)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              if (8 * i + e < first) s[i][2 * half + e] = -INFINITY;
        }
      }
    };

    if (work.tiles > 0) wait_barrier(room.queries_full(set), rounds / S::kQuerySets % 2);
    if (turns > 1 && group == S::kConsumers - 1) arrive_threads(1, 2 * kWarpgroup);
    state.clear();
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) gathered[n][e] = 0;

    if (own_tiles > 0) {
      SumsOf<128> s;
      Quad left[S::kKeys / 16];
      const auto make_left = [&] {
#pragma unroll
        for (int k = 0; k < S::kKeys / 16; ++k) left[k] = as_left(s[2 * k], s[2 * k + 1]);
      };
      const typename S::Keys first = wait_full(0, 0);
      wgmma_begin();
      multiply_tiles(s, queries, group_row, first);
      wgmma_commit();
      wgmma_wait<0>();
      pin(s);
      release(0, 0);
      mask(s, 0);
      state.absorb(s, scale);
      make_left();
      for (int n = 1; n < own_tiles; ++n) {
        const typename S::Keys keys = wait_full(0, n);
        const typename S::Keys values = wait_values(n - 1);
        wait_for_turn(n);
        pin(gathered);
        wgmma_begin();
        multiply_tiles(s, queries, group_row, keys);
        wgmma_commit();
        multiply_add_tile(gathered, left, values);
        wgmma_commit();
        pass_turn(n);
        wgmma_wait<1>();
        pin(s);
        release(0, n);
        mask(s, n);
        const bool grown = state.absorb(s, scale);
        pin(s);
        // ptxas moves a wait ahead of the exponentials unless a branch separates them; this one is
        // taken by all of the warpgroup, as a wait demands, which `grown` is not.
        if (a.heads > 0) {
          wgmma_wait<0>();
          pin(gathered);
        }
        wgmma_wait<0>();
        pin(gathered);
        if (grown) state.shrink_sums(gathered);
        release(1, n - 1);
        make_left();
      }
      give_back(room.queries_empty(set));
      const typename S::Keys last = wait_values(own_tiles - 1);
      pin(gathered);
      wgmma_begin();
      multiply_add_tile(gathered, left, last);
      wgmma_commit();
      wgmma_wait<0>();
      pin(gathered);
      release(1, own_tiles - 1);
    } else if (work.tiles > 0) {
      give_back(room.queries_empty(set));
    }

    const int64_t out_stride = a.heads * width, column = item.head * width;
    float normalise[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = state.sum[half];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const bool empty = total == 0;  // a sum that is NaN must reach the output
      normalise[half] = empty ? 0.0f : 1.0f / total;
      const int row = warp_row + g + 8 * half;
      if (lse && t == 0 && row < work.queries)
        lse[(item.query + work.q0 + row) * a.heads + item.head] =
            empty ? 0.0f : state.maximum[half] * kLn2 + logf(total);
    }
    store_rows<D>(MmaTile<D>{room.base + S::kResults}, warp_row, gathered, normalise[0],
                  normalise[1], out + (item.query + work.q0) * out_stride + column, out_stride,
                  work.queries, width, false);

    // Tiles that only others see; nothing may be given back before it has come.
    for (int n = own_tiles; n < work.tiles; ++n)
      for (int which = 0; which < 2; ++which) {
        wait_full(which, n);
        release(which, n);
      }
    filled += static_cast<uint32_t>(work.tiles);
    if (work.tiles > 0) ++rounds;
  }
}

#endif  // TRAFO_HAS_WGMMA

template <int D, bool Windowed>
__global__ void __launch_bounds__(Shape<D>::kThreads, 1)
    wgmma_pipeline_forward_kernel(AttentionProblem a, Schedule schedule,
                                  const __grid_constant__ CUtensorMap q_map,
                                  const __grid_constant__ CUtensorMap k_map,
                                  const __grid_constant__ CUtensorMap v_map, bf16* out,
                                  float* lse) {
#ifdef TRAFO_HAS_WGMMA
  using S = Shape<D>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const Room<D> room{shared_address(shared)};
  if (threadIdx.x == 0) {
    constexpr int kWarps = 4 * S::kConsumers;
    for (uint32_t set = 0; set < S::kQuerySets; ++set) {
      init_barrier(room.queries_full(set), 1);
      init_barrier(room.queries_empty(set), kWarps);
    }
    for (uint32_t stage = 0; stage < S::kStages; ++stage)
      for (int which = 0; which < 2; ++which) {
        init_barrier(room.full(which, stage), 1);
        init_barrier(room.empty(which, stage), kWarps);
      }
    publish_barriers();
  }
  __syncthreads();
  if (uniform(static_cast<int>(threadIdx.x) / kWarpgroup) == 0) {
    leave_registers<S::kProducerRegisters>();
    if (threadIdx.x == 0) produce<D, Windowed>(a, schedule, room, q_map, k_map, v_map);
  } else {
    take_registers<S::kConsumerRegisters>();
    consume<D, Windowed>(a, schedule, room, out, lse);
  }
#endif
}

// Bytes of keys and values to keep in the L2 cache, which has 50 MB.
constexpr int64_t kCachedBytes = 16 << 20;

template <int D>
int32_t run_forward(DeviceState& device, const AttentionForwardParams& p, bool& taken) {
  using S = Shape<D>;
  const int64_t tiles = (p.max_queries + S::kQueries - 1) / S::kQueries;
  const int64_t heads = p.sequences * p.heads, items = heads * tiles;
  CUtensorMap q_map, k_map, v_map;
  taken = items < 1 << 30 &&
          make_tensor_map(q_map, p.q, p.q_stride, p.query_rows, p.heads, p.head_dim, S::kQueries) &&
          make_tensor_map(k_map, p.k, p.k_stride, p.key_rows, p.kv_heads, p.head_dim, S::kKeys) &&
          make_tensor_map(v_map, p.v, p.v_stride, p.key_rows, p.kv_heads, p.head_dim, S::kKeys);
  if (!taken) return kSuccess;
  // Sequences of one length are divided among blocks that stay; else who is done first goes on.
  const bool equal = p.query_rows == p.sequences * p.max_queries;
  const int64_t blocks = equal ? std::min<int64_t>(items, device.multiprocessors) : items;
  const int64_t most = std::clamp<int64_t>(kCachedBytes / (4 * D * p.max_keys), 1, heads);
  const int64_t parts = (heads + most - 1) / most, group = (heads + parts - 1) / parts;
  const int64_t share = p.causal ? group : heads;
  static_assert(S::kSharedBytes <= kHopperSharedMemory);
  Schedule schedule{};
  schedule.heads = static_cast<int>(heads);
  schedule.tiles = static_cast<int>(tiles);
  schedule.group = static_cast<int>(p.causal ? group : 1);
  schedule.share = static_cast<int>(share);
  schedule.rounds = equal ? static_cast<int>((share * tiles + blocks - 1) / blocks) : 0;
  schedule.shift = static_cast<int>(std::max<int64_t>(1, blocks / parts));
  return with_window(p.window, [&](auto windowed) {
    return launch_attention(device, "attention_forward",
                            wgmma_pipeline_forward_kernel<D, windowed()>, blocks, S::kThreads,
                            S::kSharedBytes, AttentionProblem::of(device, p), schedule, q_map,
                            k_map, v_map, static_cast<bf16*>(p.out), static_cast<float*>(p.lse));
  });
}

}  // namespace

int32_t attention_forward_pipeline(DeviceState& device, const AttentionForwardParams& p,
                                   bool& taken) {
  return p.head_dim <= 64 ? run_forward<64>(device, p, taken) : run_forward<128>(device, p, taken);
}

}  // namespace trafo::cuda
