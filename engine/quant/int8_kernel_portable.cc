// The int8 kernel in plain C++, for processors without a special one.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/core/numeric/half.h"
#include "engine/core/numeric/portable_power.h"
#include "engine/quant/int8_kernel_list.h"

namespace trafo {
namespace {

constexpr int64_t kPanelRows = Int8Matrix::kPanelRows;
constexpr int64_t kGroupColumns = Int8Matrix::kGroupColumns;
constexpr int64_t kGroupBytes = Int8Matrix::kGroupBytes;

bool always() {
  return true;
}

float quantize(const float* x, int64_t count, uint8_t flip, uint8_t* codes) {
  // Magnitudes compare like their bits, and what is not finite is above the rest.
  uint32_t largest = 0;
  for (int64_t c = 0; c < count; ++c)
    largest = std::max(largest, std::bit_cast<uint32_t>(x[c]) & 0x7fffffffu);
  if (largest >= 0x7f800000u) {
    std::fill(codes, codes + count, flip);
    return std::numeric_limits<float>::quiet_NaN();
  }
  const GroupScale scale = group_scale(formats::kInt8, std::bit_cast<float>(largest));
  for (int64_t c = 0; c < count; ++c)
    codes[c] =
        static_cast<uint8_t>(static_cast<int8_t>(code_of(formats::kInt8, x[c], scale))) ^ flip;
  return scale.value;
}

void multiply(const Int8Block& b) {
  const Int8Matrix& matrix = *b.matrix;
  for (int64_t panel = b.panel_begin; panel < b.panel_end; ++panel) {
    const int64_t column = panel * kPanelRows;
    const int64_t columns = std::min(kPanelRows, matrix.rows() - column);
    for (int64_t i = 0; i < b.rows; ++i) {
      const auto* x = reinterpret_cast<const int8_t*>(b.x + i * b.x_stride);
      const int8_t* w = matrix.panel(panel);
      int32_t sums[kPanelRows] = {};
      for (int64_t g = 0; g < matrix.groups(); ++g, x += kGroupColumns, w += kGroupBytes)
        for (int64_t r = 0; r < kPanelRows; ++r)
          for (int64_t c = 0; c < kGroupColumns; ++c)
            sums[r] += int32_t{x[c]} * int32_t{w[r * kGroupColumns + c]};
      float* y = b.y + i * b.y_stride + column;
      for (int64_t r = 0; r < columns; ++r)
        y[r] = portable_fma(static_cast<float>(sums[r]),
                            b.x_scales[i] * matrix.padded_scales()[column + r],
                            b.bias ? b.bias[column + r] : 0.0f);
    }
  }
}

void dequantize(const int8_t* row, int64_t columns, float factor, const float* addend, float* y) {
  for (int64_t c = 0; c < columns; ++c) {
    const auto code = static_cast<float>(row[c / kGroupColumns * kGroupBytes + c % kGroupColumns]);
    y[c] = addend ? portable_fma(code, factor, addend[c]) : code * factor;
  }
}

void multiply_int4(const Int4Block& b) {
  const Int4Panels& matrix = *b.matrix;
  const int64_t half = Int4Panels::kGroup / 2, quarter = Int4Panels::kGroupBytes / 4;
  for (int64_t row = b.panel_begin * kPanelRows;
       row < std::min(b.panel_end * kPanelRows, matrix.rows()); ++row) {
    const uint8_t* w = matrix.panel(row / kPanelRows) + row % kPanelRows * kGroupColumns;
    const uint16_t* scales = matrix.scales(row / kPanelRows) + row % kPanelRows;
    for (int64_t i = 0; i < b.rows; ++i) {
      float total = 0;
      for (int64_t g = 0; g < matrix.groups(); ++g) {
        const auto* x =
            reinterpret_cast<const int8_t*>(b.x + i * b.x_stride + g * Int4Panels::kGroup);
        int32_t sum = 0;
        for (int64_t c = 0; c < half; ++c) {
          const uint8_t both = w[g * Int4Panels::kGroupBytes + c / 4 * quarter + c % 4];
          sum += x[c] * ((both & 0x0f) - Int4Matrix::kZero);
          sum += x[half + c] * ((both >> 4) - Int4Matrix::kZero);
        }
        total = portable_fma(static_cast<float>(sum), half_to_float(scales[g * kPanelRows]), total);
      }
      b.y[i * b.y_stride + row] = portable_fma(total, b.x_scales[i], b.bias ? b.bias[row] : 0.0f);
    }
  }
}

}  // namespace

const Int8Kernel kPortableInt8Kernel = {"portable",  &always,       0, &quantize, &multiply,
                                        &dequantize, &multiply_int4};

#if !defined(__x86_64__) && !defined(__aarch64__)
std::span<const Int8Kernel* const> all_int8_kernels() {
  static constexpr const Int8Kernel* kKernels[] = {&kPortableInt8Kernel};
  return kKernels;
}
#endif

}  // namespace trafo
