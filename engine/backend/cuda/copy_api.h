// Copies between the GPUs of one process: the third symbol of libtrafo_cuda.so fills a separate
// table. Plain structs and pointers only, as in plugin_api.h, whose TRAFO_KERNEL_ABI covers this
// too.
#pragma once

#include "engine/backend/cuda/link_api.h"

namespace trafo::cuda {

// `from` is memory of the peer's device.
struct CopyPiece {
  void* to;
  const void* from;
  size_t bytes;
};

// An end belongs to one rank and its device. In an exchange each rank offers what peers may read,
// takes what they offer, and waits until they have taken. No function waits, but for finish() and
// close_end(). One call at a time for each end; an end that is named as a peer must exist
// meanwhile.
struct CopyTable {
  LinkFunctions streams;
  // `device` is the result of PluginTable::open, for `size` ranks.
  int32_t (*open_end)(void* device, int32_t size, void** end, Why why);
  // Lets the device read the memory of a peer's directly. Where the cards cannot do that, copies
  // pass through the host.
  int32_t (*reach)(void* end, const void* peer, Why why);
  // Begins an exchange, in the device's stream or with `after` as in nccl_api.h. Peers may read the
  // results of the work in this stream so far once it is done.
  int32_t (*offer)(void* end, int32_t after, Why why);
  // Copies what the peer, of number `rank`, has offered, in the stream of the newest offer().
  int32_t (*take)(void* end, int32_t rank, const void* peer, const CopyPiece* pieces, int32_t count,
                  Why why);
  // The stream of the newest offer() waits for the newest take() of the peer from this end, which
  // has the number `own`.
  int32_t (*await_taken)(void* end, int32_t own, const void* peer, Why why);
  // Returns when the newest take() of the end from rank `from` is done.
  void (*finish)(void* end, int32_t from);
  void (*close_end)(void* end);
};

using CopyEntry = void (*)(CopyTable* table);
inline constexpr const char* kCopyEntryName = "trafo_cuda_copies";

}  // namespace trafo::cuda
