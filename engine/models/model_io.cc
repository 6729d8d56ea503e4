#include "engine/models/model_io.h"

#include <cmath>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "engine/backend/cpu/cpu_backend.h"
#include "engine/core/checked.h"
#include "engine/core/file_memory.h"
#include "engine/core/limits.h"
#include "engine/core/strings/json.h"
#include "engine/io/atomic_file.h"
#include "engine/io/checkpoint_directory.h"
#include "engine/io/checksum.h"
#include "engine/io/safetensors_header.h"
#include "engine/models/adapter.h"
#include "engine/models/int8_weights.h"

namespace trafo {
namespace {

constexpr const char* kModelIoOrigin = "model file";

std::vector<int64_t> file_dims(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

size_t bytes_of(const ParameterStore& parameters, ParamId id) {
  return checked_mul(static_cast<size_t>(element_count(parameters.shape(id))),
                     dtype_size(parameters.master().dtype()), kModelIoOrigin);
}

// The bytes of a trainable parameter in a flat workspace of the master's dtype.
template <class Byte>
std::span<Byte> part_of(std::span<Byte> workspace, const ParameterStore& parameters, ParamId id) {
  const size_t first = checked_mul(static_cast<size_t>(parameters.offset(id)),
                                   dtype_size(parameters.master().dtype()), kModelIoOrigin);
  return workspace.subspan(first, bytes_of(parameters, id));
}

// A file of weights (no prefix) holds every parameter, one of optimizer states the trainable ones.
bool in_file(const ParameterStore& parameters, ParamId id, const std::string& prefix) {
  return prefix.empty() || parameters.trainable(id);
}

void stage_master(const SafetensorsReader& reader, const ParameterStore& parameters,
                  StagedTensors& staged) {
  const StagingTarget master = parameters.master();
  const std::string no_prefix;
  stage_workspaces(parameters, reader, {&master, 1}, {&no_prefix, 1}, staged);
}

void read_weights(Context& context, const SafetensorsReader& reader, ParameterStore& parameters) {
  StagedTensors staged;
  stage_master(reader, parameters, staged);
  staged.commit(context);
  parameters.follow_master(context);
}

// The same for a model that nobody has yet: an error may leave it half read. In the memory of a
// device, one parameter at a time is in host memory.
void read_new_weights(Context& context, const SafetensorsReader& reader,
                      ParameterStore& parameters) {
  ThreadPool* const pool = cpu_thread_pool(context.backend());
  // Values are in the dtype of the file. In files they are written one after another.
  if (pool != nullptr && !parameters.has_master() && !has_memory_directory(context.backend())) {
    pool->parallel_for(static_cast<int64_t>(parameters.count()), [&](int64_t i) {
      const auto id = static_cast<ParamId>(i);
      const Tensor& value = parameters.value(id);
      reader.read(parameters.name(id), {static_cast<std::byte*>(value.raw()), value.bytes()});
    });
    for (size_t i = 0; i < parameters.count(); ++i)
      parameters.value(static_cast<ParamId>(i)).mark_written();
    return;
  }
  std::vector<std::byte> values;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    values.resize(bytes_of(parameters, id));
    reader.read(parameters.name(id), values);
    release_file_memory();
    parameters.set_value(context, id, values.data(), values.size());
  }
  context.backend().synchronize();
}

// The ranks of factorized matrices: NAME.v [rank, columns] beside NAME.u. It has a row for each
// component in every form, also with codes.
std::map<std::string, int64_t> read_factor_ranks(const SafetensorsReader& reader) {
  const std::string suffix = std::string(".weight") + kInnerFactor;
  std::map<std::string, int64_t> ranks;
  for (const TensorInfo& info : reader.tensors()) {
    if (!info.name.ends_with(suffix)) continue;
    require(info.shape.size() == 2, ErrorCode::corrupt_file, kModelIoOrigin, reader.label(), ": ",
            info.name, " has the shape ", Shape(std::span<const int64_t>(info.shape)).str(),
            ", a factor has two dimensions");
    ranks[info.name.substr(0, info.name.rfind('.'))] = info.shape[0];
  }
  return ranks;
}

DType stored_dtype(const SafetensorsReader& reader) {
  require(!reader.tensors().empty(), ErrorCode::corrupt_file, kModelIoOrigin, reader.label(),
          " holds no tensors");
  const DType dtype = reader.tensors().front().dtype;
  require(is_compute(dtype), ErrorCode::unsupported, kModelIoOrigin, reader.label(), " holds ",
          dtype_name(dtype), " weights, they must be float32 or float64");
  return dtype;
}

// The sections of a frozen matrix in few bits.
std::vector<BaseSection> sections_of(const ParameterStore& parameters, ParamId id) {
  const Shape& shape = parameters.shape(id);
  return base_sections(parameters.base_precision(), shape[0], shape[1]);
}

// Whether the file has codes: the values of a model in floating point are encoded when it is read.
bool stores_codes(const SafetensorsReader& reader) {
  const auto found = reader.metadata().find(kQuantizationKey);
  return found != reader.metadata().end() && found->second == kBaseQuantization;
}

bool is_type(const TensorInfo& info, std::string_view type) {
  return type == "F32" ? info.foreign.empty() && info.dtype == DType::f32 : info.foreign == type;
}

// The tensors that hold a frozen matrix in few bits.
void check_sections(const SafetensorsReader& reader, const ParameterStore& parameters, ParamId id,
                    std::unordered_set<std::string>& known) {
  for (const BaseSection& section : sections_of(parameters, id)) {
    const std::string name = parameters.name(id) + section.suffix;
    const TensorInfo* info = reader.find(name);
    require(info != nullptr, ErrorCode::corrupt_file, kModelIoOrigin, reader.label(),
            " lacks the tensor ", name);
    require(info->shape == section.shape && is_type(*info, section.type), ErrorCode::corrupt_file,
            kModelIoOrigin, reader.label(), ": ", name, " is ",
            info->foreign.empty() ? dtype_name(info->dtype) : info->foreign.c_str(), " ",
            Shape(std::span<const int64_t>(info->shape)).str(), ", the model needs ", section.type,
            " ", Shape(std::span<const int64_t>(section.shape)).str());
    known.insert(name);
  }
}

void check_entry(const SafetensorsReader& reader, const ParameterStore& parameters, ParamId id,
                 const std::string& prefix) {
  const TensorInfo* info = reader.find(prefix + parameters.name(id));
  require(info != nullptr, ErrorCode::corrupt_file, kModelIoOrigin, reader.label(),
          " lacks the tensor ", prefix, parameters.name(id));
  require(info->shape == file_dims(parameters.shape(id)), ErrorCode::corrupt_file, kModelIoOrigin,
          reader.label(), ": ", info->name, " has the shape ",
          Shape(std::span<const int64_t>(info->shape)).str(), ", the model needs ",
          parameters.shape(id).str());
  const DType dtype = parameters.master().dtype();
  require(info->dtype == dtype && info->foreign.empty(), ErrorCode::corrupt_file, kModelIoOrigin,
          reader.label(), ": ", info->name, " is ",
          info->foreign.empty()   ? dtype_name(info->dtype)
          : info->foreign == "I8" ? "int8"
                                  : info->foreign.c_str(),
          ", the model needs ", dtype_name(dtype));
}

// Everything but the values: names, shapes, dtypes, and nothing besides them.
void check_tensors(const SafetensorsReader& reader, const ParameterStore& parameters,
                   std::span<const std::string> prefixes) {
  std::unordered_set<std::string> known;
  for (const std::string& prefix : prefixes)
    for (size_t i = 0; i < parameters.count(); ++i) {
      const auto id = static_cast<ParamId>(i);
      if (!in_file(parameters, id, prefix)) continue;
      if (parameters.is_coded(id) && stores_codes(reader)) {
        check_sections(reader, parameters, id, known);
        continue;
      }
      check_entry(reader, parameters, id, prefix);
      known.insert(prefix + parameters.name(id));
    }
  for (const TensorInfo& info : reader.tensors())
    require(known.contains(info.name), ErrorCode::corrupt_file, kModelIoOrigin, reader.label(),
            " has the tensor ", info.name, ", which the model does not know");
}

// Names and shapes of a file with codes. read_int8_weights() checks types and surplus tensors.
void check_code_shapes(const SafetensorsReader& reader, const ParameterStore& parameters) {
  require(reader.find(kVectorsName) != nullptr, ErrorCode::corrupt_file, kModelIoOrigin,
          reader.label(), " lacks the tensor ", kVectorsName,
          "; builds before 0.1.0 wrote int8 weights without it: quantize the float model again");
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const Shape& shape = parameters.shape(id);
    if (shape.rank() == 1) continue;
    const TensorInfo* info = reader.find(parameters.name(id));
    require(info != nullptr, ErrorCode::corrupt_file, kModelIoOrigin, reader.label(),
            " lacks the tensor ", parameters.name(id));
    std::vector<int64_t> dims = file_dims(shape);
    bool fits = info->shape == dims;
    if (!fits && info->foreign == kInt4Type && dims.size() == 2) {
      dims[1] = (dims[1] + 1) / 2;
      fits = info->shape == dims;
    }
    require(fits, ErrorCode::corrupt_file, kModelIoOrigin, reader.label(), ": ", info->name,
            " has the shape ", Shape(std::span<const int64_t>(info->shape)).str(),
            ", the model needs ", shape.str());
  }
}

// Whether the tensors of a model file are the tensors of the model, before memory is taken for
// them.
void check_model(const SafetensorsReader& reader, const ParameterStore& parameters) {
  const std::string no_prefix;
  if (stored_weights(reader) == StoredWeights::floats)
    check_tensors(reader, parameters, {&no_prefix, 1});
  else
    check_code_shapes(reader, parameters);
}

// Bounds the memory that no tensor of the file accounts for: modules of layers, and the table of
// sinusoidal positions, which may take 64 MiB more than the file.
void check_untensored(const SafetensorsReader& reader, const ModelSpec& spec, DType dtype) {
  const int64_t layers =
      (spec.encoder ? spec.encoder->sharing.set_count : 0) + spec.decoder.sharing.set_count;
  require(layers <= std::ssize(reader.tensors()), ErrorCode::corrupt_file, kModelIoOrigin,
          reader.label(), " has ", reader.tensors().size(), " tensors, its configuration has ",
          layers, " layers");
  if (!spec.embedding.has_fixed_positions()) return;
  double payload = 0;
  for (const TensorInfo& info : reader.tensors()) payload += static_cast<double>(info.bytes);
  const double table = static_cast<double>(spec.max_positions) * static_cast<double>(spec.width()) *
                       static_cast<double>(dtype_size(dtype));
  require(table <= payload + static_cast<double>(limits::kRefusalBytes), ErrorCode::corrupt_file,
          kModelIoOrigin, reader.label(), ": max_positions ", spec.max_positions,
          " is out of proportion to the model");
}

// Stages a frozen matrix in few bits: the codes of the file, or of its values.
void stage_coded(const SafetensorsReader& reader, const ParameterStore& parameters, ParamId id,
                 StagedTensors& staged) {
  std::vector<std::byte> bytes(parameters.stored(id).bytes());
  if (stores_codes(reader)) {
    for (const BaseSection& section : sections_of(parameters, id))
      reader.read(parameters.name(id) + section.suffix,
                  std::span(bytes).subspan(section.offset, section.bytes));
    try {
      check_base_codes(parameters.base_precision(), bytes, parameters.shape(id)[0],
                       parameters.shape(id)[1]);
    } catch (const Error& error) {
      fail(ErrorCode::corrupt_file, kModelIoOrigin, reader.label(), ": ", parameters.name(id), ": ",
           error.message());
    }
    return staged.add(parameters.stored(id), std::move(bytes));
  }
  std::vector<std::byte> stored(bytes_of(parameters, id));
  reader.read(parameters.name(id), stored);
  staged.add(parameters.stored(id), parameters.encoded(id, stored.data()));
}

// Stages a frozen parameter: in the dtype that the model computes with.
void stage_frozen(const SafetensorsReader& reader, const ParameterStore& parameters, ParamId id,
                  StagedTensors& staged) {
  if (parameters.is_coded(id)) return stage_coded(reader, parameters, id, staged);
  const Tensor& value = parameters.value(id);
  std::vector<std::byte> bytes(bytes_of(parameters, id));
  reader.read(parameters.name(id), bytes);
  if (value.dtype() != DType::bf16) return staged.add(value, std::move(bytes));
  std::vector<std::byte> rounded(value.bytes());
  for (size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
    float wide;
    std::memcpy(&wide, bytes.data() + i * sizeof(float), sizeof wide);
    const BFloat16 narrow = BFloat16::from_float(wide);
    std::memcpy(rounded.data() + i * sizeof(BFloat16), &narrow, sizeof narrow);
  }
  staged.add(value, std::move(rounded));
}

// Adds the codes of frozen matrices in few bits. The entries point into `storage`.
void add_base_entries(Context& context, const ParameterStore& parameters,
                      std::vector<std::vector<std::byte>>& storage,
                      std::vector<TensorEntry>& entries) {
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!parameters.is_coded(id)) continue;
    const std::span<const std::byte> bytes = storage.emplace_back(parameters.codes(context, id));
    for (const BaseSection& section : sections_of(parameters, id)) {
      const std::string_view type = section.type;
      entries.push_back({parameters.name(id) + section.suffix, DType::f32, section.shape,
                         bytes.subspan(section.offset, section.bytes),
                         std::string(type == "F32" ? "" : type)});
    }
  }
}

