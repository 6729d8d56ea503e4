// The kernels of decode steps on CUDA, against sums in float64 on the host and the kernels of the
// CPU. For TRAFO_TEST_DEVICE=cuda.
#include <gtest/gtest.h>

#include "engine/backend/gemm_kernels.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/view/view.h"
#include "tests/ops/cuda/gemm_fixture.h"

namespace trafo::testing {
namespace {

// C = A B^T + bias for few rows, with matrices that have further columns and sizes that fill no
// slab and no block; the bits of a row are those it has alone.
TEST_F(CudaGemm, FewRows) {
  struct Case {
    Shapes s;
    int64_t more_a, more_b, more_c;  // columns beside the matrix
    bool is_f32;
  };
  const Case cases[] = {{{1, 2048, 2048}, 0, 0, 0, false}, {{8, 96, 8192}, 0, 0, 0, false},
                        {{5, 1000, 72}, 8, 16, 3, false},  {{16, 50, 1032}, 16, 8, 0, true},
                        {{9, 17, 8}, 0, 0, 1, false},      {{3, 1, 520}, 0, 0, 0, true},
                        {{12, 4097, 64}, 0, 0, 0, false}};
  for (const auto& [s, more_a, more_b, more_c, is_f32] : cases)
    for (const bool has_bias : {false, true}) {
      ASSERT_LE(s.m, kMostFewRows);
      SCOPED_TRACE(concat("m ", s.m, ", n ", s.n, ", k ", s.k, ", bias ", has_bias));
      const int64_t lda = s.k + more_a, ldb = s.k + more_b, ldc = s.n + more_c;
      const Doubles a = random(s.m * lda), b = random(s.n * ldb), bias = random(s.n);
      Doubles expected(static_cast<size_t>(s.m * ldc));
      for (int64_t i = 0; i < s.m; ++i)
        for (int64_t j = 0; j < s.n; ++j) {
          double& sum = expected[static_cast<size_t>(i * ldc + j)];
          sum = has_bias ? bias[static_cast<size_t>(j)] : 0;
          for (int64_t l = 0; l < s.k; ++l)
            sum += a[static_cast<size_t>(i * lda + l)] * b[static_cast<size_t>(j * ldb + l)];
        }
      const Tensor a_on_card = upload(a, {s.m, lda}), b_on_card = upload(b, {s.n, ldb});
      const Tensor bias_on_card = upload(bias, {s.n});
      const DType dtype = is_f32 ? DType::f32 : DType::bf16;
      const auto product = [&](int64_t first, int64_t rows) {
        const Tensor c = context_->zeros({s.m, ldc}, dtype);
        GemmParams p = params(a_on_card, b_on_card, c, {rows, s.n, s.k});
        p.trans_b = true;
        p.c_is_f32 = is_f32;
        if (has_bias) p.bias = bias_on_card.raw();
        p.a = static_cast<const std::byte*>(p.a) + first * lda * 2;
        p.c = static_cast<std::byte*>(p.c) + first * ldc * (is_f32 ? 4 : 2);
        p.lda = lda;
        p.ldb = ldb;
        p.ldc = ldc;
        context_->backend().gemm(p);
        return download(c);
      };
      const Doubles all = product(0, s.m);
      expect_close(all, expected, is_f32 ? 1e-5 : 1.0 / 256, 1e-4);
      const Doubles last = product(s.m - 1, 1);
      for (int64_t j = 0; j < s.n; ++j)
        ASSERT_EQ(last[static_cast<size_t>((s.m - 1) * ldc + j)],
                  all[static_cast<size_t>((s.m - 1) * ldc + j)]);
    }
}

struct DecodeCase {
  int64_t heads, kv_heads, head_dim, pad;  // pad: columns beside those of all heads
  int64_t sequences;
  ops::AttentionOptions more;  // what is not said by the others
  bool biases = false;
};

std::vector<DecodeCase> decode_cases() {
  ops::AttentionOptions plain, window, capped;
  window.window = 50;
  capped.soft_cap = 3;
  return {{4, 4, 64, 0, 3, plain},         {32, 8, 64, 0, 1, plain},   {32, 8, 64, 0, 70, plain},
          {32, 8, 128, 16, 70, window},    {6, 3, 72, 0, 90, capped},  {7, 1, 256, 0, 60, plain},
          {12, 4, 40, 8, 50, plain, true}, {3, 1, 20, 0, 120, plain},  {2, 2, 7, 1, 9, plain, true},
          {5, 1, 32, 0, 80, window},       {2, 1, 200, 0, 200, plain}, {20, 2, 64, 0, 5, plain},
          {9, 1, 128, 0, 5, plain}};
}

// Sequences of 0 to 1,300 keys, in any order in the cache; the bits of a sequence are those it has
// alone.
TEST_F(CudaGemm, DecodesWithManyShapes) {
  const auto cpu = make_context({DeviceKind::cpu, 0}, 1);
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const DecodeCase& c : decode_cases()) {
      SCOPED_TRACE(concat(dtype_name(dtype), ", ", c.heads, " heads, ", c.kv_heads,
                          " of keys, head_dim ", c.head_dim, ", ", c.sequences, " sequences"));
      const int64_t width = c.heads * c.head_dim + c.pad;
      const int64_t kv_width = c.kv_heads * c.head_dim;
      constexpr int64_t kSlots = 1400, kDistances = 2 * kSlots - 1;
      ops::AttentionOptions options = c.more;
      options.heads = c.heads;
      options.kv_heads = c.kv_heads;
      options.head_dim = c.head_dim;
      std::vector<int32_t> begin, end;
      for (int64_t i = 0; i < c.sequences; ++i) {
        constexpr int32_t kKeys[] = {300, 0, 1, 17, 1300, 64};
        const int32_t keys = kKeys[i % 6];
        begin.push_back(static_cast<int32_t>(13 * i) % (static_cast<int32_t>(kSlots) - keys));
        end.push_back(begin.back() + keys);
      }
      const Doubles q = random(c.sequences * width, 2), kv = random(kSlots * 2 * kv_width);
      const Doubles biases = c.biases ? random(c.heads * kDistances) : Doubles{};
      const auto decode = [&](Context& context, DType type, size_t first, size_t count) {
        const auto tensor = [&](const Doubles& values, const Shape& shape) {
          const std::vector<float> narrow(values.begin(), values.end());
          return ops::cast(context, context.from_values<float>(narrow, shape), type);
        };
        const auto part = [&](const std::vector<int32_t>& all) {
          const auto some = std::span(all).subspan(first, count);
          return context.from_values<int32_t>(some, {std::ssize(some)});
        };
        ops::AttentionOptions with_biases = options;
        if (c.biases) with_biases.distance_bias = tensor(biases, {c.heads, kDistances});
        const auto from = static_cast<int64_t>(first), size = static_cast<int64_t>(count);
        const Tensor queries =
            ops::slice(context, tensor(q, {c.sequences, width}), 0, from, from + size);
        const Tensor cache = tensor(kv, {kSlots, 2 * kv_width});
        return ops::cast(context,
                         ops::attention_decode(context, {queries}, {cache}, {cache, kv_width},
                                               part(begin), part(end), with_biases),
                         DType::f32);
      };
      const size_t all = begin.size();
      const Doubles found = download(decode(*context_, dtype, 0, all));
      const auto wanted = cpu->values<float>(decode(*cpu, DType::f32, 0, all));
      const bool half = dtype == DType::bf16;
      // In bfloat16 the weights are rounded too, each by up to 1/512 of itself.
      expect_close(found, Doubles(wanted.begin(), wanted.end()), half ? 1.0 / 256 : 1e-5,
                   half ? 4e-3 : 1e-5);
      const Doubles alone = download(decode(*context_, dtype, 0, 1));
      for (size_t i = 0; i < alone.size(); ++i) ASSERT_EQ(alone[i], found[i]) << i;
    }
}

}  // namespace
}  // namespace trafo::testing
