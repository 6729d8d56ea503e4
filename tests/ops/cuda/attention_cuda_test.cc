// Attention in bfloat16 on CUDA against sums in float64 on the host: the kernels for short
// sequences and the general ones, at every border of their tiles. For TRAFO_TEST_DEVICE=cuda.
#include "engine/ops/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/ops/attention/attention_kernels.h"
#include "engine/ops/op_kernel.h"
#include "tests/ops/cuda/cuda_test.h"

namespace trafo::testing {
namespace {

using Doubles = std::vector<double>;

struct SequenceLengths {
  int32_t queries, keys;
};
using Batch = std::vector<SequenceLengths>;

struct AttentionProblem {
  Batch batch;
  int64_t heads = 2, head_dim = 64;
  int64_t kv_heads = 2;
  bool causal = false;
  int64_t window = 0;
  double sharpness = 1.5;  // scale * sqrt(head_dim)
  Dropout dropout{};
  int64_t max_queries = 0, max_keys = 0;  // bounds; choose the kernel, too

  int64_t width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t query_rows() const { return rows(&SequenceLengths::queries); }
  int64_t key_rows() const { return rows(&SequenceLengths::keys); }
  double scale() const { return sharpness / std::sqrt(static_cast<double>(head_dim)); }
  std::string text() const {
    return concat(heads, " heads, ", kv_heads, " of keys, head_dim ", head_dim,
                  causal ? ", causal" : "", window > 0 ? concat(", window ", window) : "",
                  dropout.active() ? ", dropout" : "", ", up to ", max_queries, " and ", max_keys);
  }

