// Parameters of a ParameterStore in the memory of another one.
#include "engine/nn/parameter_store.h"

namespace trafo {

void ParameterStore::share(Context& context, const ParameterStore& from,
                           std::span<const LowRankOptions> updates, std::span<const ParamId> own) {
  require(from.count() == count() && !from.has_low_rank(), ErrorCode::internal, "parameters",
          "weights are shared with a model of the same configuration without an adapter");
  require(from.quantize_bits_ == 0, ErrorCode::unsupported, "parameters",
          "quantization-aware training is not for models with an adapter");
  entries_ = from.entries_;
  int8_weights_ = from.int8_weights_;
  base_precision_ = from.base_precision_;
  for (Entry& entry : entries_) {
    if (entry.value.defined()) entry.value = entry.value.detach();
    entry.grad = {};
    entry.group.trainable = false;
    entry.shared = true;
  }
  for (const ParamId id : own) entries_[index(id)].shared = has_codes(entries_[index(id)]);
  append_updates(entries_, updates, {kAdapter, from.dtype(), false});
  make_workspaces(context, from.dtype());
  for (const ParamId id : own) {
    const Entry& entry = entries_[index(id)];
    if (entry.shared) continue;
    context.backend().copy(entry.value.raw(), from.value(id).raw(), entry.value.bytes());
  }
  context.backend().synchronize();
}

}  // namespace trafo
