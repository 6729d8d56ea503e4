// Bytes of weights: worked out by hand, checked, and values that no type has.
#include "engine/formats/stored_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/core/numeric/philox.h"
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
  const std::vector<std::byte> bytes = to_blocks("w", formats::kQ8_0, values);
  EXPECT_EQ(numbers(bytes), wanted);
  const std::vector<float> read = from_blocks(formats::kQ8_0, bytes);
  EXPECT_EQ(read[1], -63.5f);
  EXPECT_EQ(read[2], 0.5f);
  EXPECT_EQ(read[31], 10);
  EXPECT_EQ(numbers(to_blocks("w", formats::kQ8_0, std::vector<float>(64))),
            std::vector<unsigned>(68));
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
  const std::vector<std::byte> bytes = to_blocks("w", formats::kQ4_0, values);
  EXPECT_EQ(numbers(bytes), wanted);
  const std::vector<float> read = from_blocks(formats::kQ4_0, bytes);
  EXPECT_EQ(read[0], -4);
  EXPECT_EQ(read[1], 3.5f);
  EXPECT_EQ(read[3], 0.5f);
  EXPECT_EQ(read[16], -1);
  EXPECT_EQ(read[31], 0);
  values[0] = 4;  // the scale is negative now
  EXPECT_EQ(numbers(to_blocks("w", formats::kQ4_0, values))[1], 0xb8u);
  EXPECT_EQ(from_blocks(formats::kQ4_0, to_blocks("w", formats::kQ4_0, values))[1], 4);
  for (const float zero :
       from_blocks(formats::kQ4_0, to_blocks("w", formats::kQ4_0, std::vector<float>(32))))
    EXPECT_EQ(zero, 0);
}

TEST(StoredWeights, WhatNoTypeHasIsNamed) {
  const std::vector<float> large(32, 65520);
  expect_error(ErrorCode::unsupported, "float16 cannot express the 65520 of gamma (--weights)",
               [&] { to_float16("gamma", large); });
  const std::vector<float> largest(32, std::numeric_limits<float>::max());
  expect_error(ErrorCode::unsupported, "bfloat16 cannot express",
               [&] { to_bfloat16("w", largest); });
  expect_error(ErrorCode::unsupported, "Q8_0 cannot express",
               [&] { to_blocks("w", formats::kQ8_0, largest); });
  expect_error(ErrorCode::unsupported, "Q4_0 cannot express",
               [&] { to_blocks("w", formats::kQ4_0, largest); });
}

TEST(StoredWeights, RoundingIsCheckedByTheFormat) {
  for (const float size : {1e-30f, 1e-7f, 1e-3f, 1.0f, 1e3f}) {
    const std::vector<float> values = random_values(640, size);
    const std::pair<const WeightFormat&, std::vector<float>> all[] = {
        {formats::kFloat32, values},
        {formats::kFloat16, from_float16(to_float16("w", values))},
        {formats::kBfloat16, from_bfloat16(to_bfloat16("w", values))},
        {formats::kQ8_0, from_blocks(formats::kQ8_0, to_blocks("w", formats::kQ8_0, values))},
        {formats::kQ4_0, from_blocks(formats::kQ4_0, to_blocks("w", formats::kQ4_0, values))}};
    for (auto [format, read] : all) {
      EXPECT_NO_THROW(check_rounding("w", format, values, read, 64)) << format.name << " " << size;
      if (size < 1e-3f) continue;
      for (const float wrong : {read[77] + size / 4, NAN}) {
        read[77] = wrong;
        expect_error(
            ErrorCode::corrupt_file, "w: value 77 was read as",
            [&, &format = format, &read = read] { check_rounding("w", format, values, read, 64); });
      }
    }
  }
}

}  // namespace
}  // namespace trafo::interop