 private:
  int64_t rows(int32_t SequenceLengths::*side) const {
    int64_t sum = 0;
    for (const SequenceLengths& lengths : batch) sum += lengths.*side;
    return sum;
  }
};

// Inputs and expected results, q, dout, out and dq [rows, width], the others [rows, kv_width],
// without padding. `dq_rounding`, `dk_rounding`: standard deviation of what rounding to bfloat16
// adds to dq and dk.
struct Reference {
  Doubles q, k, v, dout, out, lse, dq, dk, dv, dq_rounding, dk_rounding;
};

// Rounding to bfloat16 changes a value by at most 2^-9 of it, evenly distributed.
const double kRounding = std::ldexp(1.0, -9) / std::sqrt(3.0);

Reference reference_of(const AttentionProblem& p, PhiloxStream& random) {
  const auto width = static_cast<size_t>(p.width()), kv_width = static_cast<size_t>(p.kv_width());
  const auto dim = static_cast<size_t>(p.head_dim), heads = static_cast<size_t>(p.heads);
  const size_t group = heads / static_cast<size_t>(p.kv_heads);
  const auto query_rows = static_cast<size_t>(p.query_rows()),
             key_rows = static_cast<size_t>(p.key_rows());
  const auto drawn = [&](size_t rows, size_t columns) {
    Doubles values(rows * columns);
    for (double& value : values)
      value = static_cast<double>(
          BFloat16::from_float(static_cast<float>(random.uniform(-1, 1))).to_float());
    return values;
  };
  Reference r;
  r.q = drawn(query_rows, width);
  r.k = drawn(key_rows, kv_width);
  r.v = drawn(key_rows, kv_width);
  r.dout = drawn(query_rows, width);
  r.out.resize(r.q.size());
  r.dq.resize(r.q.size());
  r.dk.resize(r.k.size());
  r.dv.resize(r.k.size());
  r.dq_rounding.resize(r.q.size());
  r.dk_rounding.resize(r.k.size());
  r.lse.resize(query_rows * heads);
  size_t first_query = 0, first_key = 0;
  for (const SequenceLengths& lengths : p.batch) {
    const auto queries = static_cast<size_t>(lengths.queries),
               keys = static_cast<size_t>(lengths.keys);
    for (size_t h = 0; h < heads; ++h)
      for (size_t i = 0; i < queries; ++i) {
        const size_t row = first_query + i, at = row * width + h * dim;
        const int64_t bound = lengths.keys - lengths.queries + static_cast<int64_t>(i) + 1;
        const int64_t end = p.causal ? bound : p.window > 0 ? bound - 1 + p.window : lengths.keys;
        const size_t visible = std::min(keys, static_cast<size_t>(std::max(int64_t{0}, end)));
        const size_t first =
            p.window > 0 ? static_cast<size_t>(std::max(int64_t{0}, bound - p.window)) : 0;
        const auto dot = [&](const Doubles& x, const Doubles& y, size_t key) {
          double sum = 0;
          for (size_t c = 0; c < dim; ++c)
            sum += x[at + c] * y[(first_key + key) * kv_width + h / group * dim + c];
          return sum;
        };
        Doubles probability(visible), dp(visible), factor(visible, 1.0);
        double total = 0, delta = 0;
        for (size_t j = first; j < visible; ++j)
          total += probability[j] = std::exp(p.scale() * dot(r.q, r.k, j));
        if (visible > first) r.lse[row * heads + h] = std::log(total);
        for (size_t j = first; j < visible; ++j) {
          if (p.dropout.active()) {
            const size_t element =
                (row * heads + h) * static_cast<size_t>(dropout_key_stride(p.max_keys)) + j;
            factor[j] =
                dropout_keeps(p.dropout, static_cast<int64_t>(element)) ? p.dropout.scale() : 0.0;
          }
          probability[j] /= total;
          dp[j] = factor[j] * dot(r.dout, r.v, j);
          delta += probability[j] * dp[j];
        }
        for (size_t j = first; j < visible; ++j) {
          const size_t key = (first_key + j) * kv_width + h / group * dim;
          const double dropped = probability[j] * factor[j];
          const double ds = probability[j] * (dp[j] - delta) * p.scale();
          for (size_t c = 0; c < dim; ++c) {
            r.out[at + c] += dropped * r.v[key + c];
            r.dq[at + c] += ds * r.k[key + c];
            r.dk[key + c] += ds * r.q[at + c];
            r.dv[key + c] += dropped * r.dout[at + c];
          }
        }
        // delta is taken from the rounded output, which is a sum with rounded probabilities, and
        // the gradient of a score is rounded itself.
        double of_delta = 0;
        for (size_t j = first; j < visible; ++j) of_delta += std::pow(probability[j] * dp[j], 2);
        for (size_t c = 0; c < dim; ++c) of_delta += std::pow(r.dout[at + c] * r.out[at + c], 2);
        for (size_t j = first; j < visible; ++j) {
          const size_t key = (first_key + j) * kv_width + h / group * dim;
          const double of_ds =
              std::pow(p.scale() * probability[j], 2) * (of_delta + std::pow(dp[j] - delta, 2));
          for (size_t c = 0; c < dim; ++c) {  // the variances
            r.dq_rounding[at + c] += of_ds * std::pow(r.k[key + c], 2);
            r.dk_rounding[key + c] += of_ds * std::pow(r.q[at + c], 2);
          }
        }
      }
    first_query += queries;
    first_key += keys;
  }
  for (Doubles* all : {&r.dq_rounding, &r.dk_rounding})
    for (double& rounding : *all) rounding = kRounding * std::sqrt(rounding);
  return r;
}

// bfloat16 rows with other columns around them, `before` in front and the rest after, all kOther.
constexpr double kOther = 0.75;
struct Matrix {
  int64_t rows, width, before, behind;
  int64_t stride() const { return before + width + behind; }
  Doubles padded(const Doubles& values) const {
    Doubles out(static_cast<size_t>(rows * stride()), kOther);
    for (int64_t i = 0; i < rows * width; ++i)
      out[static_cast<size_t>(i / width * stride() + before + i % width)] =
          values[static_cast<size_t>(i)];
    return out;
  }
  // Only the matrix itself; the columns around must be untouched.
  Doubles inner(const Doubles& values) const {
    Doubles out;
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t column = static_cast<int64_t>(i) % stride() - before;
      if (column >= 0 && column < width)
        out.push_back(values[i]);
      else
        EXPECT_EQ(values[i], kOther) << "element " << i << " is outside of the gradient";
    }
    return out;
  }
};

struct Gradient {
  bool wanted = true, accumulate = false;
};
using Gradients = std::array<Gradient, 3>;  // of q, k, v

struct Result {
  Doubles out, lse;
  std::array<Doubles, 3> gradients;  // empty: not wanted
};

class CudaAttention : public CudaTest {
 protected:
  Tensor upload(const Doubles& values) const {
    return context_->from_doubles(values, {static_cast<int64_t>(values.size())}, DType::bf16);
  }
  static void* column(const Tensor& tensor, int64_t at) {
    return const_cast<std::byte*>(static_cast<const std::byte*>(tensor.raw()) + 2 * at);
  }
  Tensor bounds(const Batch& batch, int32_t SequenceLengths::*side) const {
    std::vector<int32_t> values{0};
    for (const SequenceLengths& lengths : batch) values.push_back(values.back() + lengths.*side);
    return context_->from_values<int32_t>(values, {static_cast<int64_t>(values.size())});
  }

