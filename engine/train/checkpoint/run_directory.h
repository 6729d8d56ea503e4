// The files of a training run:
//
//   RUN/ckpt/UPDATE/{model.safetensors, optimizer.safetensors, state.json}
//   RUN/ckpt/UPDATE/unsmoothed.safetensors
//                                 with an EMA of the weights: the weights that training
//                                 continues with; model.safetensors has the EMA
//   RUN/ckpt/averaged/model.safetensors
//                                 the average of the newest checkpoints (average_last)
//   RUN/latest, RUN/best-METRIC   text: an UPDATE
//   RUN/valid/UPDATE.hyp          translations of the validation sources, a line each
//   RUN/gemm-cache                the measured GEMM kernels
//
// Other files of the directory (logs, the resolved configuration, the vocabulary) are the caller's.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/io/checkpoint_directory.h"
#include "engine/io/file_lock.h"
#include "engine/train/checkpoint/checkpoint_files.h"
#include "engine/train/step/gemm_cache.h"

namespace trafo {

inline constexpr const char* kAveragedFolder = "averaged";

// Options of the newest checkpoint that can be read; changes nothing.
struct SavedSizes {
  int64_t batch_tokens = 0, lanes = 1, phase = 1;
};
std::optional<SavedSizes> saved_sizes(const std::filesystem::path& run_directory);

class RunDirectory {
 public:
  // Creates the directory if needed, locks it against other processes, and removes leftovers of
  // processes that died. IO if it cannot be written. INVALID_ARGUMENT names a file that a run would
  // overwrite, in a directory that no run has used.
  explicit RunDirectory(const std::filesystem::path& path);

  // The dangers that the file system of the directory does not protect the run against, for a
  // warning. Empty if it has all operations.
  const std::string& unprotected() const { return unprotected_; }

  struct Checkpoint {
    RunState state;
    std::vector<Error> refused;  // newer ones that are damaged
    std::optional<GemmCache> kernels;
  };
  // Restores the newest complete checkpoint, after checking `identity` and the model's
  // configuration. No value if the directory has no checkpoint; CORRUPT_FILE if it has some but all
  // are damaged. If it throws, trainer, model and data are unchanged.
  std::optional<Checkpoint> restore(Context& context, Model& model, Trainer& trainer,
                                    const RunIdentity& identity, const SeekFunction& seek) const;

  // Without a value for `kernels`, those of the directory stay. save() and tidy() may run on
  // another thread than the constant functions.
  void save(int64_t update, std::span<const CheckpointFile> files,
            const std::optional<GemmCache>& kernels);
  // After a save or a restore: `latest` and the best-METRIC files name the checkpoints of `state`.
  // All but the newest `keep_last` checkpoints and, if `keep_best`, the best ones are deleted.
  void tidy(const RunState& state, bool keep_best, int64_t keep_last);

  // Writes RUN/ckpt/averaged/model.safetensors.
  struct Average {
    std::filesystem::path path;
    std::vector<int64_t> updates;  // the averaged ones, ascending
  };
  Average average(int64_t newest) const;

  // Returns the file's path.
  std::filesystem::path write_hypotheses(int64_t update, std::span<const std::string> lines) const;
  std::filesystem::path kernels_path() const { return path_ / kGemmCacheFile; }

 private:
  void point(const std::string& name, int64_t update) const;
  // A path of this directory as the caller knows it: relative if the given one was.
  std::filesystem::path shown(const std::filesystem::path& path) const;

  std::filesystem::path given_, path_;  // path_ is absolute: the process may change its folder
  DirectoryLock lock_;
  CheckpointDirectory checkpoints_;
  std::string unprotected_;
};

}  // namespace trafo
