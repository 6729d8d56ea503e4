#include "engine/backend/cpu/gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/gemm_internal.h"
#include "engine/core/status.h"
#include "engine/os/processor.h"
#include "tests/support/cpu_targets.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

using testing::for_each_target;

struct Case {
  int64_t m, n, k;
  bool trans_a = false, trans_b = false, accumulate = false, bias = false;
  int64_t pad = 0;  // leading dimensions are this much wider than the rows
  int64_t batch = 1;

  std::string name() const {
    return concat("m ", m, " n ", n, " k ", k, trans_a ? " trans_a" : "", trans_b ? " trans_b" : "",
                  accumulate ? " accumulate" : "", bias ? " bias" : "", " pad ", pad, " batch ",
                  batch);
  }
};

template <class T>
class Problem {
 public:
  explicit Problem(const Case& c) : case_(c) {
    std::mt19937 random(static_cast<unsigned>(c.m * 7919 + c.n * 104729 + c.k));
    const auto fill = [&](std::vector<T>& x, int64_t size) {
      std::uniform_real_distribution<double> uniform(-1.0, 1.0);
      x.resize(static_cast<size_t>(size));
      for (T& value : x) value = static_cast<T>(uniform(random));
    };
    // Each array ends with its last element, so that the sanitizer sees an access past it.
    const auto extent = [&](int64_t rows, int64_t cols) {
      return rows == 0 || cols == 0 ? 0 : (rows - 1) * (cols + c.pad) + cols;
    };
    const int64_t a_rows = c.trans_a ? c.k : c.m, a_cols = c.trans_a ? c.m : c.k;
    const int64_t b_rows = c.trans_b ? c.n : c.k, b_cols = c.trans_b ? c.k : c.n;
    p_.dtype = dtype_of<T>;
    p_.trans_a = c.trans_a;
    p_.trans_b = c.trans_b;
    p_.accumulate = c.accumulate;
    p_.m = c.m;
    p_.n = c.n;
    p_.k = c.k;
    p_.lda = a_cols + c.pad;
    p_.ldb = b_cols + c.pad;
    p_.ldc = c.n + c.pad;
    p_.batch = c.batch;
    p_.stride_a = a_rows * p_.lda + 3;
    p_.stride_b = b_rows * p_.ldb + 5;
    p_.stride_c = c.m * p_.ldc + 1;
    fill(a_, (c.batch - 1) * p_.stride_a + extent(a_rows, a_cols));
    fill(b_, (c.batch - 1) * p_.stride_b + extent(b_rows, b_cols));
    fill(c_, (c.batch - 1) * p_.stride_c + extent(c.m, c.n));
    if (c.bias) fill(bias_, c.n);
    p_.a = a_.data();
    p_.b = b_.data();
    p_.bias = c.bias ? bias_.data() : nullptr;
  }

  std::vector<T> run(int threads) {
    std::vector<T> result = c_;
    p_.c = result.data();
    ThreadPool pool(threads);
    gemm_cpu(pool, p_);
    return result;
  }

  // Against sums in double (long double for double), by the error bound of any order of summation:
  // k + 2 roundings of at most the sum of magnitudes.
  void expect_right(const std::vector<T>& result) const {
    using Wide = std::conditional_t<sizeof(T) == 4, double, long double>;
    std::vector<bool> in_c(c_.size(), false);
    for (int64_t item = 0; item < p_.batch; ++item)
      for (int64_t i = 0; i < p_.m; ++i)
        for (int64_t j = 0; j < p_.n; ++j) {
          const size_t at = index(item * p_.stride_c + i * p_.ldc + j);
          in_c[at] = true;
          Wide sum = p_.accumulate ? c_[at] : T{0};
          if (p_.bias != nullptr) sum += bias_[index(j)];
          Wide magnitude = std::abs(sum);
          for (int64_t k = 0; k < p_.k; ++k) {
            const T a =
                a_[index(item * p_.stride_a + (p_.trans_a ? k * p_.lda + i : i * p_.lda + k))];
            const T b =
                b_[index(item * p_.stride_b + (p_.trans_b ? j * p_.ldb + k : k * p_.ldb + j))];
            sum += static_cast<Wide>(a) * b;
            magnitude += std::abs(static_cast<Wide>(a) * b);
          }
          const Wide bound =
              magnitude * static_cast<Wide>(p_.k + 2) * std::numeric_limits<T>::epsilon();
          ASSERT_LE(std::abs(result[at] - sum), bound)
              << case_.name() << " at " << item << ", " << i << ", " << j;
        }
    for (size_t at = 0; at < c_.size(); ++at) {
      if (in_c[at]) continue;
      ASSERT_EQ(result[at], c_[at]) << case_.name() << " changed what lies between rows, at " << at;
    }
  }

