// Weights in fewer bits: bytes worked out by hand, bounds, and values that no type has.
#include "engine/formats/stored_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/core/philox.h"
#include "engine/core/status.h"
#include "tests/support/errors.h"

namespace trafo::interop {
namespace {

std::vector<unsigned> numbers(const std::vector<std::byte>& bytes) {
  std::vector<unsigned> values;
  for (const std::byte byte : bytes) values.push_back(static_cast<unsigned>(byte));
  return values;
}

std::vector<float> random_values(size_t count, float size) {
  PhiloxStream random(5, 3);
  std::vector<float> values(count);
  for (float& value : values) value = size * static_cast<float>(random.uniform(-1, 1));
  return values;
}

TEST(StoredWeights, HalvesAreRoundedToNearestEven) {
  const std::pair<float, uint16_t> known[] = {
      {0.0f, 0x0000},     {-0.0f, 0x8000},        {1.0f, 0x3c00},           {-2.0f, 0xc000},
      {0.1f, 0x2e66},     {65504.0f, 0x7bff},     {65519.0f, 0x7bff},       {65520.0f, 0x7c00},
      {0x1p-14f, 0x0400}, {0x1p-24f, 0x0001},     {0x1p-25f, 0x0000},       {0x1.8p-24f, 0x0002},
      {-1e9f, 0xfc00},    {1 + 0x1p-11f, 0x3c00}, {1 + 0x1.8p-10f, 0x3c02}, {0x1.ffep-15f, 0x0400}};
  for (const auto& [value, half] : known) EXPECT_EQ(float_to_half(value), half) << value;
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = half_to_float(static_cast<uint16_t>(half));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value)))) << half;
    } else {
      EXPECT_EQ(float_to_half(value), half);
    }
  }
}

TEST(StoredWeights, BlocksOfEightBits) {
  std::vector<float> values(32);
  values[0] = 63.5f;  // the scale is a half: 0x3800
  values[1] = -63.5f;
  values[2] = 0.25f;  // half a step is rounded away from zero
  values[3] = -0.25f;
  values[4] = 0.24f;
  values[31] = 10;
  std::vector<unsigned> wanted = {0x00, 0x38, 127, 0x81, 1, 0xff, 0};
  wanted.resize(33, 0);
  wanted.push_back(20);
  const std::vector<std::byte> bytes = to_q8_0("w", values);
  EXPECT_EQ(numbers(bytes), wanted);
  const std::vector<float> read = from_q8_0(bytes);
  EXPECT_EQ(read[1], -63.5f);
  EXPECT_EQ(read[2], 0.5f);
  EXPECT_EQ(read[31], 10);
  EXPECT_EQ(numbers(to_q8_0("w", std::vector<float>(64))), std::vector<unsigned>(68));
}

TEST(StoredWeights, BlocksOfFourBits) {
  std::vector<float> values(32);
  values[0] = -4;  // the first of the largest: the scale is -4 / -8, code 0
  values[1] = 4;   // no code left: 15, which is 3.5
  values[2] = 1;
  values[3] = 0.25f;  // half a step
  values[16] = -1;
  values[17] = 3.5f;
  std::vector<unsigned> wanted = {0x00, 0x38, 0x60, 0xff, 0x8a, 0x89};
  wanted.resize(18, 0x88);
  const std::vector<std::byte> bytes = to_q4_0("w", values);
  EXPECT_EQ(numbers(bytes), wanted);
  const std::vector<float> read = from_q4_0(bytes);
  EXPECT_EQ(read[0], -4);
  EXPECT_EQ(read[1], 3.5f);
  EXPECT_EQ(read[3], 0.5f);
  EXPECT_EQ(read[16], -1);
  EXPECT_EQ(read[31], 0);
  values[0] = 4;  // the scale is negative now
  EXPECT_EQ(numbers(to_q4_0("w", values))[1], 0xb8u);
  EXPECT_EQ(from_q4_0(to_q4_0("w", values))[1], 4);
  for (const float zero : from_q4_0(to_q4_0("w", std::vector<float>(32)))) EXPECT_EQ(zero, 0);
}

