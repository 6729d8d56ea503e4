#include "engine/backend/cuda/link_streams.h"

namespace trafo::cuda {
namespace {

// Of the highest priority: its few blocks should not wait for the blocks of large kernels.
cudaError_t make_beside(LinkStreams& link) {
  if (link.beside) return cudaSuccess;
  int least = 0, greatest = 0;
  cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (error == cudaSuccess) error = make_event(link.joined);
  if (error == cudaSuccess)
    error = cudaStreamCreateWithPriority(&link.beside, cudaStreamNonBlocking, greatest);
  return error;
}

__global__ void write_number(volatile uint64_t* to, uint64_t number) {
  *to = number;
}

int32_t set_mark(void* handle, int32_t mark, Why why) {
  LinkStreams& link = *static_cast<LinkStreams*>(handle);
  DeviceState& device = enter(link.device);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaError_t error = make_event(link.marks[mark]);
  if (error == cudaSuccess) error = cudaStreamIsCapturing(device.stream, &status);
  if (error == cudaSuccess)
    error = cudaEventRecordWithFlags(
        link.marks[mark], device.stream,
        status == cudaStreamCaptureStatusNone ? cudaEventRecordDefault : cudaEventRecordExternal);
  return checked(&device, error, "marking a gradient", why);
}

int32_t join(void* handle, Why why) {
  LinkStreams& link = *static_cast<LinkStreams*>(handle);
  DeviceState& device = enter(link.device);
  if (!link.beside) return kSuccess;
  cudaError_t error = cudaEventRecord(link.joined, link.beside);
  if (error == cudaSuccess) error = cudaStreamWaitEvent(device.stream, link.joined);
  return checked(&device, error, "waiting for an exchange", why);
}

int32_t mark(void* handle, uint64_t number, int32_t beside, Why why) {
  const LinkStreams& link = *static_cast<LinkStreams*>(handle);
  DeviceState& device = enter(link.device);
  write_number<<<1, 1, 0, beside ? link.beside : device.stream>>>(link.done, number);
  return checked(&device, cudaGetLastError(), "marking an exchange", why);
}

uint64_t done(void* handle) {
  return *static_cast<LinkStreams*>(handle)->done;
}

}  // namespace

cudaError_t make_event(cudaEvent_t& event) {
  return event ? cudaSuccess : cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
}

cudaError_t open_streams(LinkStreams& link, DeviceState& device) {
  link.device = &device;
  link.index = device.index;
  void* done = nullptr;
  const cudaError_t error = cudaMallocHost(&done, sizeof(uint64_t));
  if (error != cudaSuccess) return error;
  link.done = static_cast<volatile uint64_t*>(done);
  *link.done = 0;
  return cudaSuccess;
}

void close_streams(LinkStreams& link) {
  cudaSetDevice(link.index);
  cudaFreeHost(const_cast<uint64_t*>(link.done));
  if (link.beside) cudaStreamDestroy(link.beside);
  if (link.joined) cudaEventDestroy(link.joined);
  for (const cudaEvent_t event : link.marks)
    if (event) cudaEventDestroy(event);
}

cudaError_t stream_of_exchange(LinkStreams& link, int32_t after, cudaStream_t& stream) {
  stream = link.device->stream;
  if (after < 0) return cudaSuccess;
  cudaError_t error = make_beside(link);
  if (error == cudaSuccess) error = cudaStreamWaitEvent(link.beside, link.marks[after]);
  if (error == cudaSuccess) stream = link.beside;
  return error;
}

LinkFunctions link_functions() {
  return {&set_mark, &join, &mark, &done};
}

}  // namespace trafo::cuda
