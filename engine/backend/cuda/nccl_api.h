// NCCL through libtrafo_cuda.so: its second symbol, which fills a separate table. Plain structs and
// pointers only, as in plugin_api.h. TRAFO_KERNEL_ABI, compared there, covers both.
#pragma once

#include "engine/backend/cuda/link_api.h"

namespace trafo::cuda {

inline constexpr size_t kNcclIdBytes = 128;

// Device memory that goes to rank `peer`, or comes from it.
struct NcclPiece {
  int32_t peer;
  int32_t receive;  // 1: comes from it
  void* data;
  size_t bytes;
};

// A result beside the ones of plugin_api.h: the work that was begun has not reached the stream yet.
inline constexpr int32_t kNcclPending = 64;

// A link is one rank's end of a communicator. No function waits, but for abort_link and close_link.
// One call at a time for each link.
struct NcclTable {
  LinkFunctions streams;  // mark(): when the state is kSuccess after an exchange
  // Loads NCCL on the first call; `path` is for dlopen. The version is NCCL's: 22809 is 2.28.9.
  int32_t (*load)(const char* path, int32_t* version, Why why);
  int32_t (*new_id)(void* id, Why why);  // kNcclIdBytes
  // Begins to join as one rank. `device` is the result of PluginTable::open.
  int32_t (*open_link)(void* device, const void* id, int32_t rank, int32_t size, void** link,
                       Why why);
  // Begins an exchange in the order of the device's stream; with `after` from 0 to kLinkMarks - 1
  // in the order of a second stream, once that mark has passed.
  int32_t (*exchange)(void* link, const NcclPiece* pieces, int32_t count, int32_t after, Why why);
  // kSuccess: joined, and all exchanges are in the stream; kNcclPending: not yet; otherwise the
  // link has failed.
  int32_t (*link_state)(void* link, Why why);
  // Ends what is in the stream, with whatever it has moved. Nothing can be exchanged afterwards.
  void (*abort_link)(void* link);
  void (*close_link)(void* link);  // aborts if that has not happened
};

using NcclEntry = void (*)(NcclTable* table);
inline constexpr const char* kNcclEntryName = "trafo_cuda_nccl";

}  // namespace trafo::cuda