  // Forward, then backward; `old`: what every gradient holds before.
  Result run(const AttentionProblem& p, const Reference& r, const Gradients& gradients,
             double old) {
    const int64_t width = p.width(), kv_width = p.kv_width();
    const Matrix q{p.query_rows(), width, 8, 0};
    const Matrix keys{p.key_rows(), kv_width, 0, kv_width},
        values{p.key_rows(), kv_width, kv_width, 0};
    const Tensor q_memory = upload(q.padded(r.q));
    Doubles both = keys.padded(r.k);  // keys and values are columns of one tensor
    const Doubles v_part = values.padded(r.v);
    for (size_t i = 0; i < both.size(); ++i)
      if (static_cast<int64_t>(i) % (2 * kv_width) >= kv_width) both[i] = v_part[i];
    const Tensor kv_memory = upload(both), dout = upload(r.dout);
    const Tensor cu_q = bounds(p.batch, &SequenceLengths::queries),
                 cu_k = bounds(p.batch, &SequenceLengths::keys);
    const Tensor out = upload(Doubles(r.out.size(), kOther));
    const Tensor lse = context_->from_doubles(Doubles(r.lse.size(), kOther),
                                              {static_cast<int64_t>(r.lse.size())}, DType::f32);

    const auto fill = [&](auto& params) {
      params.dtype = DType::bf16;
      params.dropout = p.dropout;
      params.scale = p.scale();
      params.causal = p.causal;
      params.window = p.window;
      params.sequences = static_cast<int64_t>(p.batch.size());
      params.heads = p.heads;
      params.kv_heads = p.kv_heads;
      params.head_dim = p.head_dim;
      params.query_rows = p.query_rows();
      params.key_rows = p.key_rows();
      params.max_queries = p.max_queries;
      params.max_keys = p.max_keys;
      params.query_begin = static_cast<const int32_t*>(cu_q.raw());
      params.query_end = params.query_begin + 1;
      params.key_begin = static_cast<const int32_t*>(cu_k.raw());
      params.key_end = params.key_begin + 1;
      params.q = column(q_memory, q.before);
      params.k = column(kv_memory, 0);
      params.v = column(kv_memory, kv_width);
      params.q_stride = q.stride();
      params.k_stride = params.v_stride = 2 * kv_width;
    };
    AttentionForwardParams forward{};
    fill(forward);
    forward.out = const_cast<void*>(static_cast<const void*>(out.raw()));
    forward.lse = const_cast<void*>(static_cast<const void*>(lse.raw()));
    launch(*context_, OpKernel::attention_forward, "test", forward);

    const Matrix shapes[3] = {{p.query_rows(), width, 16, 8},
                              {p.key_rows(), kv_width, 0, 24},
                              {p.key_rows(), kv_width, 8, 0}};
    const Doubles* like[3] = {&r.q, &r.k, &r.v};
    Tensor memory[3];
    for (size_t i = 0; i < 3; ++i)
      memory[i] = upload(shapes[i].padded(
          Doubles(like[i]->size(),
                  gradients[i].accumulate ? old : std::numeric_limits<double>::quiet_NaN())));
    const auto target = [&](size_t i) {
      return gradients[i].wanted ? column(memory[i], shapes[i].before) : nullptr;
    };
    AttentionBackwardParams backward{};
    fill(backward);
    backward.out = out.raw();
    backward.lse = lse.raw();
    backward.dout = dout.raw();
    backward.dq = target(0);
    backward.dk = target(1);
    backward.dv = target(2);
    backward.dq_stride = shapes[0].stride();
    backward.dk_stride = shapes[1].stride();
    backward.dv_stride = shapes[2].stride();
    backward.accumulate_dq = gradients[0].accumulate;
    backward.accumulate_dk = gradients[1].accumulate;
    backward.accumulate_dv = gradients[2].accumulate;
    Tensor by_head[2];
    if (p.kv_heads < p.heads) {
      for (Tensor& tensor : by_head) tensor = context_->empty({p.key_rows(), width}, DType::bf16);
      if (backward.dk) backward.dk_by_head = column(by_head[0], 0);
      if (backward.dv) backward.dv_by_head = column(by_head[1], 0);
    }
    launch(*context_, OpKernel::attention_backward, "test", backward);

    Result result;
    result.out = download(out);
    for (const float value : context_->values<float>(lse))
      result.lse.push_back(static_cast<double>(value));
    for (size_t i = 0; i < 3; ++i)
      if (gradients[i].wanted) result.gradients[i] = shapes[i].inner(download(memory[i]));
    return result;
  }

