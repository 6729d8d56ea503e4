#include "engine/ops/attention/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/attention/attention_cpu.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "hwy/cache_control.h"

#include "engine/backend/cpu/log-inl.h"
#include "engine/backend/cpu/philox-inl.h"
#include "engine/backend/cpu/simd-inl.h"
#include "engine/ops/attention/attention_tiles-inl.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <type_traits>

#include "engine/backend/cpu/scratch.h"
#include "engine/backend/cpu/thread_pool.h"
#include "engine/core/numeric/portable_math.h"
#include "engine/ops/attention/attention_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

// Tiles of scores: two of 64 x 64 floats and the operands of head_dim 64 fill a second-level cache
// by a tenth.
constexpr int64_t kQueries = 64;
constexpr int64_t kKeys = 64;

// Multiplications of a block of work; fewer in a decode step, where they wait for memory.
constexpr int64_t kBlockWork = int64_t{1} << 17;
constexpr int64_t kOneQueryWork = int64_t{1} << 15;

// Carves arrays, each on its own cache line, out of one allocation of this thread.
template <class T>
class Arena {
 public:
  explicit Arena(int64_t elements) {
    static std::atomic<int64_t> total{0};
    thread_local ScratchBuffer buffer(total);
    next_ = static_cast<T*>(buffer.get(static_cast<size_t>(elements) * sizeof(T)));
  }
  static constexpr int64_t rounded(int64_t count) { return round_up(count, 64 / sizeof(T)); }
  T* take(int64_t count) {
    T* start = next_;
    next_ += rounded(count);
    return start;
  }

 private:
  T* next_;
};

// One query head of one sequence.
struct Item {
  int64_t sequence, head, kv_head;
  int64_t query, queries, key, keys;  // first row and number of rows
};

template <class Params>
Item item_of(const Params& p, int64_t index) {
  const int64_t sequence = index / p.heads, head = index % p.heads;
  return {sequence,
          head,
          head / (p.heads / p.kv_heads),
          p.query_begin[sequence],
          p.query_end[sequence] - p.query_begin[sequence],
          p.key_begin[sequence],
          p.key_end[sequence] - p.key_begin[sequence]};
}

// `together` query heads, a divisor of their number, are one unit of work on one thread. A block
// has `block_work` multiplications.
template <class Params, class F>
void for_each_item(ThreadPool& pool, const Params& p, int64_t together, int64_t block_work,
                   F&& fn) {
  const int64_t work = std::max<int64_t>(1, together * p.max_queries * p.max_keys * p.head_dim);
  const int64_t grain = std::max<int64_t>(1, block_work / work);
  const int64_t units = p.sequences * p.heads / together;
  parallel_for_range(pool, units, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * together; i < end * together; ++i) fn(item_of(p, i));
  });
}

// How many keys of the tile starting at `first_key` the query may see.
template <class Params>
int64_t visible_keys(const Params& p, const Item& item, int64_t query, int64_t first_key,
                     int64_t count) {
  const int64_t ahead = p.causal ? 1 : p.window;  // keys from the one in line with it on
  if (ahead == 0) return count;
  return std::clamp<int64_t>(query + item.keys - item.queries + ahead - first_key, 0, count);
}

// The first key that the query may see; not before the first, not after the last.
template <class Params>
int64_t first_visible(const Params& p, const Item& item, int64_t query) {
  if (p.window == 0) return 0;
  return std::clamp<int64_t>(query + item.keys - item.queries + 1 - p.window, 0, item.keys);
}

// The biases of the keys of a query, from number 0 on; null: none.
template <class T, class Params>
const T* bias_row(const Params& p, const Item& item, int64_t query) {
  if (!p.bias) return nullptr;
  const int64_t zero = p.bias_columns / 2 - (query + item.keys - item.queries);
  return static_cast<const T*>(p.bias) + item.head * p.bias_columns + zero;
}

