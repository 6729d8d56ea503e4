#include "engine/compress/quantize.h"

#include <cmath>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/compress/calibration.h"
#include "engine/core/argument_error.h"
#include "engine/core/progress.h"
#include "engine/models/adapter.h"
#include "engine/models/int8_weights.h"
#include "engine/ops/int8_linear/int8_linear.h"
#include "engine/ops/matmul/matmul.h"
#include "engine/quant/gptq.h"
#include "engine/quant/int8_matrix.h"

namespace trafo {
namespace {

constexpr const char* kQuantizeOrigin = "quantize";

// The sums of a signal-to-noise ratio.
struct Noise {
  double signal = 0, noise = 0;

  void add(std::span<const float> exact, std::span<const float> rounded) {
    for (size_t i = 0; i < exact.size(); ++i) {
      const double value = exact[i], difference = value - static_cast<double>(rounded[i]);
      signal += value * value;
      noise += difference * difference;
    }
  }
  double decibels() const { return 10 * std::log10(signal / noise); }
};

// Outputs of each layer in float and with codes.
class OutputNoise : public LinearObserver {
 public:
  OutputNoise(const ParameterStore& exact, const ParameterStore& rounded)
      : exact_(exact), rounded_(rounded), noise_(exact.count()) {}
  void observe(Context& context, int32_t parameter, const Tensor& x) override {
    const ParamId id = parameter;
    if (!rounded_.is_int8(id)) return;
    const ExactGemms exact_gemms(context.backend());
    const Tensor y = ops::linear(context, x, exact_.value(id));
    const Weight weight = rounded_.weight(id);
    const Tensor q = weight.int4 ? ops::int4_linear(context, x, *weight.int4)
                                 : ops::int8_linear(context, x, *weight.int8);
    noise_[static_cast<size_t>(id)].add(context.values<float>(y), context.values<float>(q));
  }
  const Noise& noise(ParamId id) const { return noise_[static_cast<size_t>(id)]; }

 private:
  const ParameterStore& exact_;
  const ParameterStore& rounded_;
  std::vector<Noise> noise_;
};

void check_quantization(const Context& context, const Model& model,
                        const QuantizeOptions& options) {
  const ParameterStore& parameters = model.parameters();
  require_argument(options.bits == 8 || options.bits == 4, kQuantizeOrigin, "bits",
                   " must be 8 or 4, got ", options.bits);
  require_argument(
      options.method == QuantizeMethod::nearest || options.method == QuantizeMethod::gptq,
      kQuantizeOrigin, "method", " is unknown: ", static_cast<int32_t>(options.method));
  const bool gptq = options.method == QuantizeMethod::gptq;
  require_argument(!gptq || options.bits == 4, kQuantizeOrigin, "bits",
                   " must be 4 with GPTQ: int8 weights are rounded to nearest");
  require(!gptq || options.calibration != nullptr, ErrorCode::invalid_argument, kQuantizeOrigin,
          "GPTQ needs calibration pairs");
  if (options.calibration != nullptr)
    check_calibration(*options.calibration, model.spec(), kQuantizeOrigin);
  require(!parameters.has_codes(), ErrorCode::unsupported, kQuantizeOrigin,
          "the model has quantized weights already: quantize the float model");
  require(context.device().kind == DeviceKind::cpu && parameters.dtype() == DType::f32,
          ErrorCode::unsupported, kQuantizeOrigin,
          "a model is quantized in float32 on the CPU, this one computes in ",
          dtype_name(parameters.dtype()), " on ", device_name(context.device()));
}

// The matrices that become codes.
std::vector<bool> matrices_to_quantize(const ParameterStore& parameters,
                                       const std::vector<std::string>& keep_float) {
  const auto takes_codes = [&](ParamId id) { return parameters.takes_int8(id); };
  std::vector<bool> wanted =
      matching_matrices(parameters, keep_float, takes_codes, kQuantizeOrigin);  // those kept
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto id = static_cast<ParamId>(i);
    wanted[i] = takes_codes(id) && !wanted[i];
    require(!wanted[i] || parameters.shape(id)[1] <= Int8Matrix::kMaxColumns,
            ErrorCode::unsupported, kQuantizeOrigin, parameters.name(id), " has rows of ",
            parameters.shape(id)[1], " elements, int8 weights have at most ",
            Int8Matrix::kMaxColumns);
  }
  return wanted;
}

std::vector<float> exact_values(Context& context, const ParameterStore& parameters, ParamId id) {
  std::vector<float> values(static_cast<size_t>(element_count(parameters.shape(id))));
  parameters.get_value(context, id, values.data(), values.size() * sizeof(float));
  return values;
}

void set_matrix(Context& context, ThreadPool& pool, ParameterStore& parameters, ParamId id,
                std::span<const float> values, const QuantizeOptions& options,
                InputProducts* products) try {
  const int64_t rows = parameters.shape(id)[0], columns = parameters.shape(id)[1];
  if (options.bits == 8)
    parameters.set_int8(id, Int8Matrix::quantized(pool, values.data(), rows, columns));
  else if (products == nullptr)
    parameters.set_int4(context, id, Int4Matrix::quantized(pool, values, rows, columns));
  else
    parameters.set_int4(context, id,
                        gptq_int4(pool, values, rows, columns, products->take(id, columns)));
} catch (const Error& error) {
  fail(error.code(), kQuantizeOrigin, parameters.name(id), ": ", error.message());
}

// Of the weights themselves, as the model computes with them.
double weight_noise(ThreadPool& pool, const Weight& weight, std::span<const float> exact) {
  Noise noise;
  if (weight.int4) {
    noise.add(exact, weight.int4->matrix(pool).values(pool));
    return noise.decibels();
  }
  const Int8Matrix& matrix = *weight.int8;
  std::vector<int8_t> codes(exact.size());
  matrix.read_codes(pool, codes);
  std::vector<float> values(exact.size());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<float>(codes[i]) * matrix.scales()[i / static_cast<size_t>(matrix.columns())];
  noise.add(exact, values);
  return noise.decibels();
}

}  // namespace

