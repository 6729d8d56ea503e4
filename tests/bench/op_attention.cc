// Self-attention over a packed batch of sequences of one length: queries, keys and values are the
// columns of one projection [tokens, 3 heads head_dim], and so are their gradients. Reference:
// heads are split by copies, scores stored, softmax made of simple ops, as before flash attention.
#include <algorithm>
#include <cmath>
#include <mutex>

#include "engine/ops/attention/attention.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/softmax/softmax.h"
#include "engine/ops/unary/unary.h"
#include "engine/ops/view/view.h"
#include "tests/bench/op_sections.h"

namespace trafo::bench {
namespace {

constexpr int64_t kCheckedRows = 8;
constexpr int64_t kLongestFullCheck = 4096;  // gradients of keys need every query
constexpr double kMostScores = 3e8;          // that the reference form may store

struct AttentionCase {
  int64_t sequences, heads, length, head_dim;
  bool causal;
  int64_t window = 0;

  int64_t tokens() const { return sequences * length; }
  int64_t width() const { return heads * head_dim; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(head_dim)); }
  // The first key that a query sees before key `end`.
  int64_t first_key(int64_t end) const {
    return window > 0 ? std::max<int64_t>(0, end - window) : 0;
  }
  double operations() const {  // of the forward pass; half of the scores under a causal mask
    const auto all = static_cast<double>(length), outside = static_cast<double>(first_key(length));
    const double scores = causal ? (all * all - outside * outside) / 2 : all * all;
    return 4.0 * static_cast<double>(sequences * heads) * scores * static_cast<double>(head_dim);
  }
};

Tensor reference(Context& context, const AttentionCase& c, const Tensor& qkv,
                 const Tensor& future_penalty) {
  const Tensor parts = ops::reshape(context, qkv, {c.sequences, c.length, 3, c.heads, c.head_dim});
  const auto split = [&](int64_t part) {
    const Tensor one = ops::reshape(context, ops::slice(context, parts, 2, part, part + 1),
                                    {c.sequences, c.length, c.heads, c.head_dim});
    return ops::reshape(context, ops::transpose(context, one, 1, 2),
                        {c.sequences * c.heads, c.length, c.head_dim});
  };
  const Tensor q = split(0), k = split(1), v = split(2);
  Tensor scores = ops::scale(context, ops::matmul(context, q, k, {.transpose_b = true}), c.scale());
  if (c.causal) scores = ops::add(context, scores, future_penalty);
  const Tensor out = ops::matmul(context, ops::softmax_reference(context, scores, {}), v);
  const Tensor heads = ops::reshape(context, out, {c.sequences, c.heads, c.length, c.head_dim});
  return ops::reshape(context, ops::transpose(context, heads, 1, 2), {c.tokens(), c.width()});
}

using Matrix = std::vector<double>;  // [length, head_dim]

double dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void add_scaled(double* target, double factor, const double* source, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] += factor * source[i];
}

// One head of one sequence in float64.
struct Reference {
  const AttentionCase& c;
  Matrix q, k, v, dout;
  std::vector<int64_t> checked;  // queries, and keys too
  bool keys_validated;
  Matrix out, dq, dk, dv;  // rows of `checked`

