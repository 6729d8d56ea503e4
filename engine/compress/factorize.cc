#include "engine/compress/factorize.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/compress/calibration.h"
#include "engine/compress/whitened_svd.h"
#include "engine/core/argument_error.h"
#include "engine/core/progress.h"
#include "engine/models/adapter.h"
#include "engine/models/upload.h"

namespace trafo {
namespace {

constexpr const char* kFactorizeOrigin = "factorize";
constexpr int64_t kRankStep = 8;  // of ranks that a ratio chooses: GEMMs like such widths

void check_factorize(const Model& model, const FactorizeOptions& options) {
  const auto refuse_unless = [](bool condition, const auto&... what) {
    require(condition, ErrorCode::invalid_argument, kFactorizeOrigin, what...);
  };
  require(!model.parameters().has_codes(), ErrorCode::unsupported, kFactorizeOrigin,
          "a model with quantized weights cannot be factorized: factorize the float model, then "
          "quantize "
          "it");
  refuse_unless(!model.adapter() && !model.merged_adapter(),
                "the model has an adapter: save it merged and factorize that, or remove it");
  refuse_unless(model.config().factor_ranks.empty(),
                "the model is factorized already: factorize the whole model");
  require_argument(options.rank >= 0, kFactorizeOrigin, "rank",
                   " must be at least 1, or 0 for a ratio, got ", options.rank);
  require_argument(options.ratio == 0 || (options.ratio > 0 && options.ratio < 1), kFactorizeOrigin,
                   "ratio", " must be above 0 and below 1, got ", options.ratio);
  require_argument((options.rank > 0) != (options.ratio > 0), kFactorizeOrigin, "ratio",
                   options.rank > 0 ? " and a rank exclude each other" : " or a rank is needed");
  refuse_unless(options.calibration != nullptr, "the calibration data have no pair");
  check_calibration(*options.calibration, model.spec(), kFactorizeOrigin);
}

// The inputs of the wanted layers, and how many rows of them there were.
class LayerInputs : public LinearObserver {
 public:
  LayerInputs(const std::vector<bool>& wanted, const CancelToken* cancel)
      : products_(wanted), rows_(wanted.size()), cancel_(cancel) {}
  void observe(Context& context, int32_t parameter, const Tensor& x) override {
    stop_if_cancelled(cancel_, kFactorizeOrigin);
    products_.observe(context, parameter, x);
    rows_[static_cast<size_t>(parameter)] += x.dim(0);
  }
  std::vector<double> mean_square(ParamId id, int64_t columns) {
    std::vector<double> sum = products_.take(id, columns);
    const auto rows = static_cast<double>(std::max<int64_t>(1, rows_[static_cast<size_t>(id)]));
    for (double& value : sum) value /= rows;
    return sum;
  }

 private:
  InputProducts products_;
  std::vector<int64_t> rows_;
  const CancelToken* cancel_;
};

// A matrix that may be factorized.
struct Candidate {
  ParamId id;
  int64_t rows, columns;
  std::optional<WhitenedSvd> svd = {};
  std::optional<Error> error = {};
  int64_t rank = 0;  // 0: whole

