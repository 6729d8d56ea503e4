#include "engine/train/checkpoint/checkpoint_files.h"

#include <memory>

#include "engine/core/argument_error.h"
#include "engine/core/strings/json.h"
#include "engine/io/checksum.h"
#include "engine/io/manifest.h"
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"

namespace trafo {
namespace {

constexpr const char* kCheckpointFilesOrigin = "checkpoint";
constexpr std::string_view kStreamMagic = "trafo checkpoint ";
constexpr std::string_view kStreamFormat = "1";

using CopyFile = std::function<TensorFile(const HostAllocator& allocate)>;

// The files in their order. as_file(name, copy) makes one of tensors, state_file makes the file of
// the state.
template <class AsFile>
std::vector<CheckpointFile> all_files(Context& context, const Model& model, const Trainer& trainer,
                                      const RunIdentity& identity, CheckpointFile state_file,
                                      AsFile&& as_file) {
  const CopyFile weights = [&](const HostAllocator& allocate) {
    SafetensorsMetadata metadata;
    if (!identity.tokenizer.empty()) metadata[kTokenizerKey] = identity.tokenizer;
    return copy_model(context, model, trainer.ema_weights(), metadata, allocate);
  };
  const CopyFile optimizer = [&](const HostAllocator& allocate) {
    return trainer.optimizer_file().copy(allocate);
  };
  const CopyFile unsmoothed = [&](const HostAllocator& allocate) {
    return copy_model(context, model, model.parameters().master(), {}, allocate);
  };
  std::vector<CheckpointFile> files = {as_file(kModelFile, weights),
                                       as_file(kOptimizerFile, optimizer), std::move(state_file)};
  if (trainer.ema().defined()) files.push_back(as_file(kUnsmoothedFile, unsmoothed));
  return files;
}

// The data of a run are made in its frame, and a program that gives the batches has no other record
// of it.
void require_same_frame(const CheckpointContent& content, const Model& model) {
  const auto frame_of = [](const std::optional<VocabularyTokens>& tokens) {
    return tokens ? tokens->frame : TextFrame();
  };
  const TextFrame before = frame_of(saved_tokens(content.weights));
  const TextFrame now = frame_of(model.tokens());
  const auto compare = [&](const char* name, bool was, bool is) {
    const auto state = [](bool on) { return on ? "on" : "off"; };
    require_argument(was == is, kCheckpointFilesOrigin, name, " was ", state(was), " and is ",
                     state(is), " now: ", content.label,
                     " cannot be continued with other tokens around the sources");
  };
  compare("begin_source", before.begin, now.begin);
  compare("end_source", before.end, now.end);
}

}  // namespace

std::vector<CheckpointFile> checkpoint_files(Context& context, const Model& model,
                                             const Trainer& trainer, const RunState& state,
                                             const RunIdentity& identity) {
  CheckpointFile state_file{kStateFile,
                            [&](ByteSink& sink) { sink.write(encode_state(state, identity)); }};
  return all_files(context, model, trainer, identity, std::move(state_file),
                   [](const char* name, const CopyFile& copy) {
                     return CheckpointFile{
                         name, [copy](ByteSink& sink) { copy(plain_host_buffer).write(sink); }};
                   });
}

std::vector<CheckpointFile> copied_checkpoint_files(Context& context, const Model& model,
                                                    const Trainer& trainer, const RunState& state,
                                                    const RunIdentity& identity,
                                                    const HostAllocator& allocate) {
  CheckpointFile state_file{
      kStateFile, [text = encode_state(state, identity)](ByteSink& sink) { sink.write(text); }};
  return all_files(context, model, trainer, identity, std::move(state_file),
                   [&](const char* name, const CopyFile& copy) {
                     const auto file = std::make_shared<const TensorFile>(copy(allocate));
                     return CheckpointFile{name, [file](ByteSink& sink) { file->write(sink); }};
                   });
}

RunState restore_checkpoint(Context& context, Model& model, Trainer& trainer,
                            const RunIdentity& identity, const CheckpointContent& content,
                            const SeekFunction& seek) {
  SavedState saved = decode_state(content.state, content.label + "/" + kStateFile);
  require(!content.update || saved.state.trainer.update == *content.update, ErrorCode::corrupt_file,
          kCheckpointFilesOrigin, content.label, " holds the state of update ",
          saved.state.trainer.update);
  // Checked before the options, because a different model explains different options.
  const std::string differences =
      describe_differences(read_model_config(content.weights), model.config());
  const std::string field = differences.substr(0, differences.find(' '));
  require_argument(differences.empty(), kCheckpointFilesOrigin, field,
                   differences.substr(field.size()), ": ", content.label, " holds another model");
  require_same_adapter(content.weights, model);
  if (identity.phase == saved.identity.phase) require_same_frame(content, model);
  adopt_state(saved, identity, content.label);
  StagedTensors staged;
  trainer.optimizer_file().stage(content.optimizer, staged);
  if (trainer.ema().defined()) {
    const StagingTarget mean = trainer.ema();
    const std::string no_prefix;
    stage_workspaces(model.parameters(), content.weights, {&mean, 1}, {&no_prefix, 1}, staged);
    stage_weights(content.unsmoothed(), model, staged);
  } else {
    stage_weights(content.weights, model, staged);
  }
  seek(saved.state);
  staged.commit(context);
  trainer.resume_from(saved.state.trainer);
  model.parameters().follow_master(context);
  return std::move(saved.state);
}

CheckpointFile gemm_cache_file(const GemmCache& kernels) {
  return {kGemmCacheFile, [&](ByteSink& sink) { sink.write(encode_gemm_cache(kernels)); }};
}

void write_checkpoint_stream(ByteSink& sink, std::span<const CheckpointFile> files) {
  std::vector<std::vector<std::byte>> contents;
  for (const CheckpointFile& file : files) {
    MemorySink memory;
    file.write(memory);
    contents.push_back(memory.take());
  }
  Json::List list;
  for (size_t i = 0; i < files.size(); ++i)
    list.push_back(Json::Object{{"bytes", contents[i].size()},
                                {"crc32", crc32_text(crc32(contents[i]))},
                                {"name", files[i].name}});
  sink.write(std::string(kStreamMagic) + std::string(kStreamFormat) + "\n" + Json(list).dump() +
             "\n");
  for (const std::vector<std::byte>& content : contents) sink.write(content);
}

CheckpointStream::CheckpointStream(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
  const auto damaged = [](const auto&... why) {
    fail(ErrorCode::corrupt_file, kCheckpointFilesOrigin, "the stream ", why...);
  };
  if (!text.starts_with(kStreamMagic)) damaged("is not a checkpoint");
  const size_t first = text.find('\n');
  if (first == text.npos) damaged("ends in its first line");
  const std::string_view format =
      text.substr(kStreamMagic.size(), first - kStreamMagic.size()).substr(0, 16);
  require(format == kStreamFormat, ErrorCode::version, kCheckpointFilesOrigin,
          "the stream has the format ", format, ", this library reads ", kStreamFormat);
  const size_t second = text.substr(0, first + 1 + limits::kConfigBytes).find('\n', first + 1);
  if (second == text.npos) damaged("ends in its list of files");
  size_t at = second + 1;
  constexpr std::string_view kLabel = "the stream's list of files";
  const Json json =
      parse_json(text.substr(first + 1, second - first - 1), kCheckpointFilesOrigin, kLabel);
  const auto* list = json.as<Json::List>();
  if (list == nullptr || list->size() > limits::kCheckpointFiles)
    damaged("has no list of at most ", limits::kCheckpointFiles, " files");
  for (const Json& each : *list) {
    const JsonFields entry(each, kCheckpointFilesOrigin, kLabel);
    std::string name, sum;
    uint64_t size = 0;
    entry.take("name", name);
    entry.take("bytes", size);
    entry.take("crc32", sum);
    if (!is_plain_name(name)) damaged("has a file with a name that is not allowed");
    if (size > bytes_.size() - at) damaged("ends in ", name);
    const auto content = std::span<const std::byte>(bytes_).subspan(at, size);
    if (crc32_text(crc32(content)) != sum) {
      const bool has_tensors = std::string_view(name).ends_with(".safetensors");
      const std::string found = has_tensors ? safetensors_damage(content) : std::string();
      damaged("is damaged in ", name, found.empty() ? "" : ": ", found);
    }
    files_.emplace_back(name, content);
    at += size;
  }
  if (at != bytes_.size()) damaged("goes on after its last file");
}

std::span<const std::byte> CheckpointStream::at(std::string_view name) const {
  for (const auto& [file, content] : files_)
    if (file == name) return content;
  fail(ErrorCode::corrupt_file, kCheckpointFilesOrigin, "the stream has no ", name);
}

std::optional<GemmCache> CheckpointStream::kernels() const {
  for (const auto& [file, content] : files_)
    if (file == kGemmCacheFile)
      return decode_gemm_cache({reinterpret_cast<const char*>(content.data()), content.size()},
                               kGemmCacheFile);
  return std::nullopt;
}

CheckpointContent CheckpointStream::content() const {
  const std::span<const std::byte> state = at(kStateFile);
  return {"the checkpoint",
          std::string(reinterpret_cast<const char*>(state.data()), state.size()),
          std::nullopt,
          SafetensorsReader::from_memory(at(kModelFile), kModelFile, ElementTypes::ours_and_codes),
          SafetensorsReader::from_memory(at(kOptimizerFile), kOptimizerFile),
          [this] {
            return SafetensorsReader::from_memory(at(kUnsmoothedFile), kUnsmoothedFile,
                                                  ElementTypes::ours_and_codes);
          }};
}

}  // namespace trafo
