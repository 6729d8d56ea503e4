// The interface that a device implements: memory, copies, GEMM and a table of kernels.
//
// A kernel is a C function that takes a stream and a plain struct of pointers, sizes, strides and
// scalars. No C++ object crosses this boundary, so a device can live in a separate shared object.
// ops/ defines the kernels and their parameter structs; a backend only holds the table of
// functions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/backend/gemm_tuner.h"
#include "engine/backend/stream_device.h"
#include "engine/core/device.h"
#include "engine/core/dtype.h"
#include "engine/core/numeric/philox.h"
#include "engine/core/tensor.h"
#include "engine/memory/arena.h"
#include "engine/memory/memory_stats.h"

namespace trafo {

class SideStream;
class Tf32Device;

// Computed on v = A B, rounded to bf16, before C is written: as bias_act_dropout computes it.
enum class Epilogue : int32_t {
  none = 0,
  relu = 1,   // C = dropout(max(0, v + bias)); aux, if given, gets v
  gelu = 2,   // C = dropout(gelu(v + bias)), the tanh form; aux, if given, gets v
  drelu = 3,  // C = dropout(v) relu'(aux + bias)
  dgelu = 4,  // C = dropout(v) gelu'(aux + bias)
};

// C[m,n] = A[m,k] B[k,n] (+ C) (+ bias[n]), row-major with leading dimensions, `batch` of them at
// fixed strides (in elements). trans_a means that A is stored [k,m]; trans_b that B is stored
// [n,k].
struct GemmParams {
  DType dtype = DType::f32;  // f32 or f64 on the CPU, f32 or bf16 on CUDA
  bool trans_a = false;
  bool trans_b = false;
  bool accumulate = false;  // add to the contents of C
  bool c_is_f32 = false;    // bf16 only: C is float32, the rest bf16
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  int64_t lda = 0;
  const void* b = nullptr;
  int64_t ldb = 0;
  void* c = nullptr;
  int64_t ldc = 0;
  const void* bias = nullptr;  // [n] or null
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;

  // Only if Backend::gemm_epilogues(), for bf16, batch 1 and a contiguous C [m, n] without
  // `accumulate`.
  Epilogue epilogue = Epilogue::none;
  void* aux = nullptr;          // bf16 [m, n]
  Dropout dropout;              // its elements are numbered as those of C
  void* column_sums = nullptr;  // float32 [n]: (+)= the sums of the columns of C; drelu, dgelu
  bool accumulate_column_sums = false;

  // Only if Backend::gemm_epilogues(), for bf16, batch 1, without an epilogue, c_is_f32 and
  // `accumulate`: C gets term_a [m, term_k] times a matrix that is stored as B is, too.
  int64_t term_k = 0;
  const void* term_a = nullptr;
  int64_t term_lda = 0;
  const void* term_b = nullptr;
  int64_t term_ldb = 0;

  // Only for grouped_gemm() and where Backend::sums_in_gemm(): float32 [m], (+)= the sums over k of
  // A, the gradient of a bias beside its weight's.
  void* a_sums = nullptr;
  bool accumulate_a_sums = false;
};

// Returns 0, or a device error code that Backend::check turns into an Error.
using KernelFn = int32_t (*)(void* stream, const void* params);

class Backend : public MemoryOwner {
 public:
  virtual Device device() const = 0;

  // At least 64-byte aligned; null for zero bytes. Throws OUT_OF_MEMORY or OUT_OF_DEVICE_MEMORY.
  void* allocate(size_t bytes) {
    void* place = arena_ && bytes ? arena_->take(bytes) : nullptr;
    return place ? place : allocate_block(bytes);
  }
  void release(void* pointer, size_t bytes) noexcept final {
    if (!in_arena_memory(pointer))
      release_block(pointer, bytes);
    else if (arena_)
      arena_->released(pointer);
  }
  // Replaces the block of memory for arenas by one of exactly `bytes` (0: none), with unspecified
  // contents. No tensor may be alive in the old one.
  void* set_arena_memory(size_t bytes);
  void* arena_memory() const { return reinterpret_cast<void*>(arena_begin_.load()); }
  size_t arena_bytes() const { return arena_end_ - arena_begin_; }
  virtual MemoryStats memory_stats() const = 0;
  virtual void reset_peak_memory() = 0;
  virtual void release_cached_memory() = 0;

