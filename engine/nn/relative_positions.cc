#include "engine/nn/relative_positions.h"

#include <algorithm>
#include <cmath>

#include "engine/core/numeric/portable_math.h"
#include "engine/ops/embedding/embedding.h"
#include "engine/ops/view/view.h"

namespace trafo::nn {
namespace {

// Lengths that an accelerator is told are rounded up to a multiple of it (BatchBucket).
constexpr int64_t kLengthStep = 128;

}  // namespace

int32_t relative_bucket(int64_t distance, bool causal, const RelativeSpec& spec) {
  const int64_t count = causal ? spec.buckets : spec.buckets / 2, exact = count / 2;
  const int64_t first = !causal && distance > 0 ? count : 0;
  const int64_t size = causal ? std::max<int64_t>(-distance, 0) : std::abs(distance);
  if (size < exact) return static_cast<int32_t>(first + size);
  const auto whole = static_cast<float>(exact);
  const float share = log_of(static_cast<float>(size) / whole) /
                      static_cast<float>(portable_log(static_cast<double>(spec.most_distance) /
                                                      static_cast<double>(exact)));
  const auto further = static_cast<int64_t>(share * static_cast<float>(count - exact));
  return static_cast<int32_t>(first + std::min(exact + further, count - 1));
}

RelativePositions::RelativePositions(ParameterStore& store, const std::string& prefix,
                                     const StackSpec& spec, int64_t max_positions)
    : store_(&store),
      table_(store.declare(prefix + ".weight",
                           {spec.attention.relative->buckets, spec.attention.heads},
                           Init::normal(1 / std::sqrt(static_cast<double>(spec.width))))),
      spec_(*spec.attention.relative),
      causal_(spec.causal),
      max_positions_(max_positions) {
  store.set_parts(table_, Piece::weight,
                  {{Role::distance_bias, {spec.stack}, spec.attention.relative->buckets}});
}

void RelativePositions::upload(Context& context) {
  const bool rounds = context.device().kind != DeviceKind::cpu;
  longest_ =
      rounds ? (max_positions_ + kLengthStep - 1) / kLengthStep * kLengthStep : max_positions_;
  std::vector<int32_t> buckets;
  buckets.reserve(static_cast<size_t>(2 * longest_ - 1));
  for (int64_t distance = 1 - longest_; distance < longest_; ++distance)
    buckets.push_back(relative_bucket(distance, causal_, spec_));
  buckets_ = context.from_values<int32_t>(buckets, {std::ssize(buckets)});
}

Tensor RelativePositions::biases(Context& context, int64_t longest) const {
  if (longest == 0) longest = longest_;
  require(longest <= longest_, ErrorCode::invalid_argument, "relative_positions", "a sequence has ",
          longest, " tokens, the model has ", max_positions_, " positions");
  const int64_t count = 2 * longest - 1;
  const Tensor ids = buckets_.as_strided({count}, {1}, buckets_.offset() + longest_ - longest);
  ops::EmbeddingOptions options;
  options.indices_validated = true;
  const Tensor by_distance = ops::embedding(context, ids, store_->value(table_), options);
  return ops::contiguous(context, ops::transpose(context, by_distance, 0, 1));
}

}  // namespace trafo::nn