  // Probabilities, gradients of scores and results are bfloat16: 2^-9 each, relative to what is
  // summed. In the general kernels so is dO . O, from the rounded output, where what it is taken
  // from may be as large. `added`: what was there before. `group`: heads whose results are summed.
  // Their rounding errors are independent, so the error of the sum is sqrt(group) times larger.
  // `rounding`: standard deviations, for sums that are smaller than the errors of their terms: dK
  // of a sequence's only key is 0, and dQ with a window of one key.
  static void expect_near(const AttentionProblem& p, const Doubles& actual, const Doubles& expected,
                          double added, int64_t group, const char* what,
                          const Doubles* rounding = nullptr) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    const double tolerance = (p.max_queries <= 64 && p.max_keys <= 64 ? 1.5e-2 : 3e-2) *
                             std::sqrt(static_cast<double>(group));
    double largest = std::abs(added);
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < actual.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i] + added,
                  std::max(tolerance * largest, rounding ? 6 * (*rounding)[i] : 0.0))
          << what << ", element " << i;
  }

  void check(const AttentionProblem& p, const Gradients& gradients) {
    constexpr double kOld = 0.25;
    const Reference r = reference_of(p, random_);
    const Result result = run(p, r, gradients, kOld);
    expect_near(p, result.out, r.out, 0, 1, "output");
    for (size_t i = 0; i < r.lse.size(); ++i)
      ASSERT_NEAR(result.lse[i], r.lse[i], 1e-4) << "log-sum-exp " << i;
    const Doubles* expected[3] = {&r.dq, &r.dk, &r.dv};
    const char* names[3] = {"dq", "dk", "dv"};
    for (size_t i = 0; i < 3; ++i)
      if (gradients[i].wanted)
        expect_near(p, result.gradients[i], *expected[i], gradients[i].accumulate ? kOld : 0,
                    i == 0 ? 1 : p.heads / p.kv_heads, names[i],
                    i == 0   ? &r.dq_rounding
                    : i == 1 ? &r.dk_rounding
                             : nullptr);
    if (HasFatalFailure()) return;
    const Result again = run(p, r, gradients, kOld);
    ASSERT_EQ(again.out, result.out);
    ASSERT_EQ(again.lse, result.lse);
    ASSERT_EQ(again.gradients, result.gradients);
  }

  PhiloxStream random_{7, 8};
};

// Batches by the kernel they meet: up to 16, 32, 48, 64 rows on chip, then tiles of 64.
const Batch kBatches[] = {
    {{1, 1}, {13, 16}, {16, 5}, {0, 7}, {9, 0}, {0, 0}},
    {{13, 31}, {32, 17}, {31, 32}, {0, 0}, {1, 32}, {17, 1}, {16, 16}},
    {{40, 40}, {33, 12}, {5, 48}, {0, 33}, {48, 33}},
    {{63, 64}, {64, 33}, {13, 13}, {0, 64}, {64, 0}, {17, 49}, {64, 64}},
    {{5, 200}, {64, 70}, {1, 130}, {0, 90}, {33, 0}},  // a tile of queries, several of keys
    {{65, 130}, {200, 64}, {130, 200}, {0, 3}, {70, 0}, {13, 13}},
};

AttentionProblem problem_of(const Batch& batch, int32_t most_keys) {
  AttentionProblem p;
  for (SequenceLengths lengths : batch) {
    lengths.keys = std::min(lengths.keys, most_keys);
    p.batch.push_back(lengths);
    p.max_queries = std::max<int64_t>(p.max_queries, lengths.queries);
    p.max_keys = std::max<int64_t>(p.max_keys, lengths.keys);
  }
  return p;
}