// Where their gradient goes.
template <class T>
T* bias_part(const AttentionBackwardParams& p, const Item& item, int64_t query) {
  if (!p.bias_parts) return nullptr;
  const int64_t zero = p.bias_columns / 2 - (query + item.keys - item.queries);
  return static_cast<T*>(p.bias_parts) + (item.sequence * p.heads + item.head) * p.bias_columns +
         zero;
}

// Dropout factors of the rows of a tile of probabilities.
template <class T>
class TileDropout {
 public:
  static constexpr int64_t scratch_elements() { return kKeys; }
  template <class Params>
  TileDropout(const Params& p, const Item& item, T* scratch)
      : dropout_(p.dropout),
        scratch_(scratch),
        stride_(p.heads * dropout_key_stride(p.max_keys)),
        row_zero_((item.query * p.heads + item.head) * dropout_key_stride(p.max_keys)) {}

  void start_tile(int64_t first_query, int64_t first_key, int64_t keys) {
    first_ = row_zero_ + first_query * stride_ + first_key;
    keys_ = keys;
  }
  bool active() const { return dropout_.active(); }
  const T* row(int64_t query_in_tile) {
    dropout_factors(dropout_, first_ + query_in_tile * stride_, keys_, scratch_);
    return scratch_;
  }

 private:
  const Dropout& dropout_;
  T* scratch_;
  int64_t stride_, row_zero_, first_ = 0, keys_ = 0;
};

// Makes capped scores of a row of products. Returns the factor that makes scores of the row.
template <class T, class Params>
T cap_scores(const Params& p, T* row, int64_t keys) {
  if (p.soft_cap == 0) return static_cast<T>(p.scale);
  const hn::ScalableTag<T> tag;
  const auto scale = hn::Set(tag, static_cast<T>(p.scale / p.soft_cap));
  const auto cap = hn::Set(tag, static_cast<T>(p.soft_cap));
  map(row, row, keys, [&](auto d, auto x) { return hn::Mul(cap, tanh(d, hn::Mul(x, scale))); });
  return T{1};
}

// Row statistics of the online softmax.
template <class T>
struct RowState {
  T maximum, sum;
};

// Turns a row of scores into exp(scale * score + bias - maximum), zeros after `visible`, and
// returns the new statistics. bias: of the row, or null. `shrink` receives the factor for
// everything gathered before.
template <class T>
RowState<T> softmax_row(T* row, const T* bias, int64_t visible, int64_t padded, T scale_factor,
                        RowState<T> state, T& shrink) {
  const hn::ScalableTag<T> d;
  const auto scale = hn::Set(d, scale_factor);
  const auto masked = hn::Set(d, -std::numeric_limits<T>::infinity());
  auto maximum = hn::Set(d, state.maximum);
  for (int64_t j = 0; j < padded; j += lanes(d)) {
    const int64_t inside = std::clamp<int64_t>(visible - j, 0, lanes(d));
    const auto mask = hn::FirstN(d, static_cast<size_t>(inside));
    auto scaled = hn::Mul(hn::LoadU(d, row + j), scale);
    if (bias) scaled = hn::Add(scaled, load_n(d, bias + j, inside));
    const auto score = hn::IfThenElse(mask, scaled, masked);
    maximum = hn::Max(maximum, score);
    hn::StoreU(score, d, row + j);
  }
  const T new_maximum = reduce_max(d, maximum);
  const auto shift = hn::Set(d, new_maximum);
  auto sum = hn::Zero(d);
  for (int64_t j = 0; j < padded; j += lanes(d)) {
    const auto e = exp(d, hn::Sub(hn::LoadU(d, row + j), shift));
    sum = hn::Add(sum, e);
    hn::StoreU(e, d, row + j);
  }
  shrink = state.sum > 0 ? exp_of(state.maximum - new_maximum) : T{1};
  return {new_maximum, state.sum * shrink + reduce_sum(d, sum)};
}

// values[i] = log(values[i]); reads and writes whole vectors.
HWY_NOINLINE void log_in_place(double* values, int64_t count) {
  const hn::ScalableTag<double> d;
  for (int64_t i = 0; i < count; i += lanes(d))
    hn::Store(log_normal(d, hn::Load(d, values + i)), d, values + i);
}

