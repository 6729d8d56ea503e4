// DLManagedTensorVersioned as dlpack.h has it; a program that includes that header needs no other.
#pragma once

#include <stdint.h>

struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void* manager_ctx;
  void (*deleter)(struct DLManagedTensorVersioned*);
  uint64_t flags;
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
