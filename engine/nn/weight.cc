#include "engine/nn/weight.h"

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/nn/fp8_weights.h"
#include "engine/ops/fake_quant_rows/fake_quant_rows.h"
#include "engine/ops/fp8/fp8_linear.h"
#include "engine/ops/gather_rows/gather_rows.h"
#include "engine/ops/int8_linear/int8_linear.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/quantized_linear/quantized_linear.h"

namespace trafo::nn {

thread_local bool NoLowRank::active_ = false;

Tensor linear_input(Context& context, const Tensor& x, const Weight& weight) {
  if (weight.observer) weight.observer->observe(context, weight.parameter, x);
  return weight.quantizes_input ? ops::fake_quant_rows(context, x) : x;
}

Tensor linear(Context& context, const Tensor& x, const Weight& weight, const Tensor& bias) {
  const Tensor in = weight.inner ? linear(context, x, *weight.inner) : x;
  const auto product = [&] {
    if (weight.int8) return ops::int8_linear(context, in, *weight.int8, bias);
    if (weight.int4) return ops::int4_linear(context, in, *weight.int4, bias);
    const Tensor input = linear_input(context, in, weight);
    if (weight.coded) return ops::quantized_linear(context, input, *weight.coded, bias);
    const ops::Fp8Matrix* const fp8 = fp8_copy(context, weight);
    return fp8 ? ops::fp8_linear(context, input, weight.values, *fp8, bias)
               : ops::linear(context, input, weight.values, bias);
  };
  if (!weight.update || NoLowRank::active()) return product();
  const bool frozen = weight.coded || (weight.values.defined() && !requires_grad(weight.values));
  const bool plain = !weight.int8 && !weight.int4 && !weight.observer && !weight.quantizes_input;
  if (frozen && plain && !fp8_copy(context, weight))
    return ops::low_rank_linear(context, in, {weight.values, weight.coded}, bias, *weight.update);
  return ops::add_low_rank(context, in, *weight.update, product);
}

Weight gather_rows(Context& context, const Weight& weight, std::span<const int32_t> index) {
  require(!weight.update && !weight.inner && !weight.coded, ErrorCode::internal, "gather_rows",
          "the weight has an update, an inner factor or codes of a frozen matrix");
  if (!weight.int8 && !weight.int4) {
    const Tensor rows = context.from_values<int32_t>(index, {static_cast<int64_t>(index.size())});
    Weight gathered = weight;
    gathered.values = ops::gather_rows(context, weight.values, rows);
    gathered.observer = nullptr;  // these are other rows than it knows
    return gathered;
  }
  ThreadPool* pool = cpu_thread_pool(context.backend());
  require(pool != nullptr, ErrorCode::unsupported, "gather_rows", "int8 weights are for the CPU");
  Weight gathered;
  if (weight.int4)
    gathered.int4 = std::make_shared<const Int4Panels>(weight.int4->gathered(*pool, index));
  else
    gathered.int8 = std::make_shared<const Int8Matrix>(weight.int8->gathered(*pool, index));
  return gathered;
}

}  // namespace trafo::nn
