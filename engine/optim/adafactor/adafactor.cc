// Adafactor: second moments of the rows and columns of each parameter. adafactor_rule.h has the
// formula.
#include <algorithm>
#include <cmath>

#include "engine/core/argument_error.h"
#include "engine/ops/op_kernel.h"
#include "engine/optim/optimizer.h"

namespace trafo {
namespace {

constexpr const char* kAdafactorOrigin = "adafactor";

class Adafactor final : public Optimizer {
 public:
  Adafactor(Context& context, const UpdateTarget& target, const OptimizerOptions& options,
            std::span<const MatrixPart> matrices)
      : Optimizer(context, kAdafactorOrigin, target, options.weight_decay),
        rule_{options.decay_rate, options.clip_threshold, options.square_epsilon,
              options.scale_epsilon, options.scale_parameter},
        matrices_(matrices.begin(), matrices.end()) {
    check_rule();
    std::vector<int64_t> rows, columns;
    int64_t doubles = 0;
    for (const MatrixPart& matrix : matrices) {
      check_matrix(matrix);
      rows.push_back(matrix.rows);
      columns.push_back(matrix.columns);
      if (own_part(matrix).count() > 0)
        doubles = std::max(doubles, factored_buffer(matrix.rows, matrix.columns));
    }
    rows_ = add_moments("exp_avg_sq_row", std::move(rows));
    columns_ = add_moments("exp_avg_sq_col", std::move(columns));
    buffer_ = context.empty({doubles}, DType::f64);
  }

  OptimizerKind kind() const override { return OptimizerKind::adafactor; }
  void finish(const UpdateRecord* record, double learning_rate, int64_t step) override;

 private:
  void set_rule(UpdateRules& rules) const override { rules.adafactor = rule_; }
  int64_t buffer_bytes() const override { return static_cast<int64_t>(buffer_.bytes()); }
  void check_rule() const;
  void check_matrix(const MatrixPart& matrix) const;
  Tensor add_moments(const char* name, std::vector<int64_t> counts);
  // The elements of a matrix that are in the shard.
  ElementRange own_part(const MatrixPart& matrix) const {
    const ElementRange whole = matrix.elements();
    const int64_t begin = std::max(whole.begin, shard().begin);
    return {begin, std::max(begin, std::min(whole.end, shard().end))};
  }

  AdafactorRule rule_;
  std::vector<MatrixPart> matrices_;  // all parameters
  Tensor rows_, columns_, buffer_;
};

void Adafactor::check_rule() const {
  const auto check = [](bool good, const char* option, const char* range, double value) {
    require_argument(good, kAdafactorOrigin, option, " must be ", range, ", got ", value);
  };
  check(rule_.decay_rate >= -1 && rule_.decay_rate <= 0, "decay_rate", "-1 to 0", rule_.decay_rate);
  check(rule_.clip_threshold > 0 && std::isfinite(rule_.clip_threshold), "clip_threshold",
        "positive", rule_.clip_threshold);
  // A moment of zeros must be a float that is not zero.
  check(rule_.square_epsilon >= 1e-37 && rule_.square_epsilon < 1, "square_epsilon",
        "at least 1e-37 and below 1", rule_.square_epsilon);
  check(rule_.scale_epsilon > 0 && rule_.scale_epsilon < 1, "scale_epsilon", "positive and below 1",
        rule_.scale_epsilon);
}

void Adafactor::check_matrix(const MatrixPart& matrix) const {
  require(matrix.begin % kGroupElements == 0 && matrix.begin >= 0 && matrix.rows > 0 &&
              matrix.columns > 0 && matrix.elements().end <= parameters_.numel(),
          ErrorCode::internal, kAdafactorOrigin, "elements ", matrix.begin, " to ",
          matrix.elements().end, " are no parameter of a workspace");
}

Tensor Adafactor::add_moments(const char* name, std::vector<int64_t> counts) {
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  const Tensor moments = context_.zeros({total}, dtype());
  add_state({name, moments, StateLayout::parameters, std::move(counts)});
  return moments;
}

void Adafactor::finish(const UpdateRecord* record, double learning_rate, int64_t step) {
  const size_t size = dtype_size(dtype());
  const auto element = [&](const Tensor& tensor, int64_t index) {
    return at(tensor, static_cast<size_t>(index) * size);
  };
  int64_t row = 0, column = 0;  // of the matrix in the moments
  for (const MatrixPart& matrix : matrices_) {
    const ElementRange own = own_part(matrix);
    if (own.count() > 0)
      launch(context_, OpKernel::factored_update, kAdafactorOrigin,
             FactoredUpdateParams{state(own), own.begin - matrix.begin, matrix.rows, matrix.columns,
                                  element(parameters_, matrix.begin),
                                  element(gradients_, matrix.begin), element(rows_, row),
                                  element(columns_, column), static_cast<double*>(buffer_.raw()),
                                  record, learning_rate, step});
    row += matrix.rows;
    column += matrix.columns;
  }
}

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(Context& context, const UpdateTarget& target,
                                          const OptimizerOptions& options,
                                          std::span<const MatrixPart> matrices) {
  return std::make_unique<Adafactor>(context, target, options, matrices);
}

}  // namespace trafo
