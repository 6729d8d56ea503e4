// NCCL, loaded when it is first asked for. It only moves bytes: no result depends on its
// algorithms.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "engine/backend/cuda/link_streams.h"
#include "engine/backend/cuda/nccl_api.h"
#include "engine/backend/cuda/nccl_functions.h"

namespace trafo::cuda {
namespace {

constexpr int kOldestVersion = 21901;  // 2.19.1

nccl::Functions functions;
bool is_loaded = false;
int loaded_version = 0;

struct Link : LinkStreams {
  nccl::Communicator communicator = nullptr;
};

Link& link_of(void* handle) {
  return static_cast<Link&>(*static_cast<LinkStreams*>(handle));
}

int32_t fail_with(Why why, const char* call, nccl::Result result, nccl::Communicator communicator) {
  char text[512];
  const char* last = functions.GetLastError(communicator);
  std::snprintf(text, sizeof text, "NCCL %d.%d.%d: %s: %s%s%s", loaded_version / 10000,
                loaded_version / 100 % 100, loaded_version % 100, call,
                functions.GetErrorString(result), last && *last ? ": " : "", last ? last : "");
  return tell(why, kFailed, text);
}

bool begun(nccl::Result result) {
  return result == nccl::kSuccess || result == nccl::kInProgress;
}

// A function that is missing makes `missing` its name.
template <class Function>
void find(void* library, const char* name, Function& function, const char*& missing) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function && !missing) missing = name;
}

int32_t load(const char* path, int32_t* version, Why why) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  *version = loaded_version;
  if (is_loaded) return kSuccess;
  // NVLink multicast serves NCCL's own sums, which are not used, and takes memory.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    return tell(why, kUnsupported, reason ? reason : "the loader gives no reason");
  }
  const char* missing = nullptr;
  find(library, "ncclGetVersion", functions.GetVersion, missing);
  find(library, "ncclGetUniqueId", functions.GetUniqueId, missing);
  find(library, "ncclCommInitRankConfig", functions.CommInitRankConfig, missing);
  find(library, "ncclCommGetAsyncError", functions.CommGetAsyncError, missing);
  find(library, "ncclCommAbort", functions.CommAbort, missing);
  find(library, "ncclGroupStart", functions.GroupStart, missing);
  find(library, "ncclGroupEnd", functions.GroupEnd, missing);
  find(library, "ncclSend", functions.Send, missing);
  find(library, "ncclRecv", functions.Recv, missing);
  find(library, "ncclGetErrorString", functions.GetErrorString, missing);
  find(library, "ncclGetLastError", functions.GetLastError, missing);
  char text[512];
  if (functions.GetVersion) functions.GetVersion(&loaded_version);
  *version = loaded_version;
  if (missing || loaded_version < kOldestVersion) {
    std::snprintf(text, sizeof text, "%s is NCCL %d.%d.%d%s%s; 2.19.1 or newer is needed", path,
                  loaded_version / 10000, loaded_version / 100 % 100, loaded_version % 100,
                  missing ? " without " : "", missing ? missing : "");
    dlclose(library);
    return tell(why, kUnsupported, text);
  }
  is_loaded = true;
  return kSuccess;
}

int32_t new_id(void* id, Why why) {
  static_assert(sizeof(nccl::UniqueId) == kNcclIdBytes);
  nccl::UniqueId made{};
  const nccl::Result result = functions.GetUniqueId(&made);
  if (result != nccl::kSuccess) return fail_with(why, "ncclGetUniqueId", result, nullptr);
  std::memcpy(id, &made, sizeof made);
  return kSuccess;
}

int32_t open_link(void* device, const void* id, int32_t rank, int32_t size, void** out, Why why) {
  DeviceState& state = enter(device);
  *out = nullptr;
  auto* link = new (std::nothrow) Link;
  if (!link) return tell(why, kOutOfMemory, "no host memory is left");
  const cudaError_t error = open_streams(*link, state);
  if (error != cudaSuccess) {
    delete link;
    return checked(device, error, "cudaMallocHost", why);
  }
  nccl::UniqueId name;
  std::memcpy(&name, id, sizeof name);
  nccl::Config config;
  const nccl::Result result =
      functions.CommInitRankConfig(&link->communicator, size, name, rank, &config);
  *out = static_cast<LinkStreams*>(link);
  return begun(result) ? kSuccess : fail_with(why, "ncclCommInitRankConfig", result, nullptr);
}

int32_t exchange(void* handle, const NcclPiece* pieces, int32_t count, int32_t after, Why why) {
  Link& link = link_of(handle);
  DeviceState& device = enter(link.device);
  cudaStream_t stream = nullptr;
  const cudaError_t error = stream_of_exchange(link, after, stream);
  if (error != cudaSuccess) return checked(&device, error, "waiting for a gradient", why);
  nccl::Result result = functions.GroupStart();
  const char* call = "ncclGroupStart";
  for (int32_t i = 0; i < count && begun(result); ++i) {
    const NcclPiece& piece = pieces[i];
    call = piece.receive ? "ncclRecv" : "ncclSend";
    result = piece.receive ? functions.Recv(piece.data, piece.bytes, nccl::kInt8, piece.peer,
                                            link.communicator, stream)
                           : functions.Send(piece.data, piece.bytes, nccl::kInt8, piece.peer,
                                            link.communicator, stream);
  }
  const nccl::Result ended = functions.GroupEnd();
  if (begun(result)) result = ended, call = "ncclGroupEnd";
  return begun(result) ? kSuccess : fail_with(why, call, result, link.communicator);
}

int32_t link_state(void* handle, Why why) {
  const Link& link = link_of(handle);
  nccl::Result state = nccl::kSuccess;
  const nccl::Result result = functions.CommGetAsyncError(link.communicator, &state);
  if (result != nccl::kSuccess)
    return fail_with(why, "ncclCommGetAsyncError", result, link.communicator);
  if (state == nccl::kInProgress) return kNcclPending;
  return state == nccl::kSuccess ? kSuccess
                                 : fail_with(why, "communication failed", state, link.communicator);
}

void abort_link(void* handle) {
  Link& link = link_of(handle);
  if (!link.communicator) return;
  cudaSetDevice(link.index);
  functions.CommAbort(link.communicator);
  link.communicator = nullptr;
}

void close_link(void* handle) {
  abort_link(handle);
  Link* link = &link_of(handle);
  close_streams(*link);
  delete link;
}

}  // namespace
}  // namespace trafo::cuda

extern "C" __attribute__((visibility("default"))) void trafo_cuda_nccl(
    trafo::cuda::NcclTable* table) {
  using namespace trafo::cuda;
  table->streams = link_functions();
  table->load = &load;
  table->new_id = &new_id;
  table->open_link = &open_link;
  table->exchange = &exchange;
  table->link_state = &link_state;
  table->abort_link = &abort_link;
  table->close_link = &close_link;
}
