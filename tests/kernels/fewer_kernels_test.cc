// Kernels of a build with -DTRAFO_INSTRUCTION_SETS= -DTRAFO_FLOAT64=OFF: for SSE4 and float32
// alone.
#include <gtest/gtest.h>

#include "engine/backend/cpu/gemm.h"
#include "engine/backend/cpu/simd.h"
#include "engine/core/status.h"
#include "engine/ops/unary/unary.h"
#include "tests/support/errors.h"

namespace trafo {

void unary_forward_cpu(ThreadPool& pool, const UnaryForwardParams& p);

namespace {

template <class T>
T scaled(T value) {
  ThreadPool pool;
  T result = 0;
  unary_forward_cpu(pool, {dtype_of<T>, UnaryKind::scale, 2, 1, &value, &result});
  return result;
}

template <class T>
T product(T left, T right) {
  ThreadPool pool;
  T result = 0;
  GemmParams params;
  params.dtype = dtype_of<T>;
  params.m = params.n = params.k = params.lda = params.ldb = params.ldc = 1;
  params.a = &left, params.b = &right, params.c = &result;
  gemm_cpu(pool, params);
  return result;
}

TEST(FewerKernels, EveryProcessorTakesTheOnlyInstructionSet) {
  EXPECT_STREQ(simd_target_name(), "SSE4");
}

TEST(FewerKernels, Float32IsComputed) {
  EXPECT_EQ(scaled(3.0f), 6.0f);
  EXPECT_EQ(product(3.0f, 4.0f), 12.0f);
}

TEST(FewerKernels, Float64IsRefusedAndTheErrorNamesTheFeature) {
  for (const Error& error : {error_of([] { scaled(3.0); }), error_of([] { product(3.0, 4.0); })}) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_TRUE(mentions(error, "no kernels for float64 (the feature float64 of the crate"))
        << error.message();
  }
}

}  // namespace
}  // namespace trafo
