// How CPU kernels are compiled for several instruction sets with Highway: SSE4 (every x86-64 since
// 2008), AVX2 and AVX-512; the best one is chosen at run time. On other architectures, Highway's
// own choice of targets.
//
// A kernel file looks like this. It is included once a target, by foreach_target.h, so it names
// itself; simd.h comes first; the blank lines keep clang-format from sorting the includes; ordinary
// headers come before HWY_BEFORE_NAMESPACE. The unnamed namespace is required: functions of two
// kernel files must not meet in N_AVX2. Builds of the library compile several kernel files as one
// (trafo_group_kernels): file-local names differ, also from those of trafo in headers, which they
// would hide from the next file.
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "engine/ops/gelu/gelu_cpu.cc"
//   #include "engine/backend/cpu/simd.h"
//
//   #include "hwy/foreach_target.h"
//
//   #include "engine/backend/cpu/simd-inl.h"
//
//   #include "engine/ops/gelu/gelu.h"
//
//   HWY_BEFORE_NAMESPACE();
//   namespace trafo::HWY_NAMESPACE {
//   namespace {
//
//   template <class T>
//   void gelu_rows(ThreadPool& pool, const GeluParams& p) {
//     const hn::ScalableTag<T> d;
//     ...
//   }
//
//   void gelu_simd(ThreadPool& pool, const GeluParams& p) {
//     with_compute_type(p.dtype, [&](auto zero) { gelu_rows<decltype(zero)>(pool, p); });
//   }
//
//   }  // namespace
//   }  // namespace trafo::HWY_NAMESPACE
//   HWY_AFTER_NAMESPACE();
//
//   #if HWY_ONCE
//   namespace trafo {
//   TRAFO_CPU_KERNEL(gelu, GeluParams)
//   }  // namespace trafo
//   #endif
//
// HWY_EXPORT takes no templates, hence one exported function a kernel that chooses the element
// type. Lambdas inside kernel functions are compiled for the target too, those passed to
// parallel_for included. Tails are read and written with load_n and store_n, never past the end of
// an array.
#pragma once

#ifdef HIGHWAY_HWY_DETECT_TARGETS_H_
#error "include engine/backend/cpu/simd.h before any Highway header"
#endif

// Without this the baseline of GCC 12 is Highway's one-lane emulation.
#define HWY_WANT_SSE4 1

// 1 << 7 is AVX3_DL and 1 << 12 SSSE3 (hwy/detect_targets.h): they would add build time and size,
// not speed. The others are AVX-512 and AVX2 (TRAFO_INSTRUCTION_SETS of CMakeLists.txt).
#if defined(__x86_64__)
#ifdef TRAFO_WITHOUT_AVX512
#define TRAFO_AVX512_TARGETS ((1LL << 4) | (1LL << 6) | (1LL << 8))
#else
#define TRAFO_AVX512_TARGETS 0
#endif
#ifdef TRAFO_WITHOUT_AVX2
#define TRAFO_AVX2_TARGETS (1LL << 9)
#else
#define TRAFO_AVX2_TARGETS 0
#endif
#define HWY_DISABLED_TARGETS ((1LL << 7) | (1LL << 12) | TRAFO_AVX512_TARGETS | TRAFO_AVX2_TARGETS)
#endif

#include "engine/core/dtype.h"
#include "hwy/detect_targets.h"

// Defines void NAME_cpu(ThreadPool&, const Params&), which takes NAME_simd of the best instruction
// set that this processor has.
#define TRAFO_CPU_KERNEL(name, Params)                 \
  void name##_cpu(ThreadPool& pool, const Params& p);  \
  HWY_EXPORT(name##_simd);                             \
  void name##_cpu(ThreadPool& pool, const Params& p) { \
    HWY_DYNAMIC_DISPATCH(name##_simd)(pool, p);        \
  }

namespace trafo {

// The instruction set the kernels run with on this machine: "SSE4", "AVX2", "AVX3" (AVX-512), ...
const char* simd_target_name();

// UNSUPPORTED when the processor lacks even the baseline; the CPU backend calls it before its first
// kernel.
void require_supported_cpu();

// Throws UNSUPPORTED: the engine was built without kernels for float64 (TRAFO_FLOAT64 of
// CMakeLists.txt).
[[noreturn]] void refuse_float64();

// Calls fn(float{}) or fn(double{}) and returns 0; -1 for a dtype that is no compute type.
template <class F>
int32_t with_compute_type(DType dtype, F&& fn) {
  switch (dtype) {
    case DType::f32:
      fn(float{});
      return 0;
    case DType::f64:
#ifdef TRAFO_WITHOUT_FLOAT64
      refuse_float64();
#else
      fn(double{});
      return 0;
#endif
    default:
      return -1;
  }
}

}  // namespace trafo
