// Messages of the tables of options.
#include "engine/core/option_field.h"

#include <gtest/gtest.h>

#include <limits>

namespace trafo {
enum class Fruit : int32_t { apple, pear, plum };
template <>
struct EnumNames<Fruit> {
  static constexpr std::array<const char*, 3> names{"apple", "pear", "plum"};
};
namespace {

template <class T>
std::string refusal(const OptionField& field, T value) {
  try {
    check_option("test", field, value);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.message();
  }
}

TEST(OptionField, IntegersHaveBounds) {
  const OptionField bounded{.name = "layers", .low = 1, .high = 8};
  EXPECT_EQ(refusal(bounded, int64_t{1}), "");
  EXPECT_EQ(refusal(bounded, int64_t{8}), "");
  EXPECT_EQ(refusal(bounded, int64_t{0}), "layers must be 1 to 8, got 0");
  EXPECT_EQ(refusal(bounded, int64_t{9}), "layers must be 1 to 8, got 9");
  const OptionField open{.name = "warmup", .low = 0, .high = kNoLimit};
  EXPECT_EQ(refusal(open, int64_t{1} << 62), "");
  EXPECT_EQ(refusal(open, int64_t{-1}), "warmup must be at least 0, got -1");
  const OptionField never{.name = "after", .low = 0, .high = kNoLimit, .zero = "never"};
  EXPECT_EQ(refusal(never, int64_t{0}), "");
  EXPECT_EQ(refusal(never, int64_t{-1}), "after must be 0 (never) or above, got -1");
}

TEST(OptionField, RealsHaveEnds) {
  const OptionField share{.name = "share", .low = 0, .high = 1, .high_inside = false};
  EXPECT_EQ(refusal(share, 0.0), "");
  EXPECT_EQ(refusal(share, 1.0), "share must be at least 0 and below 1, got 1");
  EXPECT_NE(refusal(share, std::numeric_limits<double>::quiet_NaN()), "");
  const OptionField mass{.name = "top_p", .low = 0, .high = 1, .low_inside = false};
  EXPECT_EQ(refusal(mass, 1.0), "");
  EXPECT_EQ(refusal(mass, 0.0), "top_p must be above 0 and at most 1, got 0");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const OptionField norm{.name = "norm", .low = 0, .high = kInfinity, .high_inside = false};
  EXPECT_EQ(refusal(norm, 1e300), "");
  EXPECT_EQ(refusal(norm, kInfinity), "norm must be at least 0, got inf");
  const OptionField ratio{
      .name = "ratio", .low = 1, .high = 9, .high_inside = false, .zero = "any"};
  EXPECT_EQ(refusal(ratio, 0.0), "");
  EXPECT_EQ(refusal(ratio, 0.5), "ratio must be 0 (any) or at least 1 and below 9, got 0.5");
}

TEST(OptionField, EnumsListTheirNames) {
  const OptionField field{.name = "fruit"};
  EXPECT_EQ(refusal(field, Fruit::plum), "");
  EXPECT_EQ(refusal(field, static_cast<Fruit>(3)),
            "fruit must be 0 (apple), 1 (pear) or 2 (plum), got 3");
  EXPECT_STREQ(enum_name(Fruit::pear), "pear");
  EXPECT_STREQ(enum_name(static_cast<Fruit>(-1)), "unknown");
}

}  // namespace
}  // namespace trafo
