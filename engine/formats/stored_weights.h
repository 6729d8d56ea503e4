// Bytes of weights in the files of other programs. quant/weight_format.h has the formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "engine/quant/weight_format.h"

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

// Blocks of ggml, formats::kQ8_0 and kQ4_0: a float16 scale, then the codes of 32 values that are
// neighbours in a row. Q8_0 has a byte for each. Q4_0 has code i in the lower and code i + 16 in
// the upper half of a byte, each plus 8. The number of values is a multiple of 32. UNSUPPORTED,
// naming `name`, if a scale is no float16.
constexpr int64_t block_bytes(const WeightFormat& format) {
  return 2 + format.group * format.bits / 8;
}
std::vector<std::byte> to_blocks(const std::string& name, const WeightFormat& format,
                                 std::span<const float> values);
std::vector<float> from_blocks(const WeightFormat& format, std::span<const std::byte> bytes);

// CORRUPT_FILE, naming `name`, unless every value that was read is as near to the original as its
// format allows. by_column: see to_codes().
void check_rounding(const std::string& name, const WeightFormat& format,
                    std::span<const float> original, std::span<const float> read, int64_t columns,
                    bool by_column = false);

}  // namespace trafo::interop
