#include "engine/train/checkpoint/run_directory.h"

#include <algorithm>
#include <functional>
#include <string>
#include <system_error>

#include "engine/core/strings/json.h"
#include "engine/io/atomic_file.h"
#include "engine/io/descriptor.h"
#include "engine/metrics/registry.h"
#include "engine/train/checkpoint/average.h"

namespace trafo {
namespace {

constexpr const char* kRunDirectoryOrigin = "run directory";

bool is_number(const std::string& name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
}

// The first file or folder of `folder` that a run would overwrite; empty: there is none.
std::filesystem::path overwritten_in(
    const std::filesystem::path& folder,
    const std::function<bool(const std::filesystem::path&)>& overwrites) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    if (overwrites(entry.path().filename())) return entry.path();
  return {};
}

// A directory without a checkpoint and without the lock file of an earlier run may be anything. A
// run begins there only if it overwrites nothing.
void refuse_to_overwrite(const std::filesystem::path& run) {
  std::error_code none;
  if (std::filesystem::exists(run / ".lock", none) || !CheckpointDirectory(run).list().empty())
    return;
  using Path = std::filesystem::path;
  const auto pointer_or_cache = [](const Path& name) {
    return name == "latest" || name == kGemmCacheFile || name.string().starts_with("best-");
  };
  const auto checkpoint = [](const Path& name) {
    return is_number(name.string()) || name == kAveragedFolder;
  };
  const auto hypotheses = [](const Path& name) {
    return name.extension() == ".hyp" && is_number(name.stem().string());
  };
  for (const Path& found :
       {overwritten_in(run, pointer_or_cache), overwritten_in(run / "ckpt", checkpoint),
        overwritten_in(run / "valid", hypotheses)})
    require(found.empty(), ErrorCode::invalid_argument, kRunDirectoryOrigin, found.string(),
            ": a run would overwrite it, and no run has written it; move it away, or give another "
            "run directory");
}

const std::filesystem::path& claimed(const std::filesystem::path& path) {
  ensure_directory(path);
  refuse_to_overwrite(path);
  return path;
}

}  // namespace

std::optional<SavedSizes> saved_sizes(const std::filesystem::path& run_directory) {
  const CheckpointDirectory checkpoints(run_directory);
  const std::vector<int64_t> updates = checkpoints.list();
  for (auto update = updates.rbegin(); update != updates.rend(); ++update) {
    try {
      const std::string text = checkpoints.read_text(*update, kStateFile, limits::kConfigBytes);
      const SavedState saved = decode_state(text, kStateFile);
      const Json options = parse_json(saved.identity.options, kRunDirectoryOrigin, kStateFile);
      const JsonFields fields(options, kRunDirectoryOrigin, kStateFile);
      SavedSizes sizes;
      fields.take("batch_tokens", sizes.batch_tokens);
      if (fields.has("lanes")) fields.take("lanes", sizes.lanes);
      sizes.phase = saved.identity.phase;
      return sizes;
    } catch (const Error&) {  // damaged: restore() says so
    }
  }
  return std::nullopt;
}

RunDirectory::RunDirectory(const std::filesystem::path& path)
    : given_(path),
      path_(std::filesystem::absolute(path)),
      lock_(claimed(path_)),
      checkpoints_(path_) {
  checkpoints_.remove_leftovers();
  const bool keeps_names = sync_directory(path_);
  if (!lock_.is_held())
    unprotected_ =
        "it has no file locks (flock), so a second process that writes to this directory is not "
        "refused, and removes checkpoints that are being written";
  if (!lock_.is_durable() || !keeps_names)
    unprotected_ += concat(unprotected_.empty() ? "" : "; ", "it has no fsync of ",
                           lock_.is_durable() ? "directories" : "files",
                           ", so a power failure may lose checkpoints that were saved");
  if (!unprotected_.empty())
    unprotected_ = concat("the file system of ", given_.string(), ": ", unprotected_);
}