  void check() {
    const std::vector<T> one = run(1);
    expect_right(one);
    for (int threads : {2, 3, 7}) {
      const std::vector<T> many = run(threads);
      ASSERT_EQ(std::memcmp(one.data(), many.data(), one.size() * sizeof(T)), 0)
          << case_.name() << " differs with " << threads << " threads";
    }
  }

 private:
  static size_t index(int64_t i) { return static_cast<size_t>(i); }

  Case case_;
  GemmParams p_;
  std::vector<T> a_, b_, c_, bias_;
};

void check(const Case& c) {
  Problem<float>(c).check();
  Problem<double>(c).check();
}

constexpr int kCombinations = 16;

Case with_flags(Case c, int flags) {
  c.trans_a = flags & 1;
  c.trans_b = flags & 2;
  c.accumulate = flags & 4;
  c.bias = flags & 8;
  return c;
}

TEST(Gemm, EdgeSizesInEveryCombination) {
  const std::vector<std::vector<int64_t>> sizes = {
      {1, 1, 1},   {1, 37, 5},  {2, 1, 9},    {3, 300, 33},  {4, 130, 16}, {5, 64, 20},
      {6, 65, 21}, {7, 31, 19}, {13, 17, 40}, {14, 32, 64},  {15, 33, 65}, {16, 8, 3},
      {29, 1, 70}, {1, 129, 2}, {64, 96, 50}, {100, 45, 401}};
  for_each_target([&] {
    for (const auto& s : sizes)
      for (int flags = 0; flags < kCombinations; ++flags)
        check(with_flags({s[0], s[1], s[2], false, false, false, false, flags % 3 * 2}, flags));
  });
}

TEST(Gemm, RandomShapes) {
  std::mt19937 random(4);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for_each_target([&] {
    for (int round = 0; round < 40; ++round) {
      Case c{pick(1, 150), pick(1, 150), pick(1, 150)};
      c.pad = pick(0, 1) * pick(1, 20);
      c.batch = pick(0, 3) == 0 ? pick(2, 9) : 1;
      check(with_flags(c, static_cast<int>(pick(0, kCombinations - 1))));
    }
  });
}

TEST(Gemm, SeveralPassesOverKAndPackedOperands) {
  for (int flags = 0; flags < 4; ++flags) {
    check(with_flags({40, 70, 1300}, flags | 12));  // more than one pass over K
    check(with_flags({70, 40, 1300}, flags));
    check(with_flags({33, 90, 512}, flags));  // rows at a distance that would alias in a cache
    check(with_flags({90, 33, 512}, flags));
  }
}

TEST(Gemm, SharedPanelsLargerThanTheirScratch) {
  Problem<float> wide({20, 18, 80000});  // 10 MB of packed B
  wide.check();
  Problem<float> tall(with_flags({18, 20, 80000}, 1));
  tall.check();
}

TEST(Gemm, ManyBlocks) {
  check(with_flags({700, 200, 100}, 8));
  check(with_flags({90, 900, 100}, 2));
  check(with_flags({900, 90, 100}, 1));
}

TEST(Gemm, BatchOfLargeProducts) {
  Case c{300, 310, 190};
  c.batch = 3;
  check(c);
}

TEST(Gemm, WithoutKOnlyBiasAndAccumulationRemain) {
  for (int flags : {0, 4, 8, 12})
    check(with_flags({5, 7, 0, false, false, false, false, 2, 2}, flags));
}

TEST(Gemm, EmptyResultsTouchNothing) {
  ThreadPool pool(2);
  GemmParams p;
  p.n = 5;
  p.k = 3;
  EXPECT_NO_THROW(gemm_cpu(pool, p));  // m == 0: null pointers are never looked at
  p.m = 4;
  p.n = 0;
  EXPECT_NO_THROW(gemm_cpu(pool, p));
  p.n = 5;
  p.batch = 0;
  EXPECT_NO_THROW(gemm_cpu(pool, p));
}

