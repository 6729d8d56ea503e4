#include "engine/nn/weight.h"

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/ops/gather_rows/gather_rows.h"
#include "engine/ops/int8_linear/int8_linear.h"
#include "engine/ops/matmul/matmul.h"

namespace trafo::nn {

Tensor linear(Context& context, const Tensor& x, const Weight& weight, const Tensor& bias) {
  return weight.int8 ? ops::int8_linear(context, x, *weight.int8, bias)
                     : ops::linear(context, x, weight.values, bias);
}

Weight gather_rows(Context& context, const Weight& weight, std::span<const int32_t> index) {
  if (!weight.int8) {
    const Tensor rows = context.from_values<int32_t>(index, {static_cast<int64_t>(index.size())});
    return {ops::gather_rows(context, weight.values, rows), nullptr};
  }
  ThreadPool* pool = cpu_thread_pool(context.backend());
  require(pool != nullptr, ErrorCode::unsupported, "gather_rows", "int8 weights are for the CPU");
  return {{}, std::make_shared<const Int8Matrix>(weight.int8->gathered(*pool, index))};
}

}  // namespace trafo::nn
