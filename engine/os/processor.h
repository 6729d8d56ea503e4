// Instructions of the processor that a compiler may not assume.
#pragma once

namespace trafo::os {

// Dot products of bytes of 64-bit ARM (FEAT_DotProd). False on other processors.
bool has_arm_dot_product() noexcept;

// Products of bfloat16 of 64-bit ARM (FEAT_BF16). False on other processors.
bool has_arm_bfloat16() noexcept;

// Whether this process may use the tile registers of AMX. Asks Linux for them. From then on its
// threads need alternate signal stacks of AT_MINSIGSTKSZ bytes. False where a thread has a smaller
// one, before Linux 5.16, and on other systems.
bool may_use_amx_tiles() noexcept;

}  // namespace trafo::os
