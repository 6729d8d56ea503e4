// The formats in which matrices are stored, and the one definition of how each rounds. Kernels and
// files have the bits of group_scale() and code_of().
//
// A format of integer codes divides a matrix into groups of values that share a scale:
//
//   code = round(value / scale) in least .. most,   value ~ scale * code,
//   scale = the largest magnitude of the group / steps
//
// core/numeric/fp8.h has the 8-bit floating-point numbers of training, quant/state_code.h the codes
// of optimizer states.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/core/numeric/half.h"

namespace trafo {

enum class ScaleType : int32_t {
  none,  // floating point
  // Rounded up, so that no code exceeds the range. Two bytes store it.
  bfloat16,
  float16,       // rounded to nearest, at most 65504; codes are of the rounded scale
  ggml_float16,  // rounded to nearest; codes are of the exact scale
  float32,
  inverse_float32,  // steps / the largest magnitude, which values are multiplied with
};

enum class CodeRounding : int32_t { half_to_even, half_away_from_zero, half_up };

struct WeightFormat {
  static constexpr int64_t kRow = 0, kMatrix = -1;  // of group

  const char* name;
  int32_t bits;         // of a value
  int32_t least, most;  // codes
  // Negative: the scale has the sign of the value with the largest magnitude. Of floating point:
  // the inverse of the largest relative error.
  float steps;
  int64_t group;  // neighbours in a row that share a scale
  ScaleType scale;
  CodeRounding rounding;
  float scale_of_zeros = 0;  // in files of other programs
  float least_scale = 0;     // of floating point: the error of the smallest values
};

// The rows by their groups of users:
//   kInt8 is what models compute with (Int8Matrix), kInt4 what their files hold beside it
//   (Int4Matrix). A group whose largest magnitude is below 2^-100 has the scale 0.
//   Q8_0 and Q4_0 are blocks of ggml.
//   CTranslate2's are as its converter makes them. Sums of products of two int16 codes fit 32 bits.
//   ONNX has codes of 7 bits. Processors without VNNI add two products of an 8-bit activation (0 to
//   255) and an 8-bit weight in 16 bits, which overflow with codes up to 127 (the instruction then
//   gives its limit). With codes of at most 64 the sum is at most 2 * 255 * 64 = 32640, so that all
//   processors compute the same.
//   compressed-tensors 0.20 computes max|w| / ((2^bits - 1) / 2) (calculate_qparams).
namespace formats {

using enum ScaleType;
using enum CodeRounding;
inline constexpr int64_t kRow = WeightFormat::kRow, kMatrix = WeightFormat::kMatrix;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kLeastNormal = std::numeric_limits<float>::min();

// clang-format off
//                              name                      bits  least   most    steps  group    scale            rounding             of zeros, least
inline constexpr WeightFormat
    kInt8             = {"int8",                      8,  -127,   127,     127, kRow,    bfloat16,        half_to_even},
    kInt4             = {"int4",                      4,    -7,     7,       7, 32,      float16,         half_to_even},
    kFloat32          = {"float32",                  32,     0,     0, kInfinity, 1,     none,            half_to_even},
    kFloat16          = {"float16",                  16,     0,     0, 0x1p11f, 1,       none,            half_to_even,        0, 0x1p-25f},
    kBfloat16         = {"bfloat16",                 16,     0,     0,  0x1p8f, 1,       none,            half_to_even,        0, 1e-37f},
    kQ8_0             = {"Q8_0",                      8,  -127,   127,     127, 32,      ggml_float16,    half_away_from_zero},
    kQ4_0             = {"Q4_0",                      4,    -8,     7,      -8, 32,      ggml_float16,    half_up},
    kCtranslate2Int8  = {"CTranslate2 int8",          8,  -127,   127,     127, kRow,    inverse_float32, half_to_even,        1},
    kCtranslate2Int16 = {"CTranslate2 int16",        16, -1024,  1024,    1024, kMatrix, inverse_float32, half_to_even,        1},
    kOnnxInt8         = {"ONNX int8",                 8,   -64,    64,      64, kRow,    float32,         half_to_even,        1, kLeastNormal},
    kCompressedInt8   = {"compressed-tensors int8",   8,  -128,   127,  127.5f, kRow,    float32,         half_to_even,        0x1p-23f},
    kCompressedInt4   = {"compressed-tensors int4",   4,    -8,     7,    7.5f, 32,      float32,         half_to_even,        0x1p-23f};
// clang-format on

}  // namespace formats

// `value` is what a file stores: the scale, rounded to its type.
struct GroupScale {
  float value;
  float factor;  // what values are multiplied with; ScaleType::float32 divides by `value` instead
};

// The scale of a group whose largest magnitude is |largest|, finite. Infinite where ggml's float16
// does not hold it.
inline GroupScale group_scale(const WeightFormat& format, float largest) {
  const float exact = largest / format.steps;
  const bool zeros = largest < 0x1p-100f;
  switch (format.scale) {
    case ScaleType::none:
      return {1, 1};
    case ScaleType::bfloat16: {
      const float up =
          std::bit_cast<float>((std::bit_cast<uint32_t>(exact) + 0xffffu) & 0xffff0000u);
      return zeros ? GroupScale{0, 0} : GroupScale{up, 1 / up};
    }
    case ScaleType::float16: {
      const float near = half_to_float(float_to_half(std::min(exact, 65504.0f)));
      return zeros || near == 0 ? GroupScale{0, 0} : GroupScale{near, 1 / near};
    }
    case ScaleType::ggml_float16: {
      const float factor = exact == 0 ? 0 : 1 / exact;
      return {half_to_float(float_to_half(exact)), std::isfinite(factor) ? factor : 0};
    }
    case ScaleType::float32:
      return {exact == 0 ? format.scale_of_zeros : std::max(exact, format.least_scale), 0};
    case ScaleType::inverse_float32:
      break;
  }
  const float inverse = largest == 0
                            ? format.scale_of_zeros
                            : std::min(format.steps / largest, std::numeric_limits<float>::max());
  return {inverse, inverse};
}

// The code nearest to a finite value of a group with this scale.
inline int32_t code_of(const WeightFormat& format, float value, const GroupScale& scale) {
  const float exact =
      format.scale == ScaleType::float32 ? value / scale.value : value * scale.factor;
  const auto least = static_cast<float>(format.least), most = static_cast<float>(format.most);
  float code = 0;
  switch (format.rounding) {
    case CodeRounding::half_to_even:
      code = std::nearbyint(exact);
      break;
    case CodeRounding::half_away_from_zero:
      code = std::round(exact);
      break;
    case CodeRounding::half_up:
      code = std::trunc(exact + (0.5f - least)) + least;  // as ggml adds
      break;
  }
  return static_cast<int32_t>(std::clamp(code, least, most));
}

// scale: GroupScale::value.
inline float value_of(const WeightFormat& format, int32_t code, float scale) {
  const auto number = static_cast<float>(code);
  return format.scale == ScaleType::inverse_float32 ? number / scale : number * scale;
}

// A matrix as codes and the scales of its groups, in their order.
template <class Code>
struct Codes {
  std::vector<Code> codes;
  std::vector<float> scales;
};

// values: finite, rows of `columns`. Groups of WeightFormat::group values end with a row.
// by_column: the matrix is transposed, so that a column takes the place of a row; for formats with
// a scale a row.
template <class Code>
Codes<Code> to_codes(const WeightFormat& format, std::span<const float> values, int64_t columns,
                     bool by_column = false);
template <class Code>
std::vector<float> from_codes(const WeightFormat& format, std::span<const Code> codes,
                              std::span<const float> scales, int64_t columns,
                              bool by_column = false);

// The index of the first value that is further from the original than the format allows: half a
// step of the scale (a whole one for Q4_0, whose codes end one step early on one side) and the
// error of a rounded scale. values.size(): none is.
size_t find_wrong_rounding(const WeightFormat& format, std::span<const float> original,
                           std::span<const float> values, int64_t columns, bool by_column = false);

// Codes of 8 bits as bytes; of 4 bits two in a byte, each plus 8, the first in the low half. The
// number of these is even.
std::vector<std::byte> pack_codes(const WeightFormat& format, std::span<const int8_t> codes);
std::vector<int8_t> unpack_codes(const WeightFormat& format, std::span<const std::byte> bytes);

}  // namespace trafo