  Reference(const AttentionCase& attention, const RandomTensor& qkv, const RandomTensor& upstream,
            int64_t sequence, int64_t head)
      : c(attention),
        checked(spread(attention.length, kCheckedRows)),
        keys_validated(attention.length <= kLongestFullCheck) {
    const auto take = [&](const RandomTensor& from, int64_t columns, int64_t column) {
      Matrix matrix;
      for (int64_t i = 0; i < c.length; ++i)
        for (int64_t d = 0; d < c.head_dim; ++d)
          matrix.push_back(from.at((sequence * c.length + i) * columns + column + d));
      return matrix;
    };
    const int64_t column = head * c.head_dim;
    q = take(qkv, 3 * c.width(), column);
    k = take(qkv, 3 * c.width(), c.width() + column);
    v = take(qkv, 3 * c.width(), 2 * c.width() + column);
    dout = take(upstream, c.width(), column);
    for (Matrix* matrix : {&out, &dq, &dk, &dv})
      matrix->assign(checked.size() * static_cast<size_t>(c.head_dim), 0.0);
    std::vector<int64_t> queries = checked;
    if (keys_validated) {
      queries.clear();
      for (int64_t i = 0; i < c.length; ++i) queries.push_back(i);
    }
    std::mutex mutex;
    parallel_rows(static_cast<int64_t>(queries.size()), [&](int64_t begin, int64_t end) {
      Matrix key_part(dk.size(), 0.0), value_part(dv.size(), 0.0);
      for (int64_t n = begin; n < end; ++n)
        add_query(queries[static_cast<size_t>(n)], key_part, value_part);
      const std::lock_guard lock(mutex);
      for (size_t i = 0; i < dk.size(); ++i) dk[i] += key_part[i], dv[i] += value_part[i];
    });
  }

 private:
  const double* row(const Matrix& matrix, int64_t i) const {
    return matrix.data() + i * c.head_dim;
  }
  double* sum_row(Matrix& matrix, size_t i) const {
    return matrix.data() + static_cast<int64_t>(i) * c.head_dim;
  }
  void add_query(int64_t i, Matrix& key_part, Matrix& value_part) {
    const int64_t keys = c.causal ? i + 1 : c.length, first = c.first_key(keys), d = c.head_dim;
    std::vector<double> p(static_cast<size_t>(keys), -INFINITY), dp(p.size());
    double highest = -INFINITY, total = 0, mean = 0;
    for (int64_t j = first; j < keys; ++j) {
      p[static_cast<size_t>(j)] = c.scale() * dot(row(q, i), row(k, j), d);
      highest = std::max(highest, p[static_cast<size_t>(j)]);
    }
    for (double& value : p) total += value = std::exp(value - highest);
    for (double& value : p) value /= total;
    for (int64_t j = first; j < keys; ++j) {
      dp[static_cast<size_t>(j)] = dot(row(dout, i), row(v, j), d);
      mean += p[static_cast<size_t>(j)] * dp[static_cast<size_t>(j)];
    }
    for (size_t n = 0; n < checked.size(); ++n) {
      if (checked[n] == i)  // one thread has this query
        for (int64_t j = first; j < keys; ++j) {
          const auto at = static_cast<size_t>(j);
          add_scaled(sum_row(out, n), p[at], row(v, j), d);
          add_scaled(sum_row(dq, n), c.scale() * p[at] * (dp[at] - mean), row(k, j), d);
        }
      const int64_t j = checked[n];
      if (j < first || j >= keys) continue;
      const auto at = static_cast<size_t>(j);
      add_scaled(sum_row(key_part, n), c.scale() * p[at] * (dp[at] - mean), row(q, i), d);
      add_scaled(sum_row(value_part, n), p[at], row(dout, i), d);
    }
  }
};

void check(Context& context, const AttentionCase& c, const RandomTensor& qkv,
           const RandomTensor& upstream, const Tensor& out, const Tensor& gradient,
           ErrorMeter& forward, ErrorMeter& backward) {
  const int64_t sequence = c.sequences - 1, head = c.heads - 1, d = c.head_dim;
  const Reference reference(c, qkv, upstream, sequence, head);
  const auto compare = [&](const Tensor& tensor, int64_t column, const Matrix& expected,
                           ErrorMeter& error) {
    for (size_t n = 0; n < reference.checked.size(); ++n) {
      const int64_t token = sequence * c.length + reference.checked[n];
      const auto values =
          read_values(context, tensor, token * tensor.dim(1) + column + head * d, d);
      for (int64_t i = 0; i < d; ++i)
        error.add(values[static_cast<size_t>(i)],
                  expected[n * static_cast<size_t>(d) + static_cast<size_t>(i)]);
    }
  };
  compare(out, 0, reference.out, forward);
  compare(gradient, 0, reference.dq, backward);
  if (!reference.keys_validated) return;
  compare(gradient, c.width(), reference.dk, backward);
  compare(gradient, 2 * c.width(), reference.dv, backward);
}

