// The priority of a device's work among that of other programs and contexts on the card: the fourth
// symbol of libtrafo_cuda.so. As in plugin_api.h, whose TRAFO_KERNEL_ABI covers this too.
#pragma once

#include "engine/backend/cuda/plugin_api.h"

namespace trafo::cuda {

// `device` is the result of PluginTable::open. 1: the lowest priority that the card has, 0: the
// highest, as at first. Waits for work that was issued. Not while a graph is captured; graphs keep
// the priority that they were captured with.
using PriorityFunction = int32_t (*)(void* device, int32_t background, Why why);
inline constexpr const char* kPriorityFunctionName = "trafo_cuda_priority";

}  // namespace trafo::cuda
