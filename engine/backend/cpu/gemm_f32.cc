// GEMM in float32, compiled for every instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backend/cpu/gemm_f32.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/gemm_driver-inl.h"

#include "engine/backend/cpu/gemm_internal.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

void gemm_simd_f32(ThreadPool& pool, const GemmParams& params, const float* packed_b) {
  gemm_driver<float>(pool, params, packed_b);
}

int64_t packed_size_simd(int64_t n, int64_t k) {
  return packed_weight_size<float>(n, k);
}

void pack_simd(ThreadPool& pool, const float* weight, int64_t n, int64_t k, float* to) {
  pack_weight<float>(pool, weight, n, k, to);
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

HWY_EXPORT(gemm_simd_f32);
HWY_EXPORT(packed_size_simd);
HWY_EXPORT(pack_simd);

void gemm_f32(ThreadPool& pool, const GemmParams& params) {
  HWY_DYNAMIC_DISPATCH(gemm_simd_f32)(pool, params, nullptr);
}

void gemm_packed_f32(ThreadPool& pool, const GemmParams& params, const float* packed_b) {
  HWY_DYNAMIC_DISPATCH(gemm_simd_f32)(pool, params, packed_b);
}

int64_t packed_size_f32(int64_t n, int64_t k) {
  return HWY_DYNAMIC_DISPATCH(packed_size_simd)(n, k);
}

void pack_weight_f32(ThreadPool& pool, const float* weight, int64_t n, int64_t k, float* to) {
  HWY_DYNAMIC_DISPATCH(pack_simd)(pool, weight, n, k, to);
}

}  // namespace trafo
#endif
