// The checkpoints of a training run, in place and beside the training.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/io/byte_sink.h"
#include "engine/train/checkpoint/background_save.h"
#include "engine/train/checkpoint/run_directory.h"
#include "engine/train/run/run_events.h"
#include "engine/train/run/run_parts.h"
#include "engine/train/run/validation.h"

namespace trafo {

class Validator;

class Checkpointer {
 public:
  // Without a run directory nothing is saved. With peers, functions that read or write are
  // collective, and rank 0 alone has the files. All must outlive it.
  Checkpointer(const RunParts& parts, RunIdentity identity, UpdateBatches& batches,
               RunEvents& events, const std::optional<std::filesystem::path>& run_directory);

  // Opens the run directory, and restores its newest complete checkpoint or begins anew.
  void restore();
  bool resumed() const { return resumed_; }
  // The checkpoint that the run resumed from; empty: it is new.
  std::string resumed_from() const;
  const std::vector<Error>& refused() const { return refused_; }  // newer ones that are damaged
  std::string unprotected() const { return directory_ ? directory_->unprotected() : std::string(); }
  const RunIdentity& identity() const { return identity_; }

  // The whole run as bytes. UNSUPPORTED with peers.
  void write_stream(ByteSink& sink);
  // restore_checkpoint(), and the GEMM kernels where there are some.
  void read_stream(const CheckpointContent& content, const std::optional<GemmCache>& kernels,
                   const SeekFunction& seek);
  void require_alone(const char* what) const;

  bool has_directory() const { return run_directory_.has_value(); }
  void note_change() { changed_ = true; }
  // If there is a run directory.
  void make_due() { due_ = due_ || has_directory(); }
  bool is_due() const { return due_; }
  // Saves if something has changed since the last save.
  void save(RunSession& session);
  // Waits for the save in flight, if there is one, and reports it. After an error, the run as it is
  // by then is to be saved.
  void finish_save(RunSession& session);
  // The error that ends a run also says that the save in flight has failed.
  void finish_save_after(const Error& error, RunSession& session);
  bool background_save_done() const { return background_save_.done(); }

  // Averages the newest checkpoints at the end of a run, and measures the average.
  void average(RunSession& session, Validator& validator);
  // The path, or empty: nothing was written.
  std::string write_hypotheses(const ValidationResult& result);

 private:
  void open();
  std::optional<GemmCache> restore_alone();
  std::optional<GemmCache> restore_together();
  void require_same_weights();
  void tidy(const RunState& state);
  void save_in_place(RunSession& session);
  void save_files();
  void save_together();
  void start_save(RunSession& session);
  bool saves_in_background() const;
  TrainEvent saved_event(int64_t update) const;
  void average_files(RunSession& session, Validator& validator);

  RunParts run_;
  RunIdentity identity_;
  UpdateBatches& batches_;
  RunEvents& events_;
  std::optional<std::filesystem::path> run_directory_;
  std::optional<RunDirectory> directory_;  // on rank 0
  BackgroundSave background_save_;         // its destructor waits, before directory_ goes
  int64_t background_update_ = 0;          // of the save in flight
  bool resumed_ = false;
  std::vector<Error> refused_;
  bool changed_ = false;  // since the last save
  bool due_ = false;
  int64_t averaged_update_ = -1;  // the newest update when the average was written
};

}  // namespace trafo
