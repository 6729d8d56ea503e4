// Codes of frozen matrices, against the definitions: the NF4 data type of the QLoRA paper, double
// quantization, and the int8 and int4 formats that quantized models have.
#include "engine/quant/base_codes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "engine/core/numeric/philox.h"
#include "engine/quant/int4_matrix.h"
#include "engine/quant/weight_format.h"
#include "tests/support/errors.h"

namespace trafo::testing {
namespace {

using namespace base_codes;

constexpr BasePrecision kPrecisions[] = {BasePrecision::nf4, BasePrecision::int8,
                                         BasePrecision::int4};

struct Encoded {
  BasePrecision precision;
  int64_t rows, columns;
  std::vector<std::byte> bytes;

  Encoded(BasePrecision of, std::span<const float> values, int64_t row_count, int64_t column_count)
      : precision(of),
        rows(row_count),
        columns(column_count),
        bytes(static_cast<size_t>(places_of(of, row_count, column_count).bytes)) {
    encode_base(of, values, rows, columns, bytes);
  }
  std::vector<float> part(const MatrixTile& tile) const {
    std::vector<float> values(static_cast<size_t>(tile.rows * tile.columns));
    decode_base(precision, bytes.data(), rows, columns, tile, values.data());
    return values;
  }
  std::vector<float> values() const { return part({0, 0, rows, columns}); }
  template <class T>
  T at(int64_t offset, int64_t index) const {
    T value;
    std::memcpy(&value, bytes.data() + offset + index * static_cast<int64_t>(sizeof value),
                sizeof value);
    return value;
  }
};

std::vector<float> normal_values(int64_t count, uint64_t seed = 3) {
  PhiloxStream random(seed, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(0.02 * random.normal());
  return values;
}

// The quantile of the normal distribution, by bisection.
double quantile(double p) {
  double low = -10, high = 10;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

// Appendix E: quantiles of 8 equal steps from 1/2 to an offset on the positive side, 7 on the
// negative one, and zero, divided by the largest.
TEST(BaseCodes, NormalFloatHasTheQuantilesOfThePaper) {
  constexpr double kOffset = 0.9677083;  // the mean of 1 - 1/30 and 1 - 1/32
  const double largest = quantile(kOffset);
  std::vector<double> expected;
  for (int i = 0; i < 7; ++i)
    expected.push_back(-quantile(kOffset + i * (0.5 - kOffset) / 7) / largest);
  expected.push_back(0);
  for (int i = 7; i >= 0; --i)
    expected.push_back(quantile(kOffset + i * (0.5 - kOffset) / 8) / largest);
  ASSERT_EQ(expected.size(), kNormalFloat.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(kNormalFloat[i], expected[i], 2e-7) << i;
}

TEST(BaseCodes, DynamicCodesAreCentresOfPartsOfPowersOfTen) {
  EXPECT_EQ(kDynamicCode[127], 0.0f);
  EXPECT_EQ(kDynamicCode[255], 1.0f);
  EXPECT_NEAR(kDynamicCode[128], 0.55e-6, 1e-13);
  EXPECT_NEAR(kDynamicCode[129], 0.325e-5, 1e-12);
  EXPECT_NEAR(kDynamicCode[254], 1 - 0.9 / 128, 1e-7);
  for (size_t i = 0; i < 255; ++i) EXPECT_LT(kDynamicCode[i], kDynamicCode[i + 1]) << i;
  for (size_t i = 0; i < 127; ++i) EXPECT_EQ(kDynamicCode[i], -kDynamicCode[254 - i]) << i;
}

TEST(BaseCodes, Nf4TakesTheNearestValueAndPacksTheFirstIntoTheHighBits) {
  std::vector<float> row(64);
  for (size_t i = 0; i < 16; ++i) row[i] = 2 * kNormalFloat[i];
  // Between two codes, on both sides of the middle.
  row[16] = 0.079f;   // 0.0395 of the scale; the middle of 0 and 0.0796 is 0.0398
  row[17] = 0.0800f;  // 0.0400
  row[18] = -1.70f;   // -0.85; the middle of -1 and -0.696 is -0.848
  row[19] = -1.69f;   // -0.845
  const Encoded coded(BasePrecision::nf4, row, 1, 64);
  for (int64_t i = 0; i < 8; ++i)
    EXPECT_EQ(coded.at<uint8_t>(0, i), static_cast<uint8_t>((2 * i) << 4 | (2 * i + 1))) << i;
  EXPECT_EQ(coded.at<uint8_t>(0, 8), 0x78);
  EXPECT_EQ(coded.at<uint8_t>(0, 9), 0x01);
  EXPECT_EQ(coded.at<uint8_t>(0, 31), 0x77);  // zeros
  // One block: its absmax is the mean, and nothing is left to be coded.
  const Places places = places_of(BasePrecision::nf4, 1, 64);
  EXPECT_EQ(coded.at<float>(places.offset, 0), 2.0f);
  EXPECT_EQ(coded.at<float>(places.nested, 0), 0.0f);
  EXPECT_EQ(coded.at<uint8_t>(places.scales, 0), 127);
  const std::vector<float> values = coded.values();
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(values[i], row[i]) << i;
}

// Blocks go on over the ends of rows, and the last one is short.
TEST(BaseCodes, Nf4BlocksHaveScalesOfEightBits) {
  constexpr int64_t kRows = 331, kColumns = 53;
  const std::vector<float> original = normal_values(kRows * kColumns);
  const Encoded coded(BasePrecision::nf4, original, kRows, kColumns);
  const std::vector<float> values = coded.values();
  const Places places = places_of(BasePrecision::nf4, kRows, kColumns);
  const int64_t blocks = ceil_div(kRows * kColumns, kBlock);
  ASSERT_GT(blocks, kNestedBlock);
  double sum = 0;
  std::vector<double> absmax(static_cast<size_t>(blocks));
  for (size_t i = 0; i < original.size(); ++i)
    absmax[i / 64] = std::max(absmax[i / 64], std::abs(static_cast<double>(original[i])));
  for (const double value : absmax) sum += value;
  const double mean = sum / static_cast<double>(blocks);
  EXPECT_NEAR(coded.at<float>(places.offset, 0), mean, 1e-6 * mean);
  for (size_t b = 0; b < absmax.size(); ++b) {
    const auto nested =
        static_cast<double>(coded.at<float>(places.nested, static_cast<int64_t>(b) / 256));
    const double scale =
        kDynamicCode[coded.at<uint8_t>(places.scales, static_cast<int64_t>(b))] * nested + mean;
    EXPECT_LE(std::abs(scale - absmax[b]), nested * (0.9 / 64 / 2) * 1.001) << b;
  }
  // The widest gap of NF4 is 0.3038, between its first two values.
  for (size_t i = 0; i < original.size(); ++i)
    EXPECT_LE(std::abs(values[i] - original[i]), 0.16 * absmax[i / 64]) << i;
}

TEST(BaseCodes, IntegersAreThoseOfQuantizedModels) {
  constexpr int64_t kRows = 19, kColumns = 71;
  const std::vector<float> original = normal_values(kRows * kColumns);
  const auto int8 = to_codes<int8_t>(formats::kInt8, original, kColumns);
  const Encoded coded8(BasePrecision::int8, original, kRows, kColumns);
  EXPECT_EQ(std::memcmp(coded8.bytes.data(), int8.codes.data(), int8.codes.size()), 0);
  EXPECT_EQ(coded8.values(), from_codes<int8_t>(formats::kInt8, int8.codes, int8.scales, kColumns));

  ThreadPool pool(1);
  const auto int4 = Int4Matrix::quantized(pool, original, kRows, kColumns);
  const Encoded coded4(BasePrecision::int4, original, kRows, kColumns);
  EXPECT_EQ(std::memcmp(coded4.bytes.data(), int4.codes().data(), int4.codes().size()), 0);
  EXPECT_EQ(coded4.values(), int4.values(pool));
}

TEST(BaseCodes, PartsAreThoseOfTheWhole) {
  constexpr int64_t kRows = 13, kColumns = 85;
  const std::vector<float> original = normal_values(kRows * kColumns);
  for (const BasePrecision precision : kPrecisions) {
    SCOPED_TRACE(enum_name(precision));
    const Encoded coded(precision, original, kRows, kColumns);
    const std::vector<float> whole = coded.values();
    std::vector<double> wide(whole.size());
    decode_base(precision, coded.bytes.data(), kRows, kColumns, {0, 0, kRows, kColumns},
                wide.data());
    for (size_t i = 0; i < whole.size(); ++i)
      EXPECT_EQ(wide[i], static_cast<double>(whole[i])) << i;
    for (const MatrixTile& tile : {MatrixTile{3, 0, 5, kColumns}, MatrixTile{0, 31, kRows, 40},
                                   MatrixTile{12, 84, 1, 1}, MatrixTile{2, 7, 0, 3}}) {
      const std::vector<float> part = coded.part(tile);
      for (int64_t r = 0; r < tile.rows; ++r)
        for (int64_t c = 0; c < tile.columns; ++c)
          EXPECT_EQ(part[static_cast<size_t>(r * tile.columns + c)],
                    whole[static_cast<size_t>((tile.row + r) * kColumns + tile.column + c)]);
    }
  }
}

TEST(BaseCodes, ZerosStayAndWhatIsNotFiniteIsNamed) {
  for (const BasePrecision precision : kPrecisions) {
    SCOPED_TRACE(enum_name(precision));
    std::vector<float> values(5 * 40);
    for (const float value : Encoded(precision, values, 5, 40).values()) EXPECT_EQ(value, 0.0f);
    values[100] = 1e-3f;  // one block of many
    EXPECT_NEAR(Encoded(precision, values, 5, 40).values()[100], 1e-3, 1e-5);
    for (const float wrong : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      values[42] = wrong;
      expect_error(ErrorCode::invalid_argument, "row 1 and column 2",
                   [&] { Encoded(precision, values, 5, 40); });
    }
  }
}

TEST(BaseCodes, SectionsHaveAllBytesOnceAndBadScalesAreRefused) {
  constexpr int64_t kRows = 21, kColumns = 67;
  const std::vector<float> original = normal_values(kRows * kColumns);
  for (const BasePrecision precision : kPrecisions) {
    SCOPED_TRACE(enum_name(precision));
    Encoded coded(precision, original, kRows, kColumns);
    check_base_codes(precision, coded.bytes, kRows, kColumns);
    std::vector<std::byte> gathered(coded.bytes.size());
    size_t end = 0;
    for (const BaseSection& section : base_sections(precision, kRows, kColumns)) {
      EXPECT_GE(section.offset, end);
      end = section.offset + section.bytes;
      ASSERT_LE(end, coded.bytes.size());
      std::memcpy(gathered.data() + section.offset, coded.bytes.data() + section.offset,
                  section.bytes);
    }
    EXPECT_EQ(gathered, coded.bytes);
    const Places places = places_of(precision, kRows, kColumns);
    std::byte* const scale =
        coded.bytes.data() + (precision == BasePrecision::nf4 ? places.nested : places.scales);
    std::memset(scale, 0xff, precision == BasePrecision::int4 ? 2 : 4);  // NaN
    expect_error(ErrorCode::invalid_argument, "a scale is",
                 [&] { check_base_codes(precision, coded.bytes, kRows, kColumns); });
  }
  EXPECT_EQ(places_of(BasePrecision::nf4, 4096, 4096).bytes, 4096 * 4096 / 64 * 33 + 4096 + 16);
}

}  // namespace
}  // namespace trafo::testing
