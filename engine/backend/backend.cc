#include "engine/backend/backend.h"

namespace trafo {

void Backend::launch(int id, const char* op, const void* params) {
  require(id >= 0 && static_cast<size_t>(id) < kernels_.size() && kernels_[id] != nullptr,
          ErrorCode::unsupported, op, "there is no kernel for ", device_name(device()));
  const int32_t result = kernels_[id](stream(), params);
  require(result == 0, ErrorCode::internal, op, "the kernel failed on ", device_name(device()),
          " with code ", result);
}

}  // namespace trafo