// lse[i * stride] = maximum + log(sum) of row i, for up to kQueries rows; 0 for a row without keys.
template <class T>
HWY_NOINLINE void store_log_sums(const RowState<T>* rows, int64_t count, T* lse, int64_t stride) {
  HWY_ALIGN double logs[kQueries] = {};
  for (int64_t i = 0; i < count; ++i) logs[i] = static_cast<double>(rows[i].sum);
  log_in_place(logs, count);
  for (int64_t i = 0; i < count; ++i)
    lse[i * stride] = rows[i].sum == 0 ? T{0} : rows[i].maximum + static_cast<T>(logs[i]);
}

// out[0 .. kVectors * lanes) = factor * sum over `keys` of weights[j] * v[j * stride + ..].
template <int kVectors, class T>
HWY_INLINE void weighted_sum(const T* weights, const T* v, int64_t stride, int64_t keys, T factor,
                             T* out) {
  const hn::ScalableTag<T> d;
  hn::Vec<decltype(d)> sum[kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) sum[i] = hn::Zero(d);
  for (int64_t j = 0; j < keys; ++j) {
    const auto weight = hn::Set(d, weights[j]);
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i)
      sum[i] = hn::MulAdd(weight, hn::LoadU(d, v + j * stride + i * lanes(d)), sum[i]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i)
    hn::StoreU(hn::Mul(sum[i], hn::Set(d, factor)), d, out + i * lanes(d));
}

// Asks for the keys and values of a sequence, which are not beside the keys and values of the
// previous sequence.
template <class T>
void prefetch_keys_values(const AttentionForwardParams& p, int64_t sequence) {
  if (sequence >= p.sequences) return;
  constexpr int64_t kMostKeys = 64, kLine = 64 / sizeof(T);
  const int64_t first = p.key_begin[sequence];
  const int64_t end = std::min<int64_t>(p.key_end[sequence], first + kMostKeys);
  const int64_t width = p.kv_heads * p.head_dim;
  for (int64_t key = first; key < end; ++key)
    for (int64_t c = 0; c < width; c += kLine) {
      hwy::Prefetch(static_cast<const T*>(p.k) + key * p.k_stride + c);
      hwy::Prefetch(static_cast<const T*>(p.v) + key * p.v_stride + c);
    }
}

// A decode step: one query reads each key and value once, so no tile is worth its transposition.
template <class T>
void one_query(const AttentionForwardParams& p, Item item) {
  const hn::ScalableTag<T> d;
  const int64_t before = first_visible(p, item, 0);
  item.key += before;
  item.keys -= before;
  const int64_t width = p.head_dim;
  const int64_t column = item.head * width, kv_column = item.kv_head * width;
  const T* q = static_cast<const T*>(p.q) + item.query * p.q_stride + column;
  const T* k = static_cast<const T*>(p.k) + item.key * p.k_stride + kv_column;
  const T* v = static_cast<const T*>(p.v) + item.key * p.v_stride + kv_column;
  T* out = static_cast<T*>(p.out) + item.query * p.heads * width + column;
  if (item.head == 0) prefetch_keys_values<T>(p, item.sequence + 1);
  const int64_t padded = round_up(item.keys, lanes(d));
  Arena<T> arena(Arena<T>::rounded(padded));
  T* scores = arena.take(padded);
  for (int64_t j = 0; j < item.keys; ++j) scores[j] = dot(q, k + j * p.k_stride, width);
  const T scale = cap_scores(p, scores, item.keys);
  T shrink;
  const RowState<T> state =
      softmax_row(scores, bias_row<T>(p, item, 0), item.keys, padded, scale,
                  RowState<T>{std::numeric_limits<T>::lowest(), T{0}}, shrink);
  if (state.sum == 0) return std::fill(out, out + width, T{0});
  const T factor = T{1} / state.sum;
  int64_t c = 0;
  const auto whole = [&](auto vectors) {
    constexpr int kVectors = decltype(vectors)::value;
    for (; c + kVectors * lanes(d) <= width; c += kVectors * lanes(d))
      weighted_sum<kVectors>(scores, v + c, p.v_stride, item.keys, factor, out + c);
  };
  whole(std::integral_constant<int, 4>());
  whole(std::integral_constant<int, 2>());
  whole(std::integral_constant<int, 1>());
  if (c == width) return;
  auto sum = hn::Zero(d);
  for (int64_t j = 0; j < item.keys; ++j)
    sum = hn::MulAdd(hn::Set(d, scores[j]), load_n(d, v + j * p.v_stride + c, width - c), sum);
  store_n(hn::Mul(sum, hn::Set(d, factor)), d, out + c, width - c);
}