std::string tokens_to_json(const VocabularyTokens& tokens) {
  Json json;
  json["bos"] = tokens.special.bos;
  json["eos"] = tokens.special.eos;
  json["pad"] = tokens.special.pad;
  json["unk"] = tokens.special.unk;
  json["further_ends"] = tokens.further_ends;
  if (tokens.frame.begin) json["begin_source"] = true;
  if (!tokens.frame.end) json["end_source"] = false;
  return json.dump();
}

// Non-finite moments would spoil every update from the first on, and no loss or gradient would show
// it.
template <class T>
void require_finite(std::span<const std::byte> bytes, const SafetensorsReader& reader,
                    const std::string& name) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    require(std::isfinite(value), ErrorCode::corrupt_file, kModelIoOrigin, reader.label(), ": ",
            name, " has the element ", value, ", which no update could use");
  }
}

}  // namespace

std::optional<VocabularyTokens> saved_tokens(const SafetensorsReader& reader) {
  const auto found = reader.metadata().find(kTokensKey);
  if (found == reader.metadata().end()) return std::nullopt;
  const std::string label = concat(reader.label(), ": ", kTokensKey);
  const Json json = parse_json(found->second, kModelIoOrigin, label);
  const JsonFields fields(json, kModelIoOrigin, label);
  VocabularyTokens tokens;
  fields.take("bos", tokens.special.bos);
  fields.take("eos", tokens.special.eos);
  fields.take("pad", tokens.special.pad);
  fields.take("unk", tokens.special.unk);
  std::vector<int64_t> ends;
  fields.take("further_ends", ends);
  for (const int64_t id : ends) {
    require(std::in_range<int32_t>(id), ErrorCode::corrupt_file, kModelIoOrigin, label,
            ": further_ends has ", id);
    tokens.further_ends.push_back(static_cast<int32_t>(id));
  }
  if (fields.has("begin_source")) fields.take("begin_source", tokens.frame.begin);
  if (fields.has("end_source")) fields.take("end_source", tokens.frame.end);
  return tokens;
}

