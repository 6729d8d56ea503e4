#include "engine/optim/clip.h"

#include <cmath>

#include "engine/core/argument_error.h"
#include "engine/ops/checks.h"
#include "engine/ops/op_kernel.h"
#include "engine/optim/update.h"

namespace trafo {

GradientNorm clip_global_norm(Context& context, const Tensor& gradients, double max_norm,
                              double scale_in) {
  constexpr const char* origin = "clip_global_norm";
  check_compute_input(context, origin, "gradients", gradients);
  require(gradients.is_contiguous(), ErrorCode::invalid_argument, origin,
          "the gradients must be contiguous");
  require_argument(max_norm >= 0, origin, "max_norm",
                   " must be positive, or 0 for no clipping, got ", max_norm);
  const Tensor out = context.empty({1}, DType::f64);
  SumOfSquaresParams p{};
  p.dtype = gradients.dtype();
  p.count = gradients.numel();
  p.x = gradients.raw();
  p.out = out.data<double>();
  launch(context, OpKernel::sum_of_squares, origin, p);
  GradientNorm result;
  result.norm = std::abs(scale_in) * std::sqrt(context.item(out));
  result.finite = std::isfinite(result.norm);
  result.scale = scale_in;
  if (max_norm > 0 && result.norm > max_norm) result.scale *= max_norm / result.norm;
  return result;
}

}  // namespace trafo