template <class T>
void forward_item(const AttentionForwardParams& p, const Item& item, bool one_query_kernel) {
  if (item.queries == 0) return;
  if (item.queries == 1 && one_query_kernel) return one_query<T>(p, item);
  const hn::ScalableTag<T> d;
  const int64_t width = p.head_dim;
  const int64_t column = item.head * width, kv_column = item.kv_head * width;
  const int64_t padded_width = round_up(width, lanes(d));
  const T* q = static_cast<const T*>(p.q) + item.query * p.q_stride + column;
  const T* k = static_cast<const T*>(p.k) + item.key * p.k_stride + kv_column;
  const T* v = static_cast<const T*>(p.v) + item.key * p.v_stride + kv_column;
  T* out = static_cast<T*>(p.out) + item.query * p.heads * width + column;
  T* lse = p.lse ? static_cast<T*>(p.lse) + item.query * p.heads + item.head : nullptr;

  using A = Arena<T>;
  const int64_t dropout_size = p.dropout.active() ? TileDropout<T>::scratch_elements() : 0;
  A arena(A::rounded(width * kKeys) + A::rounded(kKeys * padded_width) +
          A::rounded(kQueries * kKeys) + A::rounded(kQueries * padded_width) +
          A::rounded(dropout_size));
  T* k_transposed = arena.take(width * kKeys);
  T* v_copy = arena.take(kKeys * padded_width);
  T* scores = arena.take(kQueries * kKeys);
  T* gathered = arena.take(kQueries * padded_width);
  TileDropout<T> dropout(p, item, arena.take(dropout_size));
  RowState<T> state[kQueries];

  for (int64_t q0 = 0; q0 < item.queries; q0 += kQueries) {
    const int64_t queries = std::min(kQueries, item.queries - q0);
    // From the lowest finite number: exp(-infinity - maximum) is then 0 and not NaN.
    std::fill(state, state + queries, RowState<T>{std::numeric_limits<T>::lowest(), T{0}});
    bool first = true;
    for (int64_t k0 = first_visible(p, item, q0) / kKeys * kKeys; k0 < item.keys; k0 += kKeys) {
      const int64_t keys = std::min(kKeys, item.keys - k0);
      if (visible_keys(p, item, q0 + queries - 1, k0, keys) == 0) break;
      const int64_t padded_keys = round_up(keys, lanes(d));
      transpose_tile(k + k0 * p.k_stride, p.k_stride, keys, width, k_transposed, padded_keys);
      multiply<T>(queries, padded_keys, width, {q + q0 * p.q_stride, p.q_stride, 1}, k_transposed,
                  padded_keys, false, scores, padded_keys);
      dropout.start_tile(q0, k0, keys);
      for (int64_t i = 0; i < queries; ++i) {
        T* row = scores + i * padded_keys;
        const T scale = cap_scores(p, row, keys);
        // Scores that become -infinity when they are scaled.
        if (const int64_t hidden = first_visible(p, item, q0 + i) - k0; hidden > 0)
          std::fill(row, row + std::min(hidden, keys),
                    static_cast<T>(scale > 0 ? -HUGE_VAL : HUGE_VAL));
        T shrink;
        const T* bias = bias_row<T>(p, item, q0 + i);
        state[i] =
            softmax_row(row, bias ? bias + k0 : nullptr, visible_keys(p, item, q0 + i, k0, keys),
                        padded_keys, scale, state[i], shrink);
        if (!first && shrink != 1) {
          T* sum = gathered + i * padded_width;
          map(sum, sum, padded_width, [&](auto, auto x) { return hn::Mul(x, hn::Set(d, shrink)); });
        }
        if (dropout.active())
          map(row, dropout.row(i), row, keys, [](auto, auto x, auto f) { return hn::Mul(x, f); });
      }
      const TileB<T> values = whole_vectors(v + k0 * p.v_stride, p.v_stride, keys, width, v_copy);
      multiply<T>(queries, padded_width, keys, {scores, padded_keys, 1}, values.data, values.stride,
                  !first, gathered, padded_width);
      first = false;
    }
    for (int64_t i = 0; i < queries; ++i) {
      T* row = out + (q0 + i) * p.heads * width;
      // A sum that is NaN must reach the output.
      const bool empty = first || state[i].sum == 0;
      if (empty) {
        std::fill(row, row + width, T{0});
      } else {
        const auto normalise = hn::Set(d, T{1} / state[i].sum);
        map(gathered + i * padded_width, row, width,
            [&](auto, auto x) { return hn::Mul(x, normalise); });
      }
    }
    if (lse) store_log_sums(state, queries, lse + q0 * p.heads, p.heads);
  }
}