void read_tokens(const SafetensorsReader& reader, Model& model) {
  std::optional<VocabularyTokens> tokens = saved_tokens(reader);
  if (!tokens) return;
  try {
    model.set_tokens(std::move(tokens));
  } catch (const Error& error) {
    fail(ErrorCode::corrupt_file, kModelIoOrigin, reader.label(), ": ", kTokensKey, ": ",
         error.message());
  }
}

void read_labels(const SafetensorsReader& reader, Model& model) {
  const auto found = reader.metadata().find(kLabelsKey);
  if (found == reader.metadata().end()) return;
  const std::string label = concat(reader.label(), ": ", kLabelsKey);
  const Json json = parse_json(found->second, kModelIoOrigin, label);
  const auto* names = json.as<Json::List>();
  require(names != nullptr, ErrorCode::corrupt_file, kModelIoOrigin, label, ": it is not a list");
  std::vector<std::string> labels;
  for (const Json& name : *names) {
    const auto* text = name.as<std::string>();
    require(text != nullptr, ErrorCode::corrupt_file, kModelIoOrigin, label,
            ": a name is not a text");
    labels.push_back(*text);
  }
  try {
    model.set_labels(std::move(labels));
  } catch (const Error& error) {
    fail(ErrorCode::corrupt_file, kModelIoOrigin, label, ": ", error.message());
  }
}