TEST(Gemm, NotANumberAndInfinityReachTheirRowAndColumnOnly) {
  std::vector<float> a(30 * 40, 1.0f), b(40 * 50, 1.0f), c(30 * 50);
  a[7 * 40 + 3] = std::numeric_limits<float>::quiet_NaN();
  b[5 * 50 + 49] = std::numeric_limits<float>::infinity();
  GemmParams p;
  p.m = 30, p.n = 50, p.k = 40, p.lda = 40, p.ldb = 50, p.ldc = 50;
  p.a = a.data(), p.b = b.data(), p.c = c.data();
  ThreadPool pool(2);
  gemm_cpu(pool, p);
  for (size_t i = 0; i < 30; ++i)
    for (size_t j = 0; j < 50; ++j) {
      const float value = c[i * 50 + j];
      if (i == 7)
        EXPECT_TRUE(std::isnan(value));
      else if (j == 49)
        EXPECT_TRUE(std::isinf(value));
      else
        EXPECT_EQ(value, 40.0f);
    }
}

TEST(Gemm, RefusesWhatCannotBe) {
  std::vector<float> x(100);
  ThreadPool pool;
  GemmParams good;
  good.m = 4, good.n = 5, good.k = 6, good.lda = 6, good.ldb = 5, good.ldc = 5;
  good.a = good.b = x.data();
  std::vector<float> c(20);
  good.c = c.data();
  EXPECT_NO_THROW(gemm_cpu(pool, good));
  const auto code_of = [&](auto change) {
    GemmParams p = good;
    change(p);
    try {
      gemm_cpu(pool, p);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::ok;
  };
  EXPECT_EQ(code_of([](GemmParams& p) { p.lda = 5; }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([](GemmParams& p) { p.ldb = 4; }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([](GemmParams& p) { p.ldc = 4; }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([](GemmParams& p) { p.m = -1; }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([](GemmParams& p) { p.b = nullptr; }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([](GemmParams& p) { p.dtype = DType::bf16; }), ErrorCode::dtype_mismatch);
}

TEST(Gemm, ScratchIsReusedAndFreedWithItsThread) {
  const int64_t before = gemm_scratch_bytes();
  std::thread([&] {
    Problem<float> problem(with_flags({200, 300, 257}, 2));
    problem.run(1);
    const int64_t after_first = gemm_scratch_bytes();
    EXPECT_GT(after_first, before);
    problem.run(1);
    EXPECT_EQ(gemm_scratch_bytes(), after_first);
  }).join();
  EXPECT_EQ(gemm_scratch_bytes(), before);
}

// ---- float32 that multiplies in bfloat16 ----

// Elements along K that an instruction groups.
#if defined(__aarch64__)
constexpr int64_t kBf16Group = 4;
#else
constexpr int64_t kBf16Group = 2;
#endif

using Group = std::array<float, kBf16Group>;

// Groups that an instruction takes, and groups between two visits of C.
struct Bf16Steps {
  int64_t at_once, pass;
};

Bf16Steps steps_of(Bf16Instructions instructions) {
  switch (instructions) {
    case Bf16Instructions::avx512:
      return {1, 384};
    case Bf16Instructions::amx:
      return {16, 256};
    case Bf16Instructions::arm:
      return {1, 256};
  }
  return {};
}

const char* name_of(Bf16Instructions instructions) {
  return instructions == Bf16Instructions::avx512 ? "AVX512-BF16"
         : instructions == Bf16Instructions::amx  ? "AMX"
                                                  : "BFMMLA";
}

struct Bf16Case {
  int64_t m, n, k;
  int flags = 0;    // 1: A transposed, 2: B transposed, 4: accumulate, 8: bias
  int64_t pad = 0;  // leading dimensions are this much wider than the rows
  int64_t batch = 1;

  bool trans_a() const { return flags & 1; }
  bool trans_b() const { return flags & 2; }
  // Few rows read B once and stay float32.
  bool is_float32() const { return !trans_a() && m <= (trans_b() ? 24 : 14); }
  std::string name() const {
    return concat("m ", m, " n ", n, " k ", k, " flags ", flags, " pad ", pad, " batch ", batch);
  }
};

float without_denormals(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

#if defined(__aarch64__)

float rounded(float x) {
  return without_denormals(BFloat16::from_float(x).to_float());
}

// The truncated value, with its last bit set if it is not exact.
float to_odd(double x) {
  auto result = static_cast<float>(x);
  if (!std::isfinite(x) || std::abs(x) >= 0x1p128) return result;
  if (std::abs(result) > std::abs(x)) result = std::nextafter(result, 0.0f);
  if (result != x) result = std::bit_cast<float>(std::bit_cast<uint32_t>(result) | 1);
  return std::abs(x) < 0x1p-126 ? std::copysign(0.0f, result) : result;
}

float sum_to_odd(double a, double b) {
  double sum = a + b;
  const double b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);
  if (std::isfinite(sum) && error != 0) {
    auto bits = std::bit_cast<uint64_t>(sum);
    if (std::signbit(error) != std::signbit(sum)) --bits;
    sum = std::bit_cast<double>(bits | 1);
  }
  return to_odd(sum);
}

// One sum of bfmmla: the earlier pair of products first.
float add_products(Bf16Instructions /*instructions*/, float sum, std::span<const Group> of_a,
                   std::span<const Group> of_b) {
  const Group &a = of_a[0], &b = of_b[0];
  const auto product = [&](size_t i) { return to_odd(double{a[i]} * double{b[i]}); };
  for (const size_t i : {0, 2})
    sum = sum_to_odd(without_denormals(sum), sum_to_odd(product(i), product(i + 1)));
  return sum;
}

#else

float rounded(float x) {
  return without_denormals(BFloat16::from_float(without_denormals(x)).to_float());
}

float add_product(float sum, float a, float b) {
  return without_denormals(std::fma(a, b, without_denormals(sum)));
}

// One lane of vdpbf16ps: the product of the later element first, each with one rounding. One sum of
// tdpbf16ps: products of earlier and of later elements apart.
float add_products(Bf16Instructions instructions, float sum, std::span<const Group> a,
                   std::span<const Group> b) {
  if (instructions == Bf16Instructions::avx512)
    return add_product(add_product(sum, a[0][1], b[0][1]), a[0][0], b[0][0]);
  float earlier = 0, later = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    earlier = add_product(earlier, a[i][0], b[i][0]);
    later = add_product(later, a[i][1], b[i][1]);
  }
  return without_denormals(without_denormals(sum) + without_denormals(earlier + later));
}

#endif

class Bf16Problem {
 public:
  explicit Bf16Problem(const Bf16Case& c, bool special_values = false) : case_(c) {
    std::mt19937 random(static_cast<unsigned>(c.m * 7919 + c.n * 104729 + c.k + c.flags));
    const auto fill = [&](std::vector<float>& x, int64_t size) {
      std::normal_distribution<float> normal;
      x.resize(static_cast<size_t>(size));
      for (float& value : x) value = normal(random);
      if (special_values)
        for (size_t i = random() % 50; i < x.size(); i += 1 + random() % 400)
          x[i] = kSpecial[random() % std::size(kSpecial)];
    };
    const auto extent = [&](int64_t rows, int64_t cols) {
      return (rows - 1) * (cols + c.pad) + cols;
    };
    const int64_t a_rows = c.trans_a() ? c.k : c.m, a_cols = c.trans_a() ? c.m : c.k;
    const int64_t b_rows = c.trans_b() ? c.n : c.k, b_cols = c.trans_b() ? c.k : c.n;
    p_.trans_a = c.trans_a();
    p_.trans_b = c.trans_b();
    p_.accumulate = c.flags & 4;
    p_.m = c.m, p_.n = c.n, p_.k = c.k, p_.batch = c.batch;
    p_.lda = a_cols + c.pad, p_.ldb = b_cols + c.pad, p_.ldc = c.n + c.pad;
    p_.stride_a = a_rows * p_.lda + 3;
    p_.stride_b = b_rows * p_.ldb + 5;
    p_.stride_c = c.m * p_.ldc + 1;
    fill(a_, (c.batch - 1) * p_.stride_a + extent(a_rows, a_cols));
    fill(b_, (c.batch - 1) * p_.stride_b + extent(b_rows, b_cols));
    fill(c_, (c.batch - 1) * p_.stride_c + extent(c.m, c.n));
    if (c.flags & 8) fill(bias_, c.n);
    p_.a = a_.data();
    p_.b = b_.data();
    p_.bias = bias_.empty() ? nullptr : bias_.data();
  }

  std::vector<float> run(int threads, DType multiply = DType::bf16) {
    std::vector<float> result = c_;
    p_.c = result.data();
    ThreadPool pool(threads);
    gemm_cpu(pool, p_, multiply);
    return result;
  }

  // Every instruction set of this processor gives the bits of its definition; gemm_cpu takes the
  // fastest.
  void check() {
    for (const Bf16Instructions instructions : bf16_instructions()) {
      const std::vector<float> one = run_with(instructions, 1);
      check_by_definition(instructions, one);
      for (const int threads : {2, 3, 4})
        check_equal(one, run_with(instructions, threads), name_of(instructions));
    }
    check_equal(run_with(bf16_instructions().front(), 1), run(2), "gemm_cpu");
  }

 private:
  static constexpr float kSpecial[] = {std::numeric_limits<float>::quiet_NaN(),
                                       std::numeric_limits<float>::infinity(),
                                       -std::numeric_limits<float>::infinity(),
                                       std::numeric_limits<float>::max(),
                                       std::numeric_limits<float>::denorm_min(),
                                       -0x1.ffp-127f,
                                       0x1.fffffep-127f,
                                       -0x1p-126f,
                                       0x1.01p-70f,
                                       -0.0f,
                                       0x1.01p+0f,
                                       0x1.03p+0f};

  float a(int64_t item, int64_t i, int64_t k) const {
    return k < p_.k
               ? rounded(
                     a_[index(item * p_.stride_a + (p_.trans_a ? k * p_.lda + i : i * p_.lda + k))])
               : 0;
  }
  float b(int64_t item, int64_t k, int64_t j) const {
    return k < p_.k
               ? rounded(
                     b_[index(item * p_.stride_b + (p_.trans_b ? j * p_.ldb + k : k * p_.ldb + j))])
               : 0;
  }

  std::vector<float> run_with(Bf16Instructions instructions, int threads) const {
    std::vector<float> result = c_;
    ThreadPool pool(threads);
    for (int64_t item = 0; item < p_.batch; ++item) {
      GemmParams one = p_;
      one.batch = 1;
      one.a = a_.data() + item * p_.stride_a;
      one.b = b_.data() + item * p_.stride_b;
      one.c = result.data() + item * p_.stride_c;
      gemm_bf16(pool, one, instructions);
    }
    return result;
  }

  void check_by_definition(Bf16Instructions instructions, const std::vector<float>& found) {
    const std::vector<float> wanted =
        case_.is_float32() ? run(1, DType::f32) : by_the_definition(instructions);
    for (size_t at = 0; at < found.size(); ++at) {
      if (std::isnan(wanted[at]) && std::isnan(found[at])) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(found[at]), std::bit_cast<uint32_t>(wanted[at]))
          << name_of(instructions) << ", " << case_.name() << " at " << at << ": " << found[at]
          << " instead of " << wanted[at];
    }
  }

  void check_equal(const std::vector<float>& one, const std::vector<float>& other,
                   const char* of) const {
    ASSERT_EQ(std::memcmp(one.data(), other.data(), one.size() * sizeof(float)), 0)
        << case_.name() << ", " << of;
  }

  std::vector<float> by_the_definition(Bf16Instructions instructions) const {
    std::vector<float> result = c_;
    const Bf16Steps steps = steps_of(instructions);
    const EvenSplit parts((p_.k + kBf16Group - 1) / kBf16Group, steps.pass);
    for (int64_t item = 0; item < p_.batch; ++item)
      for (int64_t i = 0; i < p_.m; ++i)
        for (int64_t j = 0; j < p_.n; ++j) {
          float& c = result[index(item * p_.stride_c + i * p_.ldc + j)];
          for (int64_t part = 0; part < parts.parts(); ++part) {
            float sum = 0;
            const int64_t end = parts.begin(part) + parts.size(part);
            for (int64_t first = parts.begin(part); first < end; first += steps.at_once) {
              std::vector<Group> of_a, of_b;
              for (int64_t group = first; group < std::min(end, first + steps.at_once); ++group) {
                of_a.emplace_back();
                of_b.emplace_back();
                for (int64_t e = 0; e < kBf16Group; ++e) {
                  of_a.back()[index(e)] = a(item, i, kBf16Group * group + e);
                  of_b.back()[index(e)] = b(item, kBf16Group * group + e, j);
                }
              }
              sum = add_products(instructions, sum, of_a, of_b);
            }
            if (p_.accumulate || part > 0) sum += c;
            if (part == 0 && !bias_.empty()) sum += bias_[index(j)];
            c = sum;
          }
        }
    return result;
  }

  static size_t index(int64_t i) { return static_cast<size_t>(i); }

  Bf16Case case_;
  GemmParams p_;
  std::vector<float> a_, b_, c_, bias_;
};

class Bf16Gemm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_bf16_gemm()) GTEST_SKIP() << "this processor does not multiply bfloat16";
  }
};

TEST(Bf16GemmChoice, AProcessorWithoutItRefusesIt) {
  ThreadPool pool;
  GemmParams empty;
  const auto backend = make_cpu_backend(1);
  if (has_bf16_gemm()) {
    EXPECT_NO_THROW(gemm_cpu(pool, empty, DType::bf16));
    EXPECT_NO_THROW(set_matmul_precision(*backend, DType::bf16, "context"));
    return;
  }
  for (const Error& error : {error_of([&] { gemm_cpu(pool, empty, DType::bf16); }), error_of([&] {
                               set_matmul_precision(*backend, DType::bf16, "context");
                             })}) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_TRUE(mentions(error, "AVX512-BF16")) << error.what();
  }
}

