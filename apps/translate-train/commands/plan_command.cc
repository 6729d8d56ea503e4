#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands/adapters.h"
#include "commands/commands.h"
#include "commands/device.h"
#include "engine/os/names.h"
#include "report/reporter.h"
#include "settings/setting_flags.h"
#include "settings/setting_types.h"
#include "settings/train_config.h"
#include "text/text_io.h"

namespace translate_train {
namespace {

using Json = nlohmann::ordered_json;

struct PlanArguments {
  FlagValues values;
  int64_t sentence_length = 32;
  int64_t nodes = 1;
  bool json = false;
};

std::vector<trafo_device_info> cuda_devices() {
  int32_t count = 0;
  check(trafo_device_count(TRAFO_DEVICE_CUDA, &count, nullptr));
  std::vector<trafo_device_info> devices(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i)
    check(trafo_device_get_info(TRAFO_DEVICE_CUDA, i, &devices[static_cast<size_t>(i)],
                                sizeof(trafo_device_info)));
  return devices;
}

struct RankPlan {
  std::string device;
  int64_t node = 0;
  trafo_memory_plan plan{};
};

// A plan that is wanted, for any rank.
struct PlanRequest {
  const TrainConfig& config;
  const trafo_model_config* teacher;  // may be null
  const std::vector<std::string>& frozen;
  const std::optional<AdapterSettings>& adapter;
  int64_t sentence_length;
  int64_t nodes;
};

trafo_memory_plan plan_of_rank(const PlanRequest& request, size_t rank, size_t ranks) {
  const int64_t tokens = request.config.trainer.batch_tokens;
  const int64_t sentences = std::max<int64_t>(1, tokens / request.sentence_length);
  const std::vector<trafo_string_view> patterns = views(request.frozen);
  trafo_memory_plan plan{};
  const int64_t source_tokens = has_encoder(request.config.model) ? tokens : 0;
  const auto of_rank = static_cast<int32_t>(rank), size = static_cast<int32_t>(ranks);
  const auto hosts = static_cast<int32_t>(request.nodes);
  if (request.teacher)
    check(trafo_plan_distillation(&request.config.model, request.teacher, &request.config.trainer,
                                  patterns.data(), patterns.size(), of_rank, size, hosts, sentences,
                                  source_tokens, tokens, &plan, sizeof plan));
  else if (const auto& adapter = request.adapter)
    check(trafo_plan_adapter(&request.config.model, &request.config.trainer, adapter->rank,
                             adapter->targets.data(), adapter->targets.size(), of_rank, size, hosts,
                             sentences, source_tokens, tokens, &plan, sizeof plan));
  else
    check(trafo_plan_training_of_rank(&request.config.model, &request.config.trainer,
                                      patterns.data(), patterns.size(), of_rank, size, hosts,
                                      sentences, source_tokens, tokens, &plan, sizeof plan));
  return plan;
}

// With batch_fit, which is then off: the batch is the one that fits all ranks.
std::vector<RankPlan> plan_ranks(TrainConfig& config, const Settings& settings,
                                 const PlanRequest& request) {
  std::vector<std::string> devices{"cuda"};
  if (settings.has(Setting::devices)) devices = devices_of(settings);
  if (devices[0] == "cpu") settings.refuse(Setting::devices, "plan is for GPUs, got cpu");
  const size_t ranks = devices.size() * static_cast<size_t>(request.nodes);
  if (config.trainer.batch_fit && ranks > 1) {
    int64_t tokens = INT64_MAX;
    for (size_t rank = 0; rank < ranks; ++rank)
      tokens = std::min(tokens, plan_of_rank(request, rank, ranks).batch_tokens);
    config.trainer.batch_fit = 0;
    config.trainer.batch_tokens = tokens;
  }
  std::vector<RankPlan> plans;
  for (size_t rank = 0; rank < ranks; ++rank)
    plans.push_back({devices[rank % devices.size()], static_cast<int64_t>(rank / devices.size()),
                     plan_of_rank(request, rank, ranks)});
  return plans;
}

bool fits(const trafo_memory_plan& plan) {
  return plan.limit_bytes == 0 || plan.total_bytes <= plan.limit_bytes;
}

Json json_of(const trafo_memory_plan& plan) {
  return {{"weights_bytes", plan.weights_bytes},         {"gradients_bytes", plan.gradients_bytes},
          {"optimizer_bytes", plan.optimizer_bytes},     {"teacher_bytes", plan.teacher_bytes},
          {"activations_bytes", plan.activations_bytes}, {"total_bytes", plan.total_bytes}};
}

int plan(const CLI::App& app, const PlanArguments& arguments) {
  Settings settings = given_settings(app, arguments.values);
  std::optional<trafo_model_config> teacher;
  if (settings.has(Setting::teacher)) {
    const std::string& given = settings.program.teacher;
    if (!std::filesystem::exists(trafo::os::path_of(given)))
      settings.refuse(Setting::teacher, given + ": no such file or directory");
    ModelArguments model;
    model.model = model.vocabulary = given;  // no vocabulary is needed
    teacher = config_of_file(find_model(model).model);
    settings.set_default(Setting::dim_vocabs, {std::to_string(teacher->vocabulary)});
  }
  fill_defaults(settings, nullptr, 0);
  TrainConfig config = resolve(settings, nullptr);
  config.model.vocabulary = settings.program.dim_vocabs;
  const std::string& precision = settings.program.precision;
  const bool fp8 = precision == "fp8", bf16 = fp8 || precision == "auto" || precision == "bf16";
  config.model.precision = bf16 ? TRAFO_BFLOAT16 : TRAFO_FLOAT32;
  config.trainer.tf32 = precision == "tf32";
  config.trainer.fp8 = fp8;
  if (arguments.sentence_length < 1) usage_error("--sentence-length: must be at least 1");
  if (arguments.sentence_length > config.model.max_positions)
    usage_error(
        fmt::format("--sentence-length: {} is more than the {} positions of the model, "
                    "give a larger --max-length",
                    arguments.sentence_length, config.model.max_positions));
  if (config.trainer.batch_fit && config.trainer.memory_limit == 0)
    usage_error("--mini-batch-fit: wants a --memory-limit, because no device is asked here");
  const std::vector<std::string>& frozen = settings.program.freeze;
  const std::optional<AdapterSettings> adapter = planned_adapter(settings);
  const PlanRequest request{config,  teacher ? &*teacher : nullptr, frozen,
                            adapter, arguments.sentence_length,     arguments.nodes};
  const std::vector<RankPlan> ranks = plan_ranks(config, settings, request);
  const RankPlan& largest = *std::max_element(
      ranks.begin(), ranks.end(),
      [](const RankPlan& a, const RankPlan& b) { return a.plan.total_bytes < b.plan.total_bytes; });
  const bool all_fit = fits(largest.plan);
  const int64_t tokens = largest.plan.batch_tokens;
  const std::string computes_in = precision == "auto" ? "bf16" : precision;
  const std::vector<trafo_device_info> devices = cuda_devices();
  LineWriter out("-");
  if (arguments.json) {
    Json json{{"task", text_of(Setting::task, settings)},
              {"architecture", text_of(Setting::arch, settings)},
              {"batch_tokens", tokens},
              {"sentence_length", arguments.sentence_length},
              {"precision", computes_in},
              {"recompute", text_of(Setting::recompute, settings)},
              {"freeze", frozen},
              {"lora_rank", adapter ? adapter->rank : 0},
              {"base_precision", text_of(Setting::base_precision, settings)}};
    json.update(json_of(largest.plan));
    json["limit_bytes"] = largest.plan.limit_bytes;
    json["fits"] = all_fit;
    if (ranks.size() > 1) json["ranks"] = Json::array();
    for (size_t rank = 0; ranks.size() > 1 && rank < ranks.size(); ++rank) {
      json["ranks"].push_back({{"device", ranks[rank].device}, {"node", ranks[rank].node}});
      json["ranks"].back().update(json_of(ranks[rank].plan));
    }
    json["devices"] = Json::array();
    for (const trafo_device_info& info : devices)
      json["devices"].push_back({{"name", info.name}, {"memory_bytes", info.memory_bytes}});
    out.write(json.dump());
    out.finish();
    return all_fit ? kDone : kOutOfMemory;
  }
  const auto row = [&](const char* name, int64_t bytes) {
    out.show(fmt::format("{:<12} {:>14}", name, mebibytes(bytes)));
  };
  out.show(fmt::format("{} {}, {} words in sentences of {}, {}, recompute {}",
                       text_of(Setting::task, settings), text_of(Setting::arch, settings),
                       grouped(tokens), grouped(arguments.sentence_length), computes_in,
                       text_of(Setting::recompute, settings)));
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const trafo_memory_plan& plan = ranks[rank].plan;
    if (ranks.size() > 1)
      out.show(
          fmt::format("rank {} of {}, on {}{}", rank, ranks.size(), ranks[rank].device,
                      arguments.nodes > 1 ? fmt::format(" of node {}", ranks[rank].node) : ""));
    row("weights", plan.weights_bytes);
    row("gradients", plan.gradients_bytes);
    row("optimizer", plan.optimizer_bytes);
    if (teacher) row("teacher", plan.teacher_bytes);
    row("activations", plan.activations_bytes);
    row("in all", plan.total_bytes);
    if (plan.limit_bytes > 0) out.show(fits(plan) ? "fits the limit" : "is over the limit");
  }
  for (size_t i = 0; i < devices.size(); ++i)
    out.show(
        fmt::format("cuda:{} {} has {}", i, devices[i].name, mebibytes(devices[i].memory_bytes)));
  return all_fit ? kDone : kOutOfMemory;
}

}  // namespace

Action add_plan(CLI::App& app) {
  auto arguments = std::make_shared<PlanArguments>();
  for (const SettingSpec& spec : setting_specs())
    if (spec.in_plan) add_setting(app, spec, arguments->values);
  app.add_option("--sentence-length", arguments->sentence_length,
                 "tokens of a sentence of the batch that is planned")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--nodes", arguments->nodes,
                 "the number of nodes, each with the GPUs of --devices: several exchange gradients "
                 "in other ways, which takes other memory")
      ->type_name("N")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_flag("--json", arguments->json, "one JSON object");
  app.footer("The memory that training takes on a GPU, which need not be there.");
  return [&app, arguments] { return plan(app, *arguments); };
}

}  // namespace translate_train