std::string vocabulary_checksum(const Tokenizer& tokenizer) {
  return crc32_text(crc32(std::as_bytes(std::span<const char>(tokenizer.serialized()))));
}

void require_vocabulary(const Model& model, std::string_view checksum, std::string_view tokenizer) {
  const Model::Origin& origin = model.origin();
  require(origin.vocabulary.empty() || origin.vocabulary == checksum, ErrorCode::invalid_argument,
          kModelIoOrigin, origin.file.empty() ? "the model" : origin.file,
          " was trained with another vocabulary than ",
          tokenizer.empty() ? "the tokenizer" : tokenizer, ": their checksums are ",
          origin.vocabulary, " and ", checksum);
}

bool has_sizes_of(const ModelSpec& spec, const Tokenizer& tokenizer) {
  return tokenizer.vocab_size() == spec.vocabulary &&
         tokenizer.source_vocab_size() == spec.source_vocabulary();
}

void require_vocabulary_size(const char* origin, const ModelSpec& spec,
                             const Tokenizer& tokenizer) {
  const bool of_targets = tokenizer.vocab_size() != spec.vocabulary;
  require(has_sizes_of(spec, tokenizer), ErrorCode::invalid_argument, origin, "the tokenizer has ",
          of_targets ? tokenizer.vocab_size() : tokenizer.source_vocab_size(), " tokens",
          of_targets ? "" : " of sources", ", the model ",
          of_targets ? spec.vocabulary : spec.source_vocabulary(), ": they do not belong together");
}

