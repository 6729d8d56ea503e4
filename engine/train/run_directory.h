// The files of a training run:
//
//   RUN/ckpt/UPDATE/{model.safetensors, optimizer.safetensors, state.json}
//   RUN/ckpt/UPDATE/unsmoothed.safetensors
//                                 under ema_alpha: the weights that training goes on
//                                 with; model.safetensors are those to use
//   RUN/ckpt/averaged/model.safetensors
//                                 the mean of the newest checkpoints, if it was asked for
//   RUN/latest, RUN/best-METRIC   text: an UPDATE
//   RUN/valid/UPDATE.hyp          translations of the validation sources, a line each
//   RUN/gemm-cache             the kernels of matrix products, if they were measured
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
#include "engine/train/checkpoint_files.h"

namespace trafo {

inline constexpr const char* kAveragedFolder = "averaged";

// What stands under kTokenizerKey.
std::string tokenizer_checksum(const Tokenizer& tokenizer);

// TrainOptions::batch_tokens of the newest checkpoint that can be read; touches nothing.
std::optional<int64_t> saved_batch_tokens(const std::filesystem::path& run_directory);

class RunDirectory {
 public:
  // Creates it if needed, locks it against other processes while this lives, and cleans up what
  // dead ones left. IO if it cannot be written.
  explicit RunDirectory(const std::filesystem::path& path);

  struct Checkpoint {
    RunState state;
    std::vector<Error> refused;  // newer ones that are damaged
  };
  // The newest complete checkpoint, checked against `identity` and the model's configuration; none
  // if the directory has no checkpoint at all. If it has some but all are damaged: CORRUPT_FILE.
  // Nothing of trainer, model and data has changed if it throws.
  std::optional<Checkpoint> restore(Context& context, Model& model, Trainer& trainer,
                                    const RunIdentity& identity, const SeekFunction& seek) const;

  void save(Context& context, const Model& model, const Trainer& trainer, const RunState& state,
            const RunIdentity& identity);
  // Points best-METRIC where `state` says, and deletes all but the newest `keep_last` checkpoints
  // and, if `keep_best`, the best ones.
  void tidy(const RunState& state, bool keep_best, int64_t keep_last);

  // Writes RUN/ckpt/averaged/model.safetensors.
  struct Average {
    std::filesystem::path path;
    std::vector<int64_t> updates;  // of which it is the mean, ascending
  };
  Average average(int64_t newest) const;

  // Returns the file's path.
  std::filesystem::path write_hypotheses(int64_t update, std::span<const std::string> lines) const;
  std::filesystem::path checkpoint_path(int64_t update) const { return checkpoints_.path(update); }

 private:
  std::filesystem::path path_;
  DirectoryLock lock_;
  CheckpointDirectory checkpoints_;
};

}  // namespace trafo