void attention_case(OpBench& bench, DType dtype, const AttentionCase& c) {
  Context& context = bench.context;
  const Shape shape{c.sequences, c.heads, c.length, c.head_dim};
  if (!bench.takes("attention", shape, static_cast<double>(3 * c.tokens() * c.width()),
                   3.5 * c.operations()))
    return;
  const RandomTensor qkv = random_tensor(context, {c.tokens(), 3 * c.width()}, dtype);
  const RandomTensor upstream = random_tensor(context, {c.tokens(), c.width()}, dtype);
  const Tensor gradient = context.empty({c.tokens(), 3 * c.width()}, dtype);
  std::vector<int32_t> bounds;
  for (int64_t b = 0; b <= c.sequences; ++b) bounds.push_back(static_cast<int32_t>(b * c.length));
  const Tensor cu_seqlens = context.from_values<int32_t>(bounds, {c.sequences + 1});
  ops::AttentionOptions options;
  options.heads = c.heads;
  options.head_dim = c.head_dim;
  options.causal = c.causal;
  options.window = c.window;
  options.max_queries = options.max_keys = c.length;
  const auto fused = [&](const Tensor& packed) {
    return ops::attention(context, {packed, 0}, {packed, c.width()}, {packed, 2 * c.width()},
                          cu_seqlens, cu_seqlens, options);
  };

  OpRun run;
  run.section = "attn";
  run.dtype = dtype;
  run.shape = shape;
  run.extra["causal"] = c.causal;
  if (c.window > 0) run.extra["window"] = c.window;
  run.full = c.operations() >= 5e9;
  run.forward_operations = c.operations();
  run.backward_operations = 2.5 * c.operations();
  run.upstream = {upstream.tensor};
  run.forward = [&] { fused(qkv.tensor); };
  run.record = [&] { return std::vector{fused(make_leaf(qkv.tensor, gradient))}; };
  Tensor penalty;
  const double scores =
      static_cast<double>(c.sequences * c.heads) * static_cast<double>(c.length * c.length);
  if (bench.reference && c.window == 0 && scores <= kMostScores) {
    std::vector<double> hidden;
    for (int64_t i = 0; i < c.length; ++i)
      for (int64_t j = 0; j < c.length; ++j) hidden.push_back(j > i ? -1e9 : 0);
    penalty = context.from_doubles(hidden, {1, c.length, c.length}, dtype);
    run.reference_forward = [&] { reference(context, c, qkv.tensor, penalty); };
    run.reference_record = [&] {
      return std::vector{reference(context, c, make_leaf(qkv.tensor, gradient), penalty)};
    };
  }
  run.check = [&](ErrorMeter& forward, ErrorMeter& backward) {
    const NoGrad no_grad(context);
    check(context, c, qkv, upstream, fused(qkv.tensor), gradient, forward, backward);
  };
  measure(bench, run);
}

}  // namespace

void bench_attention(OpBench& bench) {
  std::vector<AttentionCase> cases{
      {16, 12, 1024, 64, true}, {64, 8, 64, 64, false},        {64, 8, 128, 64, true},
      {4, 16, 4096, 128, true}, {4, 16, 4096, 128, false},     {2, 16, 16384, 128, true},
      {8, 16, 4096, 64, true},  {2, 16, 8192, 64, true},       {2, 16, 8192, 64, true, 1024},
      {2, 16, 8192, 128, true}, {2, 16, 8192, 128, true, 1024}};
  if (bench.quick)
    cases = {{4, 2, 64, 64, false}, {4, 2, 128, 64, true}, {2, 2, 256, 64, true, 100}};
  for (const DType dtype : bench.dtypes_or({bench.on_cpu() ? DType::f32 : DType::bf16}))
    for (const AttentionCase& c : cases)
      guarded(bench, {{"sec", "attn"}, {"dt", dtype_name(dtype)}},
              [&] { attention_case(bench, dtype, c); });
}

}  // namespace trafo::bench
