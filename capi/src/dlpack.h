// The layout that DLPack 1.x fixes for exchanged tensors (dmlc.github.io/dlpack), declared here so
// that its header is not needed.
#pragma once

#include <cstdint>

struct DLManagedTensorVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  struct {
    void* data;
    struct {
      int32_t device_type, device_id;
    } device;
    int32_t ndim;
    struct {
      uint8_t code, bits;
      uint16_t lanes;
    } dtype;
    int64_t* shape;
    int64_t* strides;
    uint64_t byte_offset;
  } dl_tensor;
};

namespace trafo::capi::dlpack {

inline constexpr uint32_t kMajor = 1;
inline constexpr uint64_t kReadOnly = 1;
enum DeviceType : int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };
enum TypeCode : uint8_t { kInteger = 0, kFloat = 2, kBfloat = 4 };

}  // namespace trafo::capi::dlpack
