// Copies between the GPUs of one process. Copy engines make them, and take no multiprocessors.
#include <new>
#include <vector>

#include "engine/backend/cuda/copy_api.h"
#include "engine/backend/cuda/link_streams.h"

namespace trafo::cuda {
namespace {

struct End : LinkStreams {
  cudaStream_t stream = nullptr;   // of the newest offer
  cudaEvent_t offered = nullptr;   // what was issued before it is done
  std::vector<cudaEvent_t> taken;  // by rank: the newest copies from it are done
};

End& end_of(void* handle) {
  return static_cast<End&>(*static_cast<LinkStreams*>(handle));
}
const End& end_of(const void* handle) {
  return static_cast<const End&>(*static_cast<const LinkStreams*>(handle));
}

void close_end(void* handle) {
  End* end = &end_of(handle);
  close_streams(*end);
  if (end->offered) cudaEventDestroy(end->offered);
  for (const cudaEvent_t event : end->taken)
    if (event) cudaEventDestroy(event);
  delete end;
}

int32_t open_end(void* device, int32_t size, void** out, Why why) {
  DeviceState& state = enter(device);
  *out = nullptr;
  auto* end = new (std::nothrow) End;
  if (!end) return tell(why, kOutOfMemory, "no host memory is left");
  cudaError_t error = open_streams(*end, state);
  if (error != cudaSuccess) {
    delete end;
    return checked(device, error, "cudaMallocHost", why);
  }
  *out = static_cast<LinkStreams*>(end);
  error = make_event(end->offered);
  end->taken.resize(static_cast<size_t>(size));
  for (cudaEvent_t& event : end->taken)
    if (error == cudaSuccess) error = make_event(event);
  return checked(device, error, "cudaEventCreate", why);
}

int32_t reach(void* handle, const void* peer, Why why) {
  End& end = end_of(handle);
  const int32_t index = end_of(peer).index;
  DeviceState& device = enter(end.device);
  if (index == end.index) return kSuccess;
  int can_read = 0;
  cudaError_t error = cudaDeviceCanAccessPeer(&can_read, end.index, index);
  if (error == cudaSuccess && can_read) error = cudaDeviceEnablePeerAccess(index, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {  // by an earlier group
    cudaGetLastError();
    error = cudaSuccess;
  }
  return checked(&device, error, "reaching another GPU", why);
}

int32_t offer(void* handle, int32_t after, Why why) {
  End& end = end_of(handle);
  DeviceState& device = enter(end.device);
  cudaError_t error = stream_of_exchange(end, after, end.stream);
  if (error == cudaSuccess) error = cudaEventRecord(end.offered, end.stream);
  return checked(&device, error, "offering to another GPU", why);
}

int32_t take(void* handle, int32_t rank, const void* peer, const CopyPiece* pieces, int32_t count,
             Why why) {
  End& end = end_of(handle);
  const End& from = end_of(peer);
  DeviceState& device = enter(end.device);
  cudaError_t error = cudaStreamWaitEvent(end.stream, from.offered);
  for (int32_t i = 0; i < count && error == cudaSuccess; ++i)
    error = cudaMemcpyPeerAsync(pieces[i].to, end.index, pieces[i].from, from.index,
                                pieces[i].bytes, end.stream);
  if (error == cudaSuccess)
    error = cudaEventRecord(end.taken[static_cast<size_t>(rank)], end.stream);
  return checked(&device, error, "copying from another GPU", why);
}

int32_t await_taken(void* handle, int32_t own, const void* peer, Why why) {
  End& end = end_of(handle);
  DeviceState& device = enter(end.device);
  return checked(&device,
                 cudaStreamWaitEvent(end.stream, end_of(peer).taken[static_cast<size_t>(own)]),
                 "waiting for another GPU", why);
}

void finish(void* handle, int32_t from) {
  End& end = end_of(handle);
  cudaSetDevice(end.index);
  cudaEventSynchronize(end.taken[static_cast<size_t>(from)]);
}

}  // namespace
}  // namespace trafo::cuda

extern "C" __attribute__((visibility("default"))) void trafo_cuda_copies(
    trafo::cuda::CopyTable* table) {
  using namespace trafo::cuda;
  table->streams = link_functions();
  table->open_end = &open_end;
  table->reach = &reach;
  table->offer = &offer;
  table->take = &take;
  table->await_taken = &await_taken;
  table->finish = &finish;
  table->close_end = &close_end;
}
