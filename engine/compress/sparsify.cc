#include "engine/compress/sparsify.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <vector>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/compress/calibration.h"
#include "engine/compress/model_slice.h"
#include "engine/core/argument_error.h"
#include "engine/core/progress.h"
#include "engine/models/adapter.h"
#include "engine/models/upload.h"
#include "engine/nn/sparsity.h"
#include "engine/ops/binary/binary.h"
#include "engine/ops/cast/cast.h"
#include "engine/ops/reduce/reduce.h"
#include "engine/ops/view/view.h"
#include "engine/quant/int4_panels.h"
#include "engine/quant/int8_matrix.h"

namespace trafo {
namespace {

constexpr const char* kSparsifyOrigin = "prune";
constexpr int64_t kNeighbours = 4, kKeptNeighbours = 2;  // of SparsityPattern::two_of_four

// ||x[:, j]||_2 of the inputs of each layer.
class InputNorms : public LinearObserver {
 public:
  explicit InputNorms(const CancelToken* cancel) : cancel_(cancel) {}

  void observe(Context& context, int32_t parameter, const Tensor& x) override {
    stop_if_cancelled(cancel_, kSparsifyOrigin);
    Tensor rows = ops::contiguous(context, x);
    if (rows.dtype() == DType::bf16) rows = ops::cast(context, rows, DType::f32);
    const Tensor sums = ops::sum(context, ops::multiply(context, rows, rows), 0);
    if (sums.dtype() == DType::f64)
      add(parameter, context.values<double>(sums));
    else
      add(parameter, context.values<float>(sums));
  }
  // INTERNAL if the layer has multiplied nothing. NON_FINITE.
  std::vector<double> norms(const ParameterStore& parameters, ParamId id) const {
    const auto found = squares_.find(id);
    require(found != squares_.end(), ErrorCode::internal, kSparsifyOrigin, parameters.name(id),
            " has multiplied nothing");
    std::vector<double> result = found->second;
    for (double& value : result) value = std::sqrt(value);
    for (const double value : result)
      require(std::isfinite(value), ErrorCode::non_finite, kSparsifyOrigin, "the inputs of ",
              parameters.name(id), " are not finite on the calibration data");
    return result;
  }

 private:
  template <class T>
  void add(int32_t parameter, const std::vector<T>& values) {
    std::vector<double>& sums = squares_[parameter];
    sums.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) sums[i] += static_cast<double>(values[i]);
  }

  const CancelToken* cancel_;
  std::map<int32_t, std::vector<double>> squares_;
};

void check_sparsify(const Model& model, const SparsifyOptions& options) {
  const auto refuse_unless = [](bool condition, const auto&... what) {
    require(condition, ErrorCode::invalid_argument, kSparsifyOrigin, what...);
  };
  const ParameterStore& parameters = model.parameters();
  require(
      !parameters.has_codes(), ErrorCode::unsupported, kSparsifyOrigin,
      "a model with quantized weights cannot be pruned: prune the float model, then quantize it");
  refuse_unless(!model.adapter() && !model.merged_adapter(),
                "the model has an adapter: save it merged and prune that, or remove it");
  require_argument(options.sparsity >= 0 && options.sparsity < 1, kSparsifyOrigin, "sparsity",
                   " must be at least 0 and below 1, got ", options.sparsity);
  require_argument(options.score == PruneScore::magnitude || options.score == PruneScore::wanda,
                   kSparsifyOrigin, "score", " is unknown: ", static_cast<int32_t>(options.score));
  require_argument(options.pattern == SparsityPattern::unstructured ||
                       options.pattern == SparsityPattern::two_of_four,
                   kSparsifyOrigin, "pattern",
                   " is unknown: ", static_cast<int32_t>(options.pattern));
  if (options.score == PruneScore::wanda) {
    refuse_unless(options.calibration != nullptr,
                  "the score wanda needs calibration data, which show the inputs of the layers");
    check_calibration(*options.calibration, model.spec(), kSparsifyOrigin);
  }
  if (options.pattern == SparsityPattern::unstructured) return;
  require_argument(options.sparsity == 0.5, kSparsifyOrigin, "sparsity",
                   " must be 0.5 with the pattern 2:4, got ", options.sparsity);
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!parameters.prunable(id)) continue;
    const int64_t columns = parameters.shape(id)[1];
    refuse_unless(columns % kNeighbours == 0,
                  "the pattern 2:4 needs rows of a multiple of 4 weights, ", parameters.name(id),
                  " has ", columns);
  }
}