std::unique_ptr<Model> quantize_model(Context& context, Model& model,
                                      const QuantizeOptions& options) {
  check_quantization(context, model, options);
  ThreadPool& pool = *cpu_thread_pool(context.backend());
  const ParameterStore& from = model.parameters();
  const std::vector<bool> wanted = matrices_to_quantize(from, options.keep_float);
  InputProducts products(wanted);
  const bool gptq = options.method == QuantizeMethod::gptq;
  if (gptq)
    observe_calibration(context, model, *options.calibration, options.start_id, products,
                        options.cancel);

  std::unique_ptr<Model> result =
      make_model(context, model.config(), std::nullopt, DType::f32, true);
  if (model.adapter()) add_adapter(context, *result, *model.adapter(), 0);
  result->set_origin(model.origin());
  result->set_tokens(model.tokens());
  result->set_labels(model.labels());
  ParameterStore& to = result->parameters();
  WorkProgress progress(Work::compress, static_cast<int64_t>(to.count()));
  for (size_t i = 0; i < to.count(); ++i) {
    stop_if_cancelled(options.cancel, kQuantizeOrigin);
    const auto id = static_cast<ParamId>(i);
    const std::vector<float> values = exact_values(context, from, id);
    if (wanted[i]) {
      set_matrix(context, pool, to, id, values, options, gptq ? &products : nullptr);
      to.set_signal_to_noise(id, weight_noise(pool, to.weight(id), values));
    } else if (to.is_int8(id)) {
      to.keep_float(context, id, values);
    } else if (to.group(id).name != kAdapter) {
      set_rounded(context, to, id, values);
    } else {
      to.set_value(context, id, values.data(), values.size() * sizeof(float));
    }
    progress.add(1);
  }
  progress.finish();
  if (options.calibration == nullptr) return result;
  OutputNoise outputs(from, to);
  observe_calibration(context, model, *options.calibration, options.start_id, outputs,
                      options.cancel);
  for (size_t i = 0; i < to.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (outputs.noise(id).signal > 0) to.set_signal_to_noise(id, outputs.noise(id).decibels());
  }
  return result;
}

}  // namespace trafo
