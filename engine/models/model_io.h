// Models as safetensors files: one tensor per parameter, and the ModelConfig as JSON in the
// metadata, so that the file alone is enough to build the model.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/io/byte_sink.h"
#include "engine/io/safetensors.h"
#include "engine/memory/host_buffer.h"
#include "engine/models/meta_model.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace trafo {

// Metadata key of the ModelConfig; other keys are the caller's.
inline constexpr const char* kModelConfigKey = "model_config";
// Metadata key of Model::Origin::vocabulary.
inline constexpr const char* kTokenizerKey = "tokenizer_crc32";
// Metadata key of Model::tokens(), as JSON; not in a file of a model that does not know them.
inline constexpr const char* kTokensKey = "special_tokens";
inline constexpr const char* kLabelsKey = "labels";  // of an encoder's head, a list of names

// The CRC-32 of the serialised tokenizer, in eight hexadecimal digits.
std::string vocabulary_checksum(const Tokenizer& tokenizer);
// Origin::vocabulary of a file. CORRUPT_FILE if it is no checksum.
std::string read_vocabulary_checksum(const SafetensorsReader& reader);
// INVALID_ARGUMENT, with the names of both files, if the model was trained with another vocabulary,
// even one of the same size. A model that does not say so fits each. `checksum` is the tokenizer's;
// `tokenizer` names its file, or is empty.
void require_vocabulary(const Model& model, std::string_view checksum, std::string_view tokenizer);

// Whether the vocabularies of sources and of targets have the same sizes.
bool has_sizes_of(const ModelSpec& spec, const Tokenizer& tokenizer);
// INVALID_ARGUMENT, from `origin`, unless has_sizes_of().
void require_vocabulary_size(const char* origin, const ModelSpec& spec, const Tokenizer& tokenizer);
inline void require_vocabulary_size(const Model& model, const Tokenizer& tokenizer) {
  require_vocabulary_size("model file", model.spec(), tokenizer);
}

// The special tokens of the tokenizer, or without one those that the model knows; the frame is the
// model's. INVALID_ARGUMENT: there is no tokenizer and the model knows none; the tokenizer has no
// bos, and the frame begins with it.
VocabularyTokens tokens_of(const Model& model, const std::optional<Tokenizer>& tokenizer);

// Opens a model file, after verify_file_of_checkpoint(). UNSUPPORTED for one with int8 weights,
// unless `types` allows them.
SafetensorsReader open_model(const std::filesystem::path& path,
                             ElementTypes types = ElementTypes::ours);

// The contents of a safetensors file, and the memory that its entries point to.
struct TensorFile {
  std::vector<HostBuffer> storage;
  std::vector<std::vector<std::byte>> codes;
  std::vector<TensorEntry> entries;
  SafetensorsMetadata metadata = {};

  void write(ByteSink& sink) const { write_safetensors(sink, entries, metadata); }
};

// A model in host memory, as a file: a copy, but for frozen parameters on a CPU, which must not be
// written while the file lives. Besides `metadata`, the file gets the
// configuration, Origin::vocabulary and Model::tokens(). `weights` are laid out like
// ParameterStore::master().
TensorFile copy_model(Context& context, const Model& model, const Tensor& weights,
                      const SafetensorsMetadata& metadata = {},
                      const HostAllocator& allocate = plain_host_buffer);
// Writes that copy.
void write_model(ByteSink& sink, Context& context, const Model& model,
                 const SafetensorsMetadata& metadata = {});
// With other weights than its own, laid out like ParameterStore::master().
void write_model(ByteSink& sink, Context& context, const Model& model, const Tensor& weights,
                 const SafetensorsMetadata& metadata);
// Whole or not at all; the same weights and metadata give the same bytes.
void save_model(const std::filesystem::path& path, Context& context, const Model& model,
                const SafetensorsMetadata& metadata = {});

// The model that a file says it has, with its adapter, without data. Takes little memory whatever
// the file claims. CORRUPT_FILE: there is no such model, or the tensors of the file do not fit it
// (load_model).
MetaModel read_meta_model(const SafetensorsReader& reader);