// norms: of the columns; empty: all one.
template <class T>
void sparsify_matrix(Context& context, ParameterStore& parameters, ParamId id,
                     const SparsifyOptions& options, const std::vector<double>& norms) {
  const auto columns = static_cast<size_t>(parameters.shape(id)[1]);
  std::vector<T> values(static_cast<size_t>(element_count(parameters.shape(id))));
  const size_t bytes = values.size() * sizeof(T);
  parameters.get_value(context, id, values.data(), bytes);
  std::vector<T> scores(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    require(std::isfinite(values[i]), ErrorCode::non_finite, kSparsifyOrigin, parameters.name(id),
            " has a weight that is not finite");
    scores[i] = std::abs(values[i]);
    if (!norms.empty()) scores[i] *= static_cast<T>(norms[i % columns]);
  }
  const bool two_of_four = options.pattern == SparsityPattern::two_of_four;
  // A weight is compared with `size` neighbours.
  const size_t size = two_of_four ? kNeighbours : norms.empty() ? values.size() : columns;
  const int64_t count = two_of_four
                            ? kNeighbours - kKeptNeighbours
                            : nn::pruned_count(options.sparsity, static_cast<int64_t>(size));
  for (size_t at = 0; at < values.size(); at += size)
    nn::zero_lowest(std::span(values).subspan(at, size), std::span(scores).subspan(at, size),
                    count);
  parameters.set_value(context, id, values.data(), bytes);
}

template <class T>
int64_t zeros_of(const std::vector<T>& values) {
  return std::count(values.begin(), values.end(), T{0});
}

}  // namespace

std::unique_ptr<Model> sparsify(Context& context, Model& model, const SparsifyOptions& options,
                                const CancelToken* cancel) {
  check_sparsify(model, options);
  const bool wanda = options.score == PruneScore::wanda;
  InputNorms inputs(cancel);
  if (wanda) observe_calibration(context, model, *options.calibration, options.start_id, inputs);
  std::unique_ptr<Model> result = sliced_model(context, model, whole_model(model.spec()));
  ParameterStore& parameters = result->parameters();
  int64_t matrices = 0;
  for (size_t i = 0; i < parameters.count(); ++i)
    matrices += parameters.prunable(static_cast<ParamId>(i)) ? 1 : 0;
  WorkProgress progress(Work::compress, matrices);
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!parameters.prunable(id)) continue;
    stop_if_cancelled(cancel, kSparsifyOrigin);
    const std::vector<double> norms = wanda ? inputs.norms(parameters, id) : std::vector<double>{};
    if (parameters.master().dtype() == DType::f64)
      sparsify_matrix<double>(context, parameters, id, options, norms);
    else
      sparsify_matrix<float>(context, parameters, id, options, norms);
    progress.add(1);
  }
  progress.finish();
  return result;
}

int64_t count_zeros(const Context& context, const ParameterStore& parameters, ParamId id) {
  const auto elements = static_cast<size_t>(element_count(parameters.shape(id)));
  if (parameters.is_int8(id)) {
    ThreadPool* pool = cpu_thread_pool(context.backend());
    require(pool != nullptr, ErrorCode::internal, kSparsifyOrigin, "int8 weights are for the CPU");
    if (const auto int4 = parameters.int4(id)) return zeros_of(int4->matrix(*pool).values(*pool));
    std::vector<int8_t> codes(elements);
    parameters.weight(id).int8->read_codes(*pool, codes);
    return zeros_of(codes);
  }
  const auto count = [&]<class T>(T) {
    std::vector<T> values(elements);
    parameters.get_value(context, id, values.data(), elements * sizeof(T));
    return zeros_of(values);
  };
  return parameters.master().dtype() == DType::f64 ? count(double{}) : count(float{});
}

}  // namespace trafo
