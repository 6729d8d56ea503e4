#include "engine/quant/int4_panels.h"

#include <algorithm>
#include <cstring>

#include "engine/core/checked.h"
#include "engine/core/numeric/half.h"
#include "engine/core/numeric/portable_power.h"
#include "engine/core/status.h"

namespace trafo {
namespace {

constexpr const char* kInt4PanelsOrigin = "int4 matrix";
constexpr int64_t kInt4PanelRows = 64;  // rows of a block of work
constexpr int64_t kQuarter = Int4Panels::kGroupBytes / 4;
constexpr size_t kRowBytes = Int4Matrix::kGroup / 2;  // of a group
constexpr uint8_t kTwoZeros = Int4Matrix::kZero | Int4Matrix::kZero << 4;

// A group of a row, from the order of Int4Matrix to the order of panels.
void put_group(const uint8_t* from, uint8_t* to) {
  uint8_t bytes[kRowBytes];
  for (size_t i = 0; i < kRowBytes / 2; ++i) {
    const uint8_t low = from[i], high = from[kRowBytes / 2 + i];
    bytes[2 * i] = static_cast<uint8_t>((low & 0x0f) | high << 4);
    bytes[2 * i + 1] = static_cast<uint8_t>(low >> 4 | (high & 0xf0));
  }
  for (size_t q = 0; q < 4; ++q) std::memcpy(to + q * kQuarter, bytes + 4 * q, 4);
}

void take_group(const uint8_t* from, uint8_t* to) {
  uint8_t bytes[kRowBytes];
  for (size_t q = 0; q < 4; ++q) std::memcpy(bytes + 4 * q, from + q * kQuarter, 4);
  for (size_t i = 0; i < kRowBytes / 2; ++i) {
    const uint8_t even = bytes[2 * i], odd = bytes[2 * i + 1];
    to[i] = static_cast<uint8_t>((even & 0x0f) | odd << 4);
    to[kRowBytes / 2 + i] = static_cast<uint8_t>(even >> 4 | (odd & 0xf0));
  }
}

}  // namespace

Int4Panels::Int4Panels(int64_t rows, int64_t columns) : rows_(rows), columns_(columns) {
  const auto bytes = static_cast<size_t>(checked_mul(panels(), panel_bytes(), kInt4PanelsOrigin));
  try {
    codes_.reset(static_cast<uint8_t*>(::operator new (bytes, std::align_val_t{64})));
    scales_.assign(static_cast<size_t>(panels() * groups() * kPanelRows), 0);
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::out_of_memory, kInt4PanelsOrigin,
         "there is no room for the codes of a matrix [", rows, ", ", columns, "]");
  }
  if (rows % kPanelRows != 0)  // the rows after the last one
    std::memset(codes_.get() + (panels() - 1) * panel_bytes(), kTwoZeros,
                static_cast<size_t>(panel_bytes()));
}

Int4Panels::Int4Panels(ThreadPool& pool, const Int4Matrix& matrix)
    : Int4Panels(matrix.rows(), matrix.columns()) {
  const auto row_bytes = static_cast<size_t>(matrix.row_bytes());
  parallel_for_range(pool, rows_, kInt4PanelRows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const uint8_t* from = matrix.codes().data() + static_cast<size_t>(r) * row_bytes;
      uint8_t* to = codes_.get() + code_place(r);
      size_t left = row_bytes;
      for (; left >= kRowBytes; left -= kRowBytes, from += kRowBytes, to += kGroupBytes)
        put_group(from, to);
      if (left > 0) {
        uint8_t last[kRowBytes];
        std::fill(last, last + kRowBytes, kTwoZeros);
        std::memcpy(last, from, left);
        put_group(last, to);
      }
      const uint16_t* scales = matrix.scales().data() + r * groups();
      uint16_t* place = scales_.data() + scale_place(r);
      for (int64_t g = 0; g < groups(); ++g) place[g * kPanelRows] = scales[g];
    }
  });
}

Int4Matrix Int4Panels::matrix(ThreadPool& pool) const {
  const auto row_bytes = static_cast<size_t>((columns_ + 1) / 2);
  std::vector<uint8_t> codes(static_cast<size_t>(rows_) * row_bytes);
  std::vector<uint16_t> scales(static_cast<size_t>(rows_ * groups()));
  parallel_for_range(pool, rows_, kInt4PanelRows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const uint8_t* from = codes_.get() + code_place(r);
      uint8_t* to = codes.data() + static_cast<size_t>(r) * row_bytes;
      for (size_t done = 0; done < row_bytes; done += kRowBytes, from += kGroupBytes) {
        uint8_t group[kRowBytes];
        take_group(from, group);
        std::memcpy(to + done, group, std::min(kRowBytes, row_bytes - done));
      }
      const uint16_t* place = scales_.data() + scale_place(r);
      for (int64_t g = 0; g < groups(); ++g)
        scales[static_cast<size_t>(r * groups() + g)] = place[g * kPanelRows];
    }
  });
  return Int4Matrix::from_codes(std::move(codes), std::move(scales), rows_, columns_);
}

Int4Panels Int4Panels::gathered(ThreadPool& pool, std::span<const int32_t> index) const {
  for (size_t i = 0; i < index.size(); ++i)
    require(index[i] >= 0 && index[i] < rows_, ErrorCode::invalid_argument, kInt4PanelsOrigin,
            "index ", i, " is ", index[i], ", the matrix has rows 0 .. ", rows_ - 1);
  Int4Panels result(static_cast<int64_t>(index.size()), columns_);
  parallel_for_range(pool, result.rows_, kInt4PanelRows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t row = index[static_cast<size_t>(r)];
      const uint8_t* from = codes_.get() + code_place(row);
      uint8_t* to = result.codes_.get() + result.code_place(r);
      for (int64_t q = 0; q < 4 * groups(); ++q)
        std::memcpy(to + q * kQuarter, from + q * kQuarter, 4);
      for (int64_t g = 0; g < groups(); ++g)
        result.scales_[result.scale_place(r) + static_cast<size_t>(g * kPanelRows)] =
            scales_[scale_place(row) + static_cast<size_t>(g * kPanelRows)];
    }
  });
  return result;
}

void Int4Panels::dequantize(int64_t row, float factor, const float* addend, float* y) const {
  const uint8_t* from = codes_.get() + code_place(row);
  const uint16_t* scales = scales_.data() + scale_place(row);
  for (int64_t c = 0; c < columns_; ++c) {
    const int64_t g = c / kGroup, in_group = c % kGroup, low = in_group % 16;
    const uint8_t both = from[g * kGroupBytes + low / 4 * kQuarter + low % 4];
    const auto code =
        static_cast<float>((in_group < 16 ? both & 0x0f : both >> 4) - Int4Matrix::kZero);
    const float scale = factor * half_to_float(scales[g * kPanelRows]);
    y[c] = addend ? portable_fma(code, scale, addend[c]) : code * scale;
  }
}

}  // namespace trafo
