// CUDA kernel of fake_quant_rows: a warp a scale. The roundings are written out, so that no option
// of the compiler changes a bit.
#include <cuda_fp16.h>

#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/device/reduce.cuh"
#include "engine/backend/cuda/device_state.h"
#include "engine/ops/fake_quant_rows/fake_quant_rows.h"

namespace trafo {
namespace cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int64_t kGroup = 32;  // columns of a scale of 4 bits, Int4Matrix::kGroup

template <class From, class To>
__global__ void __launch_bounds__(kThreads)
    fake_quant_rows_kernel(FakeQuantRowsParams p, int64_t group, int64_t groups) {
  const int64_t index = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (index >= p.rows * groups) return;
  const int64_t row = index / groups, column = index % groups * group;
  const int64_t count = min(group, p.width - column);
  const From* x = static_cast<const From*>(p.x) + row * p.width + column;
  To* y = static_cast<To*>(p.y) + row * p.width + column;
  const int lane = threadIdx.x % 32;
  float most = 0;
  bool finite = true;
  for (int64_t c = lane; c < count; c += 32) {
    const float magnitude = fabsf(to_float(x[c]));
    most = fmaxf(most, magnitude);
    finite = finite && magnitude <= 3.402823466e38f;  // neither NaN nor infinite
  }
  most = warp_reduce<Max>(most);
  finite = __all_sync(0xffffffffu, finite);
  float scale = 0, factor = 0;
  const float bound = p.bits == 4 ? 7.0f : 127.0f;
  if (!finite) {
    scale = __int_as_float(0x7fffffff);  // NaN
  } else if (most >= 0x1p-100f && p.bits == 4) {
    scale = __half2float(__float2half_rn(fminf(__fdiv_rn(most, 7.0f), 65504.0f)));
    factor = scale > 0 ? __fdiv_rn(1.0f, scale) : 0.0f;
  } else if (most >= 0x1p-100f) {
    scale = __fdiv_rn(most, 127.0f);
    factor = __fdiv_rn(127.0f, most);
  }
  for (int64_t c = lane; c < count; c += 32) {
    // Of NaN and infinity no code is made: NaN times the 0 in their place.
    const float code = finite ? rintf(__fmul_rn(to_float(x[c]), factor)) : 0.0f;
    y[c] = from_float<To>(__fmul_rn(fminf(fmaxf(code, -bound), bound), scale));
  }
}

template <class From, class To>
int32_t run(DeviceState& device, const FakeQuantRowsParams& p) {
  const int64_t group = p.bits == 4 ? kGroup : p.width;
  const int64_t groups = (p.width + group - 1) / group, warps = p.rows * groups;
  if (warps == 0) return kSuccess;
  fake_quant_rows_kernel<From, To>
      <<<static_cast<unsigned>((warps + kWarps - 1) / kWarps), kThreads, 0, device.stream>>>(
          p, group, groups);
  return launched(device, "fake_quant_rows");
}

}  // namespace
}  // namespace cuda

int32_t fake_quant_rows_cuda(cuda::DeviceState& device, const FakeQuantRowsParams& p) {
  using cuda::bf16;
  if (p.from == DType::f32 && p.to == DType::f32) return cuda::run<float, float>(device, p);
  if (p.from == DType::f32 && p.to == DType::bf16) return cuda::run<float, bf16>(device, p);
  if (p.from == DType::bf16 && p.to == DType::bf16) return cuda::run<bf16, bf16>(device, p);
  return cuda::unsupported(device, "fake_quant_rows: float32 and bfloat16 only");
}

}  // namespace trafo
