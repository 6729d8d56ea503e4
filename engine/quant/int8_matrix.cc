#include "engine/quant/int8_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/core/checked.h"
#include "engine/core/status.h"
#include "engine/quant/int8_kernel.h"

namespace trafo {
namespace {

constexpr const char* kOrigin = "int8 matrix";
// Rows of a block of work.
constexpr int64_t kBlockRows = 64;

}  // namespace

Int8Matrix::Int8Matrix(int64_t rows, int64_t columns) : rows_(rows), columns_(columns) {
  require(rows >= 0 && columns >= 0, ErrorCode::invalid_argument, kOrigin,
          "sizes must not be negative: ", rows, " rows, ", columns, " columns");
  require(columns <= kMaxColumns, ErrorCode::invalid_argument, kOrigin, "a row of ", columns,
          " columns is too long for int8: sums of products fit an int32 up to ", kMaxColumns);
  const int64_t padded_rows = checked_mul(panels(), kPanelRows, kOrigin);
  const auto bytes = static_cast<size_t>(checked_mul(panels(), panel_bytes(), kOrigin));
  try {
    codes_.reset(static_cast<int8_t*>(::operator new (bytes, std::align_val_t{64})));
    scales_.assign(static_cast<size_t>(padded_rows), 0.0f);
    corrections_.assign(static_cast<size_t>(padded_rows), 0);
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::out_of_memory, kOrigin, "there is no room for the codes of a matrix [", rows,
         ", ", columns, "]");
  }
  // The codes after the last row and column.
  if (rows % kPanelRows != 0 || columns % kGroupColumns != 0) std::memset(codes_.get(), 0, bytes);
}

void Int8Matrix::set_row(int64_t index, const int8_t* codes, float scale) {
  int8_t* to = row(index);
  int32_t sum = 0;
  for (int64_t c = 0; c < columns_; ++c) sum += codes[c];
  for (int64_t c = 0; c < columns_; c += kGroupColumns, to += kGroupBytes)
    std::memcpy(to, codes + c, static_cast<size_t>(std::min(kGroupColumns, columns_ - c)));
  scales_[static_cast<size_t>(index)] = scale;
  corrections_[static_cast<size_t>(index)] = 128 * sum;
}

Int8Matrix Int8Matrix::quantized(ThreadPool& pool, const float* values, int64_t rows,
                                 int64_t columns) {
  Int8Matrix matrix(rows, columns);
  const Int8Kernel& kernel = best_int8_kernel();
  parallel_for_range(pool, rows, kBlockRows, [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> codes(static_cast<size_t>(columns));
    for (int64_t r = begin; r < end; ++r) {
      const float scale = kernel.quantize(values + r * columns, columns, 0, codes.data());
      require(std::isfinite(scale), ErrorCode::invalid_argument, kOrigin, "row ", r,
              " has a value that is not finite");
      matrix.set_row(r, reinterpret_cast<const int8_t*>(codes.data()), scale);
    }
  });
  return matrix;
}

Int8Matrix Int8Matrix::from_codes(ThreadPool& pool, std::span<const int8_t> codes,
                                  std::span<const float> scales, int64_t columns) {
  const auto rows = static_cast<int64_t>(scales.size());
  Int8Matrix matrix(rows, columns);
  require(static_cast<int64_t>(codes.size()) == checked_mul(rows, columns, kOrigin),
          ErrorCode::invalid_argument, kOrigin, codes.size(), " codes are not ", rows, " rows of ",
          columns);
  parallel_for_range(pool, rows, kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float scale = scales[static_cast<size_t>(r)];
      require(std::isfinite(scale) && scale >= 0, ErrorCode::invalid_argument, kOrigin, "row ", r,
              " has the scale ", scale);
      const int8_t* row = codes.data() + r * columns;
      require(std::find(row, row + columns, int8_t{-128}) == row + columns,
              ErrorCode::invalid_argument, kOrigin, "row ", r,
              " has the code -128; codes are -127 to 127");
      matrix.set_row(r, row, scale);
    }
  });
  return matrix;
}

Int8Matrix Int8Matrix::gathered(ThreadPool& pool, std::span<const int32_t> index) const {
  for (size_t i = 0; i < index.size(); ++i)
    require(index[i] >= 0 && index[i] < rows_, ErrorCode::invalid_argument, kOrigin, "index ", i,
            " is ", index[i], ", the matrix has rows 0 .. ", rows_ - 1);
  Int8Matrix result(static_cast<int64_t>(index.size()), columns_);
  parallel_for_range(pool, result.rows_, kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const auto from_row = static_cast<size_t>(index[static_cast<size_t>(r)]);
      const int8_t* from = row(index[static_cast<size_t>(r)]);
      int8_t* to = result.row(r);
      for (int64_t g = 0; g < groups(); ++g)
        std::memcpy(to + g * kGroupBytes, from + g * kGroupBytes, kGroupColumns);
      result.scales_[static_cast<size_t>(r)] = scales_[from_row];
      result.corrections_[static_cast<size_t>(r)] = corrections_[from_row];
    }
  });
  return result;
}

void Int8Matrix::read_codes(ThreadPool& pool, std::span<int8_t> codes) const {
  require(static_cast<int64_t>(codes.size()) == rows_ * columns_, ErrorCode::invalid_argument,
          kOrigin, "there is room for ", codes.size(), " codes, the matrix has ", rows_ * columns_);
  parallel_for_range(pool, rows_, kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int8_t* from = row(r);
      int8_t* to = codes.data() + r * columns_;
      for (int64_t c = 0; c < columns_; ++c)
        to[c] = from[c / kGroupColumns * kGroupBytes + c % kGroupColumns];
    }
  });
}

size_t Int8Matrix::bytes() const {
  return static_cast<size_t>(panels() * panel_bytes()) + scales_.size() * sizeof(float) +
         corrections_.size() * sizeof(int32_t);
}

}  // namespace trafo