TEST_F(CudaAttention, EqualsFloat64) {
  for (const Batch& batch : kBatches)
    for (const int64_t head_dim : {8, 32, 40, 64, 96, 128})
      for (const bool causal : {false, true})
        for (const bool general : {false, true}) {
          AttentionProblem p = problem_of(batch, 1 << 20);
          p.head_dim = head_dim;
          p.causal = causal;
          // Bounds above the lengths are allowed; these are beyond the kernels for short ones.
          if (general) p.max_queries = p.max_keys = std::max<int64_t>(p.max_keys, 70);
          SCOPED_TRACE(p.text());
          check(p, {});
          if (HasFatalFailure()) return;
        }
}

// Every kernel with keys and values that query heads share.
TEST_F(CudaAttention, GroupedQueriesEqualFloat64) {
  std::vector<Batch> batches(std::begin(kBatches), std::end(kBatches));
  batches.push_back({{257, 320}, {3, 70}, {200, 0}, {70, 1}});
  batches.push_back(Batch(12, {256, 256}));
  for (const Batch& batch : batches)
    for (const int64_t head_dim : {8, 64, 72, 128})
      for (const int64_t kv_heads : {1, 2})
        for (const bool dropout : {false, true}) {
          AttentionProblem p = problem_of(batch, 1 << 20);
          p.heads = 4;
          p.kv_heads = kv_heads;
          p.head_dim = head_dim;
          p.causal = kv_heads == 2;
          if (dropout) p.dropout = Dropout{0.3f, 0x123456789abcdefull, 17, 4};
          SCOPED_TRACE(p.text());
          Gradients gradients;
          for (Gradient& gradient : gradients) gradient.accumulate = dropout;
          check(p, gradients);
          if (HasFatalFailure()) return;
        }
}

// Tiles of 64 and 128 rows, two sequences of which one ends inside of each: what the kernels for
// compute capability 9.0 divide the work into, and the borders beside.
TEST_F(CudaAttention, EqualsFloat64AroundTheBordersOfLongTiles) {
  for (const int32_t length : {65, 127, 128, 129, 200, 257})
    for (const int64_t head_dim : {64, 72, 128})
      for (const bool causal : {false, true})
        for (const int32_t more_keys : {-64, 0, 63}) {
          AttentionProblem p =
              problem_of({{length, length + more_keys}, {3, 70}, {70, 1}}, 1 << 20);
          p.head_dim = head_dim;
          p.causal = causal;
          SCOPED_TRACE(p.text());
          Gradients gradients;
          for (Gradient& gradient : gradients) gradient.accumulate = more_keys == 0;
          check(p, gradients);
          if (HasFatalFailure()) return;
        }
}

// One warpgroup holds all queries and keys of a head: one or two tiles of 64 of each, and none.
TEST_F(CudaAttention, EqualsFloat64WhereAWarpgroupHoldsAHead) {
  for (const int64_t head_dim : {40, 64})
    for (const int64_t kv_heads : {1, 2})
      for (const bool causal : {false, true}) {
        AttentionProblem p = problem_of({{1, 1},
                                         {64, 128},
                                         {65, 65},
                                         {100, 30},
                                         {128, 128},
                                         {127, 64},
                                         {70, 0},
                                         {0, 5},
                                         {30, 127}},
                                        1 << 20);
        p.head_dim = head_dim;
        p.kv_heads = kv_heads;
        p.causal = causal;
        SCOPED_TRACE(p.text());
        check(p, {});
        if (HasFatalFailure()) return;
      }
}

// Windows that begin and end inside of tiles, and skip some, in every kernel that takes them.
TEST_F(CudaAttention, WindowsEqualFloat64) {
  for (const int32_t length : {70, 385})
    for (const int64_t window : {1, 40, 130, 300})
      for (const int64_t head_dim : {20, 32, 64, 72, 128})
        for (const int32_t more_keys : {-60, 0, 127})
          for (const auto& [causal, dropout] :
               {std::pair{true, false}, {true, true}, {false, false}, {false, true}}) {
            if (dropout && more_keys != 0) continue;
            AttentionProblem p = problem_of(
                {{length, length + more_keys}, {3, 70}, {70, 1}, {0, 5}, {70, 0}}, 1 << 20);
            p.head_dim = head_dim;
            p.kv_heads = more_keys == 0 ? 1 : 2;
            p.causal = causal;
            p.window = window;
            if (dropout) p.dropout = Dropout{0.3f, 0x123456789abcdefull, 17, 4};
            SCOPED_TRACE(p.text());
            Gradients gradients;
            for (Gradient& gradient : gradients) gradient.accumulate = more_keys == 127;
            check(p, gradients);
            if (HasFatalFailure()) return;
          }
}

