// Matrices of int8 codes, for the linear layers of a model that only computes forward.
//
//   W[r, c] ~ scales[r] * codes[r, c],   as formats::kInt8 says
//
// The codes are laid out once, in one order for all instruction sets: panels of 16 rows; in a panel
// groups of 4 columns; in a group the 4 codes of each row side by side. One 64-byte vector has 4
// columns of 16 rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "engine/backend/cpu/thread_pool.h"
#include "engine/quant/weight_format.h"

namespace trafo {

class Int8Matrix {
 public:
  static constexpr int64_t kPanelRows = 16;
  static constexpr int64_t kGroupColumns = 4;
  static constexpr int64_t kGroupBytes = kPanelRows * kGroupColumns;
  // Sums of this many products of a code (up to 127) and an unsigned byte (up to 255) fit an int32.
  static constexpr int64_t kMaxColumns = 65536;

  // Quantizes values [rows, columns], contiguous. INVALID_ARGUMENT for more than kMaxColumns, and
  // for a row with a value that is not finite, which is named. OUT_OF_MEMORY.
  static Int8Matrix quantized(ThreadPool& pool, const float* values, int64_t rows, int64_t columns);
  // Lays out codes [rows, columns] with the scales of their rows. INVALID_ARGUMENT for sizes that
  // do not fit each other, a code of -128, and a scale that is negative or not finite.
  static Int8Matrix from_codes(ThreadPool& pool, std::span<const int8_t> codes,
                               std::span<const float> scales, int64_t columns);

  // The rows `index`, in this order, some perhaps more than once. INVALID_ARGUMENT for one out of
  // range.
  Int8Matrix gathered(ThreadPool& pool, std::span<const int32_t> index) const;
  // Writes the codes [rows, columns].
  void read_codes(ThreadPool& pool, std::span<int8_t> codes) const;

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t panels() const { return (rows_ + kPanelRows - 1) / kPanelRows; }
  int64_t groups() const { return (columns_ + kGroupColumns - 1) / kGroupColumns; }
  // Of codes, scales and corrections.
  size_t bytes() const;
  std::span<const float> scales() const { return {scales_.data(), static_cast<size_t>(rows_)}; }

  // --- for kernels ---
  const int8_t* panel(int64_t panel) const { return codes_.get() + panel * panel_bytes(); }
  int64_t panel_bytes() const { return groups() * kGroupBytes; }
  // Group 0 of a row; the next one follows after kGroupBytes.
  const int8_t* row(int64_t row) const {
    return panel(row / kPanelRows) + row % kPanelRows * kGroupColumns;
  }
  // Both have zeros up to a whole panel.
  const float* padded_scales() const { return scales_.data(); }
  // 128 times the sum of the codes of each row: what a product is too large by if 128 is added to
  // each factor on the other side.
  const int32_t* corrections() const { return corrections_.data(); }

 private:
  Int8Matrix(int64_t rows, int64_t columns);
  int8_t* row(int64_t row) {
    return const_cast<int8_t*>(static_cast<const Int8Matrix*>(this)->row(row));
  }
  void set_row(int64_t row, const int8_t* codes, float scale);

  struct Free {
    void operator()(int8_t* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  int64_t rows_, columns_;
  std::unique_ptr<int8_t, Free> codes_;
  std::vector<float> scales_;
  std::vector<int32_t> corrections_;
};

}  // namespace trafo
