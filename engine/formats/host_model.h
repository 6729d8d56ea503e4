// A float32 model in host memory. Files of other programs are written from it and read into it, for
// caller's models on every device and in every precision.
#pragma once

#include <filesystem>
#include <memory>

#include "engine/models/model.h"

namespace trafo::interop {

struct HostModel {
  std::shared_ptr<Context> context;  // of its own, or the caller's
  std::unique_ptr<Model> owned;      // null: the model is the caller's
  Model* model = nullptr;
  bool is_bfloat16 = false;  // its values are, and its files are to have them as such

  const ModelConfig& config() const { return model->config(); }
  const ModelSpec& spec() const { return model->spec(); }
  ParameterStore& parameters() const { return model->parameters(); }
  float* values(const char* parameter) const;
};

// Where a directory of another program is read to.
struct ReadTarget {
  Context* context = nullptr;          // of a CPU, for the model; null: one of its own
  const HostModel* written = nullptr;  // the model that the directory was written from
  std::filesystem::path memory = {};   // of a context of its own: see make_host_model()
};

// `memory`: a directory for the memory of a context of its own (set_memory_directory); empty: none.
HostModel make_host_model(const ModelConfig& config, Context* context = nullptr,
                          const std::filesystem::path& memory = {});
// Whether models of these configurations with the same weights are the same function.
bool are_same_function(ModelConfig read, const ModelConfig& written);
// Whether every value of the model is a bfloat16 number, as after an import of such weights.
bool has_bfloat16_values(const HostModel& host);
// The same model in the same memory.
HostModel shared_with(const HostModel& host);
// The model itself if it has the form of a host model, else copy_to_host(). What is
// returned must not be changed, and must not outlive the model. NON_FINITE as copy_to_host().
HostModel host_model_of(Context& context, const Model& model,
                        const std::filesystem::path& memory = {});
// Copies the master weights, with the adapter merged. Layers that share their parameters get
// parameters of their own. NON_FINITE, naming the parameter, if a weight
// is NaN or infinite.
HostModel copy_to_host(Context& context, const Model& model,
                       const std::filesystem::path& memory = {});
// A model of this configuration with the parameters of another one, which has parameters of
// the same names and shapes.
HostModel with_weights_of(const ModelConfig& config, const HostModel& other,
                          const std::filesystem::path& memory = {});
std::unique_ptr<Model> copy_from_host(Context& context, const HostModel& host);

// The largest difference between the logits of two models with the same vocabulary on a fixed
// batch, relative to the largest logit if that is above 1. Infinite if a logit is NaN.
double logit_difference(const HostModel& a, const HostModel& b);

// The same function without the output layer's bias, for formats that have none: a decoder_lm,
// pre-norm. Every row y = gamma * x + beta that the last layer norm gives has sum(x) = 0. With beta
// set to gamma, the vector v = 1 / (width * gamma) has v.y = 1 for every row, so that adding the
// outer product of (bias + W (beta - gamma)) and v to the output matrix W does what bias and beta
// did. Embeddings that were tied are not any more. UNSUPPORTED if a gamma is 0.
HostModel fold_output_bias(const HostModel& lm, const std::filesystem::path& memory = {});
bool has_output_bias(const HostModel& model);

}  // namespace trafo::interop
