// The choice of kernel on CUDA: attention_kernels.h applied to what a launch was given.
#include "engine/ops/attention/attention_cuda.cuh"

namespace trafo {
namespace cuda {
namespace {

// 16 bytes at a time can be read from every row of every head.
bool aligned(std::initializer_list<const void*> pointers, std::initializer_list<int64_t> strides) {
  for (const void* p : pointers)
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
  for (const int64_t stride : strides)
    if (stride * 2 % 16 != 0) return false;
  return true;
}

template <class Params>
AttentionCase case_of(const DeviceState& device, const Params& p) {
  AttentionCase c;
  c.device = DeviceKind::cuda;
  c.hopper = device.compute_major == 9 && attention_has_wgmma();
  c.shared_memory = static_cast<int64_t>(device.shared_memory_per_block);
  c.dtype = p.dtype;
  c.head_dim = p.head_dim;
  c.queries = p.max_queries;
  c.keys = p.max_keys;
  c.dropout = p.dropout.active();
  c.causal = p.causal;
  c.window = p.window > 0;
  c.bias = p.bias != nullptr;
  c.soft_cap = p.soft_cap > 0;
  c.scale_positive = p.scale > 0;
  c.aligned = aligned({p.q, p.k, p.v, p.out}, {p.q_stride, p.k_stride, p.v_stride});
  return c;
}

int32_t no_kernel(DeviceState& device, DType dtype) {
  if (static_cast<int64_t>(device.shared_memory_per_block) < kLeastSharedMemory)
    return unsupported(device,
                       "attention: the card has less shared memory than any of compute "
                       "capability 8.0 or more");
  return unsupported(device, dtype == DType::f32 || dtype == DType::bf16
                                 ? "attention: CUDA has head_dim up to 256"
                                 : "attention: CUDA has float32 and bfloat16");
}

// With as many heads of keys and values as of queries, or with dk and dv by query head.
int32_t dispatch_backward(DeviceState& device, const AttentionBackwardParams& p) {
  AttentionCase c = case_of(device, p);
  c.backward = true;
  c.aligned =
      c.aligned && aligned({p.dout, p.dq, p.dk, p.dv}, {p.dq_stride, p.dk_stride, p.dv_stride});
  const AttentionKernelRow* row = attention_kernel(c);
  if (!row) return no_kernel(device, p.dtype);
  if (row->kernel == AttentionKernel::short_mma) {
    note_kernel(p, row->kernel);
    return attention_short_backward(device, p);
  }

  if (row->kernel == AttentionKernel::wgmma_ordered) {
    bool taken = false;
    const int32_t result = attention_backward_ordered(device, p, taken);
    if (taken) {
      note_kernel(p, row->kernel);
      return result;
    }
    c.tensor_maps = false;
    row = attention_kernel(c);
  }

  const auto bytes = static_cast<size_t>(p.query_rows * p.heads + 1) * sizeof(float);
  auto* delta = static_cast<float*>(device.scratch(bytes));
  if (!delta) return kOutOfMemory;
  if (!p.dq || row->kernel == AttentionKernel::cuda_cores) {
    const int32_t result = attention_make_delta(device, p, delta);
    if (result != kSuccess) return result;
  }
  if (row->kernel == AttentionKernel::wgmma_pipeline) {
    bool taken = false;
    const int32_t result = attention_backward_pipeline(device, p, delta, taken);
    if (taken) {
      note_kernel(p, row->kernel);
      return result;
    }
    c.tensor_maps = false;
    row = attention_kernel(c);
  }
  note_kernel(p, row->kernel);
  if (row->kernel == AttentionKernel::wgmma) return attention_backward_wgmma(device, p, delta);
  if (row->kernel == AttentionKernel::mma) return attention_backward_mma(device, p, delta);
  return attention_backward_cores(device, p, delta);
}

}  // namespace
}  // namespace cuda

int32_t attention_forward_cuda(cuda::DeviceState& device, const AttentionForwardParams& p) {
  using namespace cuda;
  if (p.sequences == 0 || p.max_queries == 0 || p.head_dim == 0) return kSuccess;
  AttentionCase c = case_of(device, p);
  c.saves_lse = p.lse != nullptr;
  const AttentionKernelRow* row = attention_kernel(c);
  if (row && row->tensor_maps) {
    bool taken = false;
    const int32_t result = row->kernel == AttentionKernel::wgmma_short
                               ? attention_forward_wgmma_short(device, p, taken)
                               : attention_forward_pipeline(device, p, taken);
    if (taken) {
      note_kernel(p, row->kernel);
      return result;
    }
    c.tensor_maps = false;
    row = attention_kernel(c);
  }
  if (!row) return no_kernel(device, p.dtype);
  note_kernel(p, row->kernel);
  if (row->kernel == AttentionKernel::decode) return attention_decode_forward(device, p);
  if (row->kernel == AttentionKernel::short_mma) return attention_short_forward(device, p);
  if (row->kernel == AttentionKernel::wgmma) return attention_forward_wgmma(device, p);
  if (row->kernel == AttentionKernel::mma) return attention_forward_mma(device, p);
  return attention_forward_cores(device, p);
}

int32_t attention_backward_cuda(cuda::DeviceState& device, const AttentionBackwardParams& p) {
  using namespace cuda;
  if (p.sequences == 0 || p.head_dim == 0) return kSuccess;
  if (p.kv_heads == p.heads) return dispatch_backward(device, p);
  const int32_t result = dispatch_backward(device, attention_by_head(p));
  return result == kSuccess ? attention_sum_groups(device, p) : result;
}

}  // namespace trafo