VocabularyTokens tokens_of(const Model& model, const std::optional<Tokenizer>& tokenizer) {
  if (tokenizer) {
    VocabularyTokens tokens = tokenizer->tokens();
    if (model.tokens()) tokens.frame = model.tokens()->frame;
    require(!tokens.frame.begin || tokens.special.bos >= 0, ErrorCode::invalid_argument,
            kModelIoOrigin, "the tokenizer has no bos, with which texts of the model begin");
    return tokens;
  }
  require(model.tokens().has_value(), ErrorCode::invalid_argument, kModelIoOrigin,
          model.origin().file.empty() ? "the model" : model.origin().file,
          " does not know the special tokens of its vocabulary: give a tokenizer, or set them "
          "(trafo_model_set_special_tokens)");
  return *model.tokens();
}

SafetensorsReader open_model(const std::filesystem::path& path, ElementTypes types) {
  verify_file_of_checkpoint(path);
  return SafetensorsReader::open(path, types);
}

std::vector<TensorEntry> workspace_entries(Context& context, const ParameterStore& parameters,
                                           const Tensor& workspace, const std::string& prefix,
                                           HostBuffer& storage, const HostAllocator& allocate) {
  // The workspace, then the frozen parameters one by one.
  size_t at = workspace.bytes(), total = at;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (parameters.is_int8(id) || parameters.is_coded(id)) continue;
    if (prefix.empty() && !parameters.trainable(id)) total += bytes_of(parameters, id);
  }
  storage = allocate(total);
  context.to_host(workspace.detach(), storage.data(), at);
  std::vector<TensorEntry> entries;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!in_file(parameters, id, prefix) || parameters.is_int8(id) || parameters.is_coded(id))
      continue;
    std::span<std::byte> bytes = storage.bytes();
    if (parameters.trainable(id)) {
      bytes = part_of(bytes, parameters, id);
    } else {
      bytes = bytes.subspan(at, bytes_of(parameters, id));
      at += bytes.size();
      parameters.get_value(context, id, bytes.data(), bytes.size());
    }
    entries.push_back(
        {prefix + parameters.name(id), workspace.dtype(), file_dims(parameters.shape(id)), bytes});
  }
  return entries;
}

std::vector<TensorEntry> workspace_entries(const ParameterStore& parameters, DType dtype,
                                           const std::string& prefix,
                                           std::span<std::byte> workspace) {
  std::vector<TensorEntry> entries;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (in_file(parameters, id, prefix))
      entries.push_back({prefix + parameters.name(id), dtype, file_dims(parameters.shape(id)),
                         part_of(workspace, parameters, id)});
  }
  return entries;
}

StagingTarget::StagingTarget(const Tensor& tensor)
    : dtype(tensor.dtype()),
      bytes(tensor.bytes()),
      commit([to = tensor.detach()](Context& context, std::span<const std::byte> contents) {
        context.backend().copy_from_host(to.raw(), contents.data(), contents.size());
        to.mark_written();
      }) {}

void stage_workspaces(const ParameterStore& parameters, const SafetensorsReader& reader,
                      std::span<const StagingTarget> workspaces,
                      std::span<const std::string> prefixes, StagedTensors& staged) {
  check_tensors(reader, parameters, prefixes);
  for (size_t w = 0; w < workspaces.size(); ++w) {
    std::vector<std::byte> bytes(workspaces[w].bytes);  // the alignment padding stays zero
    for (size_t i = 0; i < parameters.count(); ++i) {
      const auto id = static_cast<ParamId>(i);
      if (!parameters.trainable(id)) {
        if (prefixes[w].empty()) stage_frozen(reader, parameters, id, staged);
        continue;
      }
      const std::string name = prefixes[w] + parameters.name(id);
      const auto values = part_of(std::span(bytes), parameters, id);
      reader.read(name, values);
      if (prefixes[w].empty()) continue;
      if (workspaces[w].dtype == DType::f64)
        require_finite<double>(values, reader, name);
      else
        require_finite<float>(values, reader, name);
    }
    staged.add(workspaces[w], std::move(bytes));
  }
}