template <class T>
void backward_item(const AttentionBackwardParams& p, const Item& item) {
  const hn::ScalableTag<T> d;
  const int64_t width = p.head_dim, row_width = p.heads * width;
  const int64_t column = item.head * width, kv_column = item.kv_head * width;
  const int64_t padded_width = round_up(width, lanes(d));
  const T* q = static_cast<const T*>(p.q) + item.query * p.q_stride + column;
  const T* k = static_cast<const T*>(p.k) + item.key * p.k_stride + kv_column;
  const T* v = static_cast<const T*>(p.v) + item.key * p.v_stride + kv_column;
  const T* out = static_cast<const T*>(p.out) + item.query * row_width + column;
  const T* dout = static_cast<const T*>(p.dout) + item.query * row_width + column;
  const T* lse = static_cast<const T*>(p.lse) + item.query * p.heads + item.head;

  using A = Arena<T>;
  const int64_t all_queries = round_up(item.queries, kQueries);
  const int64_t tile = kKeys * padded_width, transposed = width * kKeys;
  const int64_t dropout_size = p.dropout.active() ? TileDropout<T>::scratch_elements() : 0;
  A arena(2 * A::rounded(transposed) + 5 * A::rounded(tile) + 2 * A::rounded(kQueries * kKeys) +
          A::rounded(all_queries * padded_width) + A::rounded(all_queries) +
          A::rounded(dropout_size));
  T* k_transposed = arena.take(transposed);
  T* v_transposed = arena.take(transposed);
  T* k_copy = arena.take(tile);
  T* q_copy = arena.take(tile);
  T* dout_copy = arena.take(tile);
  T* dk_sum = arena.take(tile);
  T* dv_sum = arena.take(tile);
  T* probabilities = arena.take(kQueries * kKeys);
  T* dscores = arena.take(kQueries * kKeys);
  T* dq_sum = arena.take(all_queries * padded_width);
  T* delta = arena.take(all_queries);
  TileDropout<T> dropout(p, item, arena.take(dropout_size));

  // The first query head of a group stores dk and dv, the others add to them.
  const bool adds = item.head % (p.heads / p.kv_heads) != 0;

  // sum_j P_ij dP_ij = dO_i . O_i, with dropout too (Dao et al., arXiv 2205.14135, section 3.1).
  for (int64_t i = 0; i < item.queries; ++i)
    delta[i] = dot(dout + i * row_width, out + i * row_width, width);
  if (p.dq) std::fill(dq_sum, dq_sum + all_queries * padded_width, T{0});

  const auto scale = hn::Set(d, static_cast<T>(p.scale));
  const auto one = hn::Set(d, T{1});
  const auto by_cap = hn::Set(d, static_cast<T>(p.soft_cap > 0 ? 1 / p.soft_cap : 0));
  for (int64_t k0 = 0; k0 < item.keys; k0 += kKeys) {
    const int64_t keys = std::min(kKeys, item.keys - k0);
    const int64_t padded_keys = round_up(keys, lanes(d));
    const T* k_rows = k + k0 * p.k_stride;
    transpose_tile(k_rows, p.k_stride, keys, width, k_transposed, padded_keys);
    transpose_tile(v + k0 * p.v_stride, p.v_stride, keys, width, v_transposed, padded_keys);
    const TileB<T> key_rows = whole_vectors(k_rows, p.k_stride, keys, width, k_copy);
    bool first = true;  // query tile that sees these keys
    for (int64_t q0 = 0; q0 < item.queries; q0 += kQueries) {
      const int64_t queries = std::min(kQueries, item.queries - q0);
      if (visible_keys(p, item, q0 + queries - 1, k0, keys) == 0) continue;
      if (first_visible(p, item, q0) >= k0 + keys) break;
      const T* q_rows = q + q0 * p.q_stride;
      const T* dout_rows = dout + q0 * row_width;
      multiply<T>(queries, padded_keys, width, {q_rows, p.q_stride, 1}, k_transposed, padded_keys,
                  false, probabilities, padded_keys);
      multiply<T>(queries, padded_keys, width, {dout_rows, row_width, 1}, v_transposed, padded_keys,
                  false, dscores, padded_keys);
      dropout.start_tile(q0, k0, keys);
      for (int64_t i = 0; i < queries; ++i) {
        T* row = probabilities + i * padded_keys;
        T* drow = dscores + i * padded_keys;
        const T* factors = dropout.active() ? dropout.row(i) : nullptr;
        const int64_t visible = visible_keys(p, item, q0 + i, k0, keys);
        const int64_t first_key = first_visible(p, item, q0 + i), hidden = first_key - k0;
        const auto to_score = hn::Set(d, cap_scores(p, row, keys));
        const auto log_sum = hn::Set(d, lse[(q0 + i) * p.heads]);
        const auto row_delta = hn::Set(d, delta[q0 + i]);
        // The probability of an only key is constant: the difference below would be rounding errors
        // of two sums.
        const bool only_key = visible_keys(p, item, q0 + i, 0, item.keys) - first_key == 1;
        const T* bias = bias_row<T>(p, item, q0 + i);
        T* bias_gradient = bias_part<T>(p, item, q0 + i);
        for (int64_t j = 0; j < padded_keys; j += lanes(d)) {
          const int64_t inside = std::clamp<int64_t>(visible - j, 0, lanes(d));
          auto mask = hn::FirstN(d, static_cast<size_t>(inside));
          if (j < hidden) mask = hn::AndNot(hn::FirstN(d, static_cast<size_t>(hidden - j)), mask);
          // Rounded as in forward, where lse was made of it.
          auto score = hn::Mul(hn::LoadU(d, row + j), to_score);
          const auto capped = hn::Mul(score, by_cap);  // the tanh, or 0 without a cap
          if (bias) score = hn::Add(score, load_n(d, bias + k0 + j, inside));
          const auto probability = hn::IfThenElseZero(mask, exp(d, hn::Sub(score, log_sum)));
          auto gradient = hn::LoadU(d, drow + j);
          auto dropped = probability;
          if (factors) {
            const auto factor = load_n(d, factors + j, inside);
            dropped = hn::Mul(probability, factor);
            gradient = hn::Mul(gradient, factor);
          }
          hn::StoreU(dropped, d, row + j);
          const auto dscore = hn::Mul(probability, hn::Sub(gradient, row_delta));
          const auto moves = only_key ? hn::FirstN(d, 0) : mask;
          if (bias_gradient) {
            T* sum = bias_gradient + k0 + j;
            store_n(hn::Add(load_n(d, sum, inside), hn::IfThenElseZero(moves, dscore)), d, sum,
                    inside);
          }
          const auto slope = hn::Mul(hn::NegMulAdd(capped, capped, one), scale);
          hn::StoreU(hn::IfThenElseZero(moves, hn::Mul(dscore, slope)), d, drow + j);
        }
      }
      if (p.dv) {
        const TileB<T> b = whole_vectors(dout_rows, row_width, queries, width, dout_copy);
        multiply<T>(keys, padded_width, queries, {probabilities, 1, padded_keys}, b.data, b.stride,
                    !first, dv_sum, padded_width);
      }
      if (p.dk) {
        const TileB<T> b = whole_vectors(q_rows, p.q_stride, queries, width, q_copy);
        multiply<T>(keys, padded_width, queries, {dscores, 1, padded_keys}, b.data, b.stride,
                    !first, dk_sum, padded_width);
      }
      if (p.dq)
        multiply<T>(queries, padded_width, keys, {dscores, padded_keys, 1}, key_rows.data,
                    key_rows.stride, true, dq_sum + q0 * padded_width, padded_width);
      first = false;
    }
    if (first) {
      std::fill(dk_sum, dk_sum + keys * padded_width, T{0});
      std::fill(dv_sum, dv_sum + keys * padded_width, T{0});
    }
    if (p.dk)
      store_rows(dk_sum, padded_width, keys, width, p.accumulate_dk || adds,
                 static_cast<T*>(p.dk) + (item.key + k0) * p.dk_stride + kv_column, p.dk_stride);
    if (p.dv)
      store_rows(dv_sum, padded_width, keys, width, p.accumulate_dv || adds,
                 static_cast<T*>(p.dv) + (item.key + k0) * p.dv_stride + kv_column, p.dv_stride);
  }
  if (p.dq)
    store_rows(dq_sum, padded_width, item.queries, width, p.accumulate_dq,
               static_cast<T*>(p.dq) + item.query * p.dq_stride + column, p.dq_stride);
}

