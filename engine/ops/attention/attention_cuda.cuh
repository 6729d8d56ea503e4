// Shared by the CUDA kernels of attention: the problem in plain numbers, and the part of it that a
// block works on.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "engine/backend/cuda/device/numeric.cuh"
#include "engine/backend/cuda/device/philox.cuh"
#include "engine/backend/cuda/device_state.h"
#include "engine/backend/cuda/shared_memory.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/attention/attention_kernels.h"

namespace trafo::cuda {

// The window of a launch in 32 bits; 0: none, or one that hides nothing.
template <class Params>
int64_t attention_window(const Params& p) {
  return p.window < std::max(p.key_rows, p.query_rows) ? p.window : 0;
}

struct AttentionProblem {
  DropoutArgs dropout;
  float scale;
  bool causal;
  int window;  // 0: none
  int ahead;   // keys from the one in line with a query on that it sees at most; 0: all
  int64_t sequences, heads, head_dim, dropout_key_stride;
  uint32_t group;  // query heads that share a head of keys and values
  const int32_t* query_begin;
  const int32_t* query_end;
  const int32_t* key_begin;
  const int32_t* key_end;
  int64_t q_stride, k_stride, v_stride;
  float soft_cap;    // of scores; 0: none
  const void* bias;  // of distances, or null; not with a soft cap
  int bias_columns;

  template <class Params>
  static AttentionProblem of(const DeviceState& device, const Params& p) {
    return {DropoutArgs::of(device, p.dropout),
            static_cast<float>(p.scale),
            p.causal,
            static_cast<int>(attention_window(p)),
            p.causal ? 1 : static_cast<int>(attention_window(p)),
            p.sequences,
            p.heads,
            p.head_dim,
            trafo::dropout_key_stride(p.max_keys),
            static_cast<uint32_t>(p.heads / p.kv_heads),
            p.query_begin,
            p.query_end,
            p.key_begin,
            p.key_end,
            p.q_stride,
            p.k_stride,
            p.v_stride,
            static_cast<float>(p.soft_cap),
            p.bias,
            static_cast<int>(p.bias_columns)};
  }
};

// One head of one sequence: first rows and numbers of rows; and the tile of it that is the block's.
struct AttentionItem {
  int64_t sequence, head, kv_head, tile;
  int64_t query, key;
  int queries, keys;

