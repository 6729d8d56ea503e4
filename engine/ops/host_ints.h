// The values of an int32 tensor as the host sees them, for checks of ids and lengths.
#pragma once

#include <span>
#include <vector>

#include "engine/runtime/context.h"

namespace trafo {

// On the CPU a view of the tensor itself, which must outlive this; elsewhere a copy, which waits
// for the device.
class HostInts {
 public:
  HostInts(const Context& context, const Tensor& tensor) {
    if (context.device().kind != DeviceKind::cpu) {
      copy_ = context.values<int32_t>(tensor);
      values_ = copy_;
    } else if (tensor.numel() > 0) {
      values_ = {tensor.data<int32_t>(), static_cast<size_t>(tensor.numel())};
    }
  }
  HostInts(const HostInts&) = delete;
  HostInts& operator=(const HostInts&) = delete;

  size_t size() const { return values_.size(); }
  int32_t operator[](size_t i) const { return values_[i]; }
  std::span<const int32_t> span() const { return values_; }

 private:
  std::vector<int32_t> copy_;
  std::span<const int32_t> values_;
};

}  // namespace trafo
