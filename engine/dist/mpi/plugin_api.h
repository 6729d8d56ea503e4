// Interface of libtrafo_mpi.so: the calls of MPI that a group needs. The library is built for one
// MPI, whose handles are its own, so only C types cross. The engine makes all calls on one thread
// (engine/dist/process_world.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace trafo::mpi {

inline constexpr int32_t kPluginVersion = 1;
inline constexpr const char* kPluginEntryName = "trafo_mpi_plugin";

struct Request;  // of a send or a receive that may be in flight

// Where a function that fails writes its reason.
struct Why {
  char* text;
  size_t size;
};

inline constexpr int32_t kAnyPeer = -1;
inline constexpr int32_t kNoPeer = -2;
inline constexpr int64_t kMostBytes = int64_t{1} << 30;  // of a message: MPI counts with int

// Functions return 0, or 1 and the reason. None but start() and finish() waits for other processes.
struct PluginTable {
  int32_t version;             // kPluginVersion
  const char* engine_version;  // of the release the plugin belongs to: "0.1.0"

  // Initialises MPI, unless the program has done so (*is_ours is 0), and makes a communicator of
  // all processes.
  int32_t (*start)(int32_t* rank, int32_t* size, int32_t* is_ours, Why why);
  // Begins to send or to receive. The memory must stay until test() says that it is done.
  int32_t (*send)(const void* data, int64_t bytes, int32_t peer, int32_t tag, Request** out,
                  Why why);
  int32_t (*receive)(void* data, int64_t bytes, int32_t peer, int32_t tag, Request** out, Why why);
  // Whether it is done; then frees the request. received: the bytes of a receive, may be null.
  int32_t (*test)(Request* request, int32_t* done, int64_t* received, Why why);
  // A message that has come from `peer`, which may be kAnyPeer; its sender becomes *from, or
  // kNoPeer without a message.
  int32_t (*probe)(int32_t peer, int32_t tag, int32_t* from, int64_t* bytes, Why why);
  // Ends MPI, if start() initialised it.
  int32_t (*finish)(Why why);
};

// The plugin's one exported symbol.
using PluginEntry = void (*)(PluginTable* table);

}  // namespace trafo::mpi
