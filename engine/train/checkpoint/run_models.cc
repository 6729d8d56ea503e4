#include "engine/train/checkpoint/run_models.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "engine/core/limits.h"
#include "engine/io/checkpoint_directory.h"
#include "engine/io/manifest.h"
#include "engine/io/temporary_name.h"
#include "engine/train/checkpoint/checkpoint_files.h"
#include "engine/train/checkpoint/run_directory.h"
#include "engine/train/checkpoint/state.h"

namespace trafo {
namespace {

constexpr const char* kRunModelsOrigin = "run directory";

// The update of the best checkpoint, or why there is none; `updates` are those that there are.
struct BestUpdate {
  std::optional<int64_t> update;
  std::string why;
};

// The newest checkpoint whose state is whole, as a run that resumes passes over damaged ones.
std::pair<int64_t, SavedState> newest_state(const CheckpointDirectory& checkpoints,
                                            const std::vector<int64_t>& updates) {
  for (auto update = updates.rbegin();; ++update) {
    try {
      const std::string text = checkpoints.read_text(*update, kStateFile, limits::kConfigBytes);
      return {*update, decode_state(text, (checkpoints.path(*update) / kStateFile).string())};
    } catch (const Error&) {
      if (std::next(update) == updates.rend()) throw;
    }
  }
}

BestUpdate best_update(const std::filesystem::path& run, const CheckpointDirectory& checkpoints,
                       const std::vector<int64_t>& updates) {
  const auto [newest, saved] = newest_state(checkpoints, updates);
  // A metric that judges nothing, as BLEU of scripts without spaces, has no best value.
  const auto& metrics = saved.state.best;
  const auto first = std::find_if(metrics.begin(), metrics.end(),
                                  [](const auto& metric) { return metric.second.has_value(); });
  if (first == metrics.end())
    return {
        .update = {},
        .why = concat(run.string(), " has no best model: the run had not validated when update ",
                      newest, " was saved; load the last one")};
  const auto& [metric, best] = *first;
  if (!std::binary_search(updates.begin(), updates.end(), best->update))
    return {.update = {},
            .why = concat(run.string(), " has no best model: update ", best->update,
                          " was the best by ", metric,
                          ", and its checkpoint was not kept (keep_best)")};
  return {.update = best->update, .why = {}};
}

}  // namespace

std::filesystem::path run_model_file(const std::filesystem::path& run_directory, RunModel which) {
  require(std::filesystem::is_directory(run_directory), ErrorCode::not_found, kRunModelsOrigin,
          run_directory.string(), ": there is no such directory");
  if (which == RunModel::averaged) {
    const auto file = run_directory / "ckpt" / kAveragedFolder / kModelFile;
    require(std::filesystem::exists(file), ErrorCode::not_found, kRunModelsOrigin,
            run_directory.string(),
            " has no averaged model: train with average_last, or run translate-train average");
    return file;
  }
  const CheckpointDirectory checkpoints(run_directory);
  const std::vector<int64_t> updates = checkpoints.list();
  require(!updates.empty(), ErrorCode::not_found, kRunModelsOrigin, run_directory.string(),
          " has no checkpoint");
  if (which == RunModel::last) return checkpoints.path(updates.back()) / kModelFile;
  const BestUpdate best = best_update(run_directory, checkpoints, updates);
  require(best.update.has_value(), ErrorCode::not_found, kRunModelsOrigin, best.why);
  return checkpoints.path(*best.update) / kModelFile;
}

std::filesystem::path checkpoint_model_file(const std::filesystem::path& run_directory,
                                            const std::string& name) {
  if (name == kAveragedFolder) return run_model_file(run_directory, RunModel::averaged);
  require(std::filesystem::is_directory(run_directory), ErrorCode::not_found, kRunModelsOrigin,
          run_directory.string(), ": there is no such directory");
  const CheckpointDirectory checkpoints(run_directory);
  std::optional<int64_t> update = parse_decimal(name);
  if (!update && is_plain_name(name)) update = checkpoints.read_pointer(name);
  const auto file = update ? checkpoints.path(*update) / kModelFile : std::filesystem::path();
  require(update && std::filesystem::exists(file), ErrorCode::not_found, kRunModelsOrigin,
          run_directory.string(), " has no checkpoint ", name);
  return file;
}

std::filesystem::path find_model_file(const std::filesystem::path& path) {
  require(std::filesystem::exists(path), ErrorCode::not_found, kRunModelsOrigin, path.string(),
          ": there is no such file or directory");
  if (!std::filesystem::is_directory(path)) return path;
  const auto file = path / kModelFile;
  if (std::filesystem::exists(file)) return file;
  const CheckpointDirectory checkpoints(path);
  const std::vector<int64_t> updates = checkpoints.list();
  require(!updates.empty(), ErrorCode::not_found, kRunModelsOrigin, path.string(),
          " has no checkpoint");
  const BestUpdate best = best_update(path, checkpoints, updates);
  return checkpoints.path(best.update.value_or(updates.back())) / kModelFile;
}

}  // namespace trafo
