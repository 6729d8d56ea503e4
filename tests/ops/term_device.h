// A device with the kernels of the CPU whose GEMMs take terms of low rank.
#pragma once

#include <gtest/gtest.h>

#include "tests/train/step/accelerator.h"

namespace trafo::testing {

class TermDevice final : public Accelerator {
 public:
  explicit TermDevice(DeviceKind kind) : kind_(kind) {}
  Device device() const override { return {kind_, 0}; }
  bool gemm_epilogues(DType) const override { return true; }
  void gemm(const GemmParams& params) override {
    GemmParams p = params;
    p.term_k = 0;
    cpu().gemm(p);
    if (params.term_k == 0) return;
    EXPECT_FALSE(params.accumulate || params.c_is_f32 || params.trans_a);
    ++terms;
    p.accumulate = true;
    p.bias = nullptr;
    p.k = params.term_k;
    p.a = params.term_a;
    p.lda = params.term_lda;
    p.b = params.term_b;
    p.ldb = params.term_ldb;
    cpu().gemm(p);
  }
  int terms = 0;

 private:
  DeviceKind kind_;
};

}  // namespace trafo::testing
