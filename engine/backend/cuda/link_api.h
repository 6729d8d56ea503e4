// Common parts of links between GPUs: a second stream, marks in the first one, and a number that
// the device writes once an exchange is done. Plain structs and pointers only, as in plugin_api.h.
#pragma once

#include "engine/backend/cuda/plugin_api.h"

namespace trafo::cuda {

inline constexpr int32_t kLinkMarks = 16;

// `link`: what open_link() of nccl_api.h or open_end() of copy_api.h has made. No function waits.
struct LinkFunctions {
  // The mark passes when the work issued to the device's stream so far is done, in each run of a
  // graph that is being captured.
  int32_t (*set_mark)(void* link, int32_t mark, Why why);
  // The device's stream waits for the second one.
  int32_t (*join)(void* link, Why why);
  // done() is this number once the device has finished the work issued so far, of the second
  // stream if `beside` is 1.
  int32_t (*mark)(void* link, uint64_t number, int32_t beside, Why why);
  uint64_t (*done)(void* link);
};

}  // namespace trafo::cuda
