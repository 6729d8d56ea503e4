// GEMMs of float32 in TF32, on devices that have it: A and B are rounded to 10 bits of mantissa as
// they are read, sums and C stay float32. Off unless a Tf32Scope is there.
#pragma once

#include "engine/backend/backend.h"

namespace trafo {

class Tf32Device {
 public:
  virtual ~Tf32Device() = default;
  // While on, GEMMs of float32 run in TF32. Those of other dtypes do not change.
  virtual void set_tf32(bool on) = 0;
};

// Turns TF32 on during its lifetime, if `on`. UNSUPPORTED if the device has none.
class Tf32Scope {
 public:
  Tf32Scope(Backend& backend, bool on) {
    if (!on) return;
    device_ = backend.tf32_device();
    require(device_ != nullptr, ErrorCode::unsupported, "tf32", device_name(backend.device()),
            " has no TF32");
    device_->set_tf32(true);
  }
  ~Tf32Scope() {
    if (device_) device_->set_tf32(false);
  }
  Tf32Scope(const Tf32Scope&) = delete;
  Tf32Scope& operator=(const Tf32Scope&) = delete;

 private:
  Tf32Device* device_ = nullptr;
};

}  // namespace trafo
