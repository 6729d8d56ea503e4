#include "engine/backend/cuda/device/elementwise.cuh"
#include "engine/backend/cuda/device/strided.cuh"
#include "engine/ops/binary/binary.h"

namespace trafo {
namespace {

using cuda::DeviceState;
using Layout = cuda::StridedLayout<2>;

constexpr int kThreads = 256;

// kWidth elements of an operand whose neighbours are `step` apart; 16-byte accesses for step 1.
template <int kWidth, class T>
__device__ __forceinline__ void load_step(const T* p, int64_t step, float (&v)[kWidth]) {
  if (step == 1) return cuda::load_floats(p, v);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) v[j] = cuda::to_float(p[j * step]);
}

// One thread computes kWidth neighbours of one row.
template <class T, int kWidth, class Index>
__global__ void __launch_bounds__(kThreads)
    forward(Layout layout, BinaryKind kind, const T* a, const T* b, T* out) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (i >= layout.count) return;
  int64_t at[2];
  cuda::locate(layout, static_cast<Index>(i), at);
  float x[kWidth], y[kWidth];
  load_step(a + at[0], layout.strides[0][layout.rank - 1], x);
  load_step(b + at[1], layout.strides[1][layout.rank - 1], y);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    switch (kind) {
      case BinaryKind::add:
        x[j] += y[j];
        break;
      case BinaryKind::subtract:
        x[j] -= y[j];
        break;
      case BinaryKind::multiply:
        x[j] *= y[j];
        break;
      case BinaryKind::divide:
        x[j] /= y[j];
        break;
      case BinaryKind::select:
        x[j] = y[j] == 0 ? 0 : x[j];
        break;
    }
  }
  cuda::store_floats(out + i, x);
}

// multiply: da = g b, db = g a. divide: da = g / b, db = -(g / b) (a / b). select: da = g where b
// is not 0, else 0.
template <class T, int kWidth, class Index>
__global__ void __launch_bounds__(kThreads)
    backward(Layout layout, BinaryKind kind, const T* a, const T* b, const T* dout, T* da, T* db) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  if (i >= layout.count) return;
  int64_t at[2];
  cuda::locate(layout, static_cast<Index>(i), at);
  float x[kWidth], y[kWidth], g[kWidth];
  cuda::load_floats(dout + i, g);
  load_step(b + at[1], layout.strides[1][layout.rank - 1], y);
  if (db) load_step(a + at[0], layout.strides[0][layout.rank - 1], x);
  const bool divide = kind == BinaryKind::divide, select = kind == BinaryKind::select;
  if (da) {
    float result[kWidth];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      if (select)
        result[j] = y[j] == 0 ? 0 : g[j];
      else
        result[j] = divide ? g[j] / y[j] : g[j] * y[j];
    }
    cuda::store_floats(da + i, result);
  }
  if (db) {
    float result[kWidth];
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      result[j] = divide ? -((g[j] / y[j]) * (x[j] / y[j])) : g[j] * x[j];
    cuda::store_floats(db + i, result);
  }
}

// A launch with kWidth elements a thread where rows and addresses allow it, else with one.
template <class T, class Params, class Launch>
int32_t dispatch(DeviceState& device, const char* name, const Params& p, bool outputs_aligned,
                 Launch&& launch) {
  const Layout layout = cuda::strided_layout<2>(p.rank, p.shape, {p.a_strides, p.b_strides});
  if (layout.count == 0) return cuda::kSuccess;
  constexpr int kWide = cuda::kPackWidth<T>;
  const auto wide = [&](const void* operand, int k) {
    return layout.step(k) != 1 || (cuda::aligned16(operand) && layout.rows_aligned(k, kWide));
  };
  const auto blocks = [&](int64_t width) {
    return static_cast<unsigned>((layout.count - 1) / (kThreads * width) + 1);
  };
  const bool small = layout.count < (int64_t{1} << 31);
  if (small && outputs_aligned && layout.width() % kWide == 0 && wide(p.a, 0) && wide(p.b, 1))
    launch(std::integral_constant<int, kWide>{}, uint32_t{}, layout, blocks(kWide));
  else if (small)
    launch(std::integral_constant<int, 1>{}, uint32_t{}, layout, blocks(1));
  else
    launch(std::integral_constant<int, 1>{}, uint64_t{}, layout, blocks(1));
  return cuda::launched(device, name);
}

}  // namespace

int32_t binary_forward_cuda(DeviceState& device, const BinaryForwardParams& p) {
  int32_t result = cuda::kSuccess;
  const bool known = cuda::with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    result = dispatch<T>(device, "binary_forward", p, cuda::aligned16(p.out),
                         [&](auto width, auto index, const Layout& layout, unsigned blocks) {
                           forward<T, decltype(width)::value, decltype(index)>
                               <<<blocks, kThreads, 0, device.stream>>>(
                                   layout, p.kind, static_cast<const T*>(p.a),
                                   static_cast<const T*>(p.b), static_cast<T*>(p.out));
                         });
  });
  return known ? result : cuda::unsupported(device, "arithmetic on CUDA takes float32 or bfloat16");
}

int32_t binary_backward_cuda(DeviceState& device, const BinaryBackwardParams& p) {
  if (p.kind == BinaryKind::add || p.kind == BinaryKind::subtract)
    return cuda::unsupported(device, "the gradients of a sum are its upstream gradient");
  int32_t result = cuda::kSuccess;
  const bool known = cuda::with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool aligned = cuda::aligned16(p.dout) && cuda::aligned16(p.da) && cuda::aligned16(p.db);
    result = dispatch<T>(device, "binary_backward", p, aligned,
                         [&](auto width, auto index, const Layout& layout, unsigned blocks) {
                           backward<T, decltype(width)::value, decltype(index)>
                               <<<blocks, kThreads, 0, device.stream>>>(
                                   layout, p.kind, static_cast<const T*>(p.a),
                                   static_cast<const T*>(p.b), static_cast<const T*>(p.dout),
                                   static_cast<T*>(p.da), static_cast<T*>(p.db));
                         });
  });
  return known ? result : cuda::unsupported(device, "arithmetic on CUDA takes float32 or bfloat16");
}

}  // namespace trafo