#if defined(__linux__) && defined(__x86_64__) && !defined(TRAFO_WITHOUT_AMX)
TEST_F(Bf16Gemm, TakesAmxWhereLinuxGrantsIt) {
  std::ifstream file("/proc/cpuinfo");
  const std::string processor(std::istreambuf_iterator<char>(file), {});
  const bool has_amx = processor.find(" amx_bf16") != std::string::npos && os::may_use_amx_tiles();
  EXPECT_EQ(bf16_instructions().front() == Bf16Instructions::amx, has_amx);
}
#endif

TEST_F(Bf16Gemm, RaggedShapesInEveryCombination) {
  const int64_t sizes[][3] = {{1, 1, 1},    {1, 37, 5},   {2, 1, 9},    {3, 40, 33},  {14, 32, 64},
                              {15, 33, 65}, {16, 8, 3},   {25, 16, 2},  {29, 1, 70},  {26, 47, 31},
                              {64, 96, 50}, {31, 45, 97}, {27, 15, 32}, {43, 17, 63}, {9, 70, 34}};
  for (const auto& s : sizes)
    for (int flags = 0; flags < 16; ++flags)
      Bf16Problem({s[0], s[1], s[2], flags, flags % 3 * 2}).check();
}

TEST_F(Bf16Gemm, SeveralPassesOverK) {
  for (const int64_t k : {767, 769, 1601})
    for (int flags = 0; flags < 4; ++flags) {
      Bf16Problem({26, 33, k, flags | 12}).check();
      Bf16Problem({35, 29, k, flags}).check();
    }
}

