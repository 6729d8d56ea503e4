#include "engine/formats/stored_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/core/dtype.h"
#include "engine/formats/hf/directory.h"

namespace trafo::interop {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

float largest_of(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// `steps` for the largest magnitude; 1 for zeros, the largest float for a magnitude near zero.
float scale_of(float largest, float steps) {
  return largest == 0 ? 1 : std::min(steps / largest, kLargest);
}

template <class Code>
void append_codes(std::span<const float> values, float scale, std::vector<Code>& codes) {
  for (const float value : values)
    codes.push_back(static_cast<Code>(std::nearbyint(value * scale)));
}

[[noreturn]] void too_large(const char* type, const std::string& name, float value) {
  fail(ErrorCode::unsupported, kOrigin, type, " cannot express the ", value, " of ", name,
       " (--weights)");
}

// The scale of a block, and 1 / scale, which is 0 where it would not be finite.
struct BlockScale {
  uint16_t half;
  float inverse;
};
BlockScale block_scale(const char* type, const std::string& name, float scale) {
  const uint16_t half = float_to_half(scale);
  if (!std::isfinite(half_to_float(half))) too_large(type, name, scale);
  const float inverse = scale == 0 ? 0 : 1 / scale;
  return {half, std::isfinite(inverse) ? inverse : 0};
}

template <class Block>
std::vector<std::byte> to_blocks(std::span<const float> values, int64_t bytes_of_block,
                                 const Block& write) {
  require(values.size() % kBlockValues == 0, ErrorCode::internal, kOrigin, values.size(),
          " values are no whole blocks");
  const auto size = static_cast<size_t>(bytes_of_block);
  std::vector<std::byte> bytes(values.size() / kBlockValues * size);
  for (size_t b = 0; b * kBlockValues < values.size(); ++b)
    write(values.subspan(b * kBlockValues, kBlockValues), bytes.data() + b * size);
  return bytes;
}

template <class Block>
std::vector<float> from_blocks(std::span<const std::byte> bytes, int64_t bytes_of_block,
                               const Block& read) {
  const auto size = static_cast<size_t>(bytes_of_block);
  std::vector<float> values(bytes.size() / size * kBlockValues);
  for (size_t b = 0; b < bytes.size() / size; ++b) {
    uint16_t half;
    std::memcpy(&half, bytes.data() + b * size, sizeof half);
    read(half_to_float(half), bytes.data() + b * size + sizeof half,
         values.data() + b * kBlockValues);
  }
  return values;
}

// How far from a value its stored form may be, where `largest` is that of the values with the same
// scale. A scale in float16 is off by 2^-11 of itself, or 2^-25 where it is subnormal.
double bound_of(ExportWeights type, double value, double largest) {
  constexpr double kRounded = 1.001, kTiny = 1e-37;  // of the arithmetic in float32
  const auto half_error = [](double scale) { return std::max(scale * 0x1p-11, 0x1p-25); };
  switch (type) {
    case ExportWeights::float16:
      return half_error(std::abs(value));
    case ExportWeights::bfloat16:
      return std::abs(value) * 0x1p-8 + kTiny;
    case ExportWeights::int16:
      return largest / 1024 / 2 * kRounded + kTiny;
    case ExportWeights::int8:
      return largest / 127 / 2 * kRounded + kTiny;
    case ExportWeights::q8_0:
      return largest / 127 / 2 * kRounded + 127 * half_error(largest / 127);
    case ExportWeights::q4_0:
      return largest / 8 * kRounded + 8 * half_error(largest / 8);
    case ExportWeights::int4:
      return largest / 7.5 / 2 * kRounded + kTiny;
    case ExportWeights::by_format:
    case ExportWeights::float32:
      break;
  }
  return 0;
}

// How many values share a scale.
size_t group_of(ExportWeights type, size_t values, int64_t columns) {
  switch (type) {
    case ExportWeights::int16:
      return values;
    case ExportWeights::int8:
      return static_cast<size_t>(columns);
    case ExportWeights::q8_0:
    case ExportWeights::q4_0:
    case ExportWeights::int4:
      return kBlockValues;
    default:
      return 1;
  }
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

Scaled<int8_t> to_int8(std::span<const float> values, int64_t columns) {
  Scaled<int8_t> scaled;
  const auto width = static_cast<size_t>(columns);
  scaled.codes.reserve(values.size());
  for (size_t first = 0; first < values.size(); first += width) {
    const std::span<const float> row = values.subspan(first, width);
    scaled.scales.push_back(scale_of(largest_of(row), 127));
    append_codes(row, scaled.scales.back(), scaled.codes);
  }
  return scaled;
}

Scaled<int16_t> to_int16(std::span<const float> values) {
  Scaled<int16_t> scaled;
  scaled.codes.reserve(values.size());
  scaled.scales.push_back(scale_of(largest_of(values), 1024));
  append_codes(values, scaled.scales.front(), scaled.codes);
  return scaled;
}

template <class Code>
std::vector<float> from_scaled(std::span<const Code> codes, std::span<const float> scales) {
  std::vector<float> values(codes.size());
  const size_t group = codes.size() / std::max<size_t>(1, scales.size());
  for (size_t i = 0; i < codes.size(); ++i)
    values[i] = static_cast<float>(codes[i]) / scales[i / group];
  return values;
}
template std::vector<float> from_scaled<int8_t>(std::span<const int8_t>, std::span<const float>);
template std::vector<float> from_scaled<int16_t>(std::span<const int16_t>, std::span<const float>);

std::vector<std::byte> to_q8_0(const std::string& name, std::span<const float> values) {
  return to_blocks(values, kQ8Bytes, [&](std::span<const float> block, std::byte* to) {
    const BlockScale scale = block_scale("Q8_0", name, largest_of(block) / 127);
    std::memcpy(to, &scale.half, sizeof scale.half);
    for (size_t i = 0; i < block.size(); ++i)  // ggml rounds halves away from zero
      to[sizeof scale.half + i] =
          static_cast<std::byte>(static_cast<int8_t>(std::round(block[i] * scale.inverse)));
  });
}

std::vector<std::byte> to_q4_0(const std::string& name, std::span<const float> values) {
  return to_blocks(values, kQ4Bytes, [&](std::span<const float> block, std::byte* to) {
    const float far = *std::max_element(block.begin(), block.end(), [](float a, float b) {
      return std::abs(a) < std::abs(b);  // the first of the largest
    });
    const BlockScale scale = block_scale("Q4_0", name, far / -8);
    std::memcpy(to, &scale.half, sizeof scale.half);
    const auto code = [&](size_t i) {  // 0 to 15; 8 stands for zero
      return static_cast<unsigned>(std::min(15.0f, std::trunc(block[i] * scale.inverse + 8.5f)));
    };
    for (size_t i = 0; i < kBlockValues / 2; ++i)
      to[sizeof scale.half + i] = static_cast<std::byte>(code(i) | code(i + kBlockValues / 2) << 4);
  });
}

std::vector<float> from_q8_0(std::span<const std::byte> bytes) {
  return from_blocks(bytes, kQ8Bytes, [](float scale, const std::byte* codes, float* to) {
    for (int64_t i = 0; i < kBlockValues; ++i)
      to[i] = scale * static_cast<float>(static_cast<int8_t>(codes[i]));
  });
}

std::vector<float> from_q4_0(std::span<const std::byte> bytes) {
  return from_blocks(bytes, kQ4Bytes, [](float scale, const std::byte* codes, float* to) {
    for (int64_t i = 0; i < kBlockValues / 2; ++i) {
      const auto pair = static_cast<unsigned>(codes[i]);
      to[i] = scale * (static_cast<float>(pair & 15u) - 8);
      to[i + kBlockValues / 2] = scale * (static_cast<float>(pair >> 4) - 8);
    }
  });
}

void check_rounding(const std::string& name, ExportWeights type, std::span<const float> original,
                    std::span<const float> read, int64_t columns) {
  require(original.size() == read.size(), ErrorCode::internal, kOrigin, name, " has ", read.size(),
          " values instead of ", original.size());
  const size_t group = group_of(type, original.size(), columns);
  for (size_t first = 0; first < original.size(); first += group) {
    const size_t end = std::min(first + group, original.size());
    const float largest = largest_of(original.subspan(first, end - first));
    for (size_t i = first; i < end; ++i) {
      const double value = original[i], gap = std::abs(static_cast<double>(read[i]) - value);
      require(gap <= bound_of(type, value, largest), ErrorCode::corrupt_file, kOrigin, name,
              ": value ", i, " was read as ", read[i], ", it is ", original[i]);
    }
  }
}

}  // namespace trafo::interop
