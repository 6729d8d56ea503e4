// Instructions of the processor that a compiler may not assume.
#pragma once

namespace trafo::os {

// Dot products of bytes of 64-bit ARM (FEAT_DotProd). False on other processors.
bool has_arm_dot_product() noexcept;

// Products of bfloat16 of 64-bit ARM (FEAT_BF16). False on other processors.
bool has_arm_bfloat16() noexcept;

}  // namespace trafo::os
