#include "engine/core/status.h"
#include "engine/core/checked.h"
#include "engine/core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trafo {
namespace {

TEST(Status, ErrorCarriesCodeOriginAndMessage) {
  try {
    fail(ErrorCode::shape_mismatch, "layer_norm", "gamma has ", 3, " elements, the width is ", 4);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::shape_mismatch);
    EXPECT_EQ(error.origin(), "layer_norm");
    EXPECT_STREQ(error.what(), "[layer_norm] gamma has 3 elements, the width is 4");
  }
}

TEST(Checked, OverflowIsAnError) {
  const int64_t big = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(checked_mul<int64_t>(big, 2, "test"), Error);
  EXPECT_THROW(checked_add<int64_t>(big, 1, "test"), Error);
  EXPECT_EQ(checked_mul<int64_t>(1 << 20, 1 << 20, "test"), int64_t{1} << 40);
}

TEST(BFloat16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(BFloat16::from_float(1.0f).bits, 0x3f80);
  EXPECT_EQ(BFloat16::from_float(1.00390625f).bits, 0x3f80);  // a tie goes to even
  EXPECT_EQ(BFloat16::from_float(1.01171875f).bits, 0x3f82);
  EXPECT_TRUE(std::isnan(BFloat16::from_float(std::nanf("")).to_float()));
}

}  // namespace
}  // namespace trafo
