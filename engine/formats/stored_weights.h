// Weights in fewer bits, as the files of other programs store them: as floating point, as integers
// with a scale, as blocks with a scale each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "engine/core/half.h"
#include "engine/formats/interop.h"

namespace trafo::interop {

// Values as a file stores them, and back: convert() takes a float and gives a Stored, or the
// reverse.
template <class Stored, class Convert>
std::vector<std::byte> converted(std::span<const float> values, Convert convert) {
  std::vector<std::byte> bytes(values.size() * sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    const Stored stored = convert(values[i]);
    std::memcpy(bytes.data() + i * sizeof stored, &stored, sizeof stored);
  }
  return bytes;
}

template <class Stored, class Convert>
std::vector<float> converted(std::span<const std::byte> bytes, Convert convert) {
  std::vector<float> values(bytes.size() / sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof stored, sizeof stored);
    values[i] = convert(stored);
  }
  return values;
}

// float16 and bfloat16. UNSUPPORTED, naming `name`, if a value becomes infinite.
std::vector<std::byte> to_float16(const std::string& name, std::span<const float> values);
std::vector<std::byte> to_bfloat16(const std::string& name, std::span<const float> values);
std::vector<float> from_float16(std::span<const std::byte> bytes);
std::vector<float> from_bfloat16(std::span<const std::byte> bytes);

// value = code / scale.
template <class Code>
struct Scaled {
  std::vector<Code> codes;
  std::vector<float> scales;
};

// As CTranslate2's converter: a scale of 127 / max|w| for each row of `columns` values; 1 for a row
// of zeros. Codes are rounded to nearest even.
Scaled<int8_t> to_int8(std::span<const float> values, int64_t columns);
// As CTranslate2's converter: one scale of 1024 / max|w|, so that sums of products of two such
// codes fit 32 bits.
Scaled<int16_t> to_int16(std::span<const float> values);
template <class Code>
std::vector<float> from_scaled(std::span<const Code> codes, std::span<const float> scales);

// Blocks of ggml: 32 values that are neighbours in a row share a float16 scale d, which comes
// first.
//   Q8_0  d = max|w| / 127, then 32 int8 codes; w = d q
//   Q4_0  d = m / -8, where m is the first value with the largest magnitude, then 16 bytes with
//         code i in the lower and code i + 16 in the upper half; w = d (q - 8)
// The number of values is a multiple of 32. UNSUPPORTED, naming `name`, if a scale is no float16.
inline constexpr int64_t kBlockValues = 32;
inline constexpr int64_t kQ8Bytes = 34, kQ4Bytes = 18;  // of a block
std::vector<std::byte> to_q8_0(const std::string& name, std::span<const float> values);
std::vector<std::byte> to_q4_0(const std::string& name, std::span<const float> values);
std::vector<float> from_q8_0(std::span<const std::byte> bytes);
std::vector<float> from_q4_0(std::span<const std::byte> bytes);

// CORRUPT_FILE unless every value that was read is as near to the original as its type allows: half
// a step of its scale (a whole one for Q4_0, whose codes end one step early on one side).
void check_rounding(const std::string& name, ExportWeights type, std::span<const float> original,
                    std::span<const float> read, int64_t columns);

}  // namespace trafo::interop
