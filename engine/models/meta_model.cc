#include "engine/models/meta_model.h"

#include "engine/backend/meta/meta_backend.h"
#include "engine/ops/op_kernel.h"

namespace trafo {

MetaModel make_meta_model(const ModelConfig& config, DType dtype) {
  MetaModel meta;
  meta.context = std::make_unique<Context>(make_meta_backend({DeviceKind::cpu, 0}, kOpKernelCount));
  meta.model = make_model(*meta.context, config, 0, dtype);
  return meta;
}

}  // namespace trafo
