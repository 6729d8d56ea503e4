#include "engine/train/parallel/run_group.h"

#include <sys/utsname.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "engine/core/version.h"
#include "engine/decode/packing.h"
#include "engine/io/checksum.h"
#include "engine/models/model_io.h"
#include "engine/train/run/generated/train_options_fields.h"
#include "engine/train/run/run.h"

namespace trafo {
namespace {

constexpr const char* kRunGroupOrigin = "training run";

// Options that change no bit and no order of events: they may differ.
bool may_differ(std::string_view option) {
  return option == "memory_limit" || option == "recompute";
}

std::vector<GroupField> option_fields(const TrainOptions& options) {
  std::vector<GroupField> fields;
  for_each_field_of_training(options, [&]<class T>(const OptionField& field, const T& value) {
    if (may_differ(field.name)) return;
    std::string text;
    if constexpr (std::is_same_v<T, Period>)
      text = to_string(value);
    else if constexpr (std::is_same_v<T, std::vector<std::string>>)
      for (const std::string& each : value) text += text.empty() ? each : " " + each;
    else {
      Json json;
      write_option(json, field, value);
      text = json.find(field.json_key())->dump();
    }
    fields.emplace_back(field.name, text);
  });
  return fields;
}

std::string on_off(bool on) {
  return on ? "on" : "off";
}

// What rank 0 says to all others. Collective.
std::string from_root(const std::string& text, const TrainingGroup& group) {
  return group.communicator->host_all_gather(group.rank == 0 ? text : std::string()).front();
}

// Two ranks on one GPU would take twice its memory and no less time. Processes may number GPUs
// differently; NCCL finds what this does not. Collective; all ranks throw alike.
void require_own_gpu(Device device, const TrainingGroup& group) {
  utsname host{};
  ::uname(&host);
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string name = device_name(device);
  const std::vector<std::string> devices = group.communicator->host_all_gather(
      concat(name, " of ", host.nodename, "\n", visible ? visible : "all"));
  for (auto other = devices.begin(); other != devices.end(); ++other) {
    const auto first = std::find(devices.begin(), other, *other);
    if (first != other)
      throw AgreedError(ErrorCode::invalid_argument, kRunGroupOrigin,
                        concat("ranks ", first - devices.begin(), " and ", other - devices.begin(),
                               " are both on ", other->substr(0, other->find(" of ")),
                               ": each needs a GPU of its own"));
  }
}

}  // namespace

void compare_ranks(const Context& context, const TrainingData& data, const Model& model,
                   const TrainOptions& options, bool has_directory, const TrainingGroup& group) {
  const auto checksum = [](uint64_t fingerprint) {
    char digits[16];
    return std::string(digits, std::to_chars(digits, std::end(digits), fingerprint, 16).ptr);
  };
  std::vector<GroupField> fields{
      {"the release", kVersion},
      {"the transport", group.communicator->transport()},
      {"the kind of device", context.device().kind == DeviceKind::cpu ? "cpu" : "cuda"},
      {"the option fused kernels", on_off(context.fused_kernels())},
      {"the model's configuration", to_json(model.config())},
      {"the model's data type", dtype_name(model.parameters().dtype())},
      {"the set of frozen parameters and factors", parameter_groups_json(model.parameters())},
      {"the teacher (the checksum of its weights)",
       model.teacher() ? model.teacher()->checksum : std::string()},
      {"the training corpus (its fingerprint)", checksum(data.train->fingerprint())},
      {"the validation corpus (its fingerprint)",
       data.valid ? checksum(data.valid->fingerprint()) : std::string()},
      {"the tokenizer (its checksum)",
       data.tokenizer ? vocabulary_checksum(*data.tokenizer) : std::string()},
      {"the use of a run directory", on_off(has_directory)},
      {"the start from a file of a model", on_off(!model.origin().file.empty())},
  };
  for (GroupField& field : option_fields(options)) fields.push_back(std::move(field));
  require_same(*group.communicator, fields);
  if (context.device().kind == DeviceKind::cuda) require_own_gpu(context.device(), group);
  // All ranks throw these alike.
  if (options.lanes > 1 && options.lanes < group.size)
    throw AgreedError(ErrorCode::invalid_argument, kRunGroupOrigin,
                      concat("lanes is ", options.lanes, " and the group has ", group.size,
                             " ranks: each needs a lane of its own"));
  // Before the memory is planned: links between the devices take some.
  group.communicator->attach(context.backend());
}

std::optional<SavedSizes> sizes_of_root(const std::optional<std::filesystem::path>& run_directory,
                                        const TrainingGroup& group) {
  std::optional<SavedSizes> saved;
  if (run_directory && group.rank == 0) saved = saved_sizes(*run_directory);
  if (!group.has_peers()) return saved;
  std::string text;
  if (saved)
    text = Json(Json::Object{{"batch_tokens", saved->batch_tokens},
                             {"lanes", saved->lanes},
                             {"phase", saved->phase}})
               .dump();
  text = from_root(text, group);
  if (text.empty()) return std::nullopt;
  const Json json = parse_json(text, kRunGroupOrigin, "the sizes of rank 0");
  const JsonFields fields(json, kRunGroupOrigin, "the sizes of rank 0");
  saved.emplace();
  fields.take("batch_tokens", saved->batch_tokens);
  fields.take("lanes", saved->lanes);
  fields.take("phase", saved->phase);
  return saved;
}

int64_t least_of_all(int64_t value, const TrainingGroup& group) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  for (const std::string& other : group.communicator->host_all_gather(bytes)) {
    int64_t theirs = 0;
    require(other.size() == sizeof theirs, ErrorCode::internal, kRunGroupOrigin,
            "another rank sent no number");
    std::memcpy(&theirs, other.data(), sizeof theirs);
    value = std::min(value, theirs);
  }
  return value;
}

