// Int4 codes laid out for kernels, once, in one order for all instruction sets: panels of 16 rows,
// in a panel groups of 32 columns, each with a float16 scale for each row.
//
// A group has 256 bytes: four times 64 bytes, of which 4 belong to each row. The bytes 64 q + 4 r +
// i have the codes plus 8 of row r, column 4 q + i in the low bits and column 16 + 4 q + i in the
// high ones.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "engine/quant/int4_matrix.h"

namespace trafo {

class Int4Panels {
 public:
  static constexpr int64_t kPanelRows = 16;
  static constexpr int64_t kGroup = Int4Matrix::kGroup;
  static constexpr int64_t kGroupBytes = kPanelRows * kGroup / 2;

  // OUT_OF_MEMORY.
  Int4Panels(ThreadPool& pool, const Int4Matrix& matrix);
  Int4Matrix matrix(ThreadPool& pool) const;
  // The rows `index`, in this order, some perhaps more than once. INVALID_ARGUMENT for one out of
  // range.
  Int4Panels gathered(ThreadPool& pool, std::span<const int32_t> index) const;
  // y[c] = fma(code[c], factor * scale, addend[c]), or the product alone if `addend` is null.
  void dequantize(int64_t row, float factor, const float* addend, float* y) const;

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t panels() const { return (rows_ + kPanelRows - 1) / kPanelRows; }
  int64_t groups() const { return (columns_ + kGroup - 1) / kGroup; }

  // --- for kernels ---
  const uint8_t* panel(int64_t panel) const { return codes_.get() + panel * panel_bytes(); }
  // float16, 16 for each group. Rows after the last one have zeros.
  const uint16_t* scales(int64_t panel) const {
    return scales_.data() + panel * groups() * kPanelRows;
  }

 private:
  Int4Panels(int64_t rows, int64_t columns);
  int64_t panel_bytes() const { return groups() * kGroupBytes; }
  // Of group 0 of a row; the next ones follow after kGroupBytes and kPanelRows.
  size_t code_place(int64_t row) const {
    return static_cast<size_t>(row / kPanelRows * panel_bytes() + row % kPanelRows * 4);
  }
  size_t scale_place(int64_t row) const {
    return static_cast<size_t>(row / kPanelRows * groups() * kPanelRows + row % kPanelRows);
  }

  struct Free {
    void operator()(uint8_t* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  int64_t rows_, columns_;
  std::unique_ptr<uint8_t, Free> codes_;
  std::vector<uint16_t> scales_;
};

}  // namespace trafo
