// Models as safetensors files: one tensor per parameter, and the ModelConfig as JSON in the
// metadata, so that the file alone is enough to build the model.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/io/byte_sink.h"
#include "engine/io/safetensors.h"
#include "engine/models/model.h"

namespace trafo {

// Metadata key of the ModelConfig; other keys are the caller's.
inline constexpr const char* kModelConfigKey = "model_config";

void write_model(ByteSink& sink, Context& context, const Model& model,
                 const SafetensorsMetadata& metadata = {});
// With other weights than its own, laid out like ParameterStore::master().
void write_model(ByteSink& sink, Context& context, const Model& model, const Tensor& weights,
                 const SafetensorsMetadata& metadata);
// Whole or not at all; the same weights and metadata give the same bytes.
void save_model(const std::filesystem::path& path, Context& context, const Model& model,
                const SafetensorsMetadata& metadata = {});

// CORRUPT_FILE when the file has no model configuration, or tensors that do not fit it: missing,
// surplus, of another shape or dtype, each named. `dtype` of the model: as in the file, or bfloat16
// for a float32 file, which becomes the model's master.
std::unique_ptr<Model> load_model(Context& context, const std::filesystem::path& path,
                                  std::optional<DType> dtype = {});
std::unique_ptr<Model> load_model(Context& context, const SafetensorsReader& reader,
                                  std::optional<DType> dtype = {});

// Fills an existing model. INVALID_ARGUMENT names every field in which the two configurations
// differ. On any error the model's weights are as before.
void load_weights(Context& context, const SafetensorsReader& reader, Model& model);

// The same from a model that may differ in what decides no weight: dropout and max_positions.
// INVALID_ARGUMENT names what does not fit, and the first tensor of another shape.
void load_pretrained(Context& context, const SafetensorsReader& reader, Model& model);

// The configuration without the weights.
ModelConfig read_model_config(const SafetensorsReader& reader);
// "width is 512 in the checkpoint, 256 here; ..."; empty when the two are equal.
std::string describe_differences(const ModelConfig& saved, const ModelConfig& given);

// --- flat workspaces laid out like the trainable parameters: weights, moments ---

// One tensor of a file per parameter, named PREFIX + parameter name. Without a prefix it is a file
// of weights, and frozen parameters are in it with the values of the model. Optimizer states have a
// prefix; frozen parameters have none. `storage` receives the host copy that the entries point to.
std::vector<TensorEntry> workspace_entries(Context& context, const ParameterStore& parameters,
                                           const Tensor& workspace, const std::string& prefix,
                                           std::vector<std::byte>& storage);
// Tensors and the bytes that files hold for them, read and checked. commit() copies them: a reader
// of several files commits once all of them are checked, and changes nothing before.
class StagedTensors {
 public:
  void add(const Tensor& to, std::vector<std::byte> bytes) {
    staged_.emplace_back(to.detach(), std::move(bytes));
  }
  void commit(Context& context) const;

 private:
  std::vector<std::pair<Tensor, std::vector<std::byte>>> staged_;
};

// Reads them back: workspace i from the tensors with prefix i, and without a prefix also the frozen
// parameters. Every tensor of the file must begin with one of the prefixes.
void stage_workspaces(const ParameterStore& parameters, const SafetensorsReader& reader,
                      std::span<const Tensor> workspaces, std::span<const std::string> prefixes,
                      StagedTensors& staged);
// What load_weights() does, but for Model::parameters().follow_master() after the commit.
void stage_weights(const SafetensorsReader& reader, Model& model, StagedTensors& staged);

}  // namespace trafo