int32_t attention_forward_simd(ThreadPool& pool, const AttentionForwardParams& p) {
  return with_compute_type(p.dtype, [&](auto zero) {
    AttentionCase c;
    c.dtype = p.dtype;
    c.head_dim = p.head_dim;
    c.queries = 1;
    c.keys = p.max_keys;
    c.dropout = p.dropout.active();
    c.bias = p.bias != nullptr;
    c.soft_cap = p.soft_cap > 0;
    c.saves_lse = p.lse != nullptr;
    const AttentionKernelRow* row = attention_kernel(c);
    const bool one_query_kernel = row && row->kernel == AttentionKernel::one_query;
    if (p.kernels)
      for (int64_t i = 0; i < p.sequences; ++i)
        note_kernel(p, one_query_kernel && p.query_end[i] - p.query_begin[i] == 1
                           ? AttentionKernel::one_query
                           : AttentionKernel::tiles);
    // If the groups divide evenly among the threads, each takes whole ones, whose keys it reads
    // once.
    const bool one_query = one_query_kernel && p.max_queries == 1;
    const bool grouped = one_query && p.sequences * p.kv_heads % pool.threads() == 0;
    for_each_item(
        pool, p, grouped ? p.heads / p.kv_heads : 1, one_query ? kOneQueryWork : kBlockWork,
        [&](const Item& item) { forward_item<decltype(zero)>(p, item, one_query_kernel); });
  });
}

int32_t attention_backward_simd(ThreadPool& pool, const AttentionBackwardParams& p) {
  return with_compute_type(p.dtype, [&](auto zero) {
    note_kernel(p, AttentionKernel::tiles);
    // One thread has all query heads that add to the same dk and dv: a fixed order.
    for_each_item(pool, p, p.heads / p.kv_heads, kBlockWork,
                  [&](const Item& item) { backward_item<decltype(zero)>(p, item); });
  });
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

TRAFO_CPU_KERNEL(attention_forward, AttentionForwardParams)
TRAFO_CPU_KERNEL(attention_backward, AttentionBackwardParams)

}  // namespace trafo
#endif