void StagedTensors::commit(Context& context) const {
  for (const auto& [to, bytes] : staged_) to.commit(context, bytes);
  context.backend().synchronize();
}

void write_model(ByteSink& sink, Context& context, const Model& model,
                 const SafetensorsMetadata& metadata) {
  write_model(sink, context, model, model.parameters().master(), metadata);
}

namespace {

// Whether host code can read the values of the model, of the dtype of `weights`, where they are.
bool is_readable(Context& context, const ParameterStore& parameters, const Tensor& weights) {
  if (context.device().kind != DeviceKind::cpu || !context.backend().keeps_data() ||
      parameters.has_int8() || parameters.base_precision() != BasePrecision::none)
    return false;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (!parameters.trainable(id) && parameters.value(id).dtype() != weights.dtype()) return false;
  }
  return true;
}

// As workspace_entries(), of the model's own memory.
std::vector<TensorEntry> entries_in_place(const ParameterStore& parameters, const Tensor& weights) {
  const std::span<const std::byte> all(static_cast<const std::byte*>(weights.raw()),
                                       weights.bytes());
  std::vector<TensorEntry> entries;
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const std::span<const std::byte> bytes =
        parameters.trainable(id)
            ? part_of(all, parameters, id)
            : std::span(static_cast<const std::byte*>(parameters.value(id).raw()),
                        bytes_of(parameters, id));
    entries.push_back(
        {parameters.name(id), weights.dtype(), file_dims(parameters.shape(id)), bytes});
  }
  return entries;
}

// Adds a copy of the trainable parameters, and the frozen ones where they are: training does not
// change them, and the file keeps their memory.
void copy_trainable(Context& context, const ParameterStore& parameters, const Tensor& weights,
                    const HostAllocator& allocate, TensorFile& file) {
  HostBuffer& copy = file.storage.emplace_back(allocate(weights.bytes()));
  context.to_host(weights.detach(), copy.data(), copy.size());
  const std::span<const std::byte> bytes = copy.bytes();
  file.entries = entries_in_place(parameters, weights);
  for (size_t i = 0; i < parameters.count(); ++i) {
    const auto id = static_cast<ParamId>(i);
    if (parameters.trainable(id)) {
      file.entries[i].data = part_of(bytes, parameters, id);
      continue;
    }
    const Tensor value = parameters.value(id).detach();
    file.storage.emplace_back(static_cast<std::byte*>(value.raw()), value.bytes(),
                              [value](std::byte*) {});
  }
}

// The file without its float tensors.
TensorFile described_model(const Model& model, const SafetensorsMetadata& metadata) {
  TensorFile file;
  file.metadata = metadata;
  file.metadata[kModelConfigKey] = to_json(model.config());
  if (model.adapter()) file.metadata[kAdapterKey] = to_json(*model.adapter());
  if (!model.origin().vocabulary.empty())
    file.metadata.emplace(kTokenizerKey, model.origin().vocabulary);
  if (model.tokens()) file.metadata[kTokensKey] = tokens_to_json(*model.tokens());
  if (!model.labels().empty()) file.metadata[kLabelsKey] = Json(model.labels()).dump();
  return file;
}

}  // namespace

void write_model(ByteSink& sink, Context& context, const Model& model, const Tensor& weights,
                 const SafetensorsMetadata& metadata) {
  const ParameterStore& parameters = model.parameters();
  if (!is_readable(context, parameters, weights))
    return copy_model(context, model, weights, metadata).write(sink);
  TensorFile file = described_model(model, metadata);
  file.entries = entries_in_place(parameters, weights);
  file.write(sink);
}

TensorFile copy_model(Context& context, const Model& model, const Tensor& weights,
                      const SafetensorsMetadata& metadata, const HostAllocator& allocate) {
  TensorFile file = described_model(model, metadata);
  const ParameterStore& parameters = model.parameters();
  if (is_readable(context, parameters, weights)) {
    copy_trainable(context, parameters, weights, allocate, file);
    return file;
  }
  file.entries =
      workspace_entries(context, parameters, weights, "", file.storage.emplace_back(), allocate);
  if (parameters.has_int8())
    add_int8_entries(context, parameters, file.codes, file.entries, file.metadata);
  if (parameters.base_precision() != BasePrecision::none) {
    add_base_entries(context, parameters, file.codes, file.entries);
    file.metadata[kQuantizationKey] = kBaseQuantization;
  }
  return file;
}

