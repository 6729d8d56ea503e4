// Shared by int8_kernel.cc and the files of the kernels.
#pragma once

#include <span>

#include "engine/quant/int8_kernel.h"

namespace trafo {

// Every kernel of this build, the best first.
std::span<const Int8Kernel* const> all_int8_kernels();
extern const Int8Kernel kPortableInt8Kernel;

}  // namespace trafo
