// The choice of the int8 kernel, and the cut of a product into blocks of work.
#include "engine/quant/int8_kernel.h"

#include <algorithm>
#include <vector>

#include "engine/backend/cpu/gemm_internal.h"
#include "engine/core/checked.h"
#include "engine/quant/int8_kernel_list.h"

namespace trafo {
namespace {

// Products of codes (about 10 us) below which a block of work is not cut further.
constexpr int64_t kLeastWork = int64_t{1} << 20;
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

void int8_gemm(ThreadPool& pool, const Int8Kernel& kernel, const Int8Matrix& matrix, const float* x,
               int64_t m, int64_t x_stride, const float* bias, float* y, int64_t y_stride) {
  const int64_t n = matrix.rows(), k = matrix.columns();
  if (m <= 0 || n == 0) return;
  const int64_t code_stride = checked_mul(matrix.groups(), Int8Matrix::kGroupColumns, "int8_gemm");
  const int64_t code_bytes = (checked_mul(m, code_stride, "int8_gemm") + 63) / 64 * 64;
  const int64_t scale_bytes = m * static_cast<int64_t>(sizeof(float));
  auto* codes = static_cast<uint8_t*>(gemm_shared_scratch(code_bytes + scale_bytes));
  auto* scales = reinterpret_cast<float*>(codes + code_bytes);
  parallel_for_range(pool, m, std::max<int64_t>(1, kQuantizedAtOnce / std::max<int64_t>(1, k)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t i = begin; i < end; ++i) {
                         uint8_t* row = codes + i * code_stride;
                         scales[i] = kernel.quantize(x + i * x_stride, k, kernel.flip, row);
                         std::fill(row + k, row + code_stride, uint8_t{0});  // times zero codes
                       }
                     });

  const EvenSplit row_blocks(m, kBlockRows);
  const int64_t groups = (matrix.panels() + kPanelsAtOnce - 1) / kPanelsAtOnce;
  const int64_t group_work = row_blocks.size(0) * kPanelsAtOnce * Int8Matrix::kPanelRows *
                             std::max<int64_t>(1, code_stride);
  const EvenSplit column_blocks(groups, std::max<int64_t>(1, kLeastWork / group_work));
  pool.parallel_for(row_blocks.parts() * column_blocks.parts(), [&](int64_t block) {
    const int64_t i = block % row_blocks.parts(), j = block / row_blocks.parts();
    const int64_t row = row_blocks.begin(i);
    const int64_t panel = column_blocks.begin(j) * kPanelsAtOnce;
    Int8Block b{};
    b.x = codes + row * code_stride;
    b.x_stride = code_stride;
    b.x_scales = scales + row;
    b.rows = row_blocks.size(i);
    b.matrix = &matrix;
    b.panel_begin = panel;
    b.panel_end = std::min(matrix.panels(), panel + column_blocks.size(j) * kPanelsAtOnce);
    b.bias = bias;
    b.y = y + row * y_stride;
    b.y_stride = y_stride;
    kernel.multiply(b);
  });
}

}  // namespace trafo