bool leave_unless_agreed(Communicator* group) noexcept {
  if (group == nullptr) return false;
  try {
    throw;
  } catch (const AgreedError&) {
    return false;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::non_finite) return false;
    if (error.code() != ErrorCode::peer_lost) group->abort(error.what());
  } catch (const std::exception& error) {
    group->abort(error.what());
  } catch (...) {
    group->abort("an exception");
  }
  return true;
}

// --- TrainingRun with peers ---

// Rank 0 reads the checkpoint. The others get the state, then their optimizer states and the
// weights.
std::optional<GemmCache> TrainingRun::restore_together() {
  Communicator& group = *group_.communicator;
  constexpr const char* kLabel = "the state of rank 0";
  std::string kernels;
  if (group_.rank == 0) {
    std::optional<RunDirectory::Checkpoint> checkpoint;
    bool told = false;
    std::optional<Error> error;
    try {
      const auto seek = [&](RunState& state) {
        this->seek(state);
        agree(group, std::nullopt);
        told = true;
        from_root(encode_state(state, identity_), group_);
      };
      if (directory_) checkpoint = directory_->restore(context_, model_, trainer_, identity_, seek);
    } catch (const Error& failed) {
      if (told || failed.code() == ErrorCode::peer_lost) throw;
      error = failed;
    }
    if (!told) {
      agree(group, error);
      from_root({}, group_);
    } else {
      state_ = std::move(checkpoint->state);
      refused_ = std::move(checkpoint->refused);
      resumed_ = true;
      if (checkpoint->kernels) kernels = encode_gemm_cache(*checkpoint->kernels);
    }
  } else {
    agree(group, std::nullopt);
    const std::string text = from_root({}, group_);
    if (!text.empty()) {
      state_ = decode_state(text, kLabel).state;
      batcher_.seek(state_.position);
      resumed_ = true;
    }
  }
  if (!resumed_) return std::nullopt;
  trainer_.follow_root();
  if (group_.rank != 0) trainer_.resume_from(state_.trainer);
  kernels = from_root(kernels, group_);
  if (kernels.empty()) return std::nullopt;
  return decode_gemm_cache(kernels, "the GEMM kernels of rank 0");
}

void TrainingRun::require_same_weights() {
  const ParameterStore& parameters = model_.parameters();
  uint32_t sum = 0;
  const auto add = [&](const Tensor& tensor) {
    HostBuffer bytes(tensor.bytes());
    context_.to_host(tensor.detach(), bytes.data(), bytes.size());
    sum = crc32(bytes.bytes(), sum);
  };
  add(parameters.master());
  for (size_t i = 0; i < parameters.count(); ++i)
    if (const auto id = static_cast<ParamId>(i); !parameters.trainable(id))
      add(parameters.value(id));
  require_same(*group_.communicator,
               std::vector<GroupField>{{"the checksum of the model's weights", crc32_text(sum)}});
}

void TrainingRun::save_together() {
  trainer_.complete_weights();
  trainer_.gather_optimizer();
  try {
    agree_after(*group_.communicator, [this] {
      if (directory_) save_files();
    });
  } catch (...) {
    trainer_.drop_gathered();
    throw;
  }
  trainer_.drop_gathered();
}

// Each rank measures its part. The values of rank 0 count, as its host has computed them.
std::optional<ValidationResult> TrainingRun::validate_together() {
  trainer_.complete_weights();
  Communicator& group = *group_.communicator;
  ValidationPart own;
  agree_after(group, [&] {
    const EmaWeights weights(trainer_);
    own = validate_part(context_, model_, data_, options_, nullptr, group_, step_graphs());
  });
  std::vector<ValidationPart> parts;
  for (const std::string& bytes : group.host_all_gather(encode_part(own)))
    parts.push_back(decode_part(bytes));
  ValidationResult result = join_parts(parts, data_, options_, threads_for_lines(context_));
  std::string bytes(result.values.size() * sizeof(double), '\0');
  std::memcpy(bytes.data(), result.values.data(), bytes.size());
  bytes = from_root(bytes, group_);
  require(bytes.size() == result.values.size() * sizeof(double), ErrorCode::internal,
          kRunGroupOrigin, "rank 0 has measured other metrics");
  std::memcpy(result.values.data(), bytes.data(), bytes.size());
  return result;
}

void TrainingRun::write_hypotheses(const ValidationResult& result, TrainEvent& event) {
  const auto write = [&] {
    if (!directory_ || result.hypotheses.empty()) return;
    // A line for each line of the validation set: those with an empty side have no hypothesis.
    std::vector<std::string> lines = result.hypotheses;
    if (!data_.valid_lines.empty()) {
      lines.assign(static_cast<size_t>(data_.valid_line_count), {});
      for (size_t pair = 0; pair < result.hypotheses.size(); ++pair)
        lines[static_cast<size_t>(data_.valid_lines[pair])] = result.hypotheses[pair];
    }
    event.path = directory_->write_hypotheses(state_.trainer.update, lines).string();
  };
  if (group_.has_peers())
    agree_after(*group_.communicator, write);
  else
    write();
}

// All ranks vote on whether to end, between two updates.
void TrainingRun::vote(Session& session) {
  if (!group_.has_peers()) return;
  const char ballot[] = {session.stop ? '1' : '0', session.asks_for_cancel() ? '1' : '0'};
  session.any_stop = session.any_cancelled = session.vote_due = false;
  for (const std::string& each :
       group_.communicator->host_all_gather(std::string_view(ballot, sizeof ballot))) {
    session.any_stop = session.any_stop || each.starts_with('1');
    session.any_cancelled = session.any_cancelled || each.ends_with('1');
  }
}

}  // namespace trafo