// CORRUPT_FILE when the file has no model configuration, or tensors that do not fit it: missing,
// surplus, of another shape or dtype, each named. `dtype` of the model: as in the file, or bfloat16
// for a float32 file, which becomes the model's master. int8_weights: the matrices of a float32
// file are quantized while they are read. A file with int8 weights (models/int8_weights.h) gives
// such a model in any case; the reader must allow I8. UNSUPPORTED: int8 weights on another device
// than the CPU or in another dtype than float32.
std::unique_ptr<Model> load_model(Context& context, const std::filesystem::path& path,
                                  std::optional<DType> dtype = {}, bool int8_weights = false);
std::unique_ptr<Model> load_model(Context& context, const SafetensorsReader& reader,
                                  std::optional<DType> dtype = {}, bool int8_weights = false);

// Fills an existing model. INVALID_ARGUMENT names every field in which the two configurations
// differ. On any error the model's weights are as before.
void load_weights(Context& context, const SafetensorsReader& reader, Model& model);

// The same from a model that may differ in what decides no weight: dropout and max_positions.
// INVALID_ARGUMENT names what does not fit, and the first tensor of another shape. On a CPU, IO
// after the file was checked leaves a part of its weights in the model.
void load_pretrained(Context& context, const SafetensorsReader& reader, Model& model);

// The special tokens of the model in the file, if the file has them. CORRUPT_FILE.
std::optional<VocabularyTokens> saved_tokens(const SafetensorsReader& reader);

// Gives the model these tokens. CORRUPT_FILE: it cannot
// have them. load_model() and load_pretrained() do it.
void read_tokens(const SafetensorsReader& reader, Model& model);
// The names of labels, if the file has them. CORRUPT_FILE: they are not those of the head.
void read_labels(const SafetensorsReader& reader, Model& model);

// The configuration without the weights, with the ranks of the matrices that are factorized in the
// file.
ModelConfig read_model_config(const SafetensorsReader& reader);
// "width is 512 in the checkpoint, 256 here; ..."; empty when the two are equal.
std::string describe_differences(const ModelConfig& saved, const ModelConfig& given);

// --- flat workspaces laid out like the trainable parameters: weights, moments ---

// One tensor of a file per parameter, named PREFIX + parameter name. Without a prefix it is a file
// of weights, and frozen parameters are in it with the values of the model. Optimizer states have a
// prefix; frozen parameters have none. `storage` receives the host copy that the entries point to.
std::vector<TensorEntry> workspace_entries(Context& context, const ParameterStore& parameters,
                                           const Tensor& workspace, const std::string& prefix,
                                           HostBuffer& storage,
                                           const HostAllocator& allocate = plain_host_buffer);
// The same from a workspace in host memory; with a prefix.
std::vector<TensorEntry> workspace_entries(const ParameterStore& parameters, DType dtype,
                                           const std::string& prefix,
                                           std::span<std::byte> workspace);

// Where the bytes of a tensor in a file go.
struct StagingTarget {
  DType dtype;
  size_t bytes;
  std::function<void(Context& context, std::span<const std::byte> bytes)> commit;

  StagingTarget(DType element, size_t size,
                std::function<void(Context&, std::span<const std::byte>)> commit_bytes)
      : dtype(element), bytes(size), commit(std::move(commit_bytes)) {}
  StagingTarget(const Tensor& tensor);  // NOLINT: implicit
};

// The bytes that files hold for tensors, read and checked. commit() copies them, in their order: a
// reader of several files commits once all of them are checked, and changes nothing before.
class StagedTensors {
 public:
  void add(StagingTarget to, std::vector<std::byte> bytes) {
    staged_.emplace_back(std::move(to), std::move(bytes));
  }
  void commit(Context& context) const;

 private:
  std::vector<std::pair<StagingTarget, std::vector<std::byte>>> staged_;
};

// Reads them back: workspace i from the tensors with prefix i, and without a prefix also the frozen
// parameters. Every tensor of the file must begin with one of the prefixes.
void stage_workspaces(const ParameterStore& parameters, const SafetensorsReader& reader,
                      std::span<const StagingTarget> workspaces,
                      std::span<const std::string> prefixes, StagedTensors& staged);
// As load_weights(), but without Model::parameters().follow_master() after the commit.
void stage_weights(const SafetensorsReader& reader, Model& model, StagedTensors& staged);

}  // namespace trafo
