#include "engine/train/parallel/run_group.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "engine/core/version.h"
#include "engine/models/model_io.h"
#include "engine/os/process.h"
#include "engine/train/run/generated/train_options_fields.h"

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

// Two ranks on one GPU would take twice its memory and no less time. Processes may number GPUs
// differently; NCCL finds what this does not. Collective; all ranks throw alike.
void require_own_gpu(Device device, const TrainingGroup& group) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string name = device_name(device);
  const std::vector<std::string> devices = group.communicator->host_all_gather(
      concat(name, " of ", os::host_name(), "\n", visible ? visible : "all"));
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
  const auto checksum_of = [&](FrozenRole role) {
    return data.frozen && data.frozen->role == role ? data.frozen->checksum : std::string();
  };
  std::vector<GroupField> fields{
      {"the release", kVersion},
      {"the transport", group.communicator->transport()},
      {"the kind of device", context.device().kind == DeviceKind::cpu ? "cpu" : "cuda"},
      {"the option fused kernels", on_off(context.fused_kernels())},
      {"the model's configuration", to_json(model.config())},
      {"the model's data type", dtype_name(model.parameters().dtype())},
      {"the set of frozen parameters and factors", parameter_groups_json(model.parameters())},
      {"the teacher (the checksum of its weights)", checksum_of(FrozenRole::teacher)},
      {"the reference (the checksum of its weights)", checksum_of(FrozenRole::reference)},
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

std::string from_root(const std::string& text, const TrainingGroup& group) {
  return group.communicator->host_all_gather(group.rank == 0 ? text : std::string()).front();
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

}  // namespace trafo
