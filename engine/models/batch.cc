#include "engine/models/batch.h"

#include <algorithm>

namespace trafo {

Tensor& Batch::field(FieldId id) {
  static constexpr Tensor Batch::*kTensors[] = {
#define BATCH_FIELD(name, ...) &Batch::name,
#include "engine/data/batch_fields.def"
#undef BATCH_FIELD
  };
  return this->*kTensors[static_cast<size_t>(id)];
}

int64_t longest_sentence(std::span<const int32_t> cu_seqlens) {
  int64_t longest = 0;
  for (size_t i = 1; i < cu_seqlens.size(); ++i)
    longest = std::max<int64_t>(longest, cu_seqlens[i] - cu_seqlens[i - 1]);
  return longest;
}

}  // namespace trafo