TEST_F(CudaAttention, WindowsOfOneQueryEqualFloat64) {
  for (const int64_t window : {1, 7, 100, 400})
    for (const int64_t head_dim : {20, 64, 128}) {
      AttentionProblem p = problem_of({{1, 300}, {1, 5}, {1, 0}, {1, 64}}, 1 << 20);
      p.head_dim = head_dim;
      p.causal = true;
      p.window = window;
      SCOPED_TRACE(p.text());
      check(p, {});
      if (HasFatalFailure()) return;
    }
}

// Blocks stay and go from one tile to the next.
TEST_F(CudaAttention, WindowsEqualFloat64InManyEqualSequences) {
  for (const auto& [window, causal] :
       {std::pair{int64_t{100}, true}, {200, true}, {65, false}, {200, false}})
    for (const int64_t head_dim : {64, 128}) {
      AttentionProblem p = problem_of(Batch(36, {260, 260}), 1 << 20);
      p.head_dim = head_dim;
      p.causal = causal;
      p.window = window;
      SCOPED_TRACE(p.text());
      check(p, {});
      if (HasFatalFailure()) return;
    }
}

// Biases of distances and their gradient, and soft caps, in float32 as on the CPU, and twice the
// same bits. Tiles have 16 to 64 queries.
TEST_F(CudaAttention, BiasesOfDistancesAndSoftCapsEqualTheCpus) {
  const std::unique_ptr<Context> cpu = make_context({DeviceKind::cpu, 0}, 4);
  struct Values {
    std::vector<float> output, inputs, bias;
  };
  const auto run = [&](Context& context, const ops::AttentionOptions& given, const Batch& batch) {
    std::vector<int32_t> bounds{0};
    for (const SequenceLengths& lengths : batch) bounds.push_back(bounds.back() + lengths.queries);
    const int64_t rows = bounds.back(), width = given.heads * given.head_dim;
    PhiloxStream random(5, 2);
    const auto drawn = [&](const Shape& shape, double limit) {
      std::vector<float> values(static_cast<size_t>(element_count(shape)));
      for (float& value : values) value = static_cast<float>(random.uniform(-limit, limit));
      return context.from_values<float>(values, shape);
    };
    Tensor x = drawn({rows, 3 * width}, 0.5);
    const Tensor upstream = drawn({rows, width}, 1);
    ops::AttentionOptions options = given;
    const bool biased = given.soft_cap == 0;
    if (biased) options.distance_bias = drawn({given.heads, 2 * 400 - 1}, 2);
    set_requires_grad(x, true);
    if (biased) set_requires_grad(options.distance_bias, true);
    const Tensor cu = context.from_values<int32_t>(bounds, {std::ssize(bounds)});
    const Tensor y = ops::attention(context, {x, 0}, {x, width}, {x, 2 * width}, cu, cu, options);
    context.backward(y, upstream);
    return Values{
        context.values<float>(y), context.values<float>(grad_of(x)),
        biased ? context.values<float>(grad_of(options.distance_bias)) : std::vector<float>{}};
  };
  const auto expect_near_to = [](const std::vector<float>& found, const std::vector<float>& wanted,
                                 const char* what) {
    ASSERT_EQ(found.size(), wanted.size()) << what;
    float largest = 0;
    for (const float value : wanted) largest = std::max(largest, std::abs(value));
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], wanted[i], 2e-5 * largest) << what << " " << i;
  };
  for (const int64_t head_dim : {20, 64, 128, 256})
    for (const int variant : {0, 1, 2, 3, 4, 5, 6, 7}) {
      const bool causal = (variant & 1) != 0, dropout = (variant & 2) != 0;
      ops::AttentionOptions options;
      options.heads = 3;
      options.head_dim = head_dim;
      options.causal = causal;
      options.scale = 1;
      if ((variant & 4) != 0) {
        options.soft_cap = 1.5;
        options.window = causal ? 70 : 0;
      }
      if (dropout) options.dropout = Dropout{0.3f, 0x123456789abcdefull, 17, 4};
      const Batch batch{{130, 130}, {1, 1}, {0, 0}, {64, 64}, {385, 385}};
      const Values found = run(*context_, options, batch), again = run(*context_, options, batch),
                   wanted = run(*cpu, options, batch);
      SCOPED_TRACE(concat("head_dim ", head_dim, causal ? ", causal" : ""));
      expect_near_to(found.output, wanted.output, "output");
      expect_near_to(found.inputs, wanted.inputs, "gradient");
      expect_near_to(found.bias, wanted.bias, "gradient of the biases");
      EXPECT_EQ(found.bias, again.bias);
      if (HasFatalFailure()) return;
    }
}

