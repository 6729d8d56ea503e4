// The numbers that an update sums over its micro-batches, lanes and ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/objective/objective.h"

namespace trafo {

// The loss, the negative log-likelihood and the metrics of the objective, in this order, on the
// device. Other code sums, sends and copies values() as a whole.
class StepSums {
 public:
  // Zeros. `metrics`: how many the objective has.
  StepSums(Context& context, DType model_dtype, size_t metrics = 0);

  const Tensor& values() const { return values_; }  // [2 + metrics], stat_dtype of the model
  Tensor loss() const { return at(0); }             // [1]
  Tensor nll() const { return at(1); }              // [1]

  // Adds the output of a micro-batch; of the first one of an update, overwrites earlier sums.
  void add(Context& context, const ObjectiveOutput& output, bool first) const;
  void clear(Context& context) const;

  // Bytes of the sums that others than the update itself read; 0: the objective has no metrics.
  size_t metric_bytes() const;
  const void* metrics() const;  // in device memory
  // The sums of the metrics in a copy of these bytes in host memory.
  std::vector<double> read_metrics(const void* host_copy) const;

 private:
  Tensor at(int64_t i) const { return values_.as_strided({1}, {1}, values_.offset() + i); }
  size_t metric_count() const { return static_cast<size_t>(values_.numel()) - 2; }

  Tensor values_;
};

}  // namespace trafo
