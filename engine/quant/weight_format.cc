#include "engine/quant/weight_format.h"

namespace trafo {
namespace {

// Calls fn(index, first, count, stride) for every group of a matrix of `size` values.
template <class Fn>
void for_groups(const WeightFormat& format, size_t size, int64_t columns, bool by_column, Fn fn) {
  const auto width = static_cast<size_t>(columns);
  if (by_column) {
    for (size_t c = 0; c < width; ++c) fn(c, c, size / width, width);
    return;
  }
  const size_t group = format.group == WeightFormat::kMatrix ? size
                       : format.group == WeightFormat::kRow  ? width
                                                             : static_cast<size_t>(format.group);
  for (size_t first = 0, index = 0; first < size; first += group, ++index)
    fn(index, first, group, size_t{1});
}

// The first value with the largest magnitude; its magnitude if scales have no sign.
float largest_of(const WeightFormat& format, std::span<const float> values, size_t first,
                 size_t count, size_t stride) {
  float largest = 0;
  for (size_t i = 0; i < count; ++i)
    if (std::abs(values[first + i * stride]) > std::abs(largest))
      largest = values[first + i * stride];
  return format.steps < 0 ? largest : std::abs(largest);
}

// How far from a value of a group with this largest magnitude its stored form may be.
double largest_error(const WeightFormat& format, float value, float largest) {
  constexpr double kRounded = 1.001, kTiny = 1e-37;  // of the arithmetic in float32
  // A scale in float16 is off by 2^-11 of itself, or 2^-25 where it is subnormal.
  const auto half_error = [](double scale) { return std::max(scale * 0x1p-11, 0x1p-25); };
  const double steps = std::abs(format.steps), step = std::abs(largest) / steps;
  const double rounding = (format.rounding == CodeRounding::half_up ? step : step / 2) * kRounded;
  switch (format.scale) {
    case ScaleType::none:
      return std::max(std::abs(double{value}) / steps, double{format.least_scale});
    case ScaleType::bfloat16:
      return rounding * (1 + 0x1p-7) + 0x1p-100;
    case ScaleType::float16:
    case ScaleType::ggml_float16:
      return rounding + steps * half_error(step);
    case ScaleType::float32:
    case ScaleType::inverse_float32:
      break;
  }
  const double least = format.least_scale / 2 * kRounded;
  return least > 0 ? std::max(rounding, least) : rounding + kTiny;
}

}  // namespace

template <class Code>
Codes<Code> to_codes(const WeightFormat& format, std::span<const float> values, int64_t columns,
                     bool by_column) {
  Codes<Code> result{std::vector<Code>(values.size()), {}};
  for_groups(format, values.size(), columns, by_column,
             [&](size_t, size_t first, size_t count, size_t stride) {
               const GroupScale scale =
                   group_scale(format, largest_of(format, values, first, count, stride));
               result.scales.push_back(scale.value);
               for (size_t i = first; i < first + count * stride; i += stride)
                 result.codes[i] = static_cast<Code>(code_of(format, values[i], scale));
             });
  return result;
}

template <class Code>
std::vector<float> from_codes(const WeightFormat& format, std::span<const Code> codes,
                              std::span<const float> scales, int64_t columns, bool by_column) {
  std::vector<float> values(codes.size());
  for_groups(format, codes.size(), columns, by_column,
             [&](size_t index, size_t first, size_t count, size_t stride) {
               for (size_t i = first; i < first + count * stride; i += stride)
                 values[i] = value_of(format, codes[i], scales[index]);
             });
  return values;
}

template Codes<int8_t> to_codes(const WeightFormat&, std::span<const float>, int64_t, bool);
template Codes<int16_t> to_codes(const WeightFormat&, std::span<const float>, int64_t, bool);
template std::vector<float> from_codes(const WeightFormat&, std::span<const int8_t>,
                                       std::span<const float>, int64_t, bool);
template std::vector<float> from_codes(const WeightFormat&, std::span<const int16_t>,
                                       std::span<const float>, int64_t, bool);

size_t find_wrong_rounding(const WeightFormat& format, std::span<const float> original,
                           std::span<const float> values, int64_t columns, bool by_column) {
  size_t wrong = values.size();
  for_groups(format, original.size(), columns, by_column,
             [&](size_t, size_t first, size_t count, size_t stride) {
               const float largest = largest_of(format, original, first, count, stride);
               for (size_t i = first; i < first + count * stride; i += stride) {
                 const double gap = std::abs(double{values[i]} - double{original[i]});
                 if (!(gap <= largest_error(format, original[i], largest)))
                   wrong = std::min(wrong, i);
               }
             });
  return wrong;
}

std::vector<std::byte> pack_codes(const WeightFormat& format, std::span<const int8_t> codes) {
  if (format.bits == 8) {
    const auto bytes = std::as_bytes(codes);
    return {bytes.begin(), bytes.end()};
  }
  std::vector<std::byte> bytes(codes.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>((codes[2 * i] + 8) | (codes[2 * i + 1] + 8) << 4);
  return bytes;
}

std::vector<int8_t> unpack_codes(const WeightFormat& format, std::span<const std::byte> bytes) {
  std::vector<int8_t> codes;
  codes.reserve(bytes.size() * 8 / static_cast<size_t>(format.bits));
  for (const std::byte byte : bytes) {
    const auto bits = static_cast<int>(byte);
    if (format.bits == 8) {
      codes.push_back(static_cast<int8_t>(bits));
    } else {
      codes.push_back(static_cast<int8_t>((bits & 15) - 8));
      codes.push_back(static_cast<int8_t>((bits >> 4) - 8));
    }
  }
  return codes;
}

}  // namespace trafo
