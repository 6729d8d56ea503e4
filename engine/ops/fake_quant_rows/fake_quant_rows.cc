#include "engine/ops/fake_quant_rows/fake_quant_rows.h"

#include <algorithm>

#include "engine/ops/op_kernel.h"
#include "engine/ops/row_op.h"
#include "engine/ops/view/view.h"

namespace trafo {
namespace {

constexpr const char* kFakeQuantOp = "fake_quant_rows";

}  // namespace

void fake_quant_into(Context& context, const Tensor& target, const Tensor& x, int64_t bits) {
  require(target.shape() == x.shape() && x.rank() >= 1 && x.dim(-1) >= 1, ErrorCode::shape_mismatch,
          kFakeQuantOp, "x and the target must have rows and one shape, got ", x.shape(), " and ",
          target.shape());
  const MatrixPlace whole{0, x.numel() / x.dim(-1), x.dim(-1)};
  fake_quant_into(context, target, x, {&whole, 1}, bits);
}

void fake_quant_into(Context& context, const Tensor& target, const Tensor& x,
                     std::span<const MatrixPlace> matrices, int64_t bits) {
  require(bits == 8 || bits == 4, ErrorCode::invalid_argument, kFakeQuantOp,
          "codes have 8 or 4 bits, not ", bits);
  const int64_t elements = std::min(target.numel(), x.numel());
  for (const auto& [offset, rows, width] : matrices)
    require(offset >= 0 && rows >= 0 && width >= 1 && offset <= elements &&
                rows <= (elements - offset) / width,
            ErrorCode::shape_mismatch, kFakeQuantOp, "a matrix [", rows, ", ", width,
            "] that begins at ", offset, " is not within ", elements, " elements");
  FakeQuantRowsParams p{};
  p.from = x.dtype();
  p.to = target.dtype();
  p.bits = static_cast<int32_t>(bits);
  p.x = x.raw();
  p.y = target.raw();
  p.matrices = matrices.data();
  p.count = static_cast<int64_t>(matrices.size());
  launch(context, OpKernel::fake_quant_rows, kFakeQuantOp, p);
}

namespace ops {

Tensor fake_quant_rows(Context& context, const Tensor& x) {
  const OpRange range(context, kFakeQuantOp, x);
  check_row_tensor(context, kFakeQuantOp, "x", x);
  const Tensor in = contiguous(context, x);
  Tensor y = context.empty(x.shape(), x.dtype());
  fake_quant_into(context, y, in, 8);
  if (context.needs_grad({in}))
    context.record(kFakeQuantOp, {in}, {&y}, {}, [](Backward& b) { b.add(0, b.grad_output()); });
  return y;
}

}  // namespace ops
}  // namespace trafo
