#include <type_traits>

#include "engine/backend/cuda/device/elementwise.cuh"
#include "engine/backend/cuda/device/strided.cuh"
#include "engine/ops/pointwise/pointwise.h"

namespace trafo {
namespace {

using cuda::DeviceState;
using Layout = cuda::StridedLayout<3>;  // a, b, mask

constexpr int kThreads = 256;

// The kind is the same for a whole launch, so switches do not diverge.
struct Function {
  Layout layout;
  PointwiseKind kind;
  float first, second;
  int32_t number;  // `first` of int32
};

constexpr float kTwoOverSqrtPi = 1.12837916709551257390f;

__device__ float value_of(const Function& f, float a, float b) {
  switch (f.kind) {
    case PointwiseKind::abs:
      return fabsf(a);
    case PointwiseKind::sin:
      return sinf(a);
    case PointwiseKind::cos:
      return cosf(a);
    case PointwiseKind::erf:
      return erff(a);
    case PointwiseKind::clamp:
      return a < f.first ? f.first : a > f.second ? f.second : a;
    case PointwiseKind::maximum:
      return a > b || isnan(a) ? a : b;
    case PointwiseKind::minimum:
      return a < b || isnan(a) ? a : b;
    default:  // power, whose exponent is its b, and pow
      return b == 2.0f ? a * a : powf(a, b);
  }
}

// The derivatives with respect to a and b, times g.
__device__ float2 gradients_of(const Function& f, float a, float b, bool mask, float g) {
  switch (f.kind) {
    case PointwiseKind::abs:
      return {a > 0 ? g : a < 0 ? -g : a == 0 ? 0.0f : a, 0};
    case PointwiseKind::sin:
      return {g * cosf(a), 0};
    case PointwiseKind::cos:
      return {-g * sinf(a), 0};
    case PointwiseKind::erf:
      return {g * (kTwoOverSqrtPi * expf(-a * a)), 0};
    case PointwiseKind::clamp:
      return {a >= f.first && a <= f.second ? g : 0, 0};
    case PointwiseKind::maximum:
      return {a < b ? 0 : a == b ? g / 2 : g, b < a ? 0 : a == b ? g / 2 : g};
    case PointwiseKind::minimum:
      return {b < a ? 0 : a == b ? g / 2 : g, a < b ? 0 : a == b ? g / 2 : g};
    case PointwiseKind::where:
      return {mask ? g : 0, mask ? 0 : g};
    case PointwiseKind::masked_fill:
      return {mask ? 0 : g, 0};
    default: {  // power and pow
      const float slope = b == 2.0f ? 2 * a : b * powf(a, b - 1);
      return {b == 0 ? 0 : g * slope, f.kind == PointwiseKind::power || (a == 0 && b >= 0)
                                          ? 0
                                          : g * (powf(a, b) * logf(a))};
    }
  }
}

template <class T, class Index>
__global__ void __launch_bounds__(kThreads)
    forward(Function f, const T* a, const T* b, const int32_t* mask, void* out) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= f.layout.count) return;
  int64_t at[3];
  cuda::locate(f.layout, static_cast<Index>(i), at);
  const T x = a[at[0]];
  T* to = static_cast<T*>(out) + i;
  if (f.kind == PointwiseKind::where) {
    *to = mask[at[2]] ? x : b[at[1]];
  } else if constexpr (std::is_same_v<T, int32_t>) {
    if (f.kind == PointwiseKind::masked_fill)
      *to = mask[at[2]] ? f.number : x;
    else
      *to = holds(f.kind, x, b[at[1]]);
  } else {
    if (f.kind == PointwiseKind::masked_fill) {
      *to = mask[at[2]] ? cuda::from_float<T>(f.first) : x;
      return;
    }
    const float y = b ? cuda::to_float(b[at[1]]) : f.first;
    if (is_comparison(f.kind))
      static_cast<int32_t*>(out)[i] = holds(f.kind, cuda::to_float(x), y);
    else
      *to = cuda::from_float<T>(value_of(f, cuda::to_float(x), y));
  }
}

template <class T, class Index>
__global__ void __launch_bounds__(kThreads)
    backward(Function f, const T* a, const T* b, const int32_t* mask, const T* dout, T* da, T* db) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= f.layout.count) return;
  int64_t at[3];
  cuda::locate(f.layout, static_cast<Index>(i), at);
  const float x = a ? cuda::to_float(a[at[0]]) : 0;
  const float y = b ? cuda::to_float(b[at[1]]) : f.first;
  const float2 gradients = gradients_of(f, x, y, mask && mask[at[2]] != 0, cuda::to_float(dout[i]));
  if (da) da[i] = cuda::from_float<T>(gradients.x);
  if (db) db[i] = cuda::from_float<T>(gradients.y);
}

template <class Params>
Function function_of(const Params& p) {
  return {cuda::strided_layout<3>(p.rank, p.shape, {p.strides[0], p.strides[1], p.strides[2]}),
          p.kind, static_cast<float>(p.first), static_cast<float>(p.second),
          p.dtype == DType::i32 ? static_cast<int32_t>(p.first) : 0};
}

unsigned blocks_of(const Function& f) {
  return static_cast<unsigned>((f.layout.count - 1) / kThreads + 1);
}

bool small(const Function& f) {
  return f.layout.count < (int64_t{1} << 31);
}

template <class T>
int32_t run_forward(DeviceState& device, const PointwiseForwardParams& p) {
  const Function f = function_of(p);
  if (f.layout.count == 0) return cuda::kSuccess;
  const auto kernel = small(f) ? &forward<T, uint32_t> : &forward<T, uint64_t>;
  kernel<<<blocks_of(f), kThreads, 0, device.stream>>>(f, static_cast<const T*>(p.a),
                                                       static_cast<const T*>(p.b), p.mask, p.out);
  return cuda::launched(device, "pointwise_forward");
}

}  // namespace

int32_t pointwise_forward_cuda(DeviceState& device, const PointwiseForwardParams& p) {
  if (p.dtype == DType::f32) return run_forward<float>(device, p);
  if (p.dtype == DType::bf16) return run_forward<cuda::bf16>(device, p);
  if (p.dtype == DType::i32) return run_forward<int32_t>(device, p);
  return cuda::unsupported(device, "this op on CUDA takes float32, bfloat16 or int32");
}

int32_t pointwise_backward_cuda(DeviceState& device, const PointwiseBackwardParams& p) {
  const Function f = function_of(p);
  if (f.layout.count == 0) return cuda::kSuccess;
  const bool known = cuda::with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto kernel = small(f) ? &backward<T, uint32_t> : &backward<T, uint64_t>;
    kernel<<<blocks_of(f), kThreads, 0, device.stream>>>(
        f, static_cast<const T*>(p.a), static_cast<const T*>(p.b), p.mask,
        static_cast<const T*>(p.dout), static_cast<T*>(p.da), static_cast<T*>(p.db));
  });
  return known ? cuda::launched(device, "pointwise_backward")
               : cuda::unsupported(device, "gradients on CUDA are float32 or bfloat16");
}

}  // namespace trafo
