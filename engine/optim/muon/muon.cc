#include "engine/optim/muon/muon.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/ops/op_kernel.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/unary/unary.h"

namespace trafo {
namespace {

constexpr const char* kMuonOrigin = "muon";
constexpr int kNewtonSchulzSteps = 5;
constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315;
constexpr double kNormEpsilon = 1e-7;

// Towards the orthogonal matrix nearest to x [rows, columns], whose singular values are at most 1.
Tensor newton_schulz(Context& context, Tensor x) {
  // The Gram matrix of the smaller side. The polynomial of the other one gives the same.
  const bool wide = x.shape()[0] <= x.shape()[1];
  for (int i = 0; i < kNewtonSchulzSteps; ++i) {
    const Tensor gram = wide ? ops::matmul(context, x, x, {.transpose_b = true})
                             : ops::matmul(context, x, x, {.transpose_a = true});
    const Tensor factor = ops::add(context, ops::scale(context, gram, kCubic),
                                   ops::scale(context, ops::matmul(context, gram, gram), kQuintic));
    const Tensor higher = wide ? ops::matmul(context, factor, x) : ops::matmul(context, x, factor);
    x = ops::add(context, ops::scale(context, x, kLinear), higher);
  }
  return x;
}

}  // namespace

Muon::Muon(Context& context, const UpdateTarget& target, std::span<const MatrixPart> matrices,
           const MuonOptions& options)
    : Optimizer(context, kMuonOrigin, target, options.adamw.weight_decay), options_(options) {
  check_below_one(options.momentum, kMuonOrigin, "momentum");
  check_adamw_options(options.adamw, kMuonOrigin);
  const UpdateGroups& groups = target.groups;
  for (const MatrixPart& matrix : matrices) {
    const ElementRange elements = matrix.elements();
    require(matrix.begin % kGroupElements == 0 && matrix.begin >= 0 && matrix.rows > 0 &&
                matrix.columns > 0 && elements.end <= parameters_.numel(),
            ErrorCode::internal, kMuonOrigin, "elements ", elements.begin, " to ", elements.end,
            " are no matrix of a workspace");
    const auto cell = static_cast<size_t>(matrix.begin / kGroupElements);
    require(
        cell < groups.group_of.size() && groups.factors[groups.group_of[cell]].whole_matrix == 1,
        ErrorCode::internal, kMuonOrigin, "a matrix has no group of its own");
    if (elements.begin < shard().end && elements.end > shard().begin) matrices_.push_back(matrix);
  }
  add_state("muon_momentum");
  add_state("muon_exp_avg_sq");
  reserve();
}

// finish() must not run out of memory: the first half of the update is done by then. So its memory
// is held between updates.
void Muon::reserve() {
  const int64_t bytes = buffer_bytes();
  if (bytes > 0)
    reserved_ = context_.empty({bytes / static_cast<int64_t>(dtype_size(dtype()))}, dtype());
}

void Muon::set_rule(UpdateRules& rules) const {
  rules.muon = {adamw_rule(options_.adamw), options_.momentum, options_.nesterov};
}

// The direction in the gradients, normalized and orthogonalized, of their dtype.
Tensor Muon::orthogonalized(const MatrixPart& matrix) const {
  const Tensor direction = gradients_.as_strided({matrix.rows, matrix.columns}, {matrix.columns, 1},
                                                 gradients_.offset() + matrix.begin);
  const Tensor squares = ops::sum(context_, ops::multiply(context_, direction, direction));
  const Tensor norm = ops::shift(context_, ops::sqrt(context_, squares), kNormEpsilon);
  Tensor x = ops::divide(context_, direction, norm);
  const bool on_gpu = context_.device().kind != DeviceKind::cpu;
  if (on_gpu) x = ops::cast(context_, x, DType::bf16);
  x = newton_schulz(context_, x);
  return on_gpu ? ops::cast(context_, x, direction.dtype()) : x;
}

void Muon::finish(const UpdateRecord* record, double learning_rate, int64_t step) {
  const NoGrad no_grad(context_);
  reserved_ = {};
  for (const MatrixPart& matrix : matrices_) {
    const Tensor direction = orthogonalized(matrix);
    const ElementRange whole = matrix.elements();
    const ElementRange own{std::max(whole.begin, shard().begin), std::min(whole.end, shard().end)};
    const size_t skipped = static_cast<size_t>(own.begin - whole.begin) * dtype_size(dtype());
    const double scale =
        0.2 * std::sqrt(static_cast<double>(std::max(matrix.rows, matrix.columns)));
    launch(context_, OpKernel::apply_direction, kMuonOrigin,
           ApplyDirectionParams{state(own), at(direction, skipped), scale, record, learning_rate,
                                step});
  }
  try {
    reserve();
  } catch (const std::exception&) {  // the update is whole; the next one may find its memory
  }
}

// Of the largest matrix: five at a time of its size, four of its Gram matrix.
int64_t Muon::buffer_bytes() const {
  int64_t most = 0;
  for (const MatrixPart& matrix : matrices_) {
    const int64_t side = std::min(matrix.rows, matrix.columns);
    most = std::max(most, 5 * matrix.rows * matrix.columns + 4 * side * side);
  }
  return most * static_cast<int64_t>(dtype_size(dtype()));
}

std::unique_ptr<Optimizer> make_muon(Context& context, const UpdateTarget& target,
                                     const OptimizerOptions& options,
                                     std::span<const MatrixPart> matrices) {
  return std::make_unique<Muon>(
      context, target, matrices,
      MuonOptions{options.momentum, options.nesterov, adamw_options(options)});
}

}  // namespace trafo
