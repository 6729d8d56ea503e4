#include "engine/ops/fp8/fp8_magnitudes.h"

namespace trafo::ops {
Fp8Magnitudes::Fp8Magnitudes(Context& context, bool wanted) {
  if (!wanted || context.device().kind == DeviceKind::cpu) return;
  require(context.step().magnitudes == nullptr, ErrorCode::internal, "fp8",
          "this context keeps largest magnitudes already");
  places_ = context.zeros({kPlaces}, DType::i32);
  in_use_.emplace(context, &StepContext::magnitudes, this);
}

uint32_t* Fp8Magnitudes::place(const Context& context, const Tensor& tensor) {
  Fp8Magnitudes* const active = context.step().magnitudes;
  if (!active || tensor.dtype() != DType::bf16 || !tensor.is_contiguous()) return nullptr;
  if (active->used_ == kPlaces) return nullptr;
  uint32_t* const place = static_cast<uint32_t*>(active->places_.raw()) + active->used_++;
  const std::shared_ptr<Storage>& storage = tensor.storage();
  active->entries_[storage.get()] = {storage, storage->version(), tensor.raw(), tensor.numel(),
                                     place};
  return place;
}

uint32_t* Fp8Magnitudes::place(const Context& context, const GradTarget& target) {
  const bool whole = target.buffer.defined() && !target.accumulate;
  return whole ? place(context, target.buffer) : nullptr;
}

void Fp8Magnitudes::forget(const Context& context, const Tensor& tensor) {
  if (Fp8Magnitudes* const active = context.step().magnitudes)
    active->entries_.erase(tensor.storage().get());
}

const uint32_t* Fp8Magnitudes::find(const Context& context, const Tensor& x) {
  Fp8Magnitudes* const active = context.step().magnitudes;
  if (!active || x.dtype() != DType::bf16 || !x.is_contiguous()) return nullptr;
  const auto found = active->entries_.find(x.storage().get());
  if (found == active->entries_.end()) return nullptr;
  // Another storage may have come to the address of one that is gone.
  const Entry& entry = found->second;
  const bool same = entry.storage.lock() == x.storage() &&
                    entry.version == x.storage()->version() && entry.begin == x.raw() &&
                    entry.count == x.numel();
  if (!same) return nullptr;
  ++active->found_;
  return entry.place;
}

}  // namespace trafo::ops
