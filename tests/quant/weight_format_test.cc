// The table of formats: codes worked out by hand, bounds of rounding, and what all formats share.
#include "engine/quant/weight_format.h"

#include <gtest/gtest.h>

#include "engine/core/numeric/philox.h"

namespace trafo {
namespace {

using namespace formats;
using Floats = std::vector<float>;

constexpr const WeightFormat* kWithCodes[] = {
    &kInt8,     &kInt4,           &kQ8_0,          &kQ4_0, &kCtranslate2Int8, &kCtranslate2Int16,
    &kOnnxInt8, &kCompressedInt8, &kCompressedInt4};

Floats random_values(size_t count, float size) {
  PhiloxStream random(5, 3);
  Floats values(count);
  for (float& value : values) value = size * static_cast<float>(random.uniform(-1, 1));
  return values;
}

// Of rows of 64 values.
Codes<int16_t> codes_of(const WeightFormat& format, const Floats& values) {
  return to_codes<int16_t>(format, values, 64);
}
Floats rounded(const WeightFormat& format, const Floats& values) {
  const Codes<int16_t> stored = codes_of(format, values);
  return from_codes<int16_t>(format, stored.codes, stored.scales, 64);
}

TEST(WeightFormat, CodesFillTheirRange) {
  for (const WeightFormat* format : kWithCodes) {
    SCOPED_TRACE(format->name);
    EXPECT_LE(format->most - format->least, (1 << format->bits) - 1);
    const Floats values = random_values(6400, 3);
    const Codes<int16_t> stored = codes_of(*format, values);
    const size_t scales = format->group == kMatrix ? 1 : format->group == kRow ? 100 : 200;
    EXPECT_EQ(stored.scales.size(), scales);
    const auto [least, most] = std::minmax_element(stored.codes.begin(), stored.codes.end());
    EXPECT_GE(*least, format->least);
    EXPECT_LE(*most, format->most);
    EXPECT_LE(*least, -0.98 * std::abs(format->steps) + 1);  // whose code may not exist on one side
    EXPECT_GE(*most, 0.98 * std::abs(format->steps) - 1);
  }
}

TEST(WeightFormat, RoundingIsWithinItsBoundAndNoFurther) {
  for (const WeightFormat* format : kWithCodes) {
    for (const float size : {1e-30f, 1e-7f, 1e-3f, 1.0f, 1e3f}) {
      SCOPED_TRACE(format->name + std::to_string(size));
      const Floats values = random_values(640, size);
      Floats read = rounded(*format, values);
      EXPECT_EQ(find_wrong_rounding(*format, values, read, 64), values.size());
      if (size < 1e-3f) continue;
      for (const float wrong : {read[77] + size / 4, read[77] - size / 4, std::nanf("")}) {
        read[77] = wrong;
        EXPECT_EQ(find_wrong_rounding(*format, values, read, 64), 77u);
      }
    }
  }
}

TEST(WeightFormat, AnErrorMayBeHalfAStep) {
  for (const WeightFormat* format : kWithCodes) {
    SCOPED_TRACE(format->name);
    Floats values(32);
    values[0] = std::abs(format->steps);  // a step is 1
    Floats read = values;
    read[3] = format == &kQ4_0 ? 1.0f : 0.5f;
    EXPECT_EQ(find_wrong_rounding(*format, values, read, 32), 32u);
    read[3] *= 1.25f;
    EXPECT_EQ(find_wrong_rounding(*format, values, read, 32), 3u);
  }
}

TEST(WeightFormat, ZerosStayZeros) {
  for (const WeightFormat* format : kWithCodes) {
    SCOPED_TRACE(format->name);
    for (const float value : rounded(*format, Floats(128))) EXPECT_EQ(value, 0);
  }
}

// Where the largest magnitude of a group has the code at an end of the range.
TEST(WeightFormat, RoundedValuesAreRoundedToThemselves) {
  for (const WeightFormat* format : {&kInt4, &kQ8_0, &kQ4_0, &kOnnxInt8}) {
    SCOPED_TRACE(format->name);
    Floats values = random_values(640, 1);
    for (size_t i = 0; i < values.size(); i += 32) values[i] = -1;
    const Floats once = rounded(*format, values);
    EXPECT_NE(once, values);
    EXPECT_EQ(rounded(*format, once), once);
  }
}

TEST(WeightFormat, ScalesOfTheOtherProgramsFormats) {
  const Floats values = {2, -1, 0.5f, 0, 0, 0, 0, 0, -0.5f, 0.25f, 0, 1e-4f};
  const Codes<int8_t> rows = to_codes<int8_t>(kCtranslate2Int8, values, 4);
  EXPECT_EQ(rows.scales, (Floats{63.5f, 1, 254}));
  EXPECT_EQ(rows.codes, (std::vector<int8_t>{127, -64, 32, 0, 0, 0, 0, 0, -127, 64, 0, 0}));
  EXPECT_EQ(from_codes<int8_t>(kCtranslate2Int8, rows.codes, rows.scales, 4)[8], -0.5f);
  const Codes<int16_t> one = to_codes<int16_t>(kCtranslate2Int16, values, 4);
  EXPECT_EQ(one.scales, Floats{512});
  EXPECT_EQ(one.codes, (std::vector<int16_t>{1024, -512, 256, 0, 0, 0, 0, 0, -256, 128, 0, 0}));
  EXPECT_EQ(from_codes<int16_t>(kCtranslate2Int16, one.codes, one.scales, 4)[9], 0.25f);
  // 127 / w is no float any more.
  const Floats tiny = {std::numeric_limits<float>::denorm_min(), 0};
  EXPECT_EQ(to_codes<int8_t>(kCtranslate2Int8, tiny, 2).scales[0],
            std::numeric_limits<float>::max());
  // Half a step beyond 127 on both sides: -128 is a code, 128 is none.
  const Floats ends = {127.5f, -127.5f, 0.5f, 1.5f};
  const Codes<int8_t> compressed = to_codes<int8_t>(kCompressedInt8, ends, 4);
  EXPECT_EQ(compressed.scales, Floats{1});
  EXPECT_EQ(compressed.codes, (std::vector<int8_t>{127, -128, 0, 2}));
  EXPECT_EQ(to_codes<int8_t>(kCompressedInt8, Floats(4), 4).scales, Floats{0x1p-23f});
}

// Codes are at most 64, and a scale belongs to an output.
TEST(WeightFormat, CodesOfOnnxHaveSevenBitsForEveryOutput) {
  const Floats matrix{1, -2, 0.5, 0, 0, 0, 6.4f, 0.05f, -3.2f};  // rows are outputs
  const Codes<int8_t> rows = to_codes<int8_t>(kOnnxInt8, matrix, 3);
  EXPECT_EQ(rows.scales, (Floats{2.0f / 64, 1, 6.4f / 64}));
  EXPECT_EQ(rows.codes, (std::vector<int8_t>{32, -64, 16, 0, 0, 0, 64, 0, -32}));
  const Floats transposed{1, 0, 6.4f, -2, 0, 0.05f, 0.5, 0, -3.2f};
  const Codes<int8_t> columns = to_codes<int8_t>(kOnnxInt8, transposed, 3, /*by_column=*/true);
  EXPECT_EQ(columns.scales, rows.scales);
  EXPECT_EQ(columns.codes, (std::vector<int8_t>{32, 0, 64, -64, 0, 0, 16, 0, -32}));
  Floats read = from_codes<int8_t>(kOnnxInt8, columns.codes, columns.scales, 3, true);
  EXPECT_EQ(find_wrong_rounding(kOnnxInt8, transposed, read, 3, true), read.size());
  read[6] += 0.02f;  // more than half of 2 / 64
  EXPECT_EQ(find_wrong_rounding(kOnnxInt8, transposed, read, 3, true), 6u);
  const Floats tiny{1e-40f, -1e-40f};  // a scale that is subnormal would lose its digits
  const Codes<int8_t> small = to_codes<int8_t>(kOnnxInt8, tiny, 2);
  EXPECT_EQ(small.scales, Floats{std::numeric_limits<float>::min()});
  EXPECT_EQ(find_wrong_rounding(kOnnxInt8, tiny,
                                from_codes<int8_t>(kOnnxInt8, small.codes, small.scales, 2), 2),
            2u);
}

TEST(WeightFormat, FourBitCodesAreTwoInAByte) {
  const std::vector<int8_t> codes = {-8, 7, 0, -1};
  const std::vector<std::byte> bytes = pack_codes(kCompressedInt4, codes);
  EXPECT_EQ(bytes, (std::vector<std::byte>{std::byte{0xf0}, std::byte{0x78}}));
  EXPECT_EQ(unpack_codes(kCompressedInt4, bytes), codes);
  const std::vector<std::byte> whole = pack_codes(kCompressedInt8, codes);
  EXPECT_EQ(whole.size(), 4u);
  EXPECT_EQ(unpack_codes(kCompressedInt8, whole), codes);
}

}  // namespace
}  // namespace trafo