  // All work is issued to one stream, in order, except the work of a SideStream. Only synchronize()
  // and copy_to_host() wait for it.
  virtual void* stream() = 0;  // first argument of every kernel
  virtual void copy_from_host(void* device, const void* host, size_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, size_t bytes) = 0;  // waits
  virtual void copy(void* target, const void* source, size_t bytes) = 0;
  virtual void fill_zero(void* target, size_t bytes) = 0;
  virtual void synchronize() = 0;

  virtual void gemm(const GemmParams& params) = 0;
  // GEMMs of which none reads or writes what another one writes: in any order, or at once. A pair
  // A B and A^T D of the same A, one behind the other, may be computed in one pass over A.
  virtual void grouped_gemm(std::span<const GemmParams> gemms) {
    for (const GemmParams& params : gemms) gemm(params);
  }
  // Whether GEMMs of `dtype` support GemmParams::epilogue. Where the device has no fused kernel for
  // a shape, GEMM and bias_act_dropout run one after the other.
  virtual bool gemm_epilogues(DType) const { return false; }
  // Whether gradients of weights of this dtype are worth collecting for grouped_gemm().
  virtual bool groups_gemms(DType) const { return false; }
  // Whether grouped_gemm() also computes GemmParams::a_sums of this GEMM. alone: the GEMM runs by
  // itself, so it must also fill the device as well as gemm() does.
  virtual bool sums_in_gemm(const GemmParams&, bool /*alone*/) const { return false; }
  // Null if there is no choice between kernels for a GEMM.
  virtual GemmTuner* gemm_tuner() { return nullptr; }
  // Null if the device has no TF32 (engine/backend/tf32.h).
  virtual Tf32Device* tf32_device() { return nullptr; }

  // False on the meta device, whose tensors have no contents.
  virtual bool keeps_data() const { return true; }
  // Null on a synchronous device (the CPU).
  virtual StreamDevice* stream_device() { return nullptr; }
  // Null if the device has no second stream (engine/backend/side_stream.h).
  virtual SideStream* side_stream() { return nullptr; }

  virtual int threads() const = 0;            // host threads that compute; 1 on an accelerator
  virtual void set_threads(int threads) = 0;  // >= 1; never changes results

  void set_kernels(std::span<const KernelFn> kernels) { kernels_ = kernels; }
  // Runs kernel number `id`. Throws an Error with origin `op` if the kernel is absent or returns
  // non-zero.
  void launch(int id, const char* op, const void* params);

 protected:
  virtual void* allocate_block(size_t bytes) = 0;
  virtual void release_block(void* pointer, size_t bytes) noexcept = 0;
  // Neither rounded nor cached.
  virtual void* allocate_exactly(size_t bytes) = 0;
  virtual void release_exactly(void* pointer, size_t bytes) noexcept = 0;
  // For destructors.
  void release_arena_memory() noexcept;
  // Throws the Error for a kernel's non-zero result.
  virtual void kernel_failed(const char* op, int32_t result);

 private:
  friend class ArenaScope;
  bool in_arena_memory(const void* pointer) const {
    const auto at = reinterpret_cast<uintptr_t>(pointer);
    return at >= arena_begin_ && at < arena_end_;
  }

  std::span<const KernelFn> kernels_;
  Arena* arena_ = nullptr;
  // Atomic, because other threads may release tensors at the same time.
  std::atomic<uintptr_t> arena_begin_{0}, arena_end_{0};
};

// During its lifetime the backend allocates from the arena. These allocations may be released at
// any time and must not be used after the next step has begun.
class ArenaScope {
 public:
  ArenaScope(Backend& backend, Arena& arena) : backend_(backend) { backend.arena_ = &arena; }
  ~ArenaScope() { backend_.arena_ = nullptr; }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Backend& backend_;
};

}  // namespace trafo