void save_model(const std::filesystem::path& path, Context& context, const Model& model,
                const SafetensorsMetadata& metadata) {
  AtomicFile file(path);
  write_model(file, context, model, metadata);
  file.commit();
}

ModelConfig read_model_config(const SafetensorsReader& reader) {
  const auto found = reader.metadata().find(kModelConfigKey);
  require(found != reader.metadata().end(), ErrorCode::corrupt_file, kModelIoOrigin, reader.label(),
          " has no '", kModelConfigKey, "' in its metadata: it is not a model of this program");
  try {
    ModelConfig config = model_config_from_json(found->second);
    config.factor_ranks = read_factor_ranks(reader);
    return config;
  } catch (const Error& error) {
    fail(ErrorCode::corrupt_file, kModelIoOrigin, reader.label(), ": ", error.message());
  }
}

std::string read_vocabulary_checksum(const SafetensorsReader& reader) {
  const auto found = reader.metadata().find(kTokenizerKey);
  if (found == reader.metadata().end()) return {};
  const std::string& text = found->second;
  const bool is_checksum =
      text.size() == 8 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
  require(is_checksum, ErrorCode::corrupt_file, kModelIoOrigin, reader.label(), ": ", kTokenizerKey,
          " is no checksum: ", quote(text));
  return text;
}

std::string describe_differences(const ModelConfig& saved, const ModelConfig& given) {
  const Json a = parse_json(to_json(saved), kModelIoOrigin, "model configuration");
  const Json b = parse_json(to_json(given), kModelIoOrigin, "model configuration");
  const JsonFields before(a, kModelIoOrigin, "model configuration"),
      now(b, kModelIoOrigin, "model configuration");
  std::string text;
  // A field that is left out has its default.
  const auto value_in = [](const JsonFields& fields, const std::string& name) {
    return fields.has(name) ? fields.at(name).dump() : std::string("the default");
  };
  const auto compare = [&](const std::string& name) {
    const std::string there = value_in(before, name), here = value_in(now, name);
    if (there != here)
      text += concat(text.empty() ? "" : "; ", name, " is ", there, " in the checkpoint, ", here,
                     " here");
  };
  for (const auto& [name, value] : before.members()) compare(name);
  for (const auto& [name, value] : now.members())
    if (!before.has(name)) compare(name);
  const auto form = [](const ModelConfig& config, const std::string& matrix) {
    const auto rank = config.factor_ranks.find(matrix);
    return rank == config.factor_ranks.end() ? std::string("whole")
                                             : concat("of rank ", rank->second);
  };
  for (const ModelConfig* config : {&saved, &given})
    for (const auto& [matrix, rank] : config->factor_ranks)
      if (form(saved, matrix) != form(given, matrix))  // one is enough to say
        return concat(text, text.empty() ? "" : "; ", matrix, " is ", form(saved, matrix),
                      " in the checkpoint, ", form(given, matrix), " here");
  return text;
}

MetaModel read_meta_model(const SafetensorsReader& reader) {
  const ModelConfig config = read_model_config(reader);
  const bool has_codes = stored_weights(reader) != StoredWeights::floats;
  const DType stored = has_codes ? DType::f32 : stored_dtype(reader);
  check_untensored(reader, spec_of(config), stored);
  MetaModel meta;
  try {
    meta = make_meta_model(config, stored);
  } catch (const Error& error) {
    // A sum of sizes that overflows, or one that no address space holds.
    if (error.code() != ErrorCode::invalid_argument && error.code() != ErrorCode::out_of_memory)
      throw;
    fail(ErrorCode::corrupt_file, kModelIoOrigin, reader.label(), ": ", error.message());
  }
  if (const auto adapter = read_adapter_config(reader, *meta.model))
    add_adapter(*meta.context, *meta.model, *adapter, 0);
  check_model(reader, meta.model->parameters());
  return meta;
}

