#include "engine/formats/stored_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/core/dtype.h"
#include "engine/formats/hf/directory.h"

namespace trafo::interop {
namespace {

float largest_of(std::span<const float> values) {
  return *std::max_element(values.begin(), values.end(),
                           [](float a, float b) { return std::abs(a) < std::abs(b); });
}

[[noreturn]] void too_large(const char* type, const std::string& name, float value) {
  fail(ErrorCode::unsupported, kOrigin, type, " cannot express the ", value, " of ", name,
       " (--weights)");
}

// Where code i of a block is among the codes that are packed. A byte of Q4_0 has codes i and i
// + 16.
size_t place_in_block(const WeightFormat& format, size_t i) {
  const auto half = static_cast<size_t>(format.group / 2);
  return format.bits == 8 ? i : i % half * 2 + i / half;
}

}  // namespace

std::vector<std::byte> to_float16(const std::string& name, std::span<const float> values) {
  return converted<uint16_t>(values, [&](float value) {
    const uint16_t half = float_to_half(value);
    if (!std::isfinite(half_to_float(half))) too_large("float16", name, value);
    return half;
  });
}

std::vector<std::byte> to_bfloat16(const std::string& name, std::span<const float> values) {
  return converted<BFloat16>(values, [&](float value) {
    const BFloat16 rounded = BFloat16::from_float(value);
    if (!std::isfinite(rounded.to_float())) too_large("bfloat16", name, value);
    return rounded;
  });
}

std::vector<float> from_float16(std::span<const std::byte> bytes) {
  return converted<uint16_t>(bytes, half_to_float);
}

std::vector<float> from_bfloat16(std::span<const std::byte> bytes) {
  return converted<BFloat16>(bytes, [](BFloat16 value) { return value.to_float(); });
}

std::vector<std::byte> to_blocks(const std::string& name, const WeightFormat& format,
                                 std::span<const float> values) {
  const auto group = static_cast<size_t>(format.group);
  require(values.size() % group == 0, ErrorCode::internal, kOrigin, values.size(),
          " values are no whole blocks");
  const Codes<int8_t> all = to_codes<int8_t>(format, values, format.group);
  std::vector<std::byte> bytes;
  std::vector<int8_t> codes(group);
  const auto append = [&](std::span<const std::byte> more) {
    bytes.insert(bytes.end(), more.begin(), more.end());
  };
  for (size_t b = 0; b < all.scales.size(); ++b) {
    const uint16_t scale = float_to_half(all.scales[b]);
    if (!std::isfinite(all.scales[b]))
      too_large(format.name, name, largest_of(values.subspan(b * group, group)));
    for (size_t i = 0; i < group; ++i) codes[place_in_block(format, i)] = all.codes[b * group + i];
    append(std::as_bytes(std::span(&scale, 1)));
    append(pack_codes(format, codes));
  }
  return bytes;
}

std::vector<float> from_blocks(const WeightFormat& format, std::span<const std::byte> bytes) {
  const auto group = static_cast<size_t>(format.group),
             size = static_cast<size_t>(block_bytes(format));
  std::vector<float> values(bytes.size() / size * group);
  for (size_t b = 0; b < bytes.size() / size; ++b) {
    const std::span<const std::byte> block = bytes.subspan(b * size, size);
    uint16_t scale;
    std::memcpy(&scale, block.data(), sizeof scale);
    const std::vector<int8_t> codes = unpack_codes(format, block.subspan(sizeof scale));
    for (size_t i = 0; i < group; ++i)
      values[b * group + i] =
          value_of(format, codes[place_in_block(format, i)], half_to_float(scale));
  }
  return values;
}

void check_rounding(const std::string& name, const WeightFormat& format,
                    std::span<const float> original, std::span<const float> read, int64_t columns,
                    bool by_column) {
  require(original.size() == read.size(), ErrorCode::internal, kOrigin, name, " has ", read.size(),
          " values instead of ", original.size());
  const size_t wrong = find_wrong_rounding(format, original, read, columns, by_column);
  if (wrong < read.size())
    fail(ErrorCode::corrupt_file, kOrigin, name, ": value ", wrong, " was read as ", read[wrong],
         ", it is ", original[wrong]);
}

}  // namespace trafo::interop