TEST(StoredWeights, IntegersWithScales) {
  const std::vector<float> values = {2, -1, 0.5f, 0, 0, 0, 0, 0, -0.5f, 0.25f, 0, 1e-4f};
  const Scaled<int8_t> rows = to_int8(values, 4);
  EXPECT_EQ(rows.scales, (std::vector<float>{63.5f, 1, 254}));
  EXPECT_EQ(rows.codes, (std::vector<int8_t>{127, -64, 32, 0, 0, 0, 0, 0, -127, 64, 0, 0}));
  EXPECT_EQ(from_scaled<int8_t>(rows.codes, rows.scales)[8], -0.5f);
  const Scaled<int16_t> one = to_int16(values);
  EXPECT_EQ(one.scales, std::vector<float>{512});
  EXPECT_EQ(one.codes, (std::vector<int16_t>{1024, -512, 256, 0, 0, 0, 0, 0, -256, 128, 0, 0}));
  EXPECT_EQ(from_scaled<int16_t>(one.codes, one.scales)[9], 0.25f);
  // 127 / w is no float any more.
  const std::vector<float> tiny = {std::numeric_limits<float>::denorm_min(), 0};
  EXPECT_EQ(to_int8(tiny, 2).scales[0], std::numeric_limits<float>::max());
}

TEST(StoredWeights, WhatNoTypeHasIsNamed) {
  const std::vector<float> large(32, 65520);
  expect_error(ErrorCode::unsupported, "float16 cannot express the 65520 of gamma (--weights)",
               [&] { to_float16("gamma", large); });
  const std::vector<float> largest(32, std::numeric_limits<float>::max());
  expect_error(ErrorCode::unsupported, "bfloat16 cannot express",
               [&] { to_bfloat16("w", largest); });
  expect_error(ErrorCode::unsupported, "Q8_0 cannot express", [&] { to_q8_0("w", largest); });
  expect_error(ErrorCode::unsupported, "Q4_0 cannot express", [&] { to_q4_0("w", largest); });
}

TEST(StoredWeights, RoundingIsWithinItsBoundAndNoFurther) {
  using enum ExportWeights;
  const auto restored = [](ExportWeights type, const std::vector<float>& values) {
    switch (type) {
      case float16:
        return from_float16(to_float16("w", values));
      case bfloat16:
        return from_bfloat16(to_bfloat16("w", values));
      case int8: {
        const Scaled<int8_t> scaled = to_int8(values, 64);
        return from_scaled<int8_t>(scaled.codes, scaled.scales);
      }
      case int16: {
        const Scaled<int16_t> scaled = to_int16(values);
        return from_scaled<int16_t>(scaled.codes, scaled.scales);
      }
      case q8_0:
        return from_q8_0(to_q8_0("w", values));
      case q4_0:
        return from_q4_0(to_q4_0("w", values));
      default:
        return values;
    }
  };
  for (const float size : {1e-30f, 1e-7f, 1e-3f, 1.0f, 1e3f}) {
    const std::vector<float> values = random_values(640, size);
    for (const ExportWeights type : {float32, float16, bfloat16, int16, int8, q8_0, q4_0}) {
      std::vector<float> read = restored(type, values);
      EXPECT_NO_THROW(check_rounding("w", type, values, read, 64))
          << export_weights_name(type) << " " << size;
      if (size < 1e-3f) continue;
      read[77] += size / 4;
      expect_error(ErrorCode::corrupt_file, "w: value 77 was read as",
                   [&] { check_rounding("w", type, values, read, 64); });
      read[77] = NAN;
      expect_error(ErrorCode::corrupt_file, "w: value 77 was read as",
                   [&] { check_rounding("w", type, values, read, 64); });
    }
  }
}

TEST(StoredWeights, AnErrorMayBeHalfAStep) {
  using enum ExportWeights;
  struct Bound {
    ExportWeights type;
    float largest;  // where a step is 1
    float error;
  };
  for (const auto& [type, largest, error] :
       {Bound{int16, 1024, 0.5f}, {int8, 127, 0.5f}, {q8_0, 127, 0.5f}, {q4_0, 8, 1}}) {
    std::vector<float> values(32);
    values[0] = largest;
    std::vector<float> read = values;
    read[3] = error;
    EXPECT_NO_THROW(check_rounding("w", type, values, read, 32)) << export_weights_name(type);
    read[3] = 1.25f * error;
    expect_error(ErrorCode::corrupt_file, "w: value 3 was read as",
                 [&, type = type] { check_rounding("w", type, values, read, 32); });
  }
}

}  // namespace
}  // namespace trafo::interop