  int64_t weights() const { return rows * columns; }
  int64_t weights_of(int64_t of_rank) const {
    return of_rank == 0 ? weights() : of_rank * (rows + columns);
  }
  // The largest rank that makes it smaller; 0: none.
  int64_t most() const { return (weights() - 1) / (rows + columns); }
  // The share of the output's energy that components from `begin` up to `end` bring.
  double share(int64_t begin, int64_t end) const {
    const std::vector<double>& energies = svd->energies();
    const double all = std::accumulate(energies.begin(), energies.end(), 0.0);
    const double part = std::accumulate(energies.begin() + begin, energies.begin() + end, 0.0);
    return all > 0 ? part / all : 0;
  }
  int64_t components() const { return std::min(rows, columns); }
};

template <class T>
std::vector<double> weights_as_doubles(const Context& context, const ParameterStore& parameters,
                                       ParamId id) {
  std::vector<T> values(static_cast<size_t>(element_count(parameters.shape(id))));
  parameters.get_value(context, id, values.data(), values.size() * sizeof(T));
  return {values.begin(), values.end()};
}

std::vector<double> weights_of_matrix(const Context& context, const ParameterStore& parameters,
                                      ParamId id) {
  return parameters.master().dtype() == DType::f64
             ? weights_as_doubles<double>(context, parameters, id)
             : weights_as_doubles<float>(context, parameters, id);
}

void set_matrix_values(Context& context, ParameterStore& parameters, ParamId id,
                       const std::vector<double>& values) {
  if (parameters.master().dtype() == DType::f64)
    return parameters.set_value(context, id, values.data(), values.size() * sizeof(double));
  const std::vector<float> narrow(values.begin(), values.end());
  parameters.set_value(context, id, narrow.data(), narrow.size() * sizeof(float));
}

void decompose(Context& context, const ParameterStore& parameters, LayerInputs& inputs,
               std::vector<Candidate>& candidates, const CancelToken* cancel) {
  // Reads of the device come first: the threads only compute.
  std::vector<std::vector<double>> weights, grams;
  for (const Candidate& candidate : candidates) {
    weights.push_back(weights_of_matrix(context, parameters, candidate.id));
    grams.push_back(inputs.mean_square(candidate.id, candidate.columns));
  }
  WorkProgress progress(Work::compress, std::ssize(candidates));
  const auto one = [&](size_t i) {
    if (cancel != nullptr && cancel->is_cancelled()) return;
    Candidate& candidate = candidates[i];
    try {
      candidate.svd.emplace(std::move(weights[i]), std::move(grams[i]), candidate.rows,
                            candidate.columns);
    } catch (const Error& error) {
      candidate.error = error;
    }
    progress.add(1);
  };
  if (ThreadPool* pool = cpu_thread_pool(context.backend()))
    pool->parallel_for(std::ssize(candidates), [&](int64_t i) { one(static_cast<size_t>(i)); });
  else
    for (size_t i = 0; i < candidates.size(); ++i) one(i);
  for (const Candidate& candidate : candidates) {
    if (candidate.error)
      fail(candidate.error->code(), kFactorizeOrigin, parameters.name(candidate.id), ": ",
           candidate.error->message());
    require(candidate.svd.has_value(), ErrorCode::cancelled, kFactorizeOrigin,
            "cancelled by the caller");
  }
  progress.finish();
}

// The next step of a matrix that a ratio lets grow, and what it brings for each weight.
struct Growth {
  int64_t rank = 0;  // 0: whole
  int64_t weights = 0;
  double gain = 0;
};

Growth next_step(const Candidate& candidate) {
  Growth step;
  const int64_t next = candidate.rank + kRankStep;
  step.rank = next <= candidate.most() ? next : 0;
  step.weights = candidate.weights_of(step.rank) - candidate.weights_of(candidate.rank);
  step.gain = candidate.share(candidate.rank, step.rank > 0 ? step.rank : candidate.components()) /
              static_cast<double>(step.weights);
  return step;
}

void choose_by_ratio(std::vector<Candidate>& candidates, double ratio) {
  int64_t all = 0, used = 0;
  for (Candidate& candidate : candidates) {
    candidate.rank = std::min(kRankStep, candidate.most());
    all += candidate.weights();
    used += candidate.weights_of(candidate.rank);
  }
  const auto budget = static_cast<int64_t>(ratio * static_cast<double>(all));
  require_argument(used <= budget, kFactorizeOrigin, "ratio", " ", ratio,
                   " is too low: with ranks of ", kRankStep, " a share of ",
                   static_cast<double>(used) / static_cast<double>(all), " of the weights stays");
  std::vector<size_t> open;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].rank > 0) open.push_back(i);
  while (!open.empty()) {
    const auto best = std::max_element(open.begin(), open.end(), [&](size_t a, size_t b) {
      return next_step(candidates[a]).gain < next_step(candidates[b]).gain;
    });
    Candidate& candidate = candidates[*best];
    const Growth step = next_step(candidate);
    const bool fits = used + step.weights <= budget;
    if (fits) {
      candidate.rank = step.rank;
      used += step.weights;
    }
    if (!fits || candidate.rank == 0) open.erase(best);
  }
}

void choose_ranks(std::vector<Candidate>& candidates, const FactorizeOptions& options) {
  if (options.ratio > 0) choose_by_ratio(candidates, options.ratio);
  for (Candidate& candidate : candidates)
    if (options.rank > 0) candidate.rank = options.rank <= candidate.most() ? options.rank : 0;
  require_argument(std::any_of(candidates.begin(), candidates.end(),
                               [](const Candidate& candidate) { return candidate.rank > 0; }),
                   kFactorizeOrigin, options.rank > 0 ? "rank" : "ratio", " ",
                   options.rank > 0 ? static_cast<double>(options.rank) : options.ratio,
                   " is too high: no matrix is smaller as two factors");
}

}  // namespace

std::unique_ptr<Model> factorize(Context& context, Model& model, const FactorizeOptions& options,
                                 const CancelToken* cancel) {
  check_factorize(model, options);
  const ParameterStore& from = model.parameters();
  const std::string everything = "*";
  const std::span<const std::string> patterns =
      options.layers.empty() ? std::span(&everything, 1) : std::span(options.layers);
  const std::vector<bool> wanted = matching_matrices(
      from, patterns, [&](ParamId id) { return from.prunable(id); }, kFactorizeOrigin);
  LayerInputs inputs(wanted, cancel);
  observe_calibration(context, model, *options.calibration, options.start_id, inputs);
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (wanted[i]) candidates.push_back({id, from.shape(id)[0], from.shape(id)[1]});
  }
  decompose(context, from, inputs, candidates, cancel);
  choose_ranks(candidates, options);

  ModelConfig config = model.config();
  for (const Candidate& candidate : candidates)
    if (candidate.rank > 0) config.factor_ranks[from.name(candidate.id)] = candidate.rank;
  std::unique_ptr<Model> result = make_model(context, config, std::nullopt, from.master().dtype());
  ParameterStore& to = result->parameters();
  for (size_t i = 0; i < from.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const ParamId target = to.find(from.name(id));
    if (target != kNoParam)
      set_matrix_values(context, to, target, weights_of_matrix(context, from, id));
  }
  for (const Candidate& candidate : candidates) {
    if (candidate.rank == 0) continue;
    stop_if_cancelled(cancel, kFactorizeOrigin);
    const WhitenedSvd::Factors factors = candidate.svd->factors(candidate.rank);
    const ParamId outer = to.find(from.name(candidate.id) + kOuterFactor);
    set_matrix_values(context, to, outer, factors.u);
    set_matrix_values(context, to, to.inner_factor(outer), factors.v);
    to.set_signal_to_noise(
        outer, -10 * std::log10(candidate.share(candidate.rank, candidate.components())));
  }
  context.backend().synchronize();
  result->set_origin(model.origin());
  result->set_tokens(model.tokens());
  result->set_labels(model.labels());
  return result;
}

}  // namespace trafo
