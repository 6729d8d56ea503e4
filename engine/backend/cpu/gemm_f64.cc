// GEMM in float64, compiled for every instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/backend/cpu/gemm_f64.cc"
#include "engine/backend/cpu/simd.h"

#include "hwy/foreach_target.h"

#include "engine/backend/cpu/gemm_driver-inl.h"

#include "engine/backend/cpu/gemm_internal.h"

HWY_BEFORE_NAMESPACE();
namespace trafo::HWY_NAMESPACE {
namespace {

void gemm_simd_f64(ThreadPool& pool, const GemmParams& params) {
  gemm_driver<double>(pool, params, nullptr);
}

}  // namespace
}  // namespace trafo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trafo {

HWY_EXPORT(gemm_simd_f64);

void gemm_f64(ThreadPool& pool, const GemmParams& params) {
  HWY_DYNAMIC_DISPATCH(gemm_simd_f64)(pool, params);
}

}  // namespace trafo
#endif