// More tiles of equal sequences than a card has multiprocessors: blocks go from one to the next.
TEST_F(CudaAttention, EqualsFloat64InManyEqualSequences) {
  for (const int32_t length : {256, 260})
    for (const int64_t head_dim : {64, 128})
      for (const bool causal : {false, true}) {
        AttentionProblem p = problem_of(Batch(36, {length, length}), 1 << 20);
        p.head_dim = head_dim;
        p.causal = causal;
        SCOPED_TRACE(p.text());
        check(p, {});
        if (HasFatalFailure()) return;
      }
}

// Tiles of 192 queries and 128 keys, sequences of which some end inside of each.
TEST_F(CudaAttention, EqualsFloat64AroundTheBordersOfTheLongestTiles) {
  for (const int32_t length : {193, 255, 256, 320, 384, 385})
    for (const int64_t head_dim : {64, 72, 128})
      for (const bool causal : {false, true})
        for (const int32_t more_keys : {-130, 0, 127}) {
          AttentionProblem p =
              problem_of({{length, length + more_keys}, {3, 70}, {200, 0}, {70, 1}}, 1 << 20);
          p.head_dim = head_dim;
          p.causal = causal;
          SCOPED_TRACE(p.text());
          check(p, {});
          if (HasFatalFailure()) return;
        }
}

// Heads 64 wide of long causal sequences: blocks of 128 keys add to dq one after the other.
// The bounds make the choice of kernel, the lengths are shorter.
TEST_F(CudaAttention, EqualsFloat64WhereBlocksAddInTurn) {
  for (const int32_t length : {1, 128, 200, 257, 385})
    for (const int64_t heads : {1, 4})
      for (const int32_t more_keys : {-130, 0, 127}) {
        AttentionProblem p = problem_of(
            {{length, std::max(0, length + more_keys)}, {3, 70}, {200, 0}, {0, 5}, {70, 1}},
            1 << 20);
        p.heads = heads;
        p.kv_heads = heads == 4 && more_keys == 0 ? 2 : heads;
        p.head_dim = 64;
        p.causal = true;
        p.max_queries = p.max_keys = kOrderedRows;
        SCOPED_TRACE(p.text());
        Gradients gradients;
        for (Gradient& gradient : gradients) gradient.accumulate = more_keys == 127;
        gradients[0].wanted = length != 128;  // without dq another kernel runs
        gradients[1].wanted = length != 200;
        check(p, gradients);
        if (HasFatalFailure()) return;
      }
}

// More blocks than run at a time wait for each other.
TEST_F(CudaAttention, EqualsFloat64WhereManyBlocksAddInTurn) {
  AttentionProblem p = problem_of(Batch(20, {300, 300}), 1 << 20);
  p.batch.push_back({1200, 1200});
  p.heads = p.kv_heads = 3;
  p.head_dim = 64;
  p.causal = true;
  p.max_queries = p.max_keys = std::max<int64_t>(kOrderedRows, 1200);
  check(p, {});
}

// With a window, each adds to few tiles of queries, and waits for those that add to the same.
TEST_F(CudaAttention, WindowsEqualFloat64WhereBlocksAddInTurn) {
  for (const int32_t length : {1, 128, 257, 700})
    for (const int64_t window : {1, 64, 128, 200, 513})
      for (const int32_t more_keys : {-130, 0, 127, 400}) {
        AttentionProblem p = problem_of(
            {{length, std::max(0, length + more_keys)}, {3, 70}, {200, 0}, {0, 5}, {70, 1}},
            1 << 20);
        p.head_dim = 64;
        p.causal = true;
        p.window = window;
        p.max_queries = std::max<int64_t>(kOrderedRows, p.max_queries);
        p.max_keys = std::max<int64_t>(kOrderedRows, p.max_keys);
        SCOPED_TRACE(p.text());
        Gradients gradients;
        for (Gradient& gradient : gradients) gradient.accumulate = more_keys == 127;
        check(p, gradients);
        if (HasFatalFailure()) return;
      }
  AttentionProblem many = problem_of(Batch(20, {300, 300}), 1 << 20);
  many.batch.push_back({1200, 1200});
  many.heads = many.kv_heads = 3;
  many.head_dim = 64;
  many.causal = true;
  many.window = 150;
  many.max_queries = many.max_keys = 1200;
  check(many, {});
}

