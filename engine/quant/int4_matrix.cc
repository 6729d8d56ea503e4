#include "engine/quant/int4_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/core/checked.h"
#include "engine/core/status.h"

namespace trafo {
namespace {

constexpr const char* kInt4Origin = "int4 matrix";
constexpr int64_t kInt4BlockRows = 64;
constexpr uint16_t kInfiniteHalf = 0x7c00;

// Whether one of the codes is -8, of 16 codes at a time.
bool has_zero_nibble(std::span<const uint8_t> codes) {
  uint64_t found = 0;
  size_t i = 0;
  const auto look = [&](uint64_t word) {
    found |= (word - 0x1111111111111111u) & ~word & 0x8888888888888888u;
  };
  for (; i + sizeof(uint64_t) <= codes.size(); i += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, codes.data() + i, sizeof word);
    look(word);
  }
  for (; i < codes.size(); ++i) look(codes[i] | 0x1111111111111100u);
  return found != 0;
}

}  // namespace

void Int4Matrix::quantize_row(int64_t row, std::span<const float> values) {
  uint8_t* codes = codes_.data() + row * row_bytes();
  uint16_t* scales = scales_.data() + row * groups();
  for (int64_t begin = 0; begin < columns_; begin += kGroup) {
    const int64_t end = std::min(columns_, begin + kGroup);
    float most = 0;
    for (int64_t c = begin; c < end; ++c) {
      const float value = values[static_cast<size_t>(c)];
      require(std::isfinite(value), ErrorCode::invalid_argument, kInt4Origin, "row ", row,
              " has a value that is not finite");
      most = std::max(most, std::abs(value));
    }
    const GroupScale scale = group_scale(formats::kInt4, most);
    scales[begin / kGroup] = float_to_half(scale.value);
    for (int64_t c = begin; c < end; ++c)
      set_code(codes, c, code_of(formats::kInt4, values[static_cast<size_t>(c)], scale));
  }
}

Int4Matrix Int4Matrix::quantized(ThreadPool& pool, std::span<const float> values, int64_t rows,
                                 int64_t columns) {
  require(rows >= 0 && columns >= 0 &&
              static_cast<int64_t>(values.size()) == checked_mul(rows, columns, kInt4Origin),
          ErrorCode::invalid_argument, kInt4Origin, values.size(), " values are not ", rows,
          " rows of ", columns);
  Int4Matrix matrix(rows, columns);
  constexpr uint8_t kZeros = kZero | kZero << 4;
  matrix.codes_.assign(static_cast<size_t>(rows * matrix.row_bytes()), kZeros);
  matrix.scales_.assign(static_cast<size_t>(rows * matrix.groups()), 0);
  parallel_for_range(pool, rows, kInt4BlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      matrix.quantize_row(
          r, values.subspan(static_cast<size_t>(r * columns), static_cast<size_t>(columns)));
  });
  return matrix;
}

Int4Matrix Int4Matrix::from_codes(std::vector<uint8_t> codes, std::vector<uint16_t> scales,
                                  int64_t rows, int64_t columns) {
  require(rows >= 0 && columns >= 0, ErrorCode::invalid_argument, kInt4Origin,
          "sizes must not be negative: ", rows, " rows, ", columns, " columns");
  Int4Matrix matrix(rows, columns);
  require(static_cast<int64_t>(codes.size()) == checked_mul(rows, matrix.row_bytes(), kInt4Origin),
          ErrorCode::invalid_argument, kInt4Origin, codes.size(), " bytes of codes are not ", rows,
          " rows of ", columns);
  require(static_cast<int64_t>(scales.size()) == checked_mul(rows, matrix.groups(), kInt4Origin),
          ErrorCode::invalid_argument, kInt4Origin, scales.size(), " scales are not ", rows,
          " rows of ", matrix.groups());
  if (has_zero_nibble(codes))
    for (size_t i = 0; i < codes.size(); ++i)
      require((codes[i] & 0x0f) != 0 && codes[i] >> 4 != 0, ErrorCode::invalid_argument,
              kInt4Origin, "row ", static_cast<int64_t>(i) / matrix.row_bytes(),
              " has the code -8; codes are -7 to 7");
  for (size_t i = 0; i < scales.size(); ++i) {
    if (scales[i] < kInfiniteHalf) continue;  // positive and finite
    const float scale = half_to_float(scales[i]);
    require(std::isfinite(scale) && scale >= 0, ErrorCode::invalid_argument, kInt4Origin, "row ",
            static_cast<int64_t>(i) / matrix.groups(), " has the scale ", scale);
  }
  matrix.codes_ = std::move(codes);
  matrix.scales_ = std::move(scales);
  return matrix;
}

std::vector<float> Int4Matrix::values(ThreadPool& pool) const {
  std::vector<float> result(static_cast<size_t>(rows_ * columns_));
  parallel_for_range(pool, rows_, kInt4BlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const uint8_t* codes = codes_.data() + r * row_bytes();
      const uint16_t* scales = scales_.data() + r * groups();
      float* to = result.data() + r * columns_;
      for (int64_t c = 0; c < columns_; ++c) {
        const int32_t code = (c % 2 == 0 ? codes[c / 2] & 0x0f : codes[c / 2] >> 4) - kZero;
        to[c] = value_of(formats::kInt4, code, half_to_float(scales[c / kGroup]));
      }
    }
  });
  return result;
}

}  // namespace trafo
