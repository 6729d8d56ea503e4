#include "engine/backend/cpu/packed_weights.h"

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/backend/cpu/gemm_internal.h"
#include "engine/core/status.h"

namespace trafo {

void PackedWeights::add(ThreadPool& pool, const float* weight, int64_t n, int64_t k) {
  if (n <= 0 || k <= 0) return;
  Weight packed{n, k, {}};
  try {
    packed.panels = HostBuffer(static_cast<size_t>(packed_size_f32(n, k)) * sizeof(float));
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::out_of_memory, "translate", "there is no room for a copy of a weight [", n,
         ", ", k, "] laid out for GEMMs with few rows");
  }
  pack_weight_f32(pool, weight, n, k, reinterpret_cast<float*>(packed.panels.data()));
  weights_.insert_or_assign(weight, std::move(packed));
}

bool PackedWeights::run(ThreadPool& pool, const GemmParams& p) const {
  if (p.dtype != DType::f32 || !p.trans_b || p.batch != 1 || p.m == 0 || p.ldb != p.k) return false;
  const auto found = weights_.find(p.b);
  if (found == weights_.end()) return more_ && more_->run(pool, p);
  if (found->second.n != p.n || found->second.k != p.k) return false;
  gemm_packed_f32(pool, p, reinterpret_cast<const float*>(found->second.panels.data()));
  return true;
}

PackedWeightsScope::PackedWeightsScope(Backend& backend,
                                       std::shared_ptr<const PackedWeights> weights)
    : backend_(weights && cpu_thread_pool(backend) ? &backend : nullptr) {
  if (backend_) before_ = exchange_packed_weights(*backend_, std::move(weights));
}

PackedWeightsScope::~PackedWeightsScope() {
  if (backend_) exchange_packed_weights(*backend_, std::move(before_));
}

}  // namespace trafo