// Bounds below a length are a broken promise. The rows beyond are left out: nobody waits for them,
// and the other sequences get their gradients.
TEST_F(CudaAttention, BoundsBelowALengthEndAndSpareTheOthers) {
  constexpr int32_t kLong = kOrderedRows + 176;
  for (const SequenceLengths& longest :
       {SequenceLengths{kLong, kLong}, {kLong, 300}, {300, kLong}}) {
    AttentionProblem p = problem_of({longest, {300, 300}, {1, 129}}, 1 << 20);
    p.head_dim = 64;
    p.causal = true;
    p.max_queries = p.max_keys = kLong;
    const Reference r = reference_of(p, random_);
    const Result expected = run(p, r, {}, 0);
    p.max_queries = p.max_keys = kOrderedRows;
    const Result actual = run(p, r, {}, 0);
    for (size_t i = 0; i < 3; ++i) {
      const auto others = [&](const Result& result) {
        const Doubles& all = result.gradients[i];
        const int64_t skipped = (i == 0 ? longest.queries : longest.keys) * p.width();
        return Doubles(all.begin() + skipped, all.end());
      };
      EXPECT_EQ(others(actual), others(expected)) << p.text() << ", gradient " << i;
    }
  }
}

// Scores so far apart that the maxima of most rows grow by much from tile to tile.
TEST_F(CudaAttention, EqualsFloat64InALongSequence) {
  for (const int64_t head_dim : {64, 128})
    for (const bool causal : {false, true}) {
      AttentionProblem p = problem_of({{1000, 1000}}, 1 << 20);
      p.heads = p.kv_heads = 1;
      p.head_dim = head_dim;
      p.causal = causal;
      p.sharpness = 12;
      SCOPED_TRACE(p.text());
      check(p, {});
      if (HasFatalFailure()) return;
    }
}

TEST_F(CudaAttention, DropsTheProbabilitiesThatPhiloxSays) {
  for (const Batch& batch : kBatches)
    for (const int64_t head_dim : {8, 40, 128})
      for (const int32_t fewer : {0, 3, 5})  // whole Philox blocks of keys, and parts of one
        for (const bool general : {false, true}) {
          int32_t most = 0;
          for (const SequenceLengths& lengths : batch) most = std::max(most, lengths.keys);
          AttentionProblem p = problem_of(batch, most - fewer);
          p.head_dim = head_dim;
          p.causal = fewer == 5;
          p.dropout = Dropout{0.3f, 0x123456789abcdefull, 17, 4};
          if (general) {
            p.max_queries = std::max<int64_t>(p.max_queries, 65);
            p.max_keys = std::max<int64_t>(p.max_keys, 72 - fewer);
          }
          SCOPED_TRACE(p.text());
          check(p, {});
          if (HasFatalFailure()) return;
        }
}

TEST_F(CudaAttention, AnyGradientsAloneAndAdded) {
  for (const Batch& batch : kBatches)
    for (int wanted = 0; wanted < 8; ++wanted)
      for (int accumulate = 0; accumulate < 8; ++accumulate) {
        if ((accumulate & ~wanted) != 0) continue;
        for (const bool general : {false, true}) {
          AttentionProblem p = problem_of(batch, 1 << 20);
          p.head_dim = general ? 64 : 32;
          p.heads = p.kv_heads = 3;
          p.causal = wanted % 2 != 0;
          if (general) p.max_queries = p.max_keys = std::max<int64_t>(p.max_keys, 70);
          Gradients gradients;
          for (size_t i = 0; i < 3; ++i)
            gradients[i] = {(wanted >> i & 1) != 0, (accumulate >> i & 1) != 0};
          SCOPED_TRACE(concat(p.text(), ", wanted ", wanted, ", added to ", accumulate));
          check(p, gradients);
          if (HasFatalFailure()) return;
        }
      }
}

}  // namespace
}  // namespace trafo::testing
