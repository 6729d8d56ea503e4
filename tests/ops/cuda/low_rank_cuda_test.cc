// The products of a low-rank adapter on CUDA, against sums in float64 on the host. For
// TRAFO_TEST_DEVICE=cuda.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/backend/cuda/cuda_backend.h"
#include "tests/ops/cuda/gemm_fixture.h"

namespace trafo::testing {
namespace {

// C += A B with a small k is rounded once, for B in both layouts, matrices with further columns,
// and sizes that fill no tile; the bits of a row are those it has alone.
TEST_F(CudaGemm, RankUpdates) {
  struct Case {
    Shapes s;
    int64_t more_a, more_b, more_c;  // columns beside the matrix
  };
  const Case cases[] = {{{300, 512, 16}, 0, 0, 0}, {{129, 264, 8}, 32, 0, 24},
                        {{64, 96, 48}, 0, 16, 0},  {{1, 2048, 32}, 0, 0, 0},
                        {{37, 72, 64}, 8, 8, 8},   {{33, 7, 5}, 1, 2, 3},
                        {{20, 64, 63}, 0, 1, 0},   {{5, 8, 1}, 0, 0, 0}};
  for (const auto& [s, more_a, more_b, more_c] : cases)
    for (const bool trans_b : {true, false}) {
      const int64_t lda = s.k + more_a, ldb = (trans_b ? s.k : s.n) + more_b, ldc = s.n + more_c;
      const int64_t b_rows = trans_b ? s.n : s.k;
      const Doubles a = random(s.m * lda), b = random(b_rows * ldb), c = random(s.m * ldc);
      Doubles expected = c;
      for (int64_t i = 0; i < s.m; ++i)
        for (int64_t j = 0; j < s.n; ++j)
          for (int64_t l = 0; l < s.k; ++l)
            expected[static_cast<size_t>(i * ldc + j)] +=
                a[static_cast<size_t>(i * lda + l)] *
                b[static_cast<size_t>(trans_b ? j * ldb + l : l * ldb + j)];
      const Tensor a_on_card = upload(a, {s.m, lda}), b_on_card = upload(b, {b_rows, ldb});
      const auto updated = [&](int64_t first, int64_t rows) {
        const Tensor sum = upload(c, {s.m, ldc});
        GemmParams p = params(a_on_card, b_on_card, sum, {rows, s.n, s.k});
        p.trans_b = trans_b;
        p.accumulate = true;
        p.a = static_cast<const std::byte*>(p.a) + first * lda * 2;
        p.c = static_cast<std::byte*>(p.c) + first * ldc * 2;
        p.lda = lda;
        p.ldb = ldb;
        p.ldc = ldc;
        context_->backend().gemm(p);
        return download(sum);
      };
      SCOPED_TRACE(concat("m ", s.m, ", n ", s.n, ", k ", s.k, ", B transposed ", trans_b));
      const Doubles all = updated(0, s.m);
      expect_close(all, expected, 1.0 / 256, 1e-5);
      const Doubles last = updated(s.m - 1, 1);
      for (int64_t j = 0; j < ldc; ++j)
        ASSERT_EQ(last[static_cast<size_t>((s.m - 1) * ldc + j)],
                  all[static_cast<size_t>((s.m - 1) * ldc + j)]);
    }
}

// A product of low rank in the GEMM of the wide one, in one kernel and, as on a card without wgmma
// or for small sizes, in two: both near float64, and two runs with the same bits.
TEST_F(CudaGemm, TermsOfLowRank) {
  constexpr cuda::Card kOther{8, 0, 166'912};
  struct Case {
    Shapes s;
    int64_t rank, more_a, more_term;  // columns beside A and beside the term's first factor
    bool bias;
  };
  const Case cases[] = {{{2500, 2696, 136}, 16, 0, 0, false}, {{2304, 3072, 320}, 8, 8, 16, false},
                        {{8192, 1032, 64}, 24, 0, 0, false},  {{4096, 2048, 200}, 48, 0, 0, false},
                        {{4096, 2048, 128}, 64, 0, 8, false}, {{4096, 2048, 128}, 16, 0, 0, true},
                        {{4096, 2048, 64}, 6, 0, 0, false},   {{33, 72, 24}, 16, 0, 0, true}};
  for (const auto& [s, rank, more_a, more_term, with_bias] : cases)
    for (const bool trans_b : {true, false}) {
      SCOPED_TRACE(concat(s.m, " x ", s.n, " x ", s.k, ", rank ", rank, ", transposed ", trans_b));
      const int64_t lda = s.k + more_a, term_lda = rank + more_term;
      const Doubles a = random(s.m * lda), b = random(s.n * s.k, 0.3), ta = random(s.m * term_lda),
                    tb = random(s.n * rank, 0.3), bias = with_bias ? random(s.n) : Doubles{};
      const auto second_factor = [&](const Doubles& values, int64_t k) {
        return upload(values, trans_b ? Shape{s.n, k} : Shape{k, s.n});
      };
      const Tensor a_on_card = upload(a, {s.m, lda}), b_on_card = second_factor(b, s.k),
                   ta_on_card = upload(ta, {s.m, term_lda}), tb_on_card = second_factor(tb, rank),
                   bias_on_card = with_bias ? upload(bias, {s.n}) : Tensor{};
      const auto result = [&] {
        const Tensor c = half({s.m, s.n});
        GemmParams p = params(a_on_card, b_on_card, c, s);
        p.lda = lda;
        p.trans_b = trans_b;
        p.ldb = trans_b ? s.k : s.n;
        p.bias = with_bias ? bias_on_card.raw() : nullptr;
        p.term_k = rank;
        p.term_a = ta_on_card.raw();
        p.term_lda = term_lda;
        p.term_b = tb_on_card.raw();
        p.term_ldb = trans_b ? rank : s.n;
        context_->backend().gemm(p);
        return download(c);
      };
      const Doubles own = result();
      ASSERT_EQ(result(), own);
      choose_kernels_as_on(context_->backend(), &kOther);
      const Doubles apart = result();
      choose_kernels_as_on(context_->backend(), nullptr);
      expect_close(own, apart, 0x1p-7, 0x1p-8);
      const auto second = [&](const Doubles& values, int64_t k, int64_t l, int64_t j) {
        return values[static_cast<size_t>(trans_b ? j * k + l : l * s.n + j)];
      };
      // Rows at both ends and in between: all would take long on the host.
      for (int64_t i = 0; i < s.m; i += i < 4 || i > s.m - 4 ? 1 : 97)
        for (int64_t j = 0; j < s.n; ++j) {
          double sum = with_bias ? bias[static_cast<size_t>(j)] : 0;
          for (int64_t l = 0; l < s.k; ++l)
            sum += a[static_cast<size_t>(i * lda + l)] * second(b, s.k, l, j);
          for (int64_t l = 0; l < rank; ++l)
            sum += ta[static_cast<size_t>(i * term_lda + l)] * second(tb, rank, l, j);
          ASSERT_NEAR(own[static_cast<size_t>(i * s.n + j)], sum, 0x1p-7 * std::abs(sum) + 0.02)
              << i << ", " << j;
        }
    }
}

// A B and A^T D of the same A in one pass: several pairs of other widths, A with further columns,
// results between others, sums that are added to; and what is no such pair.
TEST_F(CudaGemm, ThinProductsOfOneMatrix) {
  struct Case {
    int64_t rows, rank;
    std::vector<int64_t> widths;
    bool accumulate, f32;
  };
  const Case cases[] = {{2048, 16, {2048, 512, 512}, false, true},
                        {300, 8, {1032}, true, true},
                        {33, 16, {8, 72}, true, false},
                        {1, 2, {24}, false, true},
                        {700, 4, {64, 64, 64, 64, 64}, true, true},
                        {96, 5, {40}, true, true},
                        {96, 24, {40}, false, true},
                        {5000, 14, {136}, false, false}};
  for (const auto& [rows, rank, widths, accumulate, f32] : cases) {
    SCOPED_TRACE(concat(rows, " rows, rank ", rank, ", ", widths.size(), " pairs"));
    int64_t columns = 8;  // some that belong to no pair
    for (const int64_t width : widths) columns += width;
    const auto count = static_cast<int64_t>(widths.size());
    const Doubles a = random(rows * columns), b = random(columns * rank),
                  d = random(rows * count * rank);
    const Tensor a_on_card = upload(a, {rows, columns}), b_on_card = upload(b, {columns, rank}),
                 d_on_card = upload(d, {rows, count * rank});
    struct Results {
      Doubles down, up;
    };
    const auto results = [&] {
      const Tensor down = half({rows, count * rank});
      const Tensor up =
          f32 ? context_->from_values<float>(
                    std::vector<float>(static_cast<size_t>(columns * rank), 1), {columns, rank})
              : upload(Doubles(static_cast<size_t>(columns * rank), 1), {columns, rank});
      const auto at = [](const Tensor& tensor, int64_t element) {
        return static_cast<std::byte*>(tensor.raw()) +
               element * static_cast<int64_t>(dtype_size(tensor.dtype()));
      };
      std::vector<GemmParams> gemms;
      int64_t column = 0;
      for (int64_t i = 0; i < count; ++i) {
        GemmParams p;
        p.dtype = DType::bf16;
        p.m = rows;
        p.n = p.ldb = rank;
        p.k = widths[static_cast<size_t>(i)];
        p.a = at(a_on_card, column);
        p.lda = columns;
        p.b = at(b_on_card, column * rank);
        p.c = at(down, i * rank);
        p.ldc = count * rank;
        gemms.push_back(p);
        p.trans_a = true;
        std::swap(p.m, p.k);
        p.b = at(d_on_card, i * rank);
        p.ldb = count * rank;
        p.c = at(up, column * rank);
        p.ldc = rank;
        p.c_is_f32 = f32;
        p.accumulate = accumulate;
        gemms.push_back(p);
        column += widths[static_cast<size_t>(i)];
      }
      context_->backend().grouped_gemm(gemms);
      return Results{download(down), download(up)};
    };
    const Results found = results();
    const Results again = results();
    EXPECT_EQ(again.down, found.down);
    EXPECT_EQ(again.up, found.up);
    Doubles down(found.down.size(), 0), up(found.up.size(), 1);
    int64_t column = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t width = widths[static_cast<size_t>(i)];
      for (int64_t j = column; j < column + width; ++j)
        for (int64_t r = 0; r < rank; ++r) {
          double sum = accumulate ? 1 : 0;
          for (int64_t row = 0; row < rows; ++row) {
            const double value = a[static_cast<size_t>(row * columns + j)];
            const auto thin = static_cast<size_t>(row * count * rank + i * rank + r);
            sum += value * d[thin];
            down[thin] += value * b[static_cast<size_t>(j * rank + r)];
          }
          up[static_cast<size_t>(j * rank + r)] = sum;
        }
      column += width;
    }
    expect_close(found.down, down, 0x1p-8, 0x1p-10);
    expect_close(found.up, up, f32 ? 1e-5 : 0x1p-8, f32 ? 1e-5 : 0x1p-10);
  }
}

}  // namespace
}  // namespace trafo::testing
