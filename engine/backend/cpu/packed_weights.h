// Weights laid out for the GEMM kernels, once for many GEMMs. With few rows, as in decoding, laying
// a weight out takes as long as the GEMM itself, or longer.
//
// A GEMM that finds its weight here computes every row of the result in the same order however
// many rows there are: what a sentence is decoded with does not change its bits.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>

#include "engine/backend/backend.h"
#include "engine/backend/cpu/thread_pool.h"
#include "engine/memory/host_buffer.h"

namespace trafo {

class PackedWeights {
 public:
  // `more`: other weights beside those that are added here.
  explicit PackedWeights(std::shared_ptr<const PackedWeights> more = nullptr)
      : more_(std::move(more)) {}
  // Adds weight [n, k], float32, rows without gaps. It must stay where it is and as it is while
  // this is used.
  void add(ThreadPool& pool, const float* weight, int64_t n, int64_t k);
  bool empty() const { return weights_.empty() && (!more_ || more_->empty()); }

  // Runs the GEMM if its B is one of the weights; false: it is not, and nothing was done.
  bool run(ThreadPool& pool, const GemmParams& params) const;

 private:
  struct Weight {
    int64_t n, k;
    HostBuffer panels;
  };
  std::unordered_map<const void*, Weight> weights_;
  std::shared_ptr<const PackedWeights> more_;
};

// Gives the CPU backend weights to look into while this lives; any other backend is left alone.
class PackedWeightsScope {
 public:
  PackedWeightsScope(Backend& backend, std::shared_ptr<const PackedWeights> weights);
  ~PackedWeightsScope();
  PackedWeightsScope(const PackedWeightsScope&) = delete;
  PackedWeightsScope& operator=(const PackedWeightsScope&) = delete;

 private:
  Backend* backend_;  // null: nothing was changed
  std::shared_ptr<const PackedWeights> before_;
};

}  // namespace trafo
