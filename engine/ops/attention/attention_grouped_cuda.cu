// Gradients of keys and values that several query heads share. The kernels of attention work on one
// query head a block, so each query head writes its own dk and dv to a workspace; the kernel below
// adds the gradients of a group in ascending order of heads, in float32.
#include "engine/backend/cuda/device/rows.cuh"
#include "engine/ops/attention/attention_cuda.cuh"

namespace trafo::cuda {
namespace {

constexpr int kThreads = 128;

// Gradients of keys, then of values.
template <class T>
struct GroupSums {
  const T* by_head[2];  // [rows, kv_heads * group * head_dim]; null: nothing to do
  T* out[2];
  int64_t stride[2];
  bool accumulate[2];
  int64_t by_head_stride;
  uint32_t packs_of_row, packs_of_head;
  int group, head_dim;
};

// A block for each row of dk (blockIdx.y 0) or dv (1); a thread for V columns of a head.
template <class T, int V>
__global__ void __launch_bounds__(kThreads) group_sums_kernel(GroupSums<T> g) {
  const int which = static_cast<int>(blockIdx.y);
  if (!g.out[which]) return;
  const T* by_head = g.by_head[which] + blockIdx.x * g.by_head_stride;
  T* out = g.out[which] + blockIdx.x * g.stride[which];
  for (uint32_t pack = threadIdx.x; pack < g.packs_of_row; pack += kThreads) {
    const uint32_t head = pack / g.packs_of_head;
    const uint32_t column = (pack - head * g.packs_of_head) * V;
    const T* from = by_head + static_cast<int64_t>(head) * g.group * g.head_dim + column;
    float sum[V];
    load_floats<T, V>(from, sum);
    for (int member = 1; member < g.group; ++member) {
      float more[V];
      load_floats<T, V>(from + static_cast<int64_t>(member) * g.head_dim, more);
#pragma unroll
      for (int j = 0; j < V; ++j) sum[j] += more[j];
    }
    put_floats<T, V>(out + static_cast<int64_t>(head) * g.head_dim + column, sum,
                     g.accumulate[which]);
  }
}

template <class T, int V>
int32_t launch_sums(DeviceState& device, GroupSums<T> g, const AttentionBackwardParams& p) {
  g.packs_of_head = static_cast<uint32_t>(p.head_dim / V);
  g.packs_of_row = static_cast<uint32_t>(p.kv_heads * p.head_dim / V);
  const dim3 blocks(static_cast<unsigned>(p.key_rows), 2);
  group_sums_kernel<T, V><<<blocks, kThreads, 0, device.stream>>>(g);
  return launched(device, "attention_backward");
}

}  // namespace

AttentionBackwardParams attention_by_head(const AttentionBackwardParams& p) {
  AttentionBackwardParams q = p;
  q.dk = p.dk_by_head;
  q.dv = p.dv_by_head;
  q.dk_stride = q.dv_stride = p.heads * p.head_dim;
  q.accumulate_dk = q.accumulate_dv = false;
  return q;
}

int32_t attention_sum_groups(DeviceState& device, const AttentionBackwardParams& p) {
  if (p.key_rows == 0 || p.max_keys == 0 || !(p.dk || p.dv)) return kSuccess;
  int32_t result = kSuccess;
  with_device_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int V = kPackWidth<T>;
    const GroupSums<T> g{{static_cast<const T*>(p.dk_by_head), static_cast<const T*>(p.dv_by_head)},
                         {static_cast<T*>(p.dk), static_cast<T*>(p.dv)},
                         {p.dk_stride, p.dv_stride},
                         {p.accumulate_dk, p.accumulate_dv},
                         p.heads * p.head_dim,
                         0,
                         0,
                         static_cast<int>(p.heads / p.kv_heads),
                         static_cast<int>(p.head_dim)};
    const bool packed = p.head_dim % V == 0 && p.dk_stride % V == 0 && p.dv_stride % V == 0 &&
                        aligned16(p.dk) && aligned16(p.dv) && aligned16(p.dk_by_head) &&
                        aligned16(p.dv_by_head);
    result = packed ? launch_sums<T, V>(device, g, p) : launch_sums<T, 1>(device, g, p);
  });
  return result;
}

}  // namespace trafo::cuda