std::unique_ptr<Model> load_model(Context& context, const SafetensorsReader& reader,
                                  std::optional<DType> dtype, bool int8_weights) {
  const MetaModel meta = read_meta_model(reader);
  const DType stored = meta.model->parameters().master().dtype();
  require(!dtype || stat_dtype(*dtype) == stored, ErrorCode::unsupported, kModelIoOrigin,
          reader.label(), " holds ", dtype_name(stored), " weights, of which no ",
          dtype_name(dtype.value_or(stored)), " model is made");
  const BasePrecision base = meta.model->config().base_precision;
  require(!int8_weights || base == BasePrecision::none, ErrorCode::unsupported, kModelIoOrigin,
          reader.label(), " has frozen matrices in ", enum_name(base),
          ", of which no int8 weights are made: merge its adapter into the float model");
  const bool int8 = int8_weights || stored_weights(reader) != StoredWeights::floats;
  std::unique_ptr<Model> model =
      make_model(context, meta.model->config(), std::nullopt, dtype.value_or(stored), int8);
  if (meta.model->adapter()) add_adapter(context, *model, *meta.model->adapter(), 0);
  if (int8)
    read_int8_weights(context, reader, *model);
  else if (base != BasePrecision::none)
    read_weights(context, reader, model->parameters());
  else
    read_new_weights(context, reader, model->parameters());
  model->set_origin({reader.label(), read_vocabulary_checksum(reader)});
  read_tokens(reader, *model);
  read_labels(reader, *model);
  return model;
}

std::unique_ptr<Model> load_model(Context& context, const std::filesystem::path& path,
                                  std::optional<DType> dtype, bool int8_weights) {
  return load_model(context, open_model(path, ElementTypes::ours_and_codes), dtype, int8_weights);
}

namespace {

// Reads the weights into their place where that is memory of the host, so that they are in memory
// once: a file that does not fit or is damaged is found before.
void replace_weights(Context& context, const SafetensorsReader& reader,
                     ParameterStore& parameters) {
  if (cpu_thread_pool(context.backend()) == nullptr || parameters.has_master() ||
      parameters.has_codes())
    return read_weights(context, reader, parameters);
  const std::string no_prefix;
  check_tensors(reader, parameters, {&no_prefix, 1});
  reader.verify();
  read_new_weights(context, reader, parameters);
}

}  // namespace

void load_pretrained(Context& context, const SafetensorsReader& reader, Model& model) {
  require(!reader.metadata().contains(kAdapterKey) && !model.adapter(), ErrorCode::invalid_argument,
          kModelIoOrigin, reader.label(),
          ": weights to begin with are those of a model without an adapter, for one without; "
          "translate-train merge writes a model with its adapter merged");
  const ParameterStore& parameters = model.parameters();
  std::string misfit;
  for (size_t i = 0; i < parameters.count() && misfit.empty(); ++i) {
    const auto id = static_cast<ParamId>(i);
    const TensorInfo* info = reader.find(parameters.name(id));
    if (info == nullptr)
      misfit = concat("it lacks the tensor ", parameters.name(id));
    else if (info->shape != file_dims(parameters.shape(id)))
      misfit =
          concat("its ", info->name, " is ", Shape(std::span<const int64_t>(info->shape)).str(),
                 ", the model's ", parameters.shape(id).str());
  }
  for (const TensorInfo& info : reader.tensors())
    if (misfit.empty() && parameters.find(info.name) == kNoParam)
      misfit = concat("it has the tensor ", info.name, ", the model has none of this name");
  ModelConfig saved = read_model_config(reader);
  const ModelConfig& given = model.config();
  saved.dropout = given.dropout;
  saved.attention_dropout = given.attention_dropout;
  saved.ffn_dropout = given.ffn_dropout;
  saved.max_positions = given.max_positions;
  saved.depth_scaled_init = given.depth_scaled_init;
  if (!stores_codes(reader)) saved.base_precision = given.base_precision;
  const std::string differences = describe_differences(saved, given);
  require(misfit.empty() && differences.empty(), ErrorCode::invalid_argument, kModelIoOrigin,
          reader.label(), " is not for this model: ", misfit,
          misfit.empty() || differences.empty() ? "" : "; ", differences);
  replace_weights(context, reader, model.parameters());
  read_labels(reader, model);
  std::optional<VocabularyTokens> own = model.tokens();
  read_tokens(reader, model);
  if (!own) return;
  // The program has said which they are; what is around a text belongs to the weights.
  own->frame = model.tokens()->frame;
  if (own->special.bos < 0) own->frame.begin = false;
  model.set_tokens(std::move(own));
}

void stage_weights(const SafetensorsReader& reader, Model& model, StagedTensors& staged) {
  const ModelConfig saved = read_model_config(reader);
  require(saved == model.config(), ErrorCode::invalid_argument, kModelIoOrigin, reader.label(),
          " holds another model: ", describe_differences(saved, model.config()));
  require_same_adapter(reader, model);
  stage_master(reader, model.parameters(), staged);
}

void load_weights(Context& context, const SafetensorsReader& reader, Model& model) {
  StagedTensors staged;
  stage_weights(reader, model, staged);
  staged.commit(context);
  model.parameters().follow_master(context);
}

}  // namespace trafo
