// The part of NCCL's interface that is used, declared here so that no header of NCCL is needed:
// https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api.html
#pragma once

#include <cuda_runtime.h>

#include <climits>
#include <cstddef>

namespace trafo::cuda::nccl {

using Communicator = struct OpaqueCommunicator*;  // ncclComm_t

struct UniqueId {  // ncclUniqueId; passed by value
  char bytes[128];
};

// ncclResult_t; other values are errors.
enum Result : int {
  kSuccess = 0,
  kInProgress = 7,
};

inline constexpr int kInt8 = 0;  // of ncclDataType_t

// ncclConfig_t as of NCCL 2.18. Newer releases take what an older size and version have, and
// defaults for the rest.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;  // calls return at once, and kInProgress
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

struct Functions {
  Result (*GetVersion)(int* version);
  Result (*GetUniqueId)(UniqueId* id);
  Result (*CommInitRankConfig)(Communicator* communicator, int ranks, UniqueId id, int rank,
                               Config* config);
  Result (*CommGetAsyncError)(Communicator communicator, Result* error);
  Result (*CommAbort)(Communicator communicator);
  Result (*GroupStart)();
  Result (*GroupEnd)();
  Result (*Send)(const void* data, size_t count, int type, int peer, Communicator communicator,
                 cudaStream_t stream);
  Result (*Recv)(void* data, size_t count, int type, int peer, Communicator communicator,
                 cudaStream_t stream);
  const char* (*GetErrorString)(Result result);
  const char* (*GetLastError)(Communicator communicator);
};

}  // namespace trafo::cuda::nccl
