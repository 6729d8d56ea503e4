// FP8 bits against the tables of arXiv 2209.05433, and scales that fit.
#include "engine/core/numeric/fp8.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace trafo {
namespace {

constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();

struct Fp8Known {
  Fp8Format format;
  float value;
  uint8_t bits;
};

TEST(Fp8, ValuesOfTheTables) {
  const Fp8Known all[] = {
      {Fp8Format::e4m3, 0.0f, 0x00},     {Fp8Format::e4m3, -0.0f, 0x80},
      {Fp8Format::e4m3, 0x1p-9f, 0x01},  {Fp8Format::e4m3, 0x1.cp-7f, 0x07},
      {Fp8Format::e4m3, 0x1p-6f, 0x08},  {Fp8Format::e4m3, 1.0f, 0x38},
      {Fp8Format::e4m3, -1.125f, 0xb9},  {Fp8Format::e4m3, 448.0f, 0x7e},
      {Fp8Format::e5m2, 0x1p-16f, 0x01}, {Fp8Format::e5m2, 0x1.8p-15f, 0x03},
      {Fp8Format::e5m2, 0x1p-14f, 0x04}, {Fp8Format::e5m2, 1.0f, 0x3c},
      {Fp8Format::e5m2, -1.25f, 0xbd},   {Fp8Format::e5m2, 57344.0f, 0x7b},
  };
  for (const Fp8Known& known : all) {
    EXPECT_EQ(float_to_fp8(known.value, known.format), known.bits) << known.value;
    EXPECT_EQ(fp8_to_float(known.bits, known.format), known.value) << int{known.bits};
  }
}

TEST(Fp8, EveryValueComesBack) {
  for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2})
    for (int bits = 0; bits < 256; ++bits) {
      const float value = fp8_to_float(static_cast<uint8_t>(bits), format);
      if (std::isfinite(value)) {
        EXPECT_EQ(float_to_fp8(value, format), bits) << value;
      } else {
        EXPECT_GT(bits & 0x7f, format == Fp8Format::e4m3 ? 0x7e : 0x7b);
      }
    }
}

// Every float32 between two neighbours goes to the nearer one, and the middle to the even one.
TEST(Fp8, RoundsToNearestEven) {
  for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2}) {
    const int last = format == Fp8Format::e4m3 ? 0x7e : 0x7b;
    for (int bits = 0; bits < last; ++bits) {
      const float low = fp8_to_float(static_cast<uint8_t>(bits), format);
      const float high = fp8_to_float(static_cast<uint8_t>(bits + 1), format);
      const float middle = (low + high) / 2;  // exact
      const int even = bits % 2 == 0 ? bits : bits + 1;
      EXPECT_EQ(float_to_fp8(middle, format), even) << middle;
      EXPECT_EQ(float_to_fp8(std::nextafter(middle, 0.0f), format), bits) << middle;
      EXPECT_EQ(float_to_fp8(std::nextafter(middle, kFloatInfinity), format), bits + 1) << middle;
    }
  }
}

TEST(Fp8, TooLargeIsTheLargestAndNaNStays) {
  for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2}) {
    const float largest = format == Fp8Format::e4m3 ? 448.0f : 57344.0f;
    for (const float value : {largest * 1.01f, 3e38f, kFloatInfinity}) {
      EXPECT_EQ(fp8_to_float(float_to_fp8(value, format), format), largest);
      EXPECT_EQ(fp8_to_float(float_to_fp8(-value, format), format), -largest);
    }
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(fp8_to_float(float_to_fp8(nan, format), format)));
    EXPECT_TRUE(std::isnan(fp8_to_float(float_to_fp8(-nan, format), format)));
  }
  EXPECT_EQ(fp8_to_float(0x7c, Fp8Format::e5m2), kFloatInfinity);
}

// The largest power of two that fits, and its exact inverse.
TEST(Fp8, ScalesFit) {
  for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2}) {
    const double largest = format == Fp8Format::e4m3 ? 448 : 57344;
    for (const float magnitude :
         {1.0f, 1.75f, std::nextafter(1.75f, 2.0f), 0.999f, 448.0f, 449.0f, 3e-30f, 1e30f,
          std::numeric_limits<float>::max(), 1e-38f, 1e-42f, 0.0f}) {
      const Fp8ScaleBits bits = fp8_scale_bits(std::bit_cast<uint32_t>(magnitude), format);
      const auto scale = static_cast<double>(std::bit_cast<float>(bits.scale));
      EXPECT_EQ(scale * static_cast<double>(std::bit_cast<float>(bits.inverse)), 1) << magnitude;
      EXPECT_EQ(std::exp2(std::floor(std::log2(scale))), scale) << magnitude;
      EXPECT_LE(static_cast<double>(magnitude) * scale, largest) << magnitude;
      if (scale < 0x1p126) {
        EXPECT_GT(static_cast<double>(magnitude) * 2 * scale, largest);
      }
    }
    for (const float bad : {kFloatInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      const Fp8ScaleBits bits = fp8_scale_bits(std::bit_cast<uint32_t>(bad), format);
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(bits.scale)));
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(bits.inverse)));
    }
  }
}

}  // namespace
}  // namespace trafo
