// Kernel numbers, generated from op_list.def.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/runtime/context.h"

namespace trafo {

enum class OpKernel : int32_t {
#define TRAFO_OP(name, Name) name##_forward, name##_backward,
#define TRAFO_COMPOSITE(name)
#define TRAFO_UPDATE(name, Name) name,
#include "engine/ops/op_list.def"
#undef TRAFO_OP
#undef TRAFO_COMPOSITE
#undef TRAFO_UPDATE
  count
};

inline constexpr int kOpKernelCount = static_cast<int>(OpKernel::count);

// "layer_norm_forward"; plugins are matched by these names.
const char* op_kernel_name(OpKernel kernel);

template <class Params>
void launch(const Context& context, OpKernel kernel, const char* op, const Params& params) {
  context.launch(static_cast<int>(kernel), op, &params);
}

// A context on a device with every kernel that device has. threads: host threads that compute,
// >= 1. Throws UNSUPPORTED, naming what is missing, if the device is not available.
std::unique_ptr<Context> make_context(Device device, int threads);

}  // namespace trafo
