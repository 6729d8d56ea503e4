#include "engine/backend/backend.h"

namespace trafo {

void Backend::launch(int id, const char* op, const void* params) {
  require(id >= 0 && static_cast<size_t>(id) < kernels_.size() && kernels_[id] != nullptr,
          ErrorCode::unsupported, op, "there is no kernel for ", device_name(device()));
  const int32_t result = kernels_[id](stream(), params);
  if (result != 0) [[unlikely]]
    kernel_failed(op, result);
}

void Backend::kernel_failed(const char* op, int32_t result) {
  fail(ErrorCode::internal, op, "the kernel failed on ", device_name(device()), " with code ",
       result);
}

}  // namespace trafo