  // Blocks are numbered (sequence, head, tile), the tile running fastest.
  static __device__ __forceinline__ AttentionItem of_block(const AttentionProblem& a,
                                                           int64_t tiles) {
    return numbered(a, tiles, blockIdx.x);
  }
  static __device__ __forceinline__ AttentionItem numbered(const AttentionProblem& a, int64_t tiles,
                                                           uint32_t block) {
    AttentionItem item;
    const auto per_head = static_cast<uint32_t>(tiles), heads = static_cast<uint32_t>(a.heads);
    const uint32_t row = block / per_head;  // there are as many as 32 bits count
    item.tile = block % per_head;
    const uint32_t head = row % heads;
    item.head = head;
    item.kv_head = head / a.group;
    item.sequence = row / heads;
    item.query = a.query_begin[item.sequence];
    item.key = a.key_begin[item.sequence];
    item.queries = a.query_end[item.sequence] - static_cast<int>(item.query);
    item.keys = a.key_end[item.sequence] - static_cast<int>(item.key);
    return item;
  }
  // The whole of a head, in a block with room for `rows` rows: more would be a broken promise of
  // the caller, and must not become a write outside of shared memory.
  static __device__ __forceinline__ AttentionItem of_short_block(const AttentionProblem& a,
                                                                 int rows) {
    AttentionItem item = of_block(a, 1);
    item.queries = min(item.queries, rows);
    item.keys = min(item.keys, rows);
    return item;
  }
  // Query i sees the keys below this.
  __device__ __forceinline__ int visible(const AttentionProblem& a, int i) const {
    return a.ahead > 0 ? min(keys, max(0, i + keys - queries + a.ahead)) : keys;
  }
  // Query i sees no key below this.
  __device__ __forceinline__ int first(const AttentionProblem& a, int i) const {
    return a.window > 0 ? min(keys, max(0, i + keys - queries + 1 - a.window)) : 0;
  }
  // Key j is seen by no query below this.
  __device__ __forceinline__ int seen_from(const AttentionProblem& a, int j) const {
    return a.ahead > 0 ? max(0, j - keys + queries + 1 - a.ahead) : 0;
  }
  // Key j is seen by queries below this only.
  __device__ __forceinline__ int seen_below(const AttentionProblem& a, int j) const {
    return a.window > 0 ? max(0, min(queries, j - keys + queries + a.window)) : queries;
  }
  // The same in kernels that are compiled with and without a window.
  template <bool Windowed>
  __device__ __forceinline__ int first(const AttentionProblem& a, int i) const {
    return Windowed ? first(a, i) : 0;
  }
  template <bool Windowed>
  __device__ __forceinline__ int seen_below(const AttentionProblem& a, int j) const {
    return Windowed ? seen_below(a, j) : queries;
  }
  // Column of the bias of query i and key j.
  __device__ __forceinline__ int bias_column(const AttentionProblem& a, int i, int j) const {
    return a.bias_columns / 2 + j - (i + keys - queries);
  }
  // The scaled score of query i and key j, with the cap or bias that the problem has. Rounded after
  // each step, so that forward and backward have the same. T: type of the bias.
  template <class T>
  __device__ __forceinline__ float score(const AttentionProblem& a, float product, int i,
                                         int j) const {
    const float scaled = __fmul_rn(product, a.scale);
    if (a.soft_cap > 0) return __fmul_rn(a.soft_cap, tanhf(__fdiv_rn(scaled, a.soft_cap)));
    if (!a.bias) return scaled;
    const int column = min(max(bias_column(a, i, j), 0), a.bias_columns - 1);
    return __fadd_rn(scaled,
                     to_float(static_cast<const T*>(a.bias)[head * a.bias_columns + column]));
  }
  // The derivative of this score by the product.
  static __device__ __forceinline__ float slope(const AttentionProblem& a, float score) {
    if (a.soft_cap == 0) return a.scale;
    const float capped = score / a.soft_cap;
    return (1.0f - capped * capped) * a.scale;
  }
  // Number of the dropout element of key 0 of query i: a multiple of 32.
  __device__ __forceinline__ uint64_t dropout_row(const AttentionProblem& a, int i) const {
    return static_cast<uint64_t>(((query + i) * a.heads + head) * a.dropout_key_stride);
  }
};

// Gradients of q, k and v: where they go.
struct AttentionGradients {
  void *dq, *dk, *dv;
  int64_t dq_stride, dk_stride, dv_stride;
  bool accumulate_dq, accumulate_dk, accumulate_dv;
  uint32_t* largest;
  float* bias_parts;  // [parts, heads, bias_columns] of the gradient of the biases, or null
};

inline AttentionGradients attention_gradients(const AttentionBackwardParams& p) {
  return {p.dq,
          p.dk,
          p.dv,
          p.dq_stride,
          p.dk_stride,
          p.dv_stride,
          p.accumulate_dq,
          p.accumulate_dk,
          p.accumulate_dv,
          p.largest,
          static_cast<float*>(p.bias_parts)};
}

// run(std::bool_constant<Windowed>{}): a kernel without a window is the code of one that knows
// none.
template <class Run>
int32_t with_window(int64_t window, Run&& run) {
  return window > 0 ? run(std::true_type{}) : run(std::false_type{});
}

// The kernels of the table in attention_kernels.h. delta: float32 [query_rows, heads], made by
// attention_make_delta for kernels on the CUDA cores or without dq, else by the kernel of dq.
int32_t attention_make_delta(DeviceState& device, const AttentionBackwardParams& p, float* delta);
int32_t attention_forward_cores(DeviceState& device, const AttentionForwardParams& p);
int32_t attention_backward_cores(DeviceState& device, const AttentionBackwardParams& p,
                                 const float* delta);
int32_t attention_decode_forward(DeviceState& device, const AttentionForwardParams& p);
int32_t attention_short_forward(DeviceState& device, const AttentionForwardParams& p);
int32_t attention_short_backward(DeviceState& device, const AttentionBackwardParams& p);
int32_t attention_forward_mma(DeviceState& device, const AttentionForwardParams& p);
int32_t attention_backward_mma(DeviceState& device, const AttentionBackwardParams& p, float* delta);
int32_t attention_forward_wgmma(DeviceState& device, const AttentionForwardParams& p);
int32_t attention_backward_wgmma(DeviceState& device, const AttentionBackwardParams& p,
                                 float* delta);
// `taken` is false, and nothing was done, where the driver makes no tensor maps of the matrices;
// and in the ordered backward without dq.
int32_t attention_forward_pipeline(DeviceState& device, const AttentionForwardParams& p,
                                   bool& taken);
int32_t attention_forward_wgmma_short(DeviceState& device, const AttentionForwardParams& p,
                                      bool& taken);
int32_t attention_backward_pipeline(DeviceState& device, const AttentionBackwardParams& p,
                                    float* delta, bool& taken);
int32_t attention_backward_ordered(DeviceState& device, const AttentionBackwardParams& p,
                                   bool& taken);
// Whether the plugin holds machine code for compute capability 9.0a.
bool attention_has_wgmma();

// Gradients of shared keys and values (attention_grouped_cuda.cu): the same problem with dk and dv
// of each query head in the workspace, and the sums of these.
AttentionBackwardParams attention_by_head(const AttentionBackwardParams& p);
int32_t attention_sum_groups(DeviceState& device, const AttentionBackwardParams& p);

// Four elements at a time can be read from every row of every head.
template <class T>
bool rows_of_quads(int64_t head_dim, std::initializer_list<const void*> pointers,
                   std::initializer_list<int64_t> strides) {
  if (head_dim % 4 != 0) return false;
  for (const void* p : pointers)
    if (reinterpret_cast<uintptr_t>(p) % (4 * sizeof(T)) != 0) return false;
  for (const int64_t stride : strides)
    if (stride % 4 != 0) return false;
  return true;
}

// Raises the shared memory a kernel may use, and launches it; `blocks` > 0.
template <class Kernel, class... Args>
int32_t launch_attention(DeviceState& device, const char* name, Kernel kernel, int64_t blocks,
                         int threads, size_t shared_bytes, Args... args) {
  if (shared_bytes > device.shared_memory_per_block)
    return unsupported(device,
                       "attention: this head_dim needs more shared memory than the device has");
  if (shared_bytes >= (48 << 10)) {
    // Blocks share a multiprocessor if its memory is not kept for a cache: nothing passes that.
    cudaError_t error =
        raise_shared_memory(device, reinterpret_cast<const void*>(kernel), int64_t(shared_bytes));
    if (error == cudaSuccess)
      error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   static_cast<int>(cudaSharedmemCarveoutMaxShared));
    if (error != cudaSuccess) return report(device, error, name);
  }
  kernel<<<static_cast<unsigned>(blocks), threads, shared_bytes, device.stream>>>(args...);
  return launched(device, name);
}

}  // namespace trafo::cuda