std::optional<RunDirectory::Checkpoint> RunDirectory::restore(Context& context, Model& model,
                                                              Trainer& trainer,
                                                              const RunIdentity& identity,
                                                              const SeekFunction& seek) const {
  NewestValid newest = checkpoints_.newest_valid();
  if (!newest.update) {
    if (newest.refused.empty()) return std::nullopt;
    fail(ErrorCode::corrupt_file, kRunDirectoryOrigin, path_.string(), " has ",
         newest.refused.size(),
         " checkpoints and none is whole; the newest: ", newest.refused.front().message());
  }
  const std::filesystem::path folder = checkpoints_.path(*newest.update);
  const CheckpointContent content{
      folder.string(),
      checkpoints_.read_text(*newest.update, kStateFile, limits::kConfigBytes),
      newest.update,
      SafetensorsReader::open_no_follow(folder / kModelFile),
      SafetensorsReader::open_no_follow(folder / kOptimizerFile),
      [&] { return SafetensorsReader::open_no_follow(folder / kUnsmoothedFile); }};
  std::optional<GemmCache> kernels;
  if (context.backend().gemm_tuner()) kernels = read_gemm_cache(kernels_path());
  return Checkpoint{restore_checkpoint(context, model, trainer, identity, content, seek),
                    std::move(newest.refused), std::move(kernels)};
}

void RunDirectory::save(int64_t update, std::span<const CheckpointFile> files,
                        const std::optional<GemmCache>& kernels) {
  // It is not made anew, without what else belongs into it.
  require(std::filesystem::is_directory(path_), ErrorCode::io, kRunDirectoryOrigin, path_.string(),
          " was moved or removed while the run wrote to it; saving works again once it is back");
  // Before the checkpoint that was computed with them.
  if (kernels) write_gemm_cache(*kernels, kernels_path());
  checkpoints_.save(update, files);
}

void RunDirectory::tidy(const RunState& state, bool keep_best, int64_t keep_last) {
  point("latest", state.trainer.update);
  std::vector<int64_t> keep = state.kept;
  for (const Metric& metric : metrics()) {
    const auto judged = [&](const auto& entry) {
      return entry.first == metric.name && entry.second.has_value();
    };
    if (std::ranges::none_of(state.best, judged))  // that of an earlier phase or validation
      checkpoints_.remove_pointer(concat("best-", metric.name));
  }
  if (keep_best) {
    const std::vector<int64_t> present = checkpoints_.list();
    for (const auto& [metric, best] : state.best) {
      if (!best || !std::binary_search(present.begin(), present.end(), best->update)) continue;
      keep.push_back(best->update);
      point("best-" + metric, best->update);
    }
  }
  checkpoints_.remove_old(keep_last, keep);
}

void RunDirectory::point(const std::string& name, int64_t update) const {
  try {
    if (checkpoints_.read_pointer(name) == update) return;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt_file) throw;
  }
  checkpoints_.write_pointer(name, update);
}

std::filesystem::path RunDirectory::shown(const std::filesystem::path& path) const {
  return given_ / path.lexically_relative(path_);
}

RunDirectory::Average RunDirectory::average(int64_t newest) const {
  Average result;
  result.updates = checkpoints_.list();
  const auto surplus = static_cast<int64_t>(result.updates.size()) - newest;
  if (surplus > 0) result.updates.erase(result.updates.begin(), result.updates.begin() + surplus);
  std::vector<std::filesystem::path> models;
  for (const int64_t update : result.updates)
    models.push_back(checkpoints_.path(update) / kModelFile);
  const std::filesystem::path folder = path_ / "ckpt" / kAveragedFolder;
  ensure_own_directory(folder);
  result.path = folder / kModelFile;
  average_models(models, result.path);
  result.path = shown(result.path);
  return result;
}

std::filesystem::path RunDirectory::write_hypotheses(int64_t update,
                                                     std::span<const std::string> lines) const {
  const std::filesystem::path folder = path_ / "valid";
  ensure_own_directory(folder);
  std::string text;
  for (const std::string& line : lines) {
    text += line;
    // Byte tokens can spell a line end, which would shift every line after it.
    std::replace(text.end() - static_cast<std::ptrdiff_t>(line.size()), text.end(), '\n', ' ');
    text += '\n';
  }
  const std::filesystem::path file = folder / (std::to_string(update) + ".hyp");
  write_file_atomically(file, text);
  return shown(file);
}

}  // namespace trafo