TEST_F(Bf16Gemm, ManyBlocksAndBatches) {
  for (int flags = 0; flags < 4; ++flags) {
    Bf16Problem({300, 70, 90, flags}).check();
    Bf16Problem({60, 500, 70, flags}).check();
    Bf16Problem({30, 40, 50, flags, 1, 5}).check();
  }
}

TEST_F(Bf16Gemm, NotANumberInfinityAndDenormals) {
  for (int flags = 0; flags < 16; ++flags) {
    Bf16Problem({40, 50, 60, flags, 1}, true).check();
    Bf16Problem({33, 35, 800, flags}, true).check();
  }
}

TEST_F(Bf16Gemm, IsBfloat16AndCloseToFloat32) {
  Bf16Problem problem({100, 90, 200});
  const std::vector<float> exact = problem.run(1, DType::f32), result = problem.run(1);
  double error = 0, square = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(result[i] - exact[i], 2);
    square += std::pow(exact[i], 2);
  }
  // Roundings of both operands to 8 bits of mantissa, which average out like random ones.
  const double relative = std::sqrt(error / square);
  EXPECT_LT(relative, 0x1p-8);
  EXPECT_GT(relative, 0x1p-12);
}

TEST_F(Bf16Gemm, Float64DoesNotChange) {
  std::vector<double> a(30 * 40, 1 + 0x1p-30), b(40 * 50, 1), c(30 * 50);
  GemmParams p;
  p.dtype = DType::f64;
  p.m = 30, p.n = 50, p.k = 40, p.lda = 40, p.ldb = 50, p.ldc = 50;
  p.a = a.data(), p.b = b.data(), p.c = c.data();
  ThreadPool pool(2);
  gemm_cpu(pool, p, DType::bf16);
  for (const double value : c) ASSERT_EQ(value, 40 * (1 + 0x1p-30));
}

}  // namespace
}  // namespace trafo
