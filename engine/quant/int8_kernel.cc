// The choice of the int8 kernel, and the cut of a product into blocks of work.
#include "engine/quant/int8_kernel.h"

#include <algorithm>
#include <vector>

#include "engine/backend/cpu/gemm_internal.h"
#include "engine/core/checked.h"
#include "engine/core/function_ref.h"
#include "engine/quant/int8_kernel_list.h"

namespace trafo {
namespace {

// Products of codes below which a block of work is not cut further: with one row of activations, a
// block reads as many bytes of int8 codes, about 8 us.
constexpr int64_t kLeastWork = int64_t{1} << 17;
// Rows of activations of a block: their codes stay in the L2 cache.
constexpr int64_t kBlockRows = 96;
// Panels that a kernel has in registers at once.
constexpr int64_t kPanelsAtOnce = 4;
// Elements that a block quantizes.
constexpr int64_t kQuantizedAtOnce = 32768;

std::vector<const Int8Kernel*> supported_kernels() {
  std::vector<const Int8Kernel*> found;
  for (const Int8Kernel* kernel : all_int8_kernels())
    if (kernel->supported()) found.push_back(kernel);
  return found;
}

}  // namespace

std::span<const Int8Kernel* const> int8_kernels() {
  static const std::vector<const Int8Kernel*> kernels = supported_kernels();
  return kernels;
}

const Int8Kernel& best_int8_kernel() {
  return *int8_kernels().front();
}

namespace {

// Rows of activations as codes, in scratch memory.
struct QuantizedRows {
  uint8_t* codes;
  float* scales;
  int32_t* offsets;  // with int4 codes
};

// Quantizes rows of k elements into rows of `stride` codes, with the offsets of their first
// `groups` groups of int4 codes.
QuantizedRows quantize_rows(ThreadPool& pool, const Int8Kernel& kernel, uint8_t flip,
                            const float* x, int64_t m, int64_t x_stride, int64_t k, int64_t stride,
                            int64_t groups) {
  const int64_t code_bytes = (checked_mul(m, stride, "int8_gemm") + 63) / 64 * 64;
  const int64_t number_bytes = m * static_cast<int64_t>(sizeof(float));
  QuantizedRows rows{};
  rows.codes = static_cast<uint8_t*>(gemm_shared_scratch(code_bytes + number_bytes * (1 + groups)));
  rows.scales = reinterpret_cast<float*>(rows.codes + code_bytes);
  rows.offsets = reinterpret_cast<int32_t*>(rows.codes + code_bytes + number_bytes);
  parallel_for_range(pool, m, std::max<int64_t>(1, kQuantizedAtOnce / std::max<int64_t>(1, k)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t i = begin; i < end; ++i) {
                         uint8_t* row = rows.codes + i * stride;
                         rows.scales[i] = kernel.quantize(x + i * x_stride, k, flip, row);
                         std::fill(row + k, row + stride, uint8_t{0});  // times zero codes
                         for (int64_t g = 0; g < groups; ++g) {
                           int32_t sum = 0;
                           for (int64_t c = 0; c < Int4Panels::kGroup; ++c)
                             sum += static_cast<int8_t>(row[g * Int4Panels::kGroup + c]);
                           rows.offsets[i * groups + g] = Int4Matrix::kZero * sum;
                         }
                       }
                     });
  return rows;
}

// Calls run(row, rows, panel_begin, panel_end) for the blocks of m rows times `panels` panels of k
// columns.
void for_blocks(ThreadPool& pool, int64_t m, int64_t panels, int64_t k,
                FunctionRef<void(int64_t, int64_t, int64_t, int64_t)> run) {
  const EvenSplit row_blocks(m, kBlockRows);
  const int64_t groups = (panels + kPanelsAtOnce - 1) / kPanelsAtOnce;
  const int64_t group_work =
      row_blocks.size(0) * kPanelsAtOnce * Int8Matrix::kPanelRows * std::max<int64_t>(1, k);
  const EvenSplit column_blocks(groups, std::max<int64_t>(1, kLeastWork / group_work));
  pool.parallel_for(row_blocks.parts() * column_blocks.parts(), [&](int64_t block) {
    const int64_t i = block % row_blocks.parts(), j = block / row_blocks.parts();
    const int64_t panel = column_blocks.begin(j) * kPanelsAtOnce;
    run(row_blocks.begin(i), row_blocks.size(i), panel,
        std::min(panels, panel + column_blocks.size(j) * kPanelsAtOnce));
  });
}

}  // namespace

void int8_gemm(ThreadPool& pool, const Int8Kernel& kernel, const Int8Matrix& matrix, const float* x,
               int64_t m, int64_t x_stride, const float* bias, float* y, int64_t y_stride) {
  if (m <= 0 || matrix.rows() == 0) return;
  const int64_t stride = checked_mul(matrix.groups(), Int8Matrix::kGroupColumns, "int8_gemm");
  const QuantizedRows rows =
      quantize_rows(pool, kernel, kernel.flip, x, m, x_stride, matrix.columns(), stride, 0);
  for_blocks(pool, m, matrix.panels(), stride,
             [&](int64_t row, int64_t count, int64_t begin, int64_t end) {
               kernel.multiply({rows.codes + row * stride, stride, rows.scales + row, count,
                                &matrix, begin, end, bias, y + row * y_stride, y_stride});
             });
}

void int4_gemm(ThreadPool& pool, const Int8Kernel& kernel, const Int4Panels& matrix, const float* x,
               int64_t m, int64_t x_stride, const float* bias, float* y, int64_t y_stride) {
  if (m <= 0 || matrix.rows() == 0) return;
  const int64_t groups = matrix.groups();
  const int64_t stride = checked_mul(groups, Int4Panels::kGroup, "int4_gemm");
  const QuantizedRows rows =
      quantize_rows(pool, kernel, 0, x, m, x_stride, matrix.columns(), stride, groups);
  for_blocks(pool, m, matrix.panels(), stride,
             [&](int64_t row, int64_t count, int64_t begin, int64_t end) {
               kernel.multiply_int4({rows.codes + row * stride, stride, rows.offsets + row * groups,
                                     rows.scales + row, count, &matrix, begin, end, bias,
                                     y + row * y_stride, y_stride});
             });
}

}  // namespace trafo
