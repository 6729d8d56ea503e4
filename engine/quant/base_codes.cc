#include "engine/quant/base_codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/core/status.h"
#include "engine/quant/int4_matrix.h"
#include "engine/quant/weight_format.h"

namespace trafo {
namespace {

using namespace base_codes;
static_assert(kGroup == formats::kInt4.group);

constexpr const char* kBaseCodesOrigin = "base codes";

template <class T>
T load_at(const std::byte* bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

template <class T>
void store_at(std::byte* bytes, int64_t index, T value) {
  std::memcpy(bytes + index * static_cast<int64_t>(sizeof value), &value, sizeof value);
}

// The nearest code of the dynamic type; half way between two, the lower one.
uint8_t nearest_dynamic(float value) {
  size_t least = 0, most = kDynamicCode.size() - 1;
  while (least < most) {
    const size_t middle = (least + most) / 2;
    if (value > (kDynamicCode[middle] + kDynamicCode[middle + 1]) / 2)
      least = middle + 1;
    else
      most = middle;
  }
  return static_cast<uint8_t>(least);
}

float base_largest(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// Double quantization: the codes of absmax in blocks of 256, around the mean of all.
[[gnu::cold]] void encode_absmax(std::span<const float> absmax, const Places& places,
                                 std::byte* bytes) {
  double sum = 0;
  for (const float value : absmax) sum += static_cast<double>(value);
  const auto offset =
      static_cast<float>(absmax.empty() ? 0.0 : sum / static_cast<double>(absmax.size()));
  store_at(bytes + places.offset, 0, offset);
  std::vector<float> centred(absmax.begin(), absmax.end());
  for (float& value : centred) value -= offset;
  constexpr auto kStep = static_cast<size_t>(kNestedBlock);
  for (size_t begin = 0; begin < centred.size(); begin += kStep) {
    const auto block = std::span(centred).subspan(begin, std::min(kStep, centred.size() - begin));
    const float largest = base_largest(block);
    store_at(bytes + places.nested, static_cast<int64_t>(begin / kStep), largest);
    for (size_t i = 0; i < block.size(); ++i)
      store_at(bytes + places.scales, static_cast<int64_t>(begin + i),
               nearest_dynamic(largest > 0 ? block[i] / largest : 0.0f));
  }
}

// The codes of a block. The loop over the codes is outside, so that the compiler vectorizes the
// inner one.
void encode_block(std::span<const float> block, float largest, std::array<uint8_t, kBlock>& codes) {
  std::array<float, kBlock> scaled{};
  for (size_t i = 0; i < block.size(); ++i) scaled[i] = largest > 0 ? block[i] / largest : 0.0f;
  codes.fill(0);
  for (size_t code = 0; code + 1 < kNormalFloat.size(); ++code) {
    const float bound = (kNormalFloat[code] + kNormalFloat[code + 1]) / 2;
    for (size_t i = 0; i < scaled.size(); ++i)
      codes[i] = static_cast<uint8_t>(codes[i] + (scaled[i] > bound ? 1 : 0));
  }
}

void encode_nf4(std::span<const float> values, const Places& places, std::byte* bytes) {
  std::vector<float> absmax;
  std::array<uint8_t, kBlock> codes;
  constexpr auto kStep = static_cast<size_t>(kBlock);
  for (size_t begin = 0; begin < values.size(); begin += kStep) {
    const auto block = values.subspan(begin, std::min(kStep, values.size() - begin));
    absmax.push_back(base_largest(block));
    encode_block(block, absmax.back(), codes);
    for (size_t i = 0; i < block.size(); ++i) {
      const auto bits = static_cast<std::byte>(codes[i]);
      std::byte& both = bytes[(begin + i) / 2];
      both = i % 2 == 0 ? bits << 4 : both | bits;
    }
  }
  encode_absmax(absmax, places, bytes);
}

[[gnu::cold]] void encode_int8(std::span<const float> values, int64_t columns, const Places& places,
                               std::byte* bytes) {
  const Codes<int8_t> codes = to_codes<int8_t>(formats::kInt8, values, columns);
  std::memcpy(bytes, codes.codes.data(), codes.codes.size());
  std::memcpy(bytes + places.scales, codes.scales.data(), codes.scales.size() * sizeof(float));
}

[[gnu::cold]] void encode_int4(std::span<const float> values, int64_t rows, int64_t columns,
                               const Places& places, std::byte* bytes) {
  const int64_t row_bytes = ceil_div(columns, 2), groups = ceil_div(columns, kGroup);
  std::fill(bytes, bytes + rows * row_bytes, std::byte{Int4Matrix::kZero * 17});
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = g * kGroup, count = std::min(kGroup, columns - first);
      const auto group =
          values.subspan(static_cast<size_t>(r * columns + first), static_cast<size_t>(count));
      const GroupScale scale = group_scale(formats::kInt4, base_largest(group));
      store_at(bytes + places.scales, r * groups + g, float_to_half(scale.value));
      for (int64_t i = 0; i < count; ++i)
        Int4Matrix::set_code(reinterpret_cast<uint8_t*>(bytes) + r * row_bytes, first + i,
                             code_of(formats::kInt4, group[static_cast<size_t>(i)], scale));
    }
}

float absmax_of(const std::byte* bytes, const Places& places, int64_t block) {
  return kDynamicCode[load_at<uint8_t>(bytes + places.scales, block)] *
             load_at<float>(bytes + places.nested, block / kNestedBlock) +
         load_at<float>(bytes + places.offset, 0);
}

// `count` elements of the matrix from element `first` on.
void decode_nf4(const std::byte* bytes, const Places& places, int64_t first, int64_t count,
                float* values) {
  for (int64_t i = first; i < first + count;) {
    const int64_t end = std::min(first + count, (i / kBlock + 1) * kBlock);
    const float absmax = absmax_of(bytes, places, i / kBlock);
    for (; i < end; ++i) {
      const auto both = static_cast<unsigned>(bytes[i / 2]);
      *values++ = kNormalFloat[i % 2 == 0 ? both >> 4 : both & 15] * absmax;
    }
  }
}

void decode_int8(const std::byte* codes, float scale, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(load_at<int8_t>(codes, i)) * scale;
}

void decode_int4(const std::byte* codes, const std::byte* scales, int64_t first, int64_t count,
                 float* values) {
  for (int64_t i = first; i < first + count;) {
    const int64_t end = std::min(first + count, (i / kGroup + 1) * kGroup);
    const float scale = half_to_float(load_at<uint16_t>(scales, i / kGroup));
    for (; i < end; ++i) {
      const int both = static_cast<int>(codes[i / 2]);
      const int code = (i % 2 == 0 ? both & 15 : both >> 4) - Int4Matrix::kZero;
      *values++ = static_cast<float>(code) * scale;
    }
  }
}

void require_scale(float scale, bool may_be_negative) {
  require(std::isfinite(scale) && (may_be_negative || scale >= 0), ErrorCode::invalid_argument,
          kBaseCodesOrigin, "a scale is ", scale);
}

}  // namespace

void encode_base(BasePrecision precision, std::span<const float> values, int64_t rows,
                 int64_t columns, std::span<std::byte> bytes) {
  const Places places = places_of(precision, rows, columns);
  require(static_cast<int64_t>(values.size()) == rows * columns &&
              static_cast<int64_t>(bytes.size()) == places.bytes,
          ErrorCode::internal, kBaseCodesOrigin, values.size(), " values and ", bytes.size(),
          " bytes are no matrix [", rows, ", ", columns, "]");
  const auto wrong = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
  if (wrong != values.end()) {
    const int64_t at = wrong - values.begin();
    fail(ErrorCode::invalid_argument, kBaseCodesOrigin, "the value in row ", at / columns,
         " and column ", at % columns, " is not finite");
  }
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  switch (precision) {
    case BasePrecision::none:
      break;
    case BasePrecision::nf4:
      return encode_nf4(values, places, bytes.data());
    case BasePrecision::int8:
      return encode_int8(values, columns, places, bytes.data());
    case BasePrecision::int4:
      return encode_int4(values, rows, columns, places, bytes.data());
  }
}

void decode_base(BasePrecision precision, const std::byte* bytes, int64_t rows, int64_t columns,
                 const MatrixTile& part, float* values) {
  const Places places = places_of(precision, rows, columns);
  const std::byte* const scales = bytes + places.scales;
  for (int64_t r = part.row; r < part.row + part.rows; ++r, values += part.columns) {
    switch (precision) {
      case BasePrecision::none:
        break;
      case BasePrecision::nf4:
        decode_nf4(bytes, places, r * columns + part.column, part.columns, values);
        break;
      case BasePrecision::int8:
        decode_int8(bytes + r * columns + part.column, load_at<float>(scales, r), part.columns,
                    values);
        break;
      case BasePrecision::int4:
        decode_int4(bytes + r * ceil_div(columns, 2), scales + 2 * r * ceil_div(columns, kGroup),
                    part.column, part.columns, values);
        break;
    }
  }
}

// Of gradient checks.
[[gnu::cold]] void decode_base(BasePrecision precision, const std::byte* bytes, int64_t rows,
                               int64_t columns, const MatrixTile& part, double* values) {
  std::vector<float> narrow(static_cast<size_t>(part.rows * part.columns));
  decode_base(precision, bytes, rows, columns, part, narrow.data());
  std::copy(narrow.begin(), narrow.end(), values);
}

[[gnu::cold]] std::vector<BaseSection> base_sections(BasePrecision precision, int64_t rows,
                                                     int64_t columns) {
  const Places places = places_of(precision, rows, columns);
  std::vector<BaseSection> sections;
  // columns 0: a vector.
  const auto add = [&](const char* suffix, const char* type, int64_t offset, int64_t element,
                       int64_t section_rows, int64_t section_columns) {
    std::vector<int64_t> shape{section_rows};
    if (section_columns > 0) shape.push_back(section_columns);
    const int64_t bytes = element * section_rows * std::max<int64_t>(1, section_columns);
    sections.push_back(
        {suffix, type, std::move(shape), static_cast<size_t>(offset), static_cast<size_t>(bytes)});
  };
  const int64_t blocks = ceil_div(rows * columns, kBlock);
  switch (precision) {
    case BasePrecision::none:
      break;
    case BasePrecision::nf4:
      add("", "U8", 0, 1, ceil_div(rows * columns, 2), 0);
      add(".absmax", "U8", places.scales, 1, blocks, 0);
      add(".nested_absmax", "F32", places.nested, 4, ceil_div(blocks, kNestedBlock), 0);
      add(".nested_offset", "F32", places.offset, 4, 1, 0);
      break;
    case BasePrecision::int8:
      add("", "I8", 0, 1, rows, columns);
      add(".scale", "F32", places.scales, 4, rows, 0);
      break;
    case BasePrecision::int4:
      add("", "U8", 0, 1, rows, ceil_div(columns, 2));
      add(".scale", "F16", places.scales, 2, rows, ceil_div(columns, kGroup));
      break;
  }
  return sections;
}

[[gnu::cold]] void check_base_codes(BasePrecision precision, std::span<const std::byte> bytes,
                                    int64_t rows, int64_t columns) {
  const Places places = places_of(precision, rows, columns);
  const std::byte* const scales = bytes.data() + places.scales;
  switch (precision) {
    case BasePrecision::none:
      break;
    case BasePrecision::nf4: {
      const int64_t blocks = ceil_div(rows * columns, kBlock);
      for (int64_t i = 0; i < ceil_div(blocks, kNestedBlock); ++i)
        require_scale(load_at<float>(bytes.data() + places.nested, i), false);
      require_scale(load_at<float>(bytes.data() + places.offset, 0), true);
      break;
    }
    case BasePrecision::int8:
      for (int64_t i = 0; i < rows; ++i) require_scale(load_at<float>(scales, i), false);
      break;
    case BasePrecision::int4:
      for (int64_t i = 0; i < rows * ceil_div(columns, kGroup); ++i)
        require_scale(half_to_float(load_at<uint16_t>(scales, i)), false);
      break;
  }
}

}  // namespace trafo
