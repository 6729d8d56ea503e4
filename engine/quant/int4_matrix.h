// Matrices of int4 codes with a float16 scale for each 32 columns of a row (formats::kInt4): what
// files hold. A model computes with the same codes in another order (Int4Panels).
//
// A byte has the codes of two columns, each plus 8: column 2 i in the low bits, column 2 i + 1 in
// the high ones (8, the code 0, after an odd last column).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/quant/weight_format.h"

namespace trafo {

class Int4Matrix {
 public:
  static constexpr int64_t kGroup = formats::kInt4.group;
  static constexpr int32_t kZero = 8;  // what codes are stored plus

  // Rounds values [rows, columns] to nearest. INVALID_ARGUMENT for a row with a value that is not
  // finite, which is named.
  static Int4Matrix quantized(ThreadPool& pool, std::span<const float> values, int64_t rows,
                              int64_t columns);
  // codes [rows, bytes of a row], scales [rows, groups]. INVALID_ARGUMENT for sizes that do not fit
  // each other, a code of -8, and a scale that is negative or not finite.
  static Int4Matrix from_codes(std::vector<uint8_t> codes, std::vector<uint16_t> scales,
                               int64_t rows, int64_t columns);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t groups() const { return (columns_ + kGroup - 1) / kGroup; }
  int64_t row_bytes() const { return (columns_ + 1) / 2; }
  std::span<const uint8_t> codes() const { return codes_; }
  std::span<const uint16_t> scales() const { return scales_; }  // float16
  // Writes the code of a column into the codes of its row.
  static void set_code(uint8_t* row, int64_t column, int32_t code) {
    uint8_t& byte = row[column / 2];
    const int32_t bits = code + kZero;
    byte = static_cast<uint8_t>(column % 2 == 0 ? (byte & 0xf0) | bits : (byte & 0x0f) | bits << 4);
  }
  // scale * code of every element, [rows, columns].
  std::vector<float> values(ThreadPool& pool) const;

 private:
  Int4Matrix(int64_t rows, int64_t columns) : rows_(rows), columns_(columns) {}
  void quantize_row(int64_t row, std::span<const float> values);

  int64_t rows_, columns_;
  std::vector<uint8_t> codes_;
  std::vector<uint16_t> scales_;
};

}  // namespace trafo
